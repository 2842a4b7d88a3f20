package fscred

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"guestd.internal/internal/account"
)

// asGuest in the environment makes the test binary a helper program that runs
// as the guest user: "attack", or else withoutRoot.
const asGuest = "FSCRED_TEST_AS_GUEST"

func TestMain(m *testing.M) {
	if mode := os.Getenv(asGuest); mode != "" {
		run := withoutRoot
		if mode == "attack" {
			run = attack
		}
		if err := run(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// withoutRoot runs in a process of an ordinary user.
func withoutRoot() error {
	uid, gid := uint32(os.Geteuid()), uint32(os.Getegid())
	if uid == 0 {
		return errors.New("the helper runs as root")
	}
	own := account.Account{UID: uid, GID: gid}
	err := Do(own, func() error {
		if umask := unix.Umask(0); umask != 0 {
			return fmt.Errorf("umask is %#o", umask)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("own user: %w", err)
	}
	for _, other := range []account.Account{{UID: 0}, {UID: uid + 1, GID: gid}} {
		err := Do(other, func() error { return errors.New("the function ran") })
		if !errors.Is(err, account.ErrOtherUser) {
			return fmt.Errorf("uid %d: %v, want ErrOtherUser", other.UID, err)
		}
	}
	return nil
}

// runAsGuest runs this test binary as the guest user.
func runAsGuest(t *testing.T, mode string, args ...string) {
	t.Helper()
	// The binary's folder is root's, so the child gets it as a descriptor.
	binary, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer binary.Close()
	cmd := exec.Command("/proc/self/fd/3", args...)
	cmd.ExtraFiles = []*os.File{binary}
	cmd.Env = append(os.Environ(), asGuest+"="+mode)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: guest.UID, Gid: guest.GID}}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

func TestWithoutRoot(t *testing.T) {
	needRoot(t)
	runAsGuest(t, "without-root")
}

// attack tries to get hold of the thread that its arguments name.
func attack() error {
	pid, _ := strconv.Atoi(os.Args[1])
	tid, _ := strconv.Atoi(os.Args[2])
	runtime.LockOSThread()
	for what, err := range map[string]error{
		"tgkill":  unix.Tgkill(pid, tid, 0),
		"kill":    unix.Kill(pid, 0),
		"ptrace":  unix.PtraceSeize(tid),
		"prlimit": unix.Prlimit(tid, unix.RLIMIT_NOFILE, &unix.Rlimit{}, nil),
		"environ": open(fmt.Sprintf("/proc/%d/task/%d/environ", pid, tid), os.O_RDONLY),
		"memory":  open(fmt.Sprintf("/proc/%d/task/%d/mem", pid, tid), os.O_RDWR),
		"maps":    open(fmt.Sprintf("/proc/%d/task/%d/maps", pid, tid), os.O_RDONLY),
	} {
		if !errors.Is(err, fs.ErrPermission) {
			return fmt.Errorf("%s: %v, want a permission error", what, err)
		}
	}
	return nil
}

func TestUserGetsNoHoldOfTheThread(t *testing.T) {
	needRoot(t)
	inside, leave := make(chan int), make(chan struct{})
	result := make(chan error, 1)
	go func() {
		result <- Do(guest, func() error {
			inside <- unix.Gettid()
			<-leave
			return nil
		})
	}()
	tid := <-inside
	runAsGuest(t, "attack", strconv.Itoa(os.Getpid()), strconv.Itoa(tid))
	close(leave)
	if err := <-result; err != nil {
		t.Error(err)
	}
}
