package main

import (
	"context"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// stdinReader reads stdin for as long as a context lasts: a Read on a terminal or pipe cannot be
// broken off otherwise, and Ctrl-C would seem to do nothing. What such a Read gets later is kept
// for the next one. It is for one goroutine; its own ends with the Read that it waits in.
type stdinReader struct {
	file    *os.File
	pending chan stdinBlock // of the Read that is under way; nil without one
	rest    []byte
	err     error
}

type stdinBlock struct {
	data []byte
	err  error
}

// stdinBlockBytes is how much is read at a time.
const stdinBlockBytes = 256 << 10

// readContext is io.Reader's Read, ended by ctx with its cause.
func (r *stdinReader) readContext(ctx context.Context, p []byte) (int, error) {
	for len(r.rest) == 0 {
		if r.err != nil {
			return 0, r.err
		}
		if r.pending == nil {
			r.begin()
		}
		select {
		case block := <-r.pending:
			r.pending = nil
			r.rest, r.err = block.data, block.err
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

func (r *stdinReader) begin() {
	pending := make(chan stdinBlock, 1)
	r.pending = pending
	go func() {
		block := make([]byte, stdinBlockBytes)
		n, err := r.file.Read(block)
		pending <- stdinBlock{block[:n], err}
	}()
}

// until is the reader as an io.Reader that ctx ends.
func (r *stdinReader) until(ctx context.Context) io.Reader { return contextReader{ctx, r} }

type contextReader struct {
	ctx context.Context
	r   *stdinReader
}

// Read implements io.Reader.
func (c contextReader) Read(p []byte) (int, error) { return c.r.readContext(c.ctx, p) }

// hideTyping switches a terminal's echo off until show is called.
func hideTyping(f *os.File) (show func(), err error) {
	before, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	if err != nil {
		return nil, err
	}
	hidden := *before
	hidden.Lflag &^= unix.ECHO
	if err := unix.IoctlSetTermios(int(f.Fd()), unix.TCSETS, &hidden); err != nil {
		return nil, err
	}
	return func() {
		// A terminal that cannot be restored is one that is gone.
		_ = unix.IoctlSetTermios(int(f.Fd()), unix.TCSETS, before)
	}, nil
}
