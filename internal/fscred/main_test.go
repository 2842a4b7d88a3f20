package fscred

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"guestd.internal/internal/account"
)

// asGuest in the environment makes the test binary the helper of
// TestWithoutRoot.
const asGuest = "FSCRED_TEST_AS_GUEST"

func TestMain(m *testing.M) {
	if os.Getenv(asGuest) != "" {
		if err := withoutRoot(); err != nil {
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

func TestWithoutRoot(t *testing.T) {
	needRoot(t)
	// /proc/self/exe would be opened by the user; the binary's folder is
	// root's, so the child gets it as a descriptor.
	binary, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer binary.Close()
	cmd := exec.Command("/proc/self/fd/3")
	cmd.ExtraFiles = []*os.File{binary}
	cmd.Env = append(os.Environ(), asGuest+"=1")
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: guest.UID, Gid: guest.GID}}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
