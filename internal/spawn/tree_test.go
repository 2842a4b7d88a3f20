package spawn

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// pidsIn returns the pids that scripts have appended to the file, once there are
// at least n.
func pidsIn(t *testing.T, file string, n int) []int {
	t.Helper()
	var pids []int
	await(t, fmt.Sprintf("%d pids in %s", n, file), func() bool {
		data, _ := os.ReadFile(file)
		pids = nil
		for _, field := range strings.Fields(string(data)) {
			pid, err := strconv.Atoi(field)
			if err != nil {
				t.Fatalf("pid file has %q", data)
			}
			pids = append(pids, pid)
		}
		return len(pids) >= n && strings.HasSuffix(string(data), "\n")
	})
	return pids
}

// treeScripts start processes that write their pids to $F, and what is the least
// that must be there before the tree is complete. needs says which evidence finds
// all of them when the leader has died before.
var treeScripts = []struct {
	name   string
	script string
	pids   int
}{
	{"leader alone", `echo $$ >>$F; exec sleep 1000`, 1},
	{"background child", `sh -c 'echo $$ >>$F; exec sleep 1000' & echo $$ >>$F; wait`, 2},
	{"setsid child", `setsid sh -c 'echo $$ >>$F; exec sleep 1000' & echo $$ >>$F; wait`, 2},
	{"double-forked daemon", `(setsid sh -c '(echo $$ >>$F; sh -c "echo \$\$ >>$F; exec sleep 1000" &) ; sleep 1000' &); echo $$ >>$F; sleep 1000`, 3},
	{"emptied environment", `setsid env -i F=$F /bin/sh -c 'echo $$ >>$F; exec sleep 1000' & echo $$ >>$F; wait`, 2},
	{"ignores signals", `sh -c 'trap "" TERM HUP INT; echo $$ >>$F; while :; do sleep 1000; done' & trap "" TERM; echo $$ >>$F; while :; do sleep 1000; done`, 2},
	{"stopped child", `sh -c 'echo $$ >>$F; kill -STOP $$; sleep 1000' & echo $$ >>$F; wait`, 2},
}

func TestKillTreeLeavesNothing(t *testing.T) {
	eachTreeMode(t, func(t *testing.T, s *Spawner) {
		for _, tc := range treeScripts {
			t.Run(tc.name, func(t *testing.T) {
				cmd, file := treeCommand(t, tc.script)
				c := start(t, s, cmd)
				pids := pidsIn(t, file, tc.pids)
				if err := c.KillTree(); err != nil {
					t.Fatal(err)
				}
				<-c.Done()
				if st := c.Status(); st.Signal != syscall.SIGKILL {
					t.Errorf("leader: %+v, want SIGKILL", st)
				}
				awaitDead(t, pids)
			})
		}
	})
}

// The leader is gone when the tree is killed, as after a time-out of a shell
// that has left something in the background.
func TestKillTreeAfterTheLeadersEnd(t *testing.T) {
	scripts := map[string]string{
		"background child":     `sh -c 'echo $$ >>$F; exec sleep 1000' &`,
		"setsid child":         `setsid sh -c 'echo $$ >>$F; exec sleep 1000' &`,
		"emptied environment":  `env -i F=$F /bin/sh -c 'echo $$ >>$F; exec sleep 1000' &`,
		"setsid without marks": `setsid env -i F=$F /bin/sh -c 'echo $$ >>$F; exec sleep 1000' &`,
	}
	eachTreeMode(t, func(t *testing.T, s *Spawner) {
		for name, script := range scripts {
			t.Run(name, func(t *testing.T) {
				if name == "setsid without marks" && s.cgroups == nil && !s.audit {
					t.Skip("escapes without cgroups and audit sessions, as documented")
				}
				cmd, file := treeCommand(t, script+" while [ ! -s $F ]; do sleep 0.01; done")
				c := start(t, s, cmd)
				<-c.Done()
				pids := pidsIn(t, file, 1)
				if !alive(pids[0]) {
					t.Fatal("the background process did not outlive its leader")
				}
				if err := c.KillTree(); err != nil {
					t.Fatal(err)
				}
				awaitDead(t, pids)
				await(t, "ErrProcessDone", func() bool {
					return c.Signal(syscall.SIGTERM, Tree) == os.ErrProcessDone
				})
			})
		}
	})
}

func TestKillTreeStopsAForkStorm(t *testing.T) {
	eachTreeMode(t, func(t *testing.T, s *Spawner) {
		cmd, file := treeCommand(t, `
			storm() { for i in 1 2 3 4; do (while :; do (exec sleep 0.01) & (exec sleep 0.02); done) & done; }
			storm; echo $$ >>$F; wait`)
		c := start(t, s, cmd)
		pidsIn(t, file, 1)
		time.Sleep(50 * time.Millisecond) // let it rage
		if err := c.KillTree(); err != nil {
			t.Fatal(err)
		}
		<-c.Done()
		await(t, "an empty tree", func() bool { return c.Signal(syscall.SIGCONT, Tree) == os.ErrProcessDone })
	})
}

