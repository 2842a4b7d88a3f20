package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"guestd.internal/client"
)

// cpFlags are the flags of cp.
type cpFlags struct {
	user      string
	recursive bool
	preserve  bool
	fsync     bool
	quiet     bool
	maxBytes  uint64
	// include and exclude choose entries of a tree.
	include, exclude []string
}

func newCp(a *app) *cobra.Command {
	var f cpFlags
	cmd := &cobra.Command{
		Use:   "cp [-r] [flags] SOURCE DESTINATION",
		Short: "Copy files and directories into, out of or within the guest",
		Long: `Copy a file into the guest, out of it or within it, and with -r a directory with all that is in it. Paths
of the guest begin with a colon; those without a slash behind it start at the user's home. A single
hyphen is stdin or stdout. A destination that is a directory gets the copy under the source's name.

What was there is replaced at once, when all has arrived: an interrupted copy leaves no half file.

With -r links are copied as links. A directory that is there already is copied into, and its own mode
and what else is in it stay. What cannot be copied is listed, the rest is copied, and the exit code is
125. A hyphen with -r is a tar stream: a directory of the guest as tar on stdout, or tar, gzip or zstd
from stdin unpacked in the guest. Nothing that a guest sends lands outside the destination; devices,
FIFOs and sockets are not copied.

What a copy keeps:

  permissions (rwx)     always, and a file that is replaced gets them too; on the
                        host, less what the umask takes. From stdin without -r an
                        existing file's stay, and a new one has 644
  set-uid, set-gid      within the guest with -p, else never
  sticky bit            into and within the guest
  modification times    of directories and all in them, into and out of the guest;
                        within it with -p
  hard links            within a directory, into and out of the guest; within the
                        guest with -p
  owner                 within the guest with -p, as far as the user may; else the
                        copy is the user's own
  extended attributes   within the guest with -p, and those that a tar stream has

The tar stream on stdout has all of that and every bit of the modes; what unpacks it decides.

With --include only what matches one of the globs is copied, and what matches --exclude is not, nor what
is below it. A glob without a slash is matched with names, one with a slash with paths below the
source; ** is any number of levels.

Where both paths are the guest's it copies by itself, sharing contents where its file system can.

--json prints one object with the copy's path, its entries, their bytes, and how many failures there
were.`,
		Example: `  guestctl cp report.csv :/srv/data/
  guestctl cp :/var/log/syslog .
  guestctl cp -r src :
  guestctl cp -r --exclude .git --exclude node_modules project :
  guestctl cp -r :/srv/results .
  guestctl cp -rp :/etc/nginx :/etc/nginx.old
  guestctl cp -r :/etc - | tar tv
  guestctl cp -r - :/opt <release.tar.zst
  tar c src | guestctl cp - :src.tar`,
		Args: exactly(2, "a source and a destination"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.check(args[0], args[1]); err != nil {
				return err
			}
			if a.json && args[1] == "-" {
				return errors.New("--json has no place on a stdout that gets the copy")
			}
			if f.recursive {
				return a.cpTree(cmd.Context(), f, args[0], args[1])
			}
			return a.cpFile(cmd.Context(), f, args[0], args[1])
		},
	}
	addUserFlag(cmd.Flags(), &f.user)
	cmd.Flags().BoolVarP(&f.recursive, "recursive", "r", false, "copy directories with all that is in them")
	cmd.Flags().BoolVarP(&f.preserve, "preserve", "p", false,
		"within the guest: keep owner, all of the mode, times, hard links and extended attributes")
	cmd.Flags().Uint64Var(&f.maxBytes, "max-bytes", 0,
		"with -r out of the guest or from stdin: most `BYTES` to unpack (default 64 GiB)")
	cmd.Flags().StringArrayVar(&f.include, "include", nil, "with -r: copy only what matches `GLOB`")
	cmd.Flags().StringArrayVar(&f.exclude, "exclude", nil, "with -r: leave out what matches `GLOB`")
	cmd.Flags().BoolVar(&f.fsync, "fsync", false, "return only when the copy is on the guest's disk")
	cmd.Flags().BoolVarP(&f.quiet, "quiet", "q", false, "show no progress")
	return cmd
}

// check refuses flags that say nothing about what is copied where.
func (f *cpFlags) check(source, destination string) error {
	_, fromGuest := guestPath(source)
	_, toGuest := guestPath(destination)
	within := fromGuest && toGuest
	switch {
	case f.preserve && !within:
		return errors.New("--preserve is for copies within the guest; others keep permissions, and of directories times and hard links")
	case within && (f.fsync || f.maxBytes > 0):
		return errors.New("--fsync and --max-bytes are not for copies within the guest")
	case len(f.include)+len(f.exclude) > 0 && (within || !f.recursive):
		return errors.New("--include and --exclude are for trees: with -r, into or out of the guest")
	}
	return nil
}

