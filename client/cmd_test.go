package client

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestCmd(t *testing.T) {
	c := dialTest(t, startGuestd(t))
	t.Run("streams", func(t *testing.T) {
		var out, errOut strings.Builder
		cmd := c.Shell("echo to stdout; echo to stderr >&2")
		cmd.Stdout, cmd.Stderr = &out, &errOut
		if err := cmd.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if out.String() != "to stdout\n" || errOut.String() != "to stderr\n" {
			t.Errorf("stdout %q, stderr %q", out.String(), errOut.String())
		}
		if cmd.ID() == "" || cmd.PID() == 0 || cmd.Status() == nil || cmd.Status().Duration <= 0 {
			t.Errorf("id %q, pid %d, status %+v", cmd.ID(), cmd.PID(), cmd.Status())
		}
	})
	t.Run("exit code", func(t *testing.T) {
		err := c.Shell("exit 7").Run(t.Context())
		exit, is := errors.AsType[*ExitError](err)
		if !is || exit.ExitCode != 7 || exit.Signal != 0 || err.Error() != "exit status 7" {
			t.Errorf("got %#v", err)
		}
	})
	t.Run("signal", func(t *testing.T) {
		err := c.Shell("kill -KILL $$").Run(t.Context())
		exit, is := errors.AsType[*ExitError](err)
		if !is || exit.ExitCode != -1 || exit.Signal != syscall.SIGKILL || err.Error() != "signal: killed" {
			t.Errorf("got %#v", err)
		}
	})
	t.Run("timeout", func(t *testing.T) {
		cmd := c.Command("sleep", "60")
		cmd.Timeout, cmd.KillGrace = 50*time.Millisecond, -1
		err := cmd.Run(t.Context())
		if exit, is := errors.AsType[*ExitError](err); !is || !exit.TimedOut {
			t.Errorf("got %v", err)
		}
	})
	t.Run("output", func(t *testing.T) {
		cmd := c.Command("env")
		cmd.ClearEnv, cmd.Env = true, []string{"ONE=1=1", "EMPTY=", "GONE=x", "GONE"}
		out, err := cmd.Output(t.Context())
		for _, want := range []string{"ONE=1=1\n", "EMPTY=\n"} {
			if !strings.Contains(string(out), want) {
				t.Errorf("no %q in %q", want, out)
			}
		}
		if err != nil || strings.Contains(string(out), "GONE") {
			t.Errorf("got %q, %v", out, err)
		}
	})
	t.Run("combined output", func(t *testing.T) {
		out, err := c.Shell("echo 1; echo 2 >&2; echo 3").CombinedOutput(t.Context())
		if err != nil || string(out) != "1\n2\n3\n" {
			t.Errorf("got %q, %v", out, err)
		}
	})
	t.Run("directory and arguments as bytes", func(t *testing.T) {
		dir := t.TempDir() + "/not utf-8 \xff"
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		cmd := c.Command("sh", "-c", `pwd; printf %s "$1"`, "sh", "\xfe")
		cmd.Dir = dir
		if out, err := cmd.Output(t.Context()); err != nil || string(out) != dir+"\n\xfe" {
			t.Errorf("got %q, %v", out, err)
		}
	})
}

func TestCmdThatDoesNotStart(t *testing.T) {
	c := dialTest(t, startGuestd(t))
	file := t.TempDir() + "/plain"
	if err := os.WriteFile(file, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		cmd  *Cmd
		want error
	}{
		"no such command": {c.Command("no-such-command"), exec.ErrNotFound},
		"not executable":  {c.Command(file), ErrNotExecutable},
		"no directory":    {&Cmd{Args: []string{"true"}, Dir: "/no/such", client: c}, fs.ErrNotExist},
		"no user":         {&Cmd{Args: []string{"true"}, User: "no-such-user", client: c}, ErrUserNotFound},
		"no arguments":    {c.Command(), ErrInvalid},
		"user not UTF-8":  {&Cmd{Args: []string{"true"}, User: "\xff", client: c}, ErrInvalid},
		"NUL":             {c.Command("echo", "a\x00b"), ErrInvalid},
	} {
		if err := c.cmd.Run(t.Context()); !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", name, err, c.want)
		}
		if c.cmd.ID() != "" || c.cmd.Status() != nil || c.cmd.Wait() == nil || c.cmd.Signal(syscall.SIGTERM) == nil {
			t.Errorf("%s: it seems to have been started", name)
		}
	}
}