func TestSignalReachesTheWholeTree(t *testing.T) {
	eachTreeMode(t, func(t *testing.T, s *Spawner) {
		cmd, file := treeCommand(t, `setsid sh -c 'echo $$ >>$F; exec sleep 1000' & sh -c 'echo $$ >>$F; exec sleep 1000' & echo $$ >>$F; wait`)
		c := start(t, s, cmd)
		pids := pidsIn(t, file, 3)
		if err := c.Signal(syscall.SIGTERM, Tree); err != nil {
			t.Fatal(err)
		}
		awaitDead(t, pids)
		<-c.Done()
		if st := c.Status(); st.Signal != syscall.SIGTERM {
			t.Errorf("leader: %+v, want SIGTERM", st)
		}
	})
}

func TestSignalToTheLeaderSparesTheTree(t *testing.T) {
	eachTreeMode(t, func(t *testing.T, s *Spawner) {
		cmd, file := treeCommand(t, `sh -c 'echo $$ >>$F; exec sleep 1000' & wait`)
		c := start(t, s, cmd)
		pids := pidsIn(t, file, 1)
		if err := c.Signal(syscall.SIGTERM, Leader); err != nil {
			t.Fatal(err)
		}
		<-c.Done()
		if !alive(pids[0]) {
			t.Error("the background process died with its leader")
		}
		if err := c.KillTree(); err != nil {
			t.Fatal(err)
		}
		awaitDead(t, pids)
	})
}

func TestKillTreeSparesOtherTrees(t *testing.T) {
	eachTreeMode(t, func(t *testing.T, s *Spawner) {
		script := treeScripts[3].script
		victimCmd, victimFile := treeCommand(t, script)
		otherCmd, otherFile := treeCommand(t, script)
		victim, other := start(t, s, victimCmd), start(t, s, otherCmd)
		victims, others := pidsIn(t, victimFile, 3), pidsIn(t, otherFile, 3)
		if err := victim.KillTree(); err != nil {
			t.Fatal(err)
		}
		awaitDead(t, victims)
		for _, pid := range append(others, os.Getpid()) {
			if !alive(pid) {
				t.Errorf("process %d of another tree died", pid)
			}
		}
		if err := other.KillTree(); err != nil {
			t.Fatal(err)
		}
		awaitDead(t, others)
	})
}

// A process that puts another tree's id into its environment must not be killed
// with that tree.
func TestAForgedMarkProvesNothing(t *testing.T) {
	eachTreeMode(t, func(t *testing.T, s *Spawner) {
		victimCmd, victimFile := treeCommand(t, treeScripts[0].script)
		victim := start(t, s, victimCmd)
		pidsIn(t, victimFile, 1)
		forgerCmd, forgerFile := treeCommand(t, fmt.Sprintf(
			`%s=%s sh -c 'echo $$ >>$F; exec sleep 1000' & wait`, IDVariable, victimCmd.ID))
		forger := start(t, s, forgerCmd)
		forged := pidsIn(t, forgerFile, 1)
		await(t, "sleep to run", func() bool { return markOf(forged[0]) == victimCmd.ID })
		if err := victim.KillTree(); err != nil {
			t.Fatal(err)
		}
		<-victim.Done()
		if !alive(forged[0]) {
			t.Error("a process of another tree was killed by a forged mark")
		}
		if err := forger.KillTree(); err != nil {
			t.Fatal(err)
		}
		awaitDead(t, forged)
	})
}

func treeCommand(t *testing.T, script string) (Command, string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "pids")
	cmd := command(t, "/bin/sh", "-c", script)
	cmd.Env = append(cmd.Env, "F="+file)
	return cmd, file
}

func awaitDead(t *testing.T, pids []int) {
	t.Helper()
	for _, pid := range pids {
		await(t, fmt.Sprintf("the death of %d", pid), func() bool { return !alive(pid) })
	}
}

func TestReusedNumberIsNotSignalled(t *testing.T) {
	s := newSpawner(t, Config{CgroupRoot: "none"})
	c := start(t, s, command(t, "sleep", "1000"))
	stale := process{pid: c.PID(), start: startTime(c.PID()) - 1}
	sent, err := signalChecked(stale.pid, syscall.SIGKILL, stale.unchanged)
	if sent || err != nil {
		t.Errorf("signalled a process of another start time: sent %v, error %v", sent, err)
	}
	if !alive(c.PID()) {
		t.Error("and killed it")
	}
	if sent, err := signalChecked(os.Getpid(), syscall.SIGCONT, func() bool { return true }); sent || err != nil {
		t.Errorf("guestd signalled itself: sent %v, error %v", sent, err)
	}
}
