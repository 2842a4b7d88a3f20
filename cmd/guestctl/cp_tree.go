package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"guestd.internal/client"
	"guestd.internal/client/hosttree"
)

// cpTree is cp -r. What is no directory is copied as without -r.
func (a *app) cpTree(ctx context.Context, f cpFlags, source, destination string) error {
	from, fromGuest := guestPath(source)
	to, toGuest := guestPath(destination)
	switch {
	case fromGuest && toGuest, !fromGuest && !toGuest:
		return a.cpFile(ctx, f, source, destination) // which copies within the guest, or says what is wrong
	case fromGuest && destination == "-":
		return a.archiveToStdout(ctx, f, from)
	case fromGuest:
		return a.downloadTree(ctx, f, from, destination)
	case source == "-":
		return a.extractStdin(ctx, f, to)
	default:
		return a.uploadTree(ctx, f, source, to)
	}
}

// uploadTree copies a local directory into the guest.
func (a *app) uploadTree(ctx context.Context, f cpFlags, source, destination string) error {
	info, err := os.Stat(source)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return a.upload(ctx, f, source, destination)
	}
	c, err := a.connect(ctx)
	if err != nil {
		return err
	}
	into, err := isGuestDir(ctx, c, destination, f.user)
	if err != nil {
		return err
	}
	if into {
		destination = path.Join(destination, treeName(filepath.Base(source)))
	}
	// These are the host's own files: no bomb.
	most := uint64(math.MaxInt64)
	return a.transfer(f, filepath.Base(source), func(bar *progress) (*copied, error) {
		w, err := c.Extract(ctx, destination, &client.ExtractOptions{
			User: f.user, Compression: client.NoCompression, Include: f.include, Exclude: f.exclude,
			MaxBytes: &most, MaxEntries: &most,
		})
		if err != nil {
			return nil, err
		}
		defer w.Abort()
		packed, err := hosttree.Pack(ctx, w, source, hosttree.Options{Progress: bar.set})
		if err != nil {
			return nil, err
		}
		unpacked, err := w.Commit()
		if err != nil {
			return nil, err
		}
		result := copiedOf(destination, unpacked)
		result.add(packed.Failures, packed.FailureCount)
		return result, nil
	})
}

// treeName is the name that a tree gets below an existing directory. Dots at the source's end mean
// what is in it, as for cp(1).
func treeName(base string) string {
	if base == ".." || base == "/" {
		return "."
	}
	return base
}

// downloadTree copies a directory of the guest to the host.
func (a *app) downloadTree(ctx context.Context, f cpFlags, source, destination string) error {
	c, err := a.connect(ctx)
	if err != nil {
		return err
	}
	info, err := c.Stat(ctx, source, &client.FileOptions{User: f.user})
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return a.download(ctx, f, source, destination)
	}
	if local, err := os.Stat(destination); err == nil && local.IsDir() {
		destination = filepath.Join(destination, treeName(path.Base(source)))
	} else if err == nil {
		return fmt.Errorf("%s is no directory, and %s is one", quoted(destination), quoted(source))
	}
	return a.transfer(f, path.Base(source), func(bar *progress) (*copied, error) {
		r, err := c.Archive(ctx, source, &client.ArchiveOptions{User: f.user, Include: f.include, Exclude: f.exclude})
		if err != nil {
			return nil, err
		}
		defer r.Close()
		unpacked, err := hosttree.Unpack(ctx, r, strings.TrimRight(destination, "/"), hosttree.Options{
			Progress: bar.set, MaxBytes: f.maxBytes, Umask: a.umask,
		})
		if errors.Is(err, hosttree.ErrLimit) {
			err = fmt.Errorf("%w: --max-bytes allows more", err)
		}
		if err != nil {
			return nil, err
		}
		result := &copied{path: destination, entries: unpacked.Entries, bytes: unpacked.Bytes}
		if packed := r.Summary(); packed != nil {
			result.add(packed.Failures, packed.FailureCount)
		}
		result.add(unpacked.Failures, unpacked.FailureCount)
		return result, nil
	})
}

// archiveToStdout writes a tree of the guest to stdout, as tar.
func (a *app) archiveToStdout(ctx context.Context, f cpFlags, source string) error {
	c, err := a.connect(ctx)
	if err != nil {
		return err
	}
	return a.transfer(f, path.Base(source), func(bar *progress) (*copied, error) {
		r, err := c.Archive(ctx, source, &client.ArchiveOptions{User: f.user, Include: f.include, Exclude: f.exclude})
		if err != nil {
			return nil, err
		}
		defer r.Close()
		if _, err := io.CopyBuffer(onlyWriter{a.stdout}, bar.reader(r), make([]byte, treeBuffer)); err != nil {
			return nil, err
		}
		return copiedOf("-", r.Summary()), nil
	})
}

// extractStdin unpacks an archive from stdin in the guest, below the destination itself.
func (a *app) extractStdin(ctx context.Context, f cpFlags, destination string) error {
	c, err := a.connect(ctx)
	if err != nil {
		return err
	}
	return a.transfer(f, path.Base(destination), func(bar *progress) (*copied, error) {
		options := &client.ExtractOptions{User: f.user, Include: f.include, Exclude: f.exclude}
		if f.maxBytes > 0 {
			options.MaxBytes = &f.maxBytes
		}
		w, err := c.Extract(ctx, destination, options)
		if err != nil {
			return nil, err
		}
		defer w.Abort()
		stdin := bar.reader((&stdinReader{file: a.stdin}).until(ctx))
		// Larger pieces than a pipe gives travel better.
		if _, err := bufio.NewReaderSize(stdin, treeBuffer).WriteTo(w); err != nil {
			return nil, err
		}
		unpacked, err := w.Commit()
		if err != nil {
			return nil, err
		}
		return copiedOf(destination, unpacked), nil
	})
}

// treeBuffer is the size of the pieces in which archives are copied.
const treeBuffer = 256 << 10

// transfer copies a tree, shows how far it has got, and tells what has come of it. What was left
// out is listed, and makes the exit code 125.
func (a *app) transfer(f cpFlags, name string, do func(*progress) (*copied, error)) error {
	start := time.Now()
	bar := a.newProgress(name, 0, f.quiet)
	result, err := do(bar)
	bar.end()
	if err != nil {
		return err
	}
	for _, failure := range result.failures {
		a.notice("%s", plain(failure))
	}
	if more := result.failureCount - uint64(len(result.failures)); more > 0 {
		a.notice("and %d more", more)
	}
	if !f.quiet {
		elapsed := time.Since(start)
		a.notice("copied %s, %s, in %.1f s (%s/s)", counted(result.entries), byteCount(float64(result.bytes)),
			elapsed.Seconds(), byteCount(float64(result.bytes)/max(elapsed.Seconds(), 1e-3)))
	}
	if err := a.printCopied(result); err != nil {
		return err
	}
	if result.failureCount > 0 {
		return exitError(exitFailure)
	}
	return nil
}

func counted(entries uint64) string {
	if entries == 1 {
		return "1 entry"
	}
	return fmt.Sprintf("%d entries", entries)
}

// onlyWriter hides the other methods, of which one reads in small pieces.
type onlyWriter struct{ io.Writer }
