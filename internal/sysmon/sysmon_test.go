package sysmon

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"guestd.internal/test/need"
)

// The thread that gets the slack is the one that does what sysmon does: it sleeps by
// nanosleep nearly all of the time while a goroutine runs.
func TestCalmFindsSysmon(t *testing.T) {
	const slack = 1_234_567 * time.Nanosecond
	err := Calm(slack)
	if errors.Is(err, fs.ErrPermission) {
		need.Skip(t, "to change a thread's timer slack needs CAP_SYS_NICE; try: sudo go test")
	}
	if err != nil {
		t.Fatal(err)
	}
	var calm []string
	for _, thread := range threads(t) {
		if read(t, filepath.Join("/proc", thread, "timerslack_ns")) == strconv.Itoa(int(slack)) {
			calm = append(calm, thread)
		}
	}
	if len(calm) == 0 {
		t.Fatal("no thread has the slack")
	}
	calls := make(map[string]int)
	for range 1000 { // this goroutine runs all the time, and so sysmon has no long rest
		call, _, _ := strings.Cut(read(t, "/proc/self/task/"+calm[0]+"/syscall"), " ")
		calls[call]++
	}
	delete(calls, "running") // or it would, if it could: where others do
	asleep := calls[strconv.Itoa(unix.SYS_NANOSLEEP)]
	delete(calls, strconv.Itoa(unix.SYS_NANOSLEEP))
	for call, times := range calls {
		if times > asleep {
			t.Errorf("thread %s sleeps %d times, and is in system call %s %d times: it is not sysmon", calm[0], asleep, call, times)
		}
	}
}

// threads returns the thread ids of this process.
func threads(t *testing.T) []string {
	t.Helper()
	tasks, err := filepath.Glob("/proc/self/task/*")
	if err != nil {
		t.Fatal(err)
	}
	for i, task := range tasks {
		tasks[i] = filepath.Base(task)
	}
	return tasks
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(data))
}
