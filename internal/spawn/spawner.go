package spawn

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"guestd.internal/internal/account"
)

// Config configures a Spawner. Its zero value is what a program that embeds
// guestd uses.
type Config struct {
	// Logger receives what happens outside of any call; nil discards it.
	Logger *slog.Logger

	// CgroupRoot is the cgroup v2 folder below which the Spawner makes its own.
	// "" looks for a writable one, also where v2 is mounted beside v1; "none" does
	// without.
	CgroupRoot string

	// Reaper makes this process a child subreaper and collects the orphans that
	// it is given. Only the daemon's own program sets it: it changes the whole
	// process. A child is left alone for as long as this process holds a pidfd of
	// it, as package os does for those that it starts.
	Reaper bool
}

// A Spawner starts processes. It is safe for concurrent use.
type Spawner struct {
	log        *slog.Logger
	null       *os.File
	self       identity
	inherited  inherited
	nice       int // guestd's own
	slack      timerSlack
	oomScore   ownOOMScore
	cgroups    *cgroupParent // nil without a usable cgroup v2 mount
	audit      bool          // audit sessions can be given
	closeRange bool          // the kernel has close_range(2)
	reaper     *reaper       // nil unless Config.Reaper
	looks      looks         // at /proc, without cgroups

	// mu protects the following.
	mu       sync.Mutex
	closed   bool
	children map[*Child]struct{}  // started and not yet released
	starting map[*launch]struct{} // whose children are on their way to their programs
	degraded []string
	noPtrace bool // ptrace was refused once

	running sync.WaitGroup // starts in progress and goroutines of children
}

// New returns a Spawner. It marks descriptors that this process has inherited
// close-on-exec, and takes note of its umask, and of signals that are blocked or ignored. It fails without
// pidfds (Linux before 5.4), or when CgroupRoot names a folder that cannot be used.
func New(cfg Config) (*Spawner, error) {
	s := &Spawner{log: cfg.Logger, children: make(map[*Child]struct{}), starting: make(map[*launch]struct{})}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if err := checkPidfds(); err != nil {
		return nil, err
	}
	var err error
	if s.closeRange, err = closeOnExec(); err != nil {
		return nil, err
	}
	defaultLibrarySignals()
	if s.self, err = readIdentity(); err != nil {
		return nil, err
	}
	if s.inherited, err = readInherited(); err != nil {
		return nil, fmt.Errorf("reading what children inherit: %w", err)
	}
	if s.oomScore, err = openOwnOOMScore(); err != nil {
		return nil, fmt.Errorf("reading what children inherit: %w", err)
	}
	s.nice, s.slack = ownNice(), ownTimerSlack()
	if s.null, err = os.OpenFile(os.DevNull, os.O_RDWR, 0); err != nil {
		return nil, errors.Join(err, s.oomScore.file.Close())
	}
	if err := s.openCgroups(cfg.CgroupRoot); err != nil {
		return nil, errors.Join(err, s.null.Close(), s.oomScore.file.Close())
	}
	if s.cgroups == nil {
		s.probeAudit()
	}
	if cfg.Reaper {
		if err := s.startReaper(); err != nil {
			return nil, errors.Join(err, s.Close())
		}
	}
	return s, nil
}

// openCgroups makes the Spawner's cgroup folder, or notes why there is none.
func (s *Spawner) openCgroups(root string) error {
	if root == "none" {
		s.degrade("cgroups are switched off: a killed tree is found through /proc, as far as that goes")
		return nil
	}
	parent, err := openCgroupParent(root)
	if err != nil && root != "" {
		return fmt.Errorf("using the cgroup folder %s: %w", root, err)
	}
	if err != nil {
		s.degrade(fmt.Sprintf("no usable cgroup v2 mount (%v): a killed tree is found through /proc, as far as that goes", err))
		return nil
	}
	s.cgroups = parent
	if !parent.memory {
		s.degrade("the cgroup v2 mount has no memory controller: an out-of-memory kill shows as SIGKILL only")
	}
	return nil
}

// checkPidfds makes sure that the kernel has what every child relies on.
func checkPidfds() error {
	fd, err := unix.PidfdOpen(os.Getpid(), 0)
	if err != nil {
		return fmt.Errorf("opening a pidfd (Linux 5.4 or later is needed): %w", err)
	}
	return unix.Close(fd)
}

// identity is who this process runs as.
type identity struct {
	uid, gid uint32
	groups   []uint32 // sorted
}

func readIdentity() (identity, error) {
	groups, err := os.Getgroups()
	if err != nil {
		return identity{}, fmt.Errorf("reading supplementary groups: %w", err)
	}
	id := identity{uid: uint32(os.Geteuid()), gid: uint32(os.Getegid())}
	for _, g := range groups {
		id.groups = append(id.groups, uint32(g))
	}
	slices.Sort(id.groups)
	return id, nil
}

