package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"guestd.internal/client"
)

// measureFileRead is how fast a file arrives, against another process that reads it
// and writes it into a socket which this one reads.
func measureFileRead(ctx context.Context, b *bench) ([]result, error) {
	folder, err := os.MkdirTemp(b.fast, "guestd-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)
	path := filepath.Join(folder, "file")
	if err := makeFile(path, b.size); err != nil {
		return nil, err
	}
	var samples []sample
	extra, err := b.costInMemory(ctx, func(c *client.Client) (err error) {
		samples, err = interleave(1, b.scale.copies,
			timed(func() error { return readFile(ctx, c, path, b.size) }),
			b.with(b.drain, partSend, "", path),
		)
		return err
	})
	if err != nil {
		return nil, err
	}
	return []result{
		throughput("file read", b.size, samples[0], "Unix socket", samples[1], atLeast(0.5)),
		absolute("file read: memory beyond idle", sizeInBytes, extra, atMost(extraMemory)),
	}, nil
}

func makeFile(path string, size int64) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(writeBytes(file, size), file.Close())
}

func readFile(ctx context.Context, c *client.Client, path string, size int64) error {
	r, err := c.Open(ctx, path, nil)
	if err != nil {
		return err
	}
	defer r.Close()
	var got countingWriter
	if _, err := r.WriteTo(&got); err != nil {
		return err
	}
	return got.expect(size)
}

// measureFileWrite is how fast a new file is written, against another process that
// writes it from a socket.
func measureFileWrite(ctx context.Context, b *bench) ([]result, error) {
	folder, err := os.MkdirTemp(b.fast, "guestd-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)
	path := filepath.Join(folder, "file")
	var samples []sample
	extra, err := b.costInMemory(ctx, func(c *client.Client) (err error) {
		samples, err = interleave(1, b.scale.copies,
			b.writing(path, timed(func() error { return writeFile(ctx, c, path, b.size) })),
			b.writing(path, b.with(b.fill, partReceive, path)),
		)
		return err
	})
	if err != nil {
		return nil, err
	}
	return []result{
		throughput("file write", b.size, samples[0], "Unix socket", samples[1], atLeast(0.5)),
		absolute("file write: memory beyond idle", sizeInBytes, extra, atMost(extraMemory)),
	}, nil
}

// with is an arm that works with a peer, which is there when the time begins: guestd
// is, too.
func (b *bench) with(job func(*peer) error, part string, args ...string) arm {
	return func() (time.Duration, error) {
		p, err := b.startPeer(part, args...)
		if err != nil {
			return 0, err
		}
		return timed(func() error { return job(p) })()
	}
}

// writing is an arm that writes a file of b.size bytes, which goes away untimed.
func (b *bench) writing(path string, write arm) arm {
	return func() (time.Duration, error) {
		took, err := write()
		if err != nil {
			return 0, err
		}
		info, err := os.Stat(path)
		if err != nil {
			return 0, err
		}
		written := countingWriter(info.Size())
		return took, errors.Join(written.expect(b.size), os.Remove(path))
	}
}

func writeFile(ctx context.Context, c *client.Client, path string, size int64) error {
	w, err := c.Create(ctx, path, nil)
	if err != nil {
		return err
	}
	defer w.Abort()
	if err := writeBytes(w, size); err != nil {
		return err
	}
	_, err = w.Commit()
	return err
}

// fill sends a peer b.size bytes and waits until it has written them.
func (b *bench) fill(p *peer) error {
	return errors.Join(writeBytes(p.conn, b.size), p.wait())
}
