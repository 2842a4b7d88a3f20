package spawn

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// orphan is a script that leaves a process behind which ends by itself: it
// belongs to the subreaper then.
const orphan = `(setsid sh -c 'sleep 0.01; exit 3' &) ; (sleep 0.02 &)`

func zombies() []process {
	var list []process
	for _, p := range allProcesses() {
		if p.ppid == os.Getpid() && p.zombie() {
			list = append(list, p)
		}
	}
	return list
}

func TestReaperCollectsOrphans(t *testing.T) {
	s := newSpawner(t, Config{Reaper: true})
	file := filepath.Join(t.TempDir(), "pids")
	for range 20 {
		cmd := command(t, "/bin/sh", "-c", `(setsid sh -c 'echo $$ >>$F; sleep 0.01' &)`)
		cmd.Env = append(cmd.Env, "F="+file)
		<-start(t, s, cmd).Done()
	}
	for _, pid := range pidsIn(t, file, 20) {
		await(t, fmt.Sprintf("orphan %d to be collected", pid), func() bool {
			_, err := os.Stat(fmt.Sprintf("/proc/%d", pid))
			return errors.Is(err, os.ErrNotExist)
		})
	}
}

func TestWithoutReaperNobodyIsAdopted(t *testing.T) {
	newSpawner(t, Config{})
	var subreaper int
	if err := unix.Prctl(unix.PR_GET_CHILD_SUBREAPER, uintptr(unsafe.Pointer(&subreaper)), 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	if subreaper != 0 {
		t.Error("an embedded Spawner has made the process a subreaper")
	}
}

// The reaper must leave alone what the same program starts through os/exec, also
// when it waits late, and count each of its own children right, while orphans
// come in all the time.
func TestReaperStealsNobodysStatus(t *testing.T) {
	s := newSpawner(t, Config{Reaper: true})
	var wg sync.WaitGroup
	for worker := range 3 {
		wg.Go(func() { runOSExec(t, worker) })
		wg.Go(func() { runSpawn(t, s, worker) })
	}
	wg.Wait()
	await(t, "all orphans to be collected", func() bool { return len(zombies()) == 0 })
}

func runOSExec(t *testing.T, worker int) {
	var late []*exec.Cmd
	for i := range 150 {
		code := (worker*7 + i) % 256
		cmd := exec.Command("/bin/sh", "-c", fmt.Sprintf("echo %d; exit %d", i, code))
		var out bytes.Buffer
		cmd.Stdout = &out
		if i%5 == 0 { // waited for long after its end
			cmd.Stdout = nil
			if err := cmd.Start(); err != nil {
				t.Error(err)
				return
			}
			late = append(late, cmd)
			continue
		}
		_ = cmd.Run()
		if got := cmd.ProcessState.ExitCode(); got != code || out.String() != fmt.Sprintln(i) {
			t.Errorf("os/exec: code %d output %q, want %d", got, out.String(), code)
		}
	}
	for i, cmd := range late {
		if err := cmd.Wait(); cmd.ProcessState == nil {
			t.Errorf("os/exec, waited for late: %v", err)
		} else if got, want := cmd.ProcessState.ExitCode(), (worker*7+5*i)%256; got != want {
			t.Errorf("os/exec, waited for late: code %d, want %d", got, want)
		}
	}
}

func runSpawn(t *testing.T, s *Spawner, worker int) {
	for i := range 100 {
		code := (worker*11 + i) % 256
		c, err := s.Start(command(t, "/bin/sh", "-c", fmt.Sprintf("%s; exit %d", orphan, code)))
		if err != nil {
			t.Error(err)
			return
		}
		<-c.Done()
		if st := c.Status(); st.Code != code {
			t.Errorf("spawn: %+v, want code %d", st, code)
		}
		c.Release()
	}
}

// A zombie that its owner has not waited for yet must not hide orphans behind it.
func TestReaperLooksBehindAHeldZombie(t *testing.T) {
	s := newSpawner(t, Config{Reaper: true})
	held := exec.Command("/bin/true")
	if err := held.Start(); err != nil {
		t.Fatal(err)
	}
	await(t, "the held child to end", func() bool { return !alive(held.Process.Pid) })
	<-start(t, s, command(t, "/bin/sh", "-c", orphan)).Done()
	await(t, "the orphans to be collected", func() bool {
		list := zombies()
		children, _ := os.ReadDir("/proc/self/task")
		return len(children) > 0 && len(list) == 1 && len(childPIDs()) == 1
	})
	if err := held.Wait(); err != nil {
		t.Errorf("the held child's status is lost: %v", err)
	}
}

// An orphan that somebody has taken on by a pidfd is theirs to wait for.
func TestReaperRespectsAdoption(t *testing.T) {
	s := newSpawner(t, Config{Reaper: true})
	file := filepath.Join(t.TempDir(), "pids")
	cmd := command(t, "/bin/sh", "-c", `(setsid sh -c 'echo $$ >>$F; read line <$F.go; exit 42' &)`)
	if err := unix.Mkfifo(file+".go", 0o600); err != nil {
		t.Fatal(err)
	}
	cmd.Env = append(cmd.Env, "F="+file)
	<-start(t, s, cmd).Done()
	pid := pidsIn(t, file, 1)[0]
	pidfd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pidfd)
	if err := os.WriteFile(file+".go", []byte("go\n"), 0); err != nil {
		t.Fatal(err)
	}
	await(t, "its end", func() bool { return !alive(pid) })
	for range 3 {
		s.reaper.collect()
	}
	info, err := waitid(pidfd, unix.WEXITED, nil)
	if err != nil || info.Status != 42 {
		t.Errorf("waiting for the adopted orphan: %+v, %v", info, err)
	}
}

