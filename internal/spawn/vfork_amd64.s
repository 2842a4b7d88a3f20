#include "textflag.h"

// func clone3(args *cloneArgs, size uintptr) (pid uintptr)
//
// Parent and child return from it on the same stack, the child first. What the child
// does then overwrites the return address, and so the parent keeps it in a register,
// which the kernel preserves.
TEXT ·clone3(SB), NOSPLIT|NOFRAME, $0-24
	MOVQ	args+0(FP), DI
	MOVQ	size+8(FP), SI
	MOVQ	$435, AX // SYS_clone3
	MOVQ	(SP), R12
	SYSCALL
	MOVQ	R12, (SP)
	MOVQ	AX, pid+16(FP)
	RET