func TestCmdInput(t *testing.T) {
	c := dialTest(t, startGuestd(t))
	input := make([]byte, 5<<20)
	rand.NewChaCha8([32]byte{1}).Read(input)
	t.Run("whole", func(t *testing.T) {
		cmd := c.Command("cat")
		cmd.Stdin = bytes.NewReader(input)
		out, err := cmd.Output(t.Context())
		if err != nil || !bytes.Equal(out, input) {
			t.Errorf("%d of %d bytes came back, %v", len(out), len(input), err)
		}
	})
	t.Run("empty", func(t *testing.T) {
		cmd := c.Command("wc", "-c")
		cmd.Stdin = strings.NewReader("")
		if out, err := cmd.Output(t.Context()); err != nil || strings.TrimSpace(string(out)) != "0" {
			t.Errorf("got %q, %v", out, err)
		}
	})
	t.Run("not read", func(t *testing.T) {
		cmd := c.Command("head", "-c", "3")
		cmd.Stdin = bytes.NewReader(input)
		if out, err := cmd.Output(t.Context()); err != nil || !bytes.Equal(out, input[:3]) {
			t.Errorf("got %q, %v", out, err)
		}
	})
	t.Run("reader fails", func(t *testing.T) {
		why := errors.New("the disk is on fire")
		cmd := c.Command("cat")
		cmd.Stdin = io.MultiReader(strings.NewReader("some"), iotestErrReader{why})
		out, err := cmd.Output(t.Context())
		if !errors.Is(err, why) || string(out) != "some" {
			t.Errorf("got %q, %v", out, err)
		}
	})
	t.Run("reader blocks", func(t *testing.T) {
		r, w := io.Pipe()
		defer w.Close()
		cmd := c.Command("true")
		cmd.Stdin = r
		if err := cmd.Run(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

type iotestErrReader struct{ err error }

func (r iotestErrReader) Read([]byte) (int, error) { return 0, r.err }

// failingWriter fails after so many bytes.
type failingWriter struct {
	left int
	err  error
}

func (w *failingWriter) Write(p []byte) (int, error) {
	if w.left -= len(p); w.left < 0 {
		return 0, w.err
	}
	return len(p), nil
}

func TestCmdWriterFails(t *testing.T) {
	c := dialTest(t, startGuestd(t))
	why := errors.New("nobody listens")
	cmd := c.Command("yes")
	cmd.Stdout = &failingWriter{left: 100_000, err: why}
	err := cmd.Run(t.Context())
	if exit, is := errors.AsType[*ExitError](err); !is || exit.Signal != syscall.SIGPIPE {
		t.Errorf("got %v, want the end that a closed pipe brings", err)
	}
	cmd = c.Shell("trap '' PIPE; echo x; exit 0")
	cmd.Stdout = &failingWriter{err: why}
	if err := cmd.Run(t.Context()); !errors.Is(err, why) {
		t.Errorf("got %v, want the writer's error", err)
	}
}

func TestCmdCancelled(t *testing.T) {
	c := dialTest(t, startGuestd(t))
	why := errors.New("the user has changed their mind")
	t.Run("kills the tree", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		cmd := c.Shell("sleep 1000 & echo $!; wait")
		out := &notifyingWriter{written: make(chan string, 1)}
		cmd.Stdout = out
		if err := cmd.Start(ctx); err != nil {
			t.Fatal(err)
		}
		child := strings.TrimSpace(<-out.written)
		cancel(why)
		err := cmd.Wait()
		exit, is := errors.AsType[*ExitError](err)
		if !is || exit.Signal != syscall.SIGKILL || !errors.Is(err, why) {
			t.Errorf("got %v, want a kill with its cause", err)
		}
		// The tree's end is not the leader's: the child may be a moment behind.
		deadline := time.Now().Add(10 * time.Second)
		for isAlive(child) {
			if time.Now().After(deadline) {
				t.Fatalf("the background child %s is alive", child)
			}
			time.Sleep(time.Millisecond)
		}
		if err := cmd.Signal(syscall.SIGTERM); !errors.Is(err, os.ErrProcessDone) {
			t.Errorf("a signal behind the end gives %v", err)
		}
	})
	t.Run("keeps", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		cmd := c.Command("sleep", "1000")
		cmd.KeepOnCancel = true
		if err := cmd.Start(ctx); err != nil {
			t.Fatal(err)
		}
		cancel(why)
		if err := cmd.Wait(); !errors.Is(err, why) {
			t.Errorf("got %v, want the cause", err)
		}
		p, err := c.Process(t.Context(), cmd.ID())
		if err != nil || !p.Running {
			t.Fatalf("the process is %+v, %v; want it to run", p, err)
		}
		if err := c.SignalProcess(t.Context(), cmd.ID(), syscall.SIGKILL); err != nil {
			t.Error(err)
		}
		if status, err := c.WaitProcess(t.Context(), cmd.ID()); err != nil || status.Signal != syscall.SIGKILL {
			t.Errorf("it ended with %v, %v", status, err)
		}
	})
	t.Run("before the start", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(why)
		if err := c.Command("true").Run(ctx); !errors.Is(err, why) {
			t.Errorf("got %v, want the cause", err)
		}
	})
}

// isAlive tells whether a process exists and is no zombie.
func isAlive(pid string) bool {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

// notifyingWriter hands each write over.
type notifyingWriter struct{ written chan string }

func (w *notifyingWriter) Write(p []byte) (int, error) {
	w.written <- string(p)
	return len(p), nil
}

func TestBlockedWriterHurtsOnlyItsOwnCommand(t *testing.T) {
	c := dialTest(t, startGuestd(t))
	blocked := &notifyingWriter{written: make(chan string)}
	cmd := c.Command("yes")
	cmd.Stdout = blocked
	ctx, cancel := context.WithCancelCause(t.Context())
	if err := cmd.Start(ctx); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		out, err := c.Shell("head -c 6000000 /dev/zero").Output(t.Context())
		if err != nil || len(out) != 6_000_000 {
			t.Errorf("beside it came %d bytes, %v", len(out), err)
		}
	}
	cancel(errors.New("enough"))
	go func() {
		for range blocked.written {
		}
	}()
	if err := cmd.Wait(); !errors.As(err, new(*ExitError)) {
		t.Errorf("got %v", err)
	}
	close(blocked.written)
}

func TestTerminal(t *testing.T) {
	c := dialTest(t, startGuestd(t))
	cmd := c.Shell("stty size; read line; stty size; echo got $line")
	var out syncBuffer
	cmd.Stdout = &out
	r, w := io.Pipe()
	defer w.Close()
	cmd.Stdin = r
	cmd.Terminal = &Size{Rows: 30, Columns: 100}
	if err := cmd.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	out.await(t, "30 100")
	if err := cmd.Resize(Size{Rows: 41, Columns: 123}); err != nil {
		t.Fatal(err)
	}
	// The size is set when the terminal tells it.
	for {
		p, err := c.Process(t.Context(), cmd.ID())
		if err != nil {
			t.Fatal(err)
		}
		if p.Terminal != nil && p.Terminal.Columns == 123 {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	io.WriteString(w, "hello\n")
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	out.await(t, "41 123")
	out.await(t, "got hello")
}

// TestOutputSurvivesCuts cuts the connection again and again, wherever it happens to be, and wants
// every byte once.
func TestOutputSurvivesCuts(t *testing.T) {
	target := startGuestd(t)
	random := rand.New(rand.NewPCG(1, 2))
	cut := newCutter(t, strings.TrimPrefix(target, "unix://"), func() (int, int) {
		return 20_000 + random.IntN(1_500_000), -1
	})
	c := dialTest(t, cut.target())
	const size = 24 << 20
	cmd := c.Shell("head -c 25165824 /dev/urandom >data; cat data & cat data >&2; wait; exit 5")
	cmd.Dir = t.TempDir()
	out, errOut := sha256.New(), sha256.New()
	counted := &countingWriter{w: out}
	cmd.Stdout, cmd.Stderr = counted, errOut
	err := cmd.Run(t.Context())
	if exit, is := errors.AsType[*ExitError](err); !is || exit.ExitCode != 5 {
		t.Fatalf("got %v after %d cuts", err, cut.count())
	}
	data, err := os.ReadFile(cmd.Dir + "/data")
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(data)
	if !bytes.Equal(out.Sum(nil), sum[:]) || !bytes.Equal(errOut.Sum(nil), sum[:]) || len(data) != size {
		t.Errorf("of %d bytes %d came on stdout; stdout right: %t, stderr right: %t",
			len(data), counted.n, bytes.Equal(out.Sum(nil), sum[:]), bytes.Equal(errOut.Sum(nil), sum[:]))
	}
	if cut.count() < 10 {
		t.Errorf("only %d cuts", cut.count())
	}
	t.Logf("%d cuts", cut.count())
}

// TestInputSurvivesCuts cuts while input is under way, and wants every byte of it to arrive once.
func TestInputSurvivesCuts(t *testing.T) {
	target := startGuestd(t)
	random := rand.New(rand.NewPCG(3, 4))
	cut := newCutter(t, strings.TrimPrefix(target, "unix://"), func() (int, int) {
		return -1, 20_000 + random.IntN(1_000_000)
	})
	c := dialTest(t, cut.target())
	input := make([]byte, 16<<20)
	rand.NewChaCha8([32]byte{2}).Read(input)
	cmd := c.Command("sha256sum")
	cmd.Stdin = bytes.NewReader(input)
	var out strings.Builder
	cmd.Stdout = &out
	if err := cmd.Run(t.Context()); err != nil {
		t.Fatalf("%v after %d cuts", err, cut.count())
	}
	want := sha256.Sum256(input)
	if !strings.HasPrefix(out.String(), hexOf(want[:])) {
		t.Errorf("got the sum %q after %d cuts", out.String(), cut.count())
	}
	if cut.count() < 10 {
		t.Errorf("only %d cuts", cut.count())
	}
	t.Logf("%d cuts", cut.count())
}
