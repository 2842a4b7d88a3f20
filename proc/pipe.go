package proc

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"guestd.internal/internal/account"
)

// direction is where the bytes of a pipe go.
type direction int

const (
	inward  direction = iota // to the child: guestd's end is the one to write to
	outward                  // from the child
)

// pipe is a pipe between guestd and a child.
type pipe struct {
	own   int      // guestd's end, which is non-blocking
	child *os.File // the child's
}

// newPipe opens a pipe.
func newPipe(way direction) (pipe, error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return pipe{}, fmt.Errorf("opening a pipe: %w", err)
	}
	own, child := fds[0], fds[1]
	if way == inward {
		own, child = child, own
	}
	p := pipe{own: own, child: os.NewFile(uintptr(child), "pipe")}
	if _, err := unix.FcntlInt(uintptr(own), unix.F_SETFL, unix.O_NONBLOCK); err != nil { // a new pipe has no other flags
		p.close()
		return pipe{}, fmt.Errorf("opening a pipe: %w", err)
	}
	return p, nil
}

// giveTo makes a pipe the user's, who could not open /dev/stdout or /dev/stdin otherwise.
func (p pipe) giveTo(acc account.Account) error {
	if int(acc.UID) == os.Geteuid() {
		return nil
	}
	if err := unix.Fchown(p.own, int(acc.UID), int(acc.GID)); err != nil {
		return fmt.Errorf("giving a pipe to its user: %w", err)
	}
	return nil
}

func (p pipe) close() {
	_ = unix.Close(p.own)
	p.child.Close()
}

// readyPipes is how many outward pipes a table opens ahead: two for the next command.
// Opening them takes a twentieth of what a short command costs guestd.
const readyPipes = 2

// openPipes opens pipes ahead.
func (t *Table) openPipes() {
	for t.wantsPipe() {
		p, err := newPipe(outward)
		if err != nil {
			return // the start that needs one meets it, too, and tells it
		}
		t.mu.Lock()
		keep := !t.closed && len(t.pipes) < readyPipes
		if keep {
			t.pipes = append(t.pipes, p)
		}
		t.mu.Unlock()
		if !keep { // somebody else was faster
			p.close()
		}
	}
}

func (t *Table) wantsPipe() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.closed && len(t.pipes) < readyPipes
}

// takePipe returns an outward pipe.
func (t *Table) takePipe() (pipe, error) {
	t.mu.Lock()
	if last := len(t.pipes) - 1; last >= 0 {
		p := t.pipes[last]
		t.pipes = t.pipes[:last]
		t.mu.Unlock()
		return p, nil
	}
	t.mu.Unlock()
	return newPipe(outward)
}

// closePipes closes those that were opened ahead; mu is held.
func (t *Table) closePipes() {
	for _, p := range t.pipes {
		p.close()
	}
	t.pipes = nil
}
