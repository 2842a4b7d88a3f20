// Package spawn starts one operating-system process as a guest user, tells how
// it ended, and signals or kills everything that descends from it.
//
// # What a child gets
//
// Nothing of the command runs before its credentials, session, cgroup, umask,
// nice value, resource limits and oom_score_adj are in place, and no helper
// program is put before it. Credentials, session, controlling terminal and
// cgroup are set by clone and between fork and exec: on amd64 by this package, which
// takes less time and can do more, elsewhere by package syscall. Umask, nice value and
// audit session are inherited from a thread prepared for this one start and thrown
// away. Resource limits and oom_score_adj are set by the child itself; where package
// syscall starts it, or without close_range(2) (Linux 5.9), they are written while it is
// held at exec by ptrace. Each of these costs something, so each is done only when the
// child is to differ from guestd.
//
// A child has the three or four descriptors of its Command and its environment
// with GUESTD_PROCESS_ID added, default signal dispositions and an empty signal
// mask. (Where package syscall starts it, what a program that embeds guestd ignores
// stays ignored.)
//
// # Trees
//
// A tree is a process and all that descend from it. With a writable cgroup v2
// mount each tree has a cgroup of its own and [Child.KillTree] is the kernel's
// cgroup.kill: nothing survives, except what root inside the guest moved to
// another cgroup first. Without one, members are found through /proc by audit
// session, session, descent and the mark GUESTD_PROCESS_ID, again and again
// until nothing new appears. A process escapes that when all four fail: it was
// reparented, called setsid, emptied its environment (or cannot be read), and
// there are no audit sessions. Such a process that also names another tree in its
// environment is taken for one of that tree. [Spawner.Degraded] says what applies.
//
// # What it does not do
//
// It copies no input or output, opens no terminals, knows no time-outs and keeps
// no history: that is package proc. It freezes no cgroup and sets no cgroup
// limits.
//
// # Ownership
//
// A [Spawner] owns its cgroup folder, one goroutine that makes and removes the
// trees' own folders in it, away from the starts, and as [Config.Reaper] one that
// collects orphans; [Spawner.Close] ends them all. A [Child] owns one goroutine, unless its
// starter has one for it ([Command.Await]), which waits for the leader without
// occupying a thread and ends right after it, and one
// pidfd and one cgroup folder, which [Child.Release] gives back.
package spawn
