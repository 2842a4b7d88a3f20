#include "textflag.h"

// func prlimit(resource uintptr, set, get *Limit) (errno uintptr)
TEXT ·prlimit(SB), NOSPLIT, $0-32
	MOVQ	$302, AX // SYS_prlimit64
	MOVQ	$0, DI
	MOVQ	resource+0(FP), SI
	MOVQ	set+8(FP), DX
	MOVQ	get+16(FP), R10
	SYSCALL
	NEGQ	AX
	MOVQ	AX, errno+24(FP)
	RET
