package fscred

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"guestd.internal/internal/account"
)

// rights are the lines of this thread's status that say what it may do.
func rights(t *testing.T) string {
	t.Helper()
	status, err := os.ReadFile("/proc/thread-self/status")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(regexp.MustCompile(`(?m)^(Uid|Gid|Groups|Cap...):.*$`).FindAllString(string(status), -1), "\n")
}

func TestHereBorrowsIDsAndGivesThemBack(t *testing.T) {
	needRoot(t)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before := rights(t)
	refused := errors.New("refused")
	var inside string
	if err := Here(guest, func() error { inside = rights(t); return refused }); !errors.Is(err, refused) {
		t.Errorf("the function's error became %v", err)
	}
	for _, line := range []string{
		fmt.Sprintf("Uid:\t0\t0\t0\t%d", guest.UID), fmt.Sprintf("Gid:\t0\t0\t0\t%d", guest.GID), "CapEff:\t0000000000000000",
	} {
		if !strings.Contains(inside, line) {
			t.Errorf("inside there is no %q:\n%s", line, inside)
		}
	}
	if after := rights(t); after != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
	func() {
		defer func() {
			if value := recover(); value != "panic" {
				t.Errorf("the panic became %v", value)
			}
		}()
		_ = Here(guest, func() error { panic("panic") })
	}()
	if after := rights(t); after != before {
		t.Errorf("before:\n%s\nafter a panic:\n%s", before, after)
	}
}

func TestHereOfManyLeavesNoThreadWithAUsersIDs(t *testing.T) {
	needRoot(t)
	before, threads := rights(t), statusOfAllThreads(t)
	var group sync.WaitGroup
	for n := range uint32(50) {
		group.Go(func() {
			acc := account.Account{UID: 31001 + n, GID: 31001 + n}
			for range 20 {
				err := Here(acc, func() error {
					runtime.Gosched()
					if id := fsID(unix.SYS_SETFSUID); id != acc.UID {
						return fmt.Errorf("fsuid is %d instead of %d", id, acc.UID)
					}
					return nil
				})
				if err != nil {
					t.Error(err)
				}
				if id := fsID(unix.SYS_SETFSUID); id != 0 {
					t.Errorf("outside fsuid is %d", id)
				}
			}
		})
	}
	group.Wait()
	waitFor(t, "all threads to have the rights of before", func() bool { return maps.Equal(statusOfAllThreads(t), threads) })
	if after := rights(t); after != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
}

func TestHereRefusesInvalidIDsAndIsRootForRoot(t *testing.T) {
	for _, acc := range []account.Account{{UID: unchanged}, {GID: unchanged}, {Groups: []uint32{unchanged}}} {
		err := Here(acc, func() error { return errors.New("the function ran") })
		if !errors.Is(err, ErrInvalidID) {
			t.Errorf("%+v: %v", acc, err)
		}
	}
	needRoot(t)
	if err := Here(root, func() error {
		if id := fsID(unix.SYS_SETFSUID); id != 0 {
			return fmt.Errorf("fsuid is %d", id)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}
