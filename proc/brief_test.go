package proc

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// shortCommands are commands that end while they are watched, or a little after that, in
// each way that their pipes can: with nothing in them, with all that they hold and more,
// closed early, and held by somebody else.
func shortCommands() map[string]shortCommand {
	commands := map[string]shortCommand{
		"closes stdout early": {"echo early; exec >&-; sleep 0.005; exit 3", "early\n", "", 3},
		"closes both early":   {"exec >&- 2>&-; sleep 0.005; exit 4", "", "", 4},
		"leaves a holder":     {"(sleep 0.05) & echo first; exit 5", "first\n", "", 5},
		"holder of stderr":    {"(exec >&-; sleep 0.05) & echo first; exit 6", "first\n", "", 6},
		"writes in turns":     {"echo a; echo b >&2; sleep 0.002; echo c; echo d >&2", "a\nc\n", "b\nd\n", 0},
	}
	for _, size := range []int{0, 1, 4095, 4096, 65535, 65536, 65537, 131072, 300_000} {
		commands[fmt.Sprint("writes ", size)] = shortCommand{
			fmt.Sprintf("head -c %d /dev/zero | tr '\\0' x; head -c %d /dev/zero | tr '\\0' y >&2; exit 7", size, size/2),
			strings.Repeat("x", size), strings.Repeat("y", size/2), 7,
		}
	}
	return commands
}

type shortCommand struct {
	line           string
	stdout, stderr string
	code           int
}

// tryExec is exec for any goroutine. What was heard is nil where nothing has started.
func tryExec(t *testing.T, table *Table, line string) (*heard, error) {
	_, a, err := table.Exec(within(t), shell(line), AttachOptions{})
	if err != nil {
		return nil, err
	}
	defer a.Close()
	h := newHeard()
	return h, h.listen(within(t), a)
}

// Many short commands at once, each way of ending among them, lose nothing and get
// nothing of each other's.
func TestManyShortCommandsAtOnce(t *testing.T) {
	table := newTable(t)
	var running sync.WaitGroup
	slots := make(chan struct{}, 24)
	for range 12 {
		for name, c := range shortCommands() {
			slots <- struct{}{}
			running.Go(func() {
				defer func() { <-slots }()
				h, err := tryExec(t, table, c.line)
				if err != nil || h.exit == nil || h.exit.Code != c.code {
					t.Errorf("%s: %+v, %v, want exit code %d", name, h, err, c.code)
					return
				}
				if h.text(Stdout) != c.stdout || h.text(Stderr) != c.stderr {
					t.Errorf("%s: %d and %d bytes of output, want %d and %d", name,
						len(h.text(Stdout)), len(h.text(Stderr)), len(c.stdout), len(c.stderr))
				}
			})
		}
	}
	running.Wait()
}

// Where no descriptor is left a start fails, or what it saves one with is done without,
// and later ones are none the worse.
func TestShortCommandsWithoutDescriptors(t *testing.T) {
	table := newTable(t)
	exec(t, table, shell("true"))
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	used := countDescriptors()
	for spare := range 12 {
		low := unix.Rlimit{Cur: uint64(used + spare), Max: limit.Max}
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &low); err != nil {
			t.Fatal(err)
		}
		var running sync.WaitGroup
		for range 6 {
			running.Go(func() {
				h, err := tryExec(t, table, "echo here; exit 2")
				if h == nil {
					return // err says so
				}
				if err != nil || h.exit == nil || h.exit.Code != 2 || h.text(Stdout) != "here\n" {
					t.Errorf("with %d descriptors to spare: ended with %+v, %v, and wrote %q", spare, h.exit, err, h.text(Stdout))
				}
			})
		}
		running.Wait()
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
			t.Fatal(err)
		}
		if h := exec(t, table, shell("echo again")); h.text(Stdout) != "again\n" {
			t.Errorf("afterwards a command wrote %q", h.text(Stdout))
		}
	}
}