func (a *app) cpFile(ctx context.Context, f cpFlags, source, destination string) error {
	from, fromGuest := guestPath(source)
	to, toGuest := guestPath(destination)
	switch {
	case fromGuest && toGuest:
		return a.cpWithin(ctx, f, from, to)
	case fromGuest:
		return a.download(ctx, f, from, destination)
	case toGuest:
		return a.upload(ctx, f, source, to)
	default:
		return errors.New("neither path is the guest's: those begin with a colon, as :/tmp/file does")
	}
}

// guestPath tells whether a path is the guest's, and without its colon which. The colon alone is
// the home.
func guestPath(text string) (string, bool) {
	name, is := strings.CutPrefix(text, ":")
	if is && name == "" {
		name = "."
	}
	return name, is
}

// upload copies a local file, or stdin, into the guest.
func (a *app) upload(ctx context.Context, f cpFlags, source, destination string) error {
	c, err := a.connect(ctx)
	if err != nil {
		return err
	}
	file, info, err := a.openSource(ctx, source)
	if err != nil {
		return err
	}
	defer file.Close()
	destination, err = guestDestination(ctx, c, destination, source, f.user)
	if err != nil {
		return err
	}
	options := &client.WriteOptions{User: f.user, Fsync: f.fsync}
	var size uint64
	if info != nil && info.Mode().IsRegular() {
		mode := info.Mode() &^ (fs.ModeSetuid | fs.ModeSetgid)
		size = uint64(info.Size())
		options.Mode = &mode
	}
	bar := a.newProgress(path.Base(destination), size, f.quiet)
	defer bar.end()
	written, err := upload(ctx, c, bar.reader(file), destination, options)
	if err != nil {
		return err
	}
	return a.printCopied(&copied{path: written.Info.Path, entries: 1, bytes: written.Bytes})
}

// openSource opens what is copied; "-" is stdin, which has no info.
func (a *app) openSource(ctx context.Context, source string) (io.ReadCloser, fs.FileInfo, error) {
	if source == "-" {
		return io.NopCloser((&stdinReader{file: a.stdin}).until(ctx)), nil, nil
	}
	file, err := os.Open(source)
	if err != nil {
		return nil, nil, err
	}
	info, err := file.Stat()
	if err == nil && info.IsDir() {
		err = fmt.Errorf("%s is a directory: cp -r copies those", quoted(source))
	}
	if err != nil {
		return nil, nil, errors.Join(err, file.Close())
	}
	return file, info, nil
}

// guestDestination is the file's path in the guest: below the destination if that is a directory.
func guestDestination(ctx context.Context, c *client.Client, destination, source, user string) (string, error) {
	into, err := isGuestDir(ctx, c, destination, user)
	if err != nil {
		return "", err
	}
	if !into && !strings.HasSuffix(destination, "/") {
		return destination, nil
	}
	if source == "-" {
		return "", fmt.Errorf("%s is a directory, and stdin has no name to put there", quoted(destination))
	}
	if !into {
		return "", fmt.Errorf("the guest has no directory %s", quoted(destination))
	}
	return path.Join(destination, filepath.Base(source)), nil
}

// upload streams r into a file of the guest. What r fails with leaves the old file whole.
func upload(ctx context.Context, c *client.Client, r io.Reader, destination string, options *client.WriteOptions) (*client.WriteResult, error) {
	w, err := c.Create(ctx, destination, options)
	if err != nil {
		return nil, err
	}
	defer w.Abort()
	if _, err := w.ReadFrom(r); err != nil {
		return nil, err
	}
	return w.Commit()
}

// download copies a file of the guest to a local path, or to stdout.
func (a *app) download(ctx context.Context, f cpFlags, source, destination string) error {
	c, err := a.connect(ctx)
	if err != nil {
		return err
	}
	r, err := c.Open(ctx, source, &client.ReadOptions{User: f.user})
	if errors.Is(err, syscall.EISDIR) {
		return fmt.Errorf("%s is a directory: cp -r copies those", quoted(source))
	}
	if isDevice(err) {
		return fmt.Errorf("%s is a device, which may have no end: cat reads it", quoted(source))
	}
	if err != nil {
		return naming(source, err)
	}
	defer r.Close()
	bar := a.newProgress(path.Base(source), r.Info().Bytes, f.quiet)
	defer bar.end()
	if destination == "-" {
		_, err := io.Copy(a.stdout, bar.reader(r))
		return err
	}
	destination, err = localDestination(destination, source)
	if err != nil {
		return err
	}
	if err := replaceFile(destination, bar.reader(r), r.Info().Mode().Perm()&^a.umask); err != nil {
		return err
	}
	return a.printCopied(&copied{path: destination, entries: 1, bytes: bar.bytes()})
}

// localDestination is the file's local path: below the destination if that is a directory.
func localDestination(destination, source string) (string, error) {
	info, err := os.Stat(destination)
	switch {
	case err == nil && info.IsDir():
		return filepath.Join(destination, path.Base(source)), nil
	case strings.HasSuffix(destination, "/"):
		return "", fmt.Errorf("there is no directory %s", quoted(destination))
	case err == nil || errors.Is(err, fs.ErrNotExist):
		return destination, nil
	default:
		return "", err
	}
}
