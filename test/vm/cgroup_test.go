//go:build vm

package vm_test

import (
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"guestd.internal/client"
	"guestd.internal/test/vm"
)

// ownCgroup sets G to the folder of the shell's own cgroup, which is its tree's.
const ownCgroup = `G=/sys/fs/cgroup$(sed -n 's/^0:://p' /proc/self/cgroup); `

// cgroupsAreWhole holds guestd to what a guest with all of cgroup v2 lets it do: each tree
// is in a cgroup of its own, which the kernel kills as a whole, and of which it tells an
// out-of-memory kill and the peak of memory.
func cgroupsAreWhole(t *testing.T, guest *vm.VM) {
	c := dial(t, guest)
	info, err := c.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, feature := range []string{"cgroup", "cgroup.kill", "cgroup.memory"} {
		if !slices.Contains(info.Features, feature) {
			t.Errorf("features %q, want %s; degraded: %q", info.Features, feature, info.Degraded)
		}
	}
	t.Run("OutOfMemory", func(t *testing.T) { outOfMemoryIsTold(t, c) })
	t.Run("OutOfMemoryInAKernel", func(t *testing.T) { kernelsOutOfMemoryIsTold(t, c) })
	t.Run("Kill", func(t *testing.T) { treeIsKilled(t, c) })
}

// outOfMemoryIsTold has a shell outgrow the limit of its cgroup, which it has set itself.
func outOfMemoryIsTold(t *testing.T, c *client.Client) {
	const limit = 24 << 20
	grow := c.Shell(ownCgroup + `echo 25165824 >$G/memory.max && x=$(head -c 100000000 /dev/zero | tr '\0' x)`)
	grow.User = "root"
	err := grow.Run(t.Context())
	status := grow.Status()
	if status == nil {
		t.Fatal(err)
	}
	if !status.OOMKilled || status.PeakMemory < limit/2 || status.PeakMemory > limit+1<<20 {
		t.Errorf("%v: %+v, want it told as out of memory, with a peak of about %d", err, status, limit)
	}
	modest := c.Command("true")
	if err := modest.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if status := modest.Status(); status.OOMKilled || status.PeakMemory == 0 || status.PeakMemory > limit/2 {
		t.Errorf("true: %+v", status)
	}
}

// kernelSpec makes the tests of package kernel a language of the guest's: they know how
// to be a kernel, and there is no Python.
const kernelSpec = `{"argv": ["` + fakeKernel + `", "{connection_file}"], "language": "fake", "display_name": "fake",
	"env": {"KERNEL_TEST_ROLE": "kernel"}}`

// kernelsOutOfMemoryIsTold has a kernel outgrow the limit of its cgroup.
func kernelsOutOfMemoryIsTold(t *testing.T, c *client.Client) {
	if _, err := c.WriteFile(t.Context(), "/usr/local/share/jupyter/kernels/fake/kernel.json", []byte(kernelSpec), &client.WriteOptions{User: "root"}); err != nil {
		t.Fatal(err)
	}
	made, err := c.CreateContext(t.Context(), client.ContextRequest{Language: "fake", User: "root"})
	if err != nil {
		t.Fatal(err)
	}
	x, err := c.Execute(t.Context(), client.CodeRequest{ContextID: made.ID, Code: "out of memory"})
	if err != nil {
		t.Fatal(err)
	}
	outcome, err := x.Outcome()
	if err != nil {
		t.Fatal(err)
	}
	if f := outcome.Finished; f.Status != client.ExecutionKernelDied || f.Signal != syscall.SIGKILL || !f.StateLost {
		t.Errorf("it ended %+v", f)
	}
	if e := outcome.Error; e == nil || e.Name != "KernelDied" || !strings.Contains(e.Value, "ran out of memory") {
		t.Errorf("the error is %+v", e)
	}
	if err := c.DeleteContext(t.Context(), made.ID); err != nil {
		t.Error(err)
	}
}

// treeIsKilled kills a tree whose members have left their session, their parents and
// their environment, and looks for them.
func treeIsKilled(t *testing.T, c *client.Client) {
	tree := c.Shell(ownCgroup + `echo $G
		for i in 1 2 3; do (env -i setsid sh -c 'trap "" TERM; while :; do sleep 1000; done' >/dev/null 2>&1 </dev/null &); done
		until [ $(wc -l <$G/cgroup.procs) -ge 7 ]; do sleep 0.1; done`)
	folder, err := tree.Output(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := c.SignalProcess(t.Context(), tree.ID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	left, err := c.Shell(`for i in $(seq 100); do
			[ -e ` + strings.TrimSpace(string(folder)) + ` ] || exit 0
			sleep 0.1
		done
		cat ` + strings.TrimSpace(string(folder)) + `/cgroup.procs`).Output(t.Context())
	if err != nil || len(left) > 0 {
		t.Errorf("left in the tree's cgroup: %q, %v", left, err)
	}
	// What was killed is a zombie for a moment, until its adoptive parent collects it.
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		sleeping, err := c.Shell("cat /proc/[0-9]*/comm 2>/dev/null | grep -x sleep; true").Output(t.Context())
		if err == nil && len(sleeping) == 0 {
			return
		}
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("still there: %q, %v", sleeping, err)
		}
	}
}
