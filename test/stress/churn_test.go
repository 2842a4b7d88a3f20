package stress

import (
	"bytes"
	"errors"
	"fmt"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"guestd.internal/client"
)

const (
	// warmUp is more commands than guestd keeps the outcomes of.
	warmUp = 1200
	// workers run commands at once.
	workers = 4
)

// TestChurn runs command after command of all kinds, and looks at what guestd has of the
// system before and after.
func TestChurn(t *testing.T) {
	g := startGuestd(t)
	// The collector lets its heap grow to twice of what is kept, which takes a while.
	churn(t, g, rounds(warmUp, 10*warmUp))
	before := g.settle(t)
	count := rounds(2000, 100_000)
	begin := time.Now()
	churn(t, g, count)
	after := g.gaveBack(t, before)
	t.Logf("%d commands in %v: %+v before, %+v after", count, time.Since(begin).Round(time.Second), before, after)
	if after.resident > before.resident+32<<20 && !raceDetector {
		t.Errorf("guestd has grown from %d to %d MiB", before.resident>>20, after.resident>>20)
	}
	other := startGuestd(t)
	churn(t, other, 20)
	other.settle(t)
	few, many := other.goroutines(t), g.goroutines(t)
	t.Logf("%d goroutines after 20 commands, %d after %d", few, many, count)
	if many > few+workers {
		t.Errorf("%d goroutines after %d commands, %d after 20:\n%s", many, count, few, g.log.String())
	}
}

// churn runs n commands, several at once.
func churn(t *testing.T, g *guestd, n int) {
	t.Helper()
	c := g.client
	var all sync.WaitGroup
	for worker := range workers {
		all.Go(func() {
			for i := worker; i < n && !t.Failed(); i += workers {
				if err := commands[i%len(commands)](t, c); err != nil {
					t.Errorf("command %d: %v", i, err)
				}
			}
		})
	}
	all.Wait()
}

// commands are what churn runs in turn.
var commands = []func(*testing.T, *client.Client) error{
	func(t *testing.T, c *client.Client) error { return c.Command("true").Run(t.Context()) },
	func(t *testing.T, c *client.Client) error {
		out, err := c.Command("head", "-c", "2048", "/dev/zero").Output(t.Context())
		if err == nil && len(out) != 2048 {
			err = fmt.Errorf("%d bytes", len(out))
		}
		return err
	},
	func(t *testing.T, c *client.Client) error {
		if err := c.Command("no-such-command").Run(t.Context()); !errors.Is(err, exec.ErrNotFound) {
			return fmt.Errorf("a missing command: %w", err)
		}
		return nil
	},
	func(t *testing.T, c *client.Client) error {
		cmd, in := c.Command("cat"), bytes.Repeat([]byte("in"), 50_000)
		cmd.Stdin = bytes.NewReader(in)
		out, err := cmd.Output(t.Context())
		if err == nil && !bytes.Equal(out, in) {
			err = fmt.Errorf("cat returned %d bytes", len(out))
		}
		return err
	},
	func(t *testing.T, c *client.Client) error {
		cmd := c.Shell("tty; exit 3")
		cmd.Terminal = &client.Size{}
		var exit *client.ExitError
		if _, err := cmd.Output(t.Context()); !errors.As(err, &exit) || exit.ExitCode != 3 {
			return fmt.Errorf("in a terminal: %w", err)
		}
		return nil
	},
	func(t *testing.T, c *client.Client) error {
		cmd := c.Shell("setsid sleep 1000 & echo started")
		if out, err := cmd.Output(t.Context()); err != nil || string(out) != "started\n" {
			return fmt.Errorf("with a background child: %q, %w", out, err)
		}
		return c.SignalProcess(t.Context(), cmd.ID(), syscall.SIGKILL)
	},
}
