package main

import (
	"fmt"
	"log/slog"
	"os"

	"golang.org/x/sys/unix"
)

// harden protects this process from what runs in the guest: the kernel's
// out-of-memory killer is to take somebody else, and no other process may read its
// memory or trace it. It returns what was refused, a sentence each.
func harden(log *slog.Logger) (degraded []string) {
	note := func(what string, err error) {
		log.Warn("guestd is degraded", "what", what, "error", err)
		degraded = append(degraded, fmt.Sprintf("%s: %v", what, err))
	}
	// In this order: the files in /proc of a process that is not dumpable belong to
	// root.
	if err := os.WriteFile("/proc/self/oom_score_adj", []byte("-1000"), 0); err != nil {
		note("guestd can be taken by the out-of-memory killer", err)
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		note("guestd's memory can be read by its own user", err)
	}
	return degraded
}
