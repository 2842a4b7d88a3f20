#include "textflag.h"

#define SYS_rt_sigprocmask 14
#define SYS_exit 60
#define SYS_clone3 435
#define SIG_SETMASK 2

// func vfork(args *cloneArgs, size uintptr, steps *step, count uintptr, masks *[2]uint64, failed *syscall.Errno) (pid uintptr)
//
// The child runs on the parent's stack, on which it writes nothing. All its registers but
// three are kept by the kernel from one call to the next.
TEXT ·vfork(SB), NOSPLIT, $0-56
	CALL	runtime·entersyscall(SB)
	MOVQ	$SIG_SETMASK, DI
	MOVQ	masks+32(FP), SI
	LEAQ	8(SI), DX
	MOVQ	$8, R10
	MOVQ	$SYS_rt_sigprocmask, AX
	SYSCALL

	MOVQ	args+0(FP), DI
	MOVQ	size+8(FP), SI
	MOVQ	$SYS_clone3, AX
	SYSCALL
	TESTQ	AX, AX
	JZ	child

	MOVQ	AX, pid+48(FP)
	MOVQ	$SIG_SETMASK, DI
	MOVQ	masks+32(FP), SI
	ADDQ	$8, SI
	MOVQ	$0, DX
	MOVQ	$8, R10
	MOVQ	$SYS_rt_sigprocmask, AX
	SYSCALL
	CALL	runtime·exitsyscall(SB)
	RET

child:
	MOVQ	steps+16(FP), BX
	MOVQ	count+24(FP), R13
next:
	MOVQ	0(BX), AX
	MOVQ	8(BX), DI
	MOVQ	16(BX), SI
	MOVQ	24(BX), DX
	MOVQ	32(BX), R10
	MOVQ	$0, R8
	MOVQ	$0, R9
	SYSCALL
	CMPQ	AX, $-4095
	JCC	error
done:
	ADDQ	$48, BX
	DECQ	R13
	JNZ	next
	JMP	exit
error:
	CMPB	40(BX), $0 // optional
	JNE	done
	NEGQ	AX
	MOVQ	failed+40(FP), CX
	MOVQ	AX, (CX)
exit:
	MOVQ	$127, DI
	MOVQ	$SYS_exit, AX
	SYSCALL
	JMP	exit
