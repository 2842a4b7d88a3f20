package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/spf13/cobra"

	"guestd.internal/client"
)

func newCat(a *app) *cobra.Command {
	var user string
	cmd := &cobra.Command{
		Use:   "cat [-u USER] PATH...",
		Short: "Print files",
		Long: `Print files of the guest, byte for byte. Of a device that is all that it gives, which may have no
end; where it has nothing to give yet that is an error. A FIFO is not waited for: exec -- cat does that.`,
		Example: "  guestctl cat /etc/os-release",
		Args:    atLeast(1, "a path"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.each(cmd.Context(), args, func(ctx context.Context, c *client.Client, path string) error {
				return a.catFile(ctx, c, path, user)
			})
		},
	}
	addUserFlag(cmd.Flags(), &user)
	return cmd
}

func (a *app) catFile(ctx context.Context, c *client.Client, path, user string) error {
	r, err := c.Open(ctx, path, &client.ReadOptions{User: user})
	if isDevice(err) {
		endless := uint64(math.MaxInt64)
		r, err = c.Open(ctx, path, &client.ReadOptions{User: user, Length: &endless})
	}
	if isUnread(err) {
		return fmt.Errorf("%w (exec -- cat reads a FIFO)", naming(path, err))
	}
	if err != nil {
		return err
	}
	defer r.Close()
	out := &notingWriter{to: a.stdout}
	if _, err := io.Copy(out, r); err != nil && out.err == nil {
		return fmt.Errorf("reading %s: %w", quoted(path), err)
	}
	return out.err
}

// notingWriter keeps the error of a write, which io.Copy does not tell from that of a read.
type notingWriter struct {
	to  io.Writer
	err error
}

func (w *notingWriter) Write(p []byte) (n int, err error) {
	n, w.err = w.to.Write(p)
	return n, w.err
}

// isDevice tells whether guestd wants to know how much to read, as it does of what may have no end.
func isDevice(err error) bool {
	refused, is := errors.AsType[*client.Error](err)
	return is && refused.Field == "length" && errors.Is(err, client.ErrInvalid)
}

// isUnread tells whether guestd does not even try to read files of a type, as FIFOs.
func isUnread(err error) bool {
	refused, is := errors.AsType[*client.Error](err)
	return is && refused.Reason == "NOT_A_REGULAR_FILE" && refused.Errno == 0
}
