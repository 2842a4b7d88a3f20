package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"guestd.internal/client"
)

// findFields makes find tell of each entry what List does.
const findFields = `%p\t%y\t%s\t%m\t%U\t%G\t%u\t%g\t%T@\t%A@\t%C@\t%i\t%D\t%n\t%l\n`

// measureFileList is the time to list a big folder, against find(1).
func measureFileList(ctx context.Context, b *bench) (results []result, err error) {
	folder, err := os.MkdirTemp(b.fast, "guestd-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)
	for i := range b.scale.entries {
		if err := os.WriteFile(filepath.Join(folder, fmt.Sprintf("entry-%06d", i)), nil, 0o644); err != nil {
			return nil, err
		}
	}
	err = b.withDaemon(ctx, func(_ *daemon, c *client.Client) error {
		samples, err := interleave(1, b.scale.folderRounds,
			timed(func() error { return b.listFolder(ctx, c, folder) }),
			timed(func() error { return b.findInFolder(folder) }),
		)
		if err == nil {
			name := fmt.Sprintf("List of %d entries", b.scale.entries)
			results = append(results, latency(name, samples[0], "find -printf", samples[1], atMost(3)))
		}
		return err
	})
	return results, err
}

func (b *bench) listFolder(ctx context.Context, c *client.Client, folder string) error {
	listed := 0
	for _, err := range c.List(ctx, folder, nil) {
		if err != nil {
			return err
		}
		listed++
	}
	return b.expectEntries(listed)
}

func (b *bench) findInFolder(folder string) error {
	out, err := exec.Command("find", folder, "-mindepth", "1", "-maxdepth", "1", "-printf", findFields).Output()
	if err != nil {
		return err
	}
	return b.expectEntries(bytes.Count(out, []byte{'\n'}))
}

func (b *bench) expectEntries(n int) error {
	if n != b.scale.entries {
		return fmt.Errorf("%d entries are listed instead of %d", n, b.scale.entries)
	}
	return nil
}
