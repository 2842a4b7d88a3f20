package spawn

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// The signals that C libraries keep for themselves (SIGCANCEL, SIGSETXID): no
// program means anything by them, but glibc's posix_spawn(3) starts programs with
// them ignored, make(1) among them, and what is ignored is inherited for ever.
var librarySignals = []uintptr{32, 33}

// sigaction is the kernel's struct of rt_sigaction(2): the handler comes first, and
// the rest is shorter than this on every architecture.
type sigaction struct {
	handler uintptr
	_       [64]byte
}

const (
	sigDefault = 0 // SIG_DFL
	sigIgnore  = 1 // SIG_IGN
	sigsetSize = 8 // of the kernel's signal set, in bytes
)

// setAction is rt_sigaction(2); nil is left out.
func setAction(sig uintptr, set, old *sigaction) error {
	_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, sig, uintptr(unsafe.Pointer(set)),
		uintptr(unsafe.Pointer(old)), sigsetSize, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// defaultLibrarySignals gives these signals their default disposition where they
// were ignored when guestd was started, so that children have it too.
// The os/signal package does not know them.
func defaultLibrarySignals() {
	for _, sig := range librarySignals {
		var action sigaction
		if err := setAction(sig, nil, &action); err == nil && action.handler == sigIgnore {
			_ = setAction(sig, &sigaction{handler: sigDefault}, nil) // as it was, at worst
		}
	}
}