// credential returns what the child must change to become acc: nil when it is
// whom guestd runs as. Without root another user is refused.
func (id identity) credential(acc account.Account) (*syscall.Credential, error) {
	if id.uid != 0 {
		if acc.UID != id.uid {
			return nil, newStartError(Other, "", syscall.EPERM, account.ErrOtherUser.Error())
		}
		return nil, nil
	}
	groups := slices.Sorted(slices.Values(acc.Groups))
	if acc.UID == id.uid && acc.GID == id.gid && slices.Equal(groups, id.groups) {
		return nil, nil
	}
	if acc.UID == ^uint32(0) || acc.GID == ^uint32(0) {
		return nil, newStartError(Other, "", syscall.EINVAL, "user or group id is not valid")
	}
	return &syscall.Credential{Uid: acc.UID, Gid: acc.GID, Groups: acc.Groups}, nil
}

// Degraded lists, in words for an operator, what children do without for want
// of rights or kernel features. It grows when something is first refused.
func (s *Spawner) Degraded() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.degraded)
}

// Features names what the Spawner has for its trees, as programs test for it:
// "cgroup" (each tree has a cgroup v2 of its own, which nothing leaves by itself),
// "cgroup.kill" (the kernel kills all of it at once), "cgroup.memory"
// (out-of-memory kills and the tree's peak memory are told), and, where there are
// no cgroups, "audit.session" (a tree is known by its audit session). With neither of
// the first and the last a tree is found through /proc alone.
func (s *Spawner) Features() []string {
	var features []string
	for _, feature := range []struct {
		name string
		has  bool
	}{
		{"cgroup", s.cgroups != nil},
		{"cgroup.kill", s.cgroups != nil && s.cgroups.kill},
		{"cgroup.memory", s.cgroups != nil && s.cgroups.memory},
		{"audit.session", s.audit},
	} {
		if feature.has {
			features = append(features, feature.name)
		}
	}
	return features
}

// degrade notes once that something is not to be had.
func (s *Spawner) degrade(what string) {
	s.mu.Lock()
	known := slices.Contains(s.degraded, what)
	if !known {
		s.degraded = append(s.degraded, what)
	}
	s.mu.Unlock()
	if !known {
		s.log.Warn("spawn is degraded", "what", what)
	}
}

// admit counts a start in, so that Close waits for it, or refuses it.
func (s *Spawner) admit() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	s.running.Add(1)
	return nil
}

// closeWait is how long Close waits for killed leaders to be gone; one in
// uninterruptible sleep may take for ever.
const closeWait = 5 * time.Second

// Close refuses further starts, kills the trees that are left, waits for their
// leaders (five seconds at most), removes the cgroup folders and stops the
// reaper. Closing twice is fine.
func (s *Spawner) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	s.mu.Unlock()

	var errs []error
	if !s.drain(time.Now().Add(closeWait)) {
		errs = append(errs, errors.New("closing the spawner: processes survive SIGKILL"))
	}
	if s.reaper != nil {
		s.reaper.stop()
	}
	if s.cgroups != nil {
		errs = append(errs, s.cgroups.close(time.Now().Add(closeWait)))
	}
	return errors.Join(append(errs, s.null.Close(), s.oomScore.file.Close())...)
}

// drain kills trees until every start and every child's goroutine has ended, and
// says whether that came about before the deadline.
func (s *Spawner) drain(deadline time.Time) bool {
	idle := make(chan struct{})
	go func() { // ends with the last child, which may be after an unsuccessful Close
		s.running.Wait()
		close(idle)
	}()
	for {
		s.Kill()
		for _, c := range s.unreleased() {
			c.Release()
		}
		select {
		case <-idle: // a start that was in progress may have added a child
			if len(s.unreleased()) == 0 {
				return true
			}
		case <-time.After(10 * time.Millisecond):
			if time.Now().After(deadline) {
				return false
			}
		}
	}
}

// Kill sends SIGKILL to every tree, and to what is being started. It does not wait.
func (s *Spawner) Kill() {
	s.KillStarts()
	s.killTrees()
}

// KillStarts sends SIGKILL to the children that are on their way to their program. So
// starts end that would not otherwise: a process of the child's user can stop it (SIGSTOP)
// before it gets there. Children that package syscall starts have to have a cgroup for that.
func (s *Spawner) KillStarts() {
	s.mu.Lock()
	var groups []*cgroup
	for l := range s.starting {
		if l.cgroup != nil {
			groups = append(groups, l.cgroup)
		} else if pidfd := atomic.LoadInt32(&l.early); pidfd >= 0 {
			_ = unix.PidfdSendSignal(int(pidfd), unix.SIGKILL, nil, 0) // fails when it has ended
		}
	}
	s.mu.Unlock()
	for _, g := range groups {
		if err := s.cgroups.killAll(g); err != nil && !isRemoved(err) {
			s.log.Warn("killing a start", "cgroup", g.path, "error", err)
		}
	}
}

func (s *Spawner) unreleased() []*Child {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]*Child, 0, len(s.children))
	for c := range s.children {
		list = append(list, c)
	}
	return list
}
