package fsapi

import (
	"context"
	"time"

	"golang.org/x/sys/unix"

	"guestd.internal/internal/account"
)

// handPatience is how long a hand's thread waits for more to do.
const handPatience = 10 * time.Millisecond

// hand does one thing after the other as [FS.as] does, on one thread as long as
// they follow each other closely, which is cheaper. It is for the contents of special
// files: of these the kernel asks for the rights of the thread that reads or writes,
// too, not only of the one that has opened the file.
//
// The zero hand with its first fields set is ready. It is for one goroutine.
// Whoever has used it calls release.
type hand struct {
	fsys *FS
	ctx  context.Context // ends what it does
	acc  account.Account

	thread *handThread // nil is none
}

// handThread is a goroutine on a worker.
type handThread struct {
	jobs chan func()
	gone chan struct{} // closed when it has ended; then the following are set
	err  error         // why it could not begin
	// panicked is a job's panic.
	panicked any
}

// do runs fn on the thread, once, and returns its error.
func (h *hand) do(fn func() error) error {
	for {
		if h.thread == nil {
			h.start()
		}
		t := h.thread
		var err error
		done := make(chan struct{})
		job := func() {
			err = fn()
			close(done)
		}
		select {
		case t.jobs <- job:
			select {
			case <-done:
				return err
			case <-t.gone: // not before the job has, unless it panicked
			}
			select {
			case <-done:
				return err
			default:
			}
		case <-t.gone:
		}
		h.thread = nil
		if t.panicked != nil {
			panic(t.panicked)
		}
		if t.err != nil {
			return t.err
		}
	}
}

func (h *hand) start() {
	t := &handThread{jobs: make(chan func()), gone: make(chan struct{})}
	h.thread = t
	ctx, fsys, acc := h.ctx, h.fsys, h.acc
	go func() {
		defer close(t.gone)
		defer func() { t.panicked = recover() }()
		t.err = fsys.as(ctx, acc, func() error {
			t.work()
			return nil
		})
	}()
}

// work does what comes, until nothing more comes.
func (t *handThread) work() {
	timer := time.NewTimer(handPatience)
	defer timer.Stop()
	for {
		select {
		case job, more := <-t.jobs:
			if !more {
				return
			}
			job()
			timer.Reset(handPatience)
		case <-timer.C:
			return
		}
	}
}

// release ends the thread, if there is one, and waits for that.
func (h *hand) release() {
	if h.thread == nil {
		return
	}
	close(h.thread.jobs)
	<-h.thread.gone
	h.thread = nil
}

// kernelFileSystems are those whose files are what the kernel makes up.
var kernelFileSystems = map[int64]bool{
	unix.PROC_SUPER_MAGIC: true, unix.SYSFS_MAGIC: true, unix.CGROUP_SUPER_MAGIC: true, unix.CGROUP2_SUPER_MAGIC: true,
	unix.DEBUGFS_MAGIC: true, unix.TRACEFS_MAGIC: true, unix.SECURITYFS_MAGIC: true, unix.BPF_FS_MAGIC: true,
	unix.EFIVARFS_MAGIC: true, unix.SELINUX_MAGIC: true,
}

// special says whether an open file is no regular one on an ordinary file system.
func special(fd int) (bool, error) {
	info, err := statAt(fd, "")
	if err != nil {
		return false, err
	}
	var st unix.Statfs_t
	err = unix.Fstatfs(fd, &st)
	return info.Type != TypeRegular || kernelFileSystems[int64(st.Type)], err
}
