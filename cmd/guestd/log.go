package main

import (
	"io"
	"log/slog"
	"os"

	"golang.org/x/sys/unix"
)

// newLogger logs to w: as text where format says so or, without a format, where w
// is a terminal; as JSON otherwise.
func newLogger(w io.Writer, level slog.Level, format string) *slog.Logger {
	options := &slog.HandlerOptions{Level: level}
	if format == "text" || format == "" && isTerminal(w) {
		return slog.New(slog.NewTextHandler(w, options))
	}
	return slog.New(slog.NewJSONHandler(w, options))
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}
