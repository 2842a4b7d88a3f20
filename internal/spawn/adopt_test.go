package spawn

import (
	"errors"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// unadopted starts a process in a session of its own, as a fork server's fork is.
func unadopted(t *testing.T, script string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("/bin/sh", "-c", script)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd
}

// untilLetGo is unadopted for a script that begins once it is let go, so that it cannot end before it is adopted.
func untilLetGo(t *testing.T, script string) (cmd *exec.Cmd, letGo func()) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	cmd = exec.Command("/bin/sh", "-c", "read go; "+script)
	cmd.Stdin, cmd.SysProcAttr = r, &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, func() { w.Close() }
}

func TestAdoptedEndIsWhatTheParentSays(t *testing.T) {
	eachTreeMode(t, func(t *testing.T, s *Spawner) {
		for script, want := range map[string]Status{
			"exit 7":         {Code: 7},
			"kill -9 $$":     {Code: -1, Signal: unix.SIGKILL},
			"exit 0":         {},
			"kill -TERM $$;": {Code: -1, Signal: unix.SIGTERM},
		} {
			cmd, letGo := untilLetGo(t, script)
			c, err := s.Adopt(Adoption{ID: "p-adopted", PID: cmd.Process.Pid, Account: self(t), Ended: func() (syscall.WaitStatus, bool) {
				_ = cmd.Wait()
				return cmd.ProcessState.Sys().(syscall.WaitStatus), true
			}})
			if err != nil {
				t.Fatal(err)
			}
			letGo()
			<-c.Done()
			if got := c.Status(); got.Code != want.Code || got.Signal != want.Signal || got.Ended.IsZero() {
				t.Errorf("%s: %+v, want %+v", script, got, want)
			}
			c.Release()
		}
	})
}

// With its parent gone an adopted process is this one's child, or nobody's that we
// know.
func TestAdoptedEndWithoutAParent(t *testing.T) {
	s := newSpawner(t, Config{})
	cmd, letGo := untilLetGo(t, "exit 7")
	c, err := s.Adopt(Adoption{ID: "p-own", PID: cmd.Process.Pid, Account: self(t), Ended: func() (syscall.WaitStatus, bool) { return 0, false }})
	if err != nil {
		t.Fatal(err)
	}
	letGo()
	<-c.Done()
	if got := c.Status(); got.Code != 7 {
		t.Errorf("our own child: %+v", got)
	}
	c.Release()

	cmd, letGo = untilLetGo(t, "exit 7")
	c, err = s.Adopt(Adoption{ID: "p-nobodys", PID: cmd.Process.Pid, Account: self(t), Ended: func() (syscall.WaitStatus, bool) {
		_ = cmd.Wait()
		return 0, false
	}})
	if err != nil {
		t.Fatal(err)
	}
	letGo()
	<-c.Done()
	if got := c.Status(); got.Code != -1 || got.Signal != 0 {
		t.Errorf("nobody's: %+v", got)
	}
	c.Release()
}

func TestAdoptedTreeIsKilledWhole(t *testing.T) {
	eachTreeMode(t, func(t *testing.T, s *Spawner) {
		file := t.TempDir() + "/pids"
		cmd := unadopted(t, "echo $$ >>"+file+"; sh -c 'echo $$ >>"+file+"; exec sleep 1000' & wait")
		pids := pidsIn(t, file, 2)
		c, err := s.Adopt(Adoption{ID: "p-tree", PID: cmd.Process.Pid, Account: self(t), Ended: func() (syscall.WaitStatus, bool) {
			_ = cmd.Wait()
			return cmd.ProcessState.Sys().(syscall.WaitStatus), true
		}})
		if err != nil {
			t.Fatal(err)
		}
		if s.cgroups != nil {
			// What was forked before the adoption stays where it was, and is found by
			// nothing: a fork server's forks wait for their adoption.
			if err := syscall.Kill(pids[1], syscall.SIGKILL); err != nil {
				t.Error(err)
			}
		}
		if err := c.KillTree(); err != nil {
			t.Error(err)
		}
		<-c.Done()
		awaitDead(t, pids)
		c.Release()
	})
}

func TestAdoptRefuses(t *testing.T) {
	s := newSpawner(t, Config{})
	acc := self(t)
	never := func() (syscall.WaitStatus, bool) { return 0, false }
	other := acc
	other.UID++
	session := unadopted(t, "sleep 1000")
	t.Cleanup(func() { _, _ = session.Process.Kill(), session.Wait() })
	member := exec.Command("sleep", "1000") // leads no session
	if err := member.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = member.Process.Kill(), member.Wait() })
	ours := start(t, s, command(t, "sleep", "1000"))
	dead := unadopted(t, "exit 0")
	if err := dead.Wait(); err != nil {
		t.Fatal(err)
	}
	for name, a := range map[string]Adoption{
		"another user's":     {ID: "p-a", PID: session.Process.Pid, Account: other, Ended: never},
		"no session leader":  {ID: "p-b", PID: member.Process.Pid, Account: acc, Ended: never},
		"itself":             {ID: "p-c", PID: os.Getpid(), Account: acc, Ended: never},
		"init":               {ID: "p-d", PID: 1, Account: acc, Ended: never},
		"a tree already":     {ID: "p-e", PID: ours.PID(), Account: acc, Ended: never},
		"one that has ended": {ID: "p-f", PID: dead.Process.Pid, Account: acc, Ended: never},
		"none":               {ID: "p-g", PID: 0, Account: acc, Ended: never},
	} {
		if _, err := s.Adopt(a); !errors.Is(err, ErrNotAdoptable) {
			t.Errorf("%s (%s): %v", name, strconv.Itoa(a.PID), err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Adopt(Adoption{ID: "p-h", PID: session.Process.Pid, Account: acc, Ended: never}); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}
