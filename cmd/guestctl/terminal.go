package main

import (
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"guestd.internal/client"
)

func isTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }

// isRaw tells whether a file is a terminal in raw mode, where a line end alone leaves the cursor in
// its column.
func isRaw(f *os.File) bool {
	state, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil && state.Oflag&unix.OPOST == 0
}

// rawTerminal is a terminal whose keys all go to the guest, Ctrl-C included.
type rawTerminal struct {
	file    *os.File
	before  *term.State
	restore sync.Once
}

// makeRaw switches a terminal to raw mode. The caller defers close, which also runs when the verb panics.
func makeRaw(f *os.File) (*rawTerminal, error) {
	before, err := term.MakeRaw(int(f.Fd()))
	if err != nil {
		return nil, fmt.Errorf("switching the terminal to raw mode: %w", err)
	}
	return &rawTerminal{file: f, before: before}, nil
}

// close puts the terminal back as it was; a nil terminal and a second call do nothing.
func (t *rawTerminal) close() {
	if t == nil {
		return
	}
	t.restore.Do(func() {
		// A terminal that cannot be restored is one that is gone.
		_ = term.Restore(int(t.file.Fd()), t.before)
	})
}

// terminalSize is the size of the first of the files that is a terminal.
func terminalSize(files ...*os.File) (client.Size, bool) {
	for _, f := range files {
		if size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ); err == nil && size.Col > 0 {
			return client.Size{
				Rows: int(size.Row), Columns: int(size.Col), XPixels: int(size.Xpixel), YPixels: int(size.Ypixel),
			}, true
		}
	}
	return client.Size{}, false
}

// followSize tells the terminal's size whenever it changes, and once at the start since it may have
// changed meanwhile. Its goroutine ends with stop.
func (a *app) followSize(tell func(client.Size)) (stop func()) {
	changes := make(chan os.Signal, 1)
	signal.Notify(changes, syscall.SIGWINCH)
	changes <- syscall.SIGWINCH
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range changes {
			if size, ok := a.terminalSize(); ok {
				tell(size)
			}
		}
	}()
	return func() {
		signal.Stop(changes)
		close(changes)
		<-done
	}
}

func (a *app) terminalSize() (client.Size, bool) { return terminalSize(a.stdout, a.stdin, a.stderr) }
