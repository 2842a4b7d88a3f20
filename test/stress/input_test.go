package stress

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"guestd.internal/client"
)

const (
	// inputAhead is how much of its input may be read from the user before a program has
	// read any: client and guestd hold 1 MiB each in advance, the pipe what a pipe
	// holds, and each has a block or two in its hands.
	inputAhead = 4 << 20
	// inputMemory is by how much guestd may grow while input goes through it.
	inputMemory = 16 << 20
)

// countedReader counts what is read of it.
type countedReader struct {
	io.Reader
	taken atomic.Int64
}

func (c *countedReader) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.taken.Add(int64(n))
	return n, err
}

// TestInputStreams sends input to programs that read it as fast as they can, or
// take their time: it arrives as it was sent, and guestd holds next to nothing of it.
func TestInputStreams(t *testing.T) {
	g := startGuestd(t)
	for _, reader := range []struct {
		name, role string
		bytes      int
	}{
		{"fast", "digest", rounds(256<<20, 4<<30)},
		{"slow", "sip", rounds(16<<20, 512<<20)},
	} {
		t.Run(reader.name, func(t *testing.T) {
			if out, err := g.client.Command("true").Output(t.Context()); err != nil || len(out) > 0 {
				t.Fatalf("%q, %v", out, err)
			}
			before := g.resident(t)
			argv, env := role(reader.role)
			cmd := g.client.Command(argv...)
			cmd.Env = []string{env}
			cmd.Stdin = io.LimitReader(noise(3), int64(reader.bytes))
			var out bytes.Buffer
			cmd.Stdout = &out
			begin := time.Now()
			if err := cmd.Start(within(t, 10*time.Minute)); err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- cmd.Wait() }()
			most, err := g.watchMemory(t, ended)
			if err != nil {
				t.Fatal(err)
			}
			if got, want := out.String(), hashOf(3, reader.bytes, ""); got != want {
				t.Errorf("the program read what has the hash %s, want %s", got, want)
			}
			t.Logf("%d MiB in %v; guestd had %d MiB, and %d at most", reader.bytes>>20,
				time.Since(begin).Round(time.Millisecond), before>>20, most>>20)
			if most > before+inputMemory && !raceDetector {
				t.Errorf("guestd has grown from %d to %d MiB", before>>20, most>>20)
			}
		})
	}
}

// watchMemory returns the most that guestd has been resident with until ended tells.
func (g *guestd) watchMemory(t *testing.T, ended <-chan error) (most int, err error) {
	t.Helper()
	for {
		select {
		case err := <-ended:
			return most, err
		case <-time.After(20 * time.Millisecond):
			most = max(most, g.resident(t))
		}
	}
}

