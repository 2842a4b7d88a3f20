package main

import (
	"context"
	"fmt"
	"io/fs"
	"strconv"

	"github.com/spf13/cobra"

	"guestd.internal/client"
)

// writeFlags are the flags of write.
type writeFlags struct {
	user                       string
	mode                       fileMode
	appendTo, exclusive, fsync bool
	noParents                  bool
}

func newWrite(a *app) *cobra.Command {
	var f writeFlags
	cmd := &cobra.Command{
		Use:   "write [flags] PATH",
		Short: "Write stdin to a file",
		Long: `Write stdin to a file of the guest. The file is replaced at once when stdin ends: until then, and
if the command is broken off, the old one is whole. Missing parent directories are made.

--json prints one object with the file's path, how many bytes were written, whether it was created,
and whether it was written in place since it could not be replaced.`,
		Example: `  echo hello | guestctl write /tmp/hello.txt
  date | guestctl write --append log.txt`,
		Args: exactly(1, "one path"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := excluding(cmd, "append", "exclusive"); err != nil {
				return err
			}
			return a.write(cmd.Context(), f, args[0])
		},
	}
	flags := cmd.Flags()
	addUserFlag(flags, &f.user)
	flags.VarP(&f.mode, "mode", "m", "give the file `MODE`, in octal (default: an existing file's own, else 644)")
	flags.BoolVarP(&f.appendTo, "append", "a", false, "write behind the file's end")
	flags.BoolVar(&f.noParents, "no-parents", false, "fail if the parent directory is missing")
	flags.BoolVar(&f.exclusive, "exclusive", false, "fail if the file exists")
	flags.BoolVar(&f.fsync, "fsync", false, "return only when it is on the disk")
	return cmd
}

func (a *app) write(ctx context.Context, f writeFlags, path string) error {
	c, err := a.connect(ctx)
	if err != nil {
		return err
	}
	options := &client.WriteOptions{User: f.user, Mode: f.mode.value, Exclusive: f.exclusive, Fsync: f.fsync, NoParents: f.noParents}
	if f.appendTo {
		options.Placement = client.Append
	}
	written, err := upload(ctx, c, (&stdinReader{file: a.stdin}).until(ctx), path, options)
	if err != nil {
		return err
	}
	return a.printWritten(written)
}

// fileMode is a flag that takes an octal mode.
type fileMode struct{ value *fs.FileMode }

func (m *fileMode) String() string {
	if m.value == nil {
		return ""
	}
	return fmt.Sprintf("%o", m.value.Perm())
}

// Set implements pflag.Value.
func (m *fileMode) Set(text string) error {
	bits, err := strconv.ParseUint(text, 8, 32)
	if err != nil || bits > 0o7777 {
		return fmt.Errorf("want an octal mode from 0 to 7777")
	}
	mode := modeOfBits(uint32(bits))
	m.value = &mode
	return nil
}

// Type implements pflag.Value.
func (m *fileMode) Type() string { return "MODE" }

// modeOfBits turns chmod's bits into Go's.
func modeOfBits(bits uint32) fs.FileMode {
	mode := fs.FileMode(bits) & fs.ModePerm
	for bit, flag := range map[uint32]fs.FileMode{0o4000: fs.ModeSetuid, 0o2000: fs.ModeSetgid, 0o1000: fs.ModeSticky} {
		if bits&bit != 0 {
			mode |= flag
		}
	}
	return mode
}
