package stress

import (
	"crypto/sha256"
	"errors"
	"hash"
	"io"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"guestd.internal/client"
	guestdv1 "guestd.internal/proto/guestd/v1"
)

const (
	// outBytes, errBytes and inBytes go through each command whose connection is
	// cut; with what is sent twice they are worth some hundred cuts.
	outBytes = 48 << 20
	errBytes = 12 << 20
	inBytes  = 12 << 20
	// cutMost is after how many bytes a connection is cut at the latest: a message of
	// 256 KiB has to get through now and then.
	cutMost = 768 << 10
	// exitCode is what the command ends with.
	exitCode = 42
)

// slowHash hashes what comes and takes its time, so that the writer is ahead.
type slowHash struct {
	hash.Hash
	taken atomic.Int64
}

func newSlowHash() *slowHash { return &slowHash{Hash: sha256.New()} }

func (s *slowHash) Write(p []byte) (int, error) {
	time.Sleep(time.Duration(len(p)) * time.Second / (40 << 20))
	n, err := s.Hash.Write(p)
	s.taken.Add(int64(n))
	return n, err
}

// input is what the commands read.
func input() io.Reader { return io.LimitReader(noise(3), inBytes) }

// checkHashes compares what came with what was sent, both ways.
func checkHashes(t *testing.T, stdout, stderr *slowHash) {
	t.Helper()
	if got, want := sum(stdout), hashOf(1, outBytes, ""); got != want {
		t.Errorf("stdout: %d bytes with the hash %s, want %s", stdout.taken.Load(), got, want)
	}
	taken := hashOf(3, inBytes, "") // of the input, as the command has to tell at its end
	if got, want := sum(stderr), hashOf(2, errBytes, taken); got != want {
		t.Errorf("stderr: %d bytes with the hash %s, want %s: it or the input is damaged", stderr.taken.Load(), got, want)
	}
}

// TestCutConnections runs commands that write more than their log holds, faster than
// it is read, and read at the same time, over connections that are cut at random
// bytes: every byte arrives once, in order, both ways, and the exit does, too.
func TestCutConnections(t *testing.T) {
	g := startGuestd(t)
	cuts, ahead := 0, false
	for round := range rounds(1, 20) {
		cut := newCutter(t, g.socket, cutMost, uint64(round))
		cmd := dial(t, cut.target()).Command()
		argv, env := role("everything", outBytes, errBytes, exitCode)
		cmd.Args, cmd.Env = argv, []string{env}
		stdout, stderr := newSlowHash(), newSlowHash()
		cmd.Stdin, cmd.Stdout, cmd.Stderr = input(), stdout, stderr
		cmd.OnGap = func(gap client.Gap) { t.Errorf("%v: bytes %d to %d are lost", gap.Stream, gap.Start, gap.End) }
		if err := cmd.Start(within(t, 5*time.Minute)); err != nil {
			t.Fatal(err)
		}
		processes, ended := g.calls(t), make(chan struct{})
		go func() { // finds the log full
			defer close(ended)
			for {
				resp, err := processes.Get(t.Context(), &guestdv1.GetRequest{ProcessId: cmd.ID()})
				if err != nil || resp.GetProcess().GetExit() != nil {
					return
				}
				written := int64(resp.GetProcess().GetOutput()[0].GetOffset())
				ahead = ahead || written-stdout.taken.Load() > 4<<20-256<<10
				time.Sleep(10 * time.Millisecond)
			}
		}()
		err := cmd.Wait()
		<-ended
		var exit *client.ExitError
		if !errors.As(err, &exit) || exit.ExitCode != exitCode {
			t.Fatalf("round %d: %v, want exit code %d", round, err, exitCode)
		}
		checkHashes(t, stdout, stderr)
		cuts += cut.count()
	}
	t.Logf("%d cuts", cuts)
	if least := rounds(200, 4000); cuts < least {
		t.Errorf("%d cuts, want %d at least", cuts, least)
	}
	if !ahead {
		t.Error("the log was never full")
	}
}

// TestGuestctlSurvivesCutConnections is the same for the program.
func TestGuestctlSurvivesCutConnections(t *testing.T) {
	g := startGuestd(t)
	cuts := 0
	for round := range rounds(1, 5) {
		cut := newCutter(t, g.socket, cutMost, 1000+uint64(round))
		argv, env := role("everything", outBytes, errBytes, exitCode)
		args := append([]string{"--target", cut.target(), "exec", "-i", "-e", env, "--"}, argv...)
		cmd := exec.CommandContext(within(t, 5*time.Minute), filepath.Join(bin, "guestctl"), args...)
		stdout, stderr := newSlowHash(), newSlowHash()
		cmd.Stdin, cmd.Stdout, cmd.Stderr = input(), stdout, stderr
		err := cmd.Run()
		if code := cmd.ProcessState.ExitCode(); code != exitCode {
			t.Fatalf("round %d: %v, want exit code %d", round, err, exitCode)
		}
		checkHashes(t, stdout, stderr)
		cuts += cut.count()
	}
	t.Logf("%d cuts", cuts)
	if least := rounds(200, 1000); cuts < least {
		t.Errorf("%d cuts, want %d at least", cuts, least)
	}
}