// TestInputWaitsForItsReader gives a program that does not read yet far more input than
// anybody holds for it: the user's reader is left alone until the program reads.
func TestInputWaitsForItsReader(t *testing.T) {
	g := startGuestd(t)
	ready := filepath.Join(t.TempDir(), "ready")
	const size = 64 << 20
	in := &countedReader{Reader: io.LimitReader(noise(3), size)}
	cmd := g.client.Shell(`until [ -e "$R" ]; do sleep 0.05; done; exec sha256sum`)
	cmd.Env, cmd.Stdin = []string{"R=" + ready}, in
	var out bytes.Buffer
	cmd.Stdout = &out
	if err := cmd.Start(within(t, 5*time.Minute)); err != nil {
		t.Fatal(err)
	}
	last, since := int64(0), time.Now()
	eventually(t, "no more is read", func() bool {
		if taken := in.taken.Load(); taken != last {
			last, since = taken, time.Now()
		}
		return last > 1<<20 && time.Since(since) > time.Second
	})
	if last > inputAhead {
		t.Errorf("%d KiB were read for a program that reads nothing, want at most %d", last>>10, inputAhead>>10)
	}
	if err := os.WriteFile(ready, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if got, want := out.String(), hashOf(3, size, ""); !strings.HasPrefix(got, want) {
		t.Errorf("the program read what has the hash %s, want %s", got, want)
	}
}

// abandonments are how programs leave input that has no end.
var abandonments = []struct {
	name, script string
	timeout      time.Duration
	stop         syscall.Signal // sent once the program has said that it is there
	right        func(*client.ExitStatus) bool
}{
	{"closes it and goes on", `exec 0<&-; echo there; sleep 0.2; exit 3`, 0, 0, exitedWith(3)},
	{"reads a part and ends", `echo there; head -c 1000000 >/dev/null; exit 4`, 0, 0, exitedWith(4)},
	{"reads nothing and ends", `echo there; exit 5`, 0, 0, exitedWith(5)},
	{"dies while it reads", `echo there; head -c 1000000 >/dev/null; kill -9 $$`, 0, 0, endedBy(syscall.SIGKILL)},
	{"does not read and is ended", `echo there; exec sleep 1000`, 0, syscall.SIGTERM, endedBy(syscall.SIGTERM)},
	{"does not read and is killed", `trap '' TERM; echo there; while :; do sleep 1000; done`, 0, syscall.SIGKILL, endedBy(syscall.SIGKILL)},
	{"does not read and times out", `echo there; exec sleep 1000`, time.Second, 0, func(s *client.ExitStatus) bool { return s.TimedOut }},
	{"leaves it to a child that does not read", `sleep 1000 <&0 & echo there; exit 6`, 0, 0, exitedWith(6)},
}

func exitedWith(code int) func(*client.ExitStatus) bool {
	return func(s *client.ExitStatus) bool { return s.Signal == 0 && s.ExitCode == code && !s.TimedOut }
}

func endedBy(sig syscall.Signal) func(*client.ExitStatus) bool {
	return func(s *client.ExitStatus) bool { return s.Signal == sig && !s.TimedOut }
}

// TestAbandonedInput ends programs in every way while there is input left for them: the
// end is told as it was, the user's reader is given up, and nothing stays behind.
func TestAbandonedInput(t *testing.T) {
	g := startGuestd(t)
	before := g.settle(t)
	var all sync.WaitGroup
	slots := make(chan struct{}, 8)
	for round := range rounds(3, 100) {
		for _, a := range abandonments {
			slots <- struct{}{}
			all.Go(func() {
				defer func() { <-slots }()
				cmd := g.client.Shell(a.script)
				cmd.Timeout, cmd.KillGrace = a.timeout, 100*time.Millisecond
				if err := abandon(t, cmd, a.stop, a.right); err != nil {
					t.Errorf("round %d: a program that %s: %v", round, a.name, err)
				}
				err := g.client.SignalProcess(within(t, time.Minute), cmd.ID(), syscall.SIGKILL)
				if err != nil && !errors.Is(err, os.ErrProcessDone) {
					t.Errorf("round %d: a program that %s: killing what is left: %v", round, a.name, err)
				}
			})
		}
	}
	all.Wait()
	g.gaveBack(t, before)
}

func abandon(t *testing.T, cmd *client.Cmd, stop syscall.Signal, right func(*client.ExitStatus) bool) error {
	in := &countedReader{Reader: noise(3)}
	cmd.Stdin = in
	there := &firstWrite{done: make(chan struct{})}
	cmd.Stdout = there
	if err := cmd.Start(within(t, time.Minute)); err != nil {
		return err
	}
	<-there.done
	if stop != 0 {
		if err := cmd.Signal(stop); err != nil {
			return fmt.Errorf("signalling it: %w", err)
		}
	}
	err := cmd.Wait()
	if status := cmd.Status(); status == nil || !right(status) {
		return fmt.Errorf("ended with %v, %+v", err, status)
	}
	if taken := in.taken.Load(); taken > 1_000_000+inputAhead {
		return fmt.Errorf("%d KiB were read for it", taken>>10)
	}
	return nil
}

// firstWrite tells when something is written.
type firstWrite struct {
	once sync.Once
	done chan struct{}
}

func (f *firstWrite) Write(p []byte) (int, error) {
	f.once.Do(func() { close(f.done) })
	return len(p), nil
}