func TestNohupIsNotHandedOn(t *testing.T) {
	if os.Getenv("SPAWN_TEST_NOHUP") != "" {
		s := newSpawner(t, Config{Reaper: true, CgroupRoot: os.Getenv("SPAWN_TEST_NOHUP")})
		fmt.Print("child: ", output(t, s, command(t, "grep", "SigIgn", "/proc/self/status")))
		if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		return
	}
	for _, root := range []string{"none", ""} {
		cmd := exec.Command("/bin/sh", "-c", `trap "" HUP; exec "$0" -test.run '^TestNohupIsNotHandedOn$' -test.v`, "/proc/self/exe")
		exe, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		cmd.Args[3] = exe
		cmd.Env = append(os.Environ(), "SPAWN_TEST_NOHUP="+root)
		if root == "" {
			cmd.Env[len(cmd.Env)-1] += "/sys/fs/cgroup/unified"
			if len(cgroupMounts()) == 0 {
				continue
			}
			cmd.Env[len(cmd.Env)-1] = "SPAWN_TEST_NOHUP=" + cgroupMounts()[0]
		}
		out, err := cmd.CombinedOutput()
		if err != nil || !bytes.Contains(out, []byte("child: SigIgn:\t0000000000000000")) {
			t.Errorf("started by nohup: %v\n%s", err, out)
		}
	}
}

// While orphans gather, the end of a child interrupts nobody; after that the next one
// is told of again.
func TestChildrensEndsAreToldOnceInAWhile(t *testing.T) {
	s := newSpawner(t, Config{Reaper: true})
	caught := func() bool {
		mask, err := strconv.ParseUint(statusFields("self")["SigCgt"], 16, 64)
		if err != nil {
			t.Fatal(err)
		}
		return mask&(1<<(unix.SIGCHLD-1)) != 0
	}
	for range 3 {
		if !caught() {
			t.Fatal("the reaper does not listen")
		}
		expectCode(t, s, command(t, "/bin/true"), 0)
		await(t, "SIGCHLD to be left to the kernel", func() bool { return !caught() })
		await(t, "the reaper to listen again", caught)
	}
}
