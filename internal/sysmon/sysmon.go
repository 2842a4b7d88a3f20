// Package sysmon has Go's system monitor wake up less often.
//
// The runtime has a thread, sysmon, that looks after goroutines which keep a processor
// for too long: those in a system call for 20 microseconds, and those that have run for
// 10 milliseconds. While anything runs, it sleeps for 20 microseconds at first, again and
// again, which the kernel makes 70 (its timer slack). A program that serves one call
// after the other, and waits in between, has it woken up six times for a command that
// takes a millisecond, and each time somebody has to stop for it: a fifteenth of the
// whole, where all share one CPU.
//
// [Calm] gives that thread a longer timer slack (prctl(2), "PR_SET_TIMERSLACK"), and so
// the kernel lets it sleep on. The price: a goroutine that waits while all processors are
// in system calls may do so for that much longer, or twice that.
//
// Threads that sysmon starts inherit the slack, and so would the processes that are
// started from these: package spawn gives them the main thread's.
//
// It starts nothing, and changes nothing else of the runtime.
package sysmon

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Calm lets sysmon sleep longer than it asks for, by up to slack. It needs CAP_SYS_NICE.
// It is meant for the beginning of a program, which is when it is sure which thread is
// sysmon; where it is not it changes nothing and returns an error.
func Calm(slack time.Duration) error {
	thread, err := find()
	if err != nil {
		return fmt.Errorf("looking for the runtime's sysmon: %w", err)
	}
	// Of a thread as of a process: proc_timerslack_ns(5).
	path := "/proc/" + strconv.Itoa(thread) + "/timerslack_ns"
	if err := os.WriteFile(path, []byte(strconv.FormatInt(slack.Nanoseconds(), 10)), 0); err != nil {
		return fmt.Errorf("setting the timer slack of the runtime's sysmon: %w", err)
	}
	return nil
}

// find returns sysmon's thread id: it is the first thread that the runtime starts, and
// waits by nanosleep(2) or futex(2) only.
func find() (int, error) {
	thread, err := second()
	if err != nil {
		return 0, err
	}
	doing, err := os.ReadFile("/proc/self/task/" + strconv.Itoa(thread) + "/syscall")
	if err != nil {
		return 0, err
	}
	call, _, _ := strings.Cut(strings.TrimSpace(string(doing)), " ")
	switch call {
	case "running", strconv.Itoa(unix.SYS_NANOSLEEP), strconv.Itoa(unix.SYS_FUTEX):
		return thread, nil
	}
	return 0, fmt.Errorf("thread %d is in system call %s", thread, call)
}

// second returns the thread that was started first after the main one.
func second() (int, error) {
	tasks, err := os.Open("/proc/self/task")
	if err != nil {
		return 0, err
	}
	defer tasks.Close()
	names, err := tasks.Readdirnames(2) // in the order of their starts
	if err != nil && !errors.Is(err, io.EOF) {
		return 0, err
	}
	if len(names) < 2 || names[0] != strconv.Itoa(os.Getpid()) {
		return 0, fmt.Errorf("the process's first threads are %q", names)
	}
	return strconv.Atoi(names[1])
}
