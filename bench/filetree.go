package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"guestd.internal/client"
)

// The tree of small files that is copied: folders with so many files each.
const (
	treeFolderFiles = 100
	treeFileBytes   = 1 << 10
)

// measureFileTree is the time of cp -r of many small files, guestctl from its start to
// its end, against one tar(1) that packs them into a Unix socket and another that
// unpacks them from its other end.
func measureFileTree(ctx context.Context, b *bench) (results []result, err error) {
	folder, err := os.MkdirTemp(b.fast, "guestd-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)
	source, copied := filepath.Join(folder, "source"), filepath.Join(folder, "copied")
	if err := makeTree(source, b.scale.treeFiles); err != nil {
		return nil, err
	}
	err = b.withDaemon(ctx, func(d *daemon, _ *client.Client) error {
		samples, err := interleave(1, b.scale.treeRounds,
			b.copying(copied, func() error { return b.copyTree(ctx, d, source, ":"+copied) }),
			b.copying(copied, func() error { return b.copyTree(ctx, d, ":"+source, copied) }),
			b.copying(copied, func() error { return tarTree(ctx, source, copied) }),
		)
		if err == nil {
			const floor = "tar c | tar x"
			name := fmt.Sprintf("cp -r of %d files of 1 KiB ", b.scale.treeFiles)
			results = append(results,
				latency(name+"in", samples[0], floor, samples[2], atMost(2)),
				latency(name+"out", samples[1], floor, samples[2], atMost(2)))
		}
		return err
	})
	return results, err
}

func makeTree(folder string, files int) error {
	contents := bytes.Repeat([]byte("0123456789abcdef"), treeFileBytes/16)
	for i := range files {
		below := filepath.Join(folder, fmt.Sprintf("folder-%03d", i/treeFolderFiles))
		if i%treeFolderFiles == 0 {
			if err := os.MkdirAll(below, 0o755); err != nil {
				return err
			}
		}
		if err := os.WriteFile(filepath.Join(below, fmt.Sprintf("file-%05d", i)), contents, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// copyTree copies a tree with guestctl.
func (b *bench) copyTree(ctx context.Context, d *daemon, from, to string) error {
	command := exec.CommandContext(ctx, b.guestctl, "cp", "-rq", from, to)
	command.Env = append(os.Environ(), "GUESTD_TARGET="+d.target())
	return runQuietly(command)
}

// tarTree copies a tree with two processes and a socket between them.
func tarTree(ctx context.Context, from, to string) error {
	ends, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	out, in := os.NewFile(uintptr(ends[0]), "socket"), os.NewFile(uintptr(ends[1]), "socket")
	defer out.Close()
	defer in.Close()
	if err := os.Mkdir(to, 0o755); err != nil {
		return err
	}
	pack := exec.CommandContext(ctx, "tar", "-c", "-f", "-", "-C", from, ".")
	pack.Stdout = out
	unpack := exec.CommandContext(ctx, "tar", "-x", "-f", "-", "-C", to)
	unpack.Stdin = in
	if err := pack.Start(); err != nil {
		return err
	}
	// Without an end in this process each of the two learns when the other has ended.
	unpackErr := errors.Join(out.Close(), runQuietly(unpack), in.Close())
	return errors.Join(pack.Wait(), unpackErr)
}

// runQuietly runs a command; what it has to say is in the error.
func runQuietly(command *exec.Cmd) error {
	out, err := command.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", command.Args[0], err, out)
	}
	return nil
}

// copying is an arm that makes a copy of the tree, which is counted and goes away untimed.
func (b *bench) copying(to string, job func() error) arm {
	return func() (time.Duration, error) {
		took, err := timed(job)()
		if err != nil {
			return 0, err
		}
		files, size := 0, countingWriter(0)
		err = filepath.WalkDir(to, func(_ string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			info, err := entry.Info()
			if err != nil {
				return err
			}
			files, size = files+1, size+countingWriter(info.Size())
			return nil
		})
		if err == nil && files != b.scale.treeFiles {
			err = fmt.Errorf("%d files were copied instead of %d", files, b.scale.treeFiles)
		}
		return took, errors.Join(err, size.expect(int64(b.scale.treeFiles)*treeFileBytes), os.RemoveAll(to))
	}
}
