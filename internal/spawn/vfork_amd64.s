#include "textflag.h"

#define SYS_rt_sigprocmask 14
#define SYS_exit 60
#define SIG_SETMASK 2

// func vfork(clone, steps *step, count uintptr, masks *[2]uint64, failed *syscall.Errno) (pid uintptr)
//
// The child runs on the parent's stack, on which it writes nothing. All its registers but
// three are kept by the kernel from one call to the next.
TEXT ·vfork(SB), NOSPLIT, $0-48
	CALL	runtime·entersyscall(SB)
	MOVQ	$SIG_SETMASK, DI
	MOVQ	masks+24(FP), SI
	LEAQ	8(SI), DX
	MOVQ	$8, R10
	MOVQ	$SYS_rt_sigprocmask, AX
	SYSCALL

	MOVQ	clone+0(FP), BX
	MOVQ	0(BX), AX
	MOVQ	8(BX), DI
	MOVQ	16(BX), SI
	MOVQ	24(BX), DX
	MOVQ	32(BX), R10
	MOVQ	$0, R8
	SYSCALL
	TESTQ	AX, AX
	JZ	child

	MOVQ	AX, pid+40(FP)
	MOVQ	$SIG_SETMASK, DI
	MOVQ	masks+24(FP), SI
	ADDQ	$8, SI
	MOVQ	$0, DX
	MOVQ	$8, R10
	MOVQ	$SYS_rt_sigprocmask, AX
	SYSCALL
	CALL	runtime·exitsyscall(SB)
	RET

child:
	MOVQ	steps+8(FP), BX
	MOVQ	count+16(FP), R13
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
	NEGQ	AX
	MOVL	AX, 44(BX) // the step's failed
	CMPB	40(BX), $0 // optional
	JNE	done
	MOVQ	failed+32(FP), CX
	MOVQ	AX, (CX)
exit:
	MOVQ	$127, DI
	MOVQ	$SYS_exit, AX
	SYSCALL
	JMP	exit
