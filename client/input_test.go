package client

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	guestdv1 "guestd.internal/proto/guestd/v1"
)

// oddReader never ends, and returns pieces of a size that divides nothing.
type oddReader struct{ taken uint64 }

func (r *oddReader) Read(p []byte) (int, error) {
	n := min(len(p), 100_001)
	r.taken += uint64(n)
	return n, nil
}

// What is under way is never more than guestd holds without waiting, or what is sent behind it,
// a signal above all, would wait, too; also where a new link tells that guestd has it all.
func TestInputUnderWayIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOutbox()
		o.input = newInputWindow(&o.mu)
		r := &oddReader{}
		go o.pumpInput(r)
		check := func(when string, given uint64) {
			t.Helper()
			synctest.Wait()
			if ahead := r.taken - given; ahead > inputWindowBytes || ahead <= inputWindowBytes-minInputRead {
				t.Errorf("%s: %d bytes are under way, want %d", when, ahead, inputWindowBytes)
			}
		}
		give := func(offset uint64) {
			o.mu.Lock()
			defer o.mu.Unlock()
			if err := o.input.give(offset); err != nil {
				t.Error(err)
			}
		}
		check("at first", 0)
		give(65_537)
		check("when the program has read", 65_537)
		o.mu.Lock()
		if err := o.input.rewind(r.taken); err != nil {
			t.Error(err)
		}
		o.input.room.Broadcast()
		o.mu.Unlock()
		check("on a new link", 65_537)
		give(65_537) // which a new link tells at once
		check("on a new link to a program that does not read", 65_537)
		all := r.taken
		give(all)
		check("when the program has read everything", all)
		o.closeInput()
	})
}

// begun starts a program and gives it input, as somebody else has.
func begun(t *testing.T, c *Client, line string, input []byte) (id string) {
	t.Helper()
	started, err := c.processes.Start(t.Context(), &guestdv1.StartRequest{Spec: &guestdv1.ProcessSpec{
		Command: &guestdv1.ProcessSpec_Shell{Shell: &guestdv1.ShellLine{Line: []byte(line)}},
		Stdin:   guestdv1.StdinMode_STDIN_MODE_PIPE,
	}})
	if err != nil {
		t.Fatal(err)
	}
	id = started.GetProcessId()
	for len(input) > 0 {
		n := min(len(input), chunkBytes)
		if _, err := c.processes.WriteInput(t.Context(), &guestdv1.WriteInputRequest{ProcessId: id, Data: input[:n]}); err != nil {
			t.Fatal(err)
		}
		input = input[n:]
	}
	return id
}

func TestAttachedInputGoesBehindWhatOthersWrote(t *testing.T) {
	c := dialTest(t, startGuestd(t))
	for _, size := range []int{0, 5, 100_000, 3<<20 + 1} {
		first, second := randomBytes(size), randomBytes(2<<20+7)
		id := begun(t, c, "exec sha256sum", first)
		var out bytes.Buffer
		a, err := c.Attach(t.Context(), id, AttachOptions{Stdin: bytes.NewReader(second), Stdout: &out})
		if err != nil {
			t.Fatal(err)
		}
		if err := a.Wait(); err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprintf("%x", sha256.Sum256(append(first, second...)))
		if !strings.HasPrefix(out.String(), want) {
			t.Errorf("behind %d bytes: the program read what has the hash %s, want %s", size, out.String(), want)
		}
	}
}

// Others have given a program that does not read all that guestd takes for it.
func TestAttachedInputHoldsNoSignalUp(t *testing.T) {
	c := dialTest(t, startGuestd(t))
	id := begun(t, c, "exec sleep 1000", make([]byte, 1<<20))
	a, err := c.Attach(t.Context(), id, AttachOptions{Stdin: bytes.NewReader(make([]byte, 4<<20))})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = a.Wait()
	if status := a.Status(); status == nil || status.Signal != syscall.SIGTERM {
		t.Errorf("ended with %+v", status)
	}
}
