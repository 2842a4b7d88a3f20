package stress

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"guestd.internal/client"
	guestdv1 "guestd.internal/proto/guestd/v1"
	"guestd.internal/test/programs"
)

// bin holds the programs under test; TestMain builds them.
var bin string

// roleVariable makes this program play a command in the guest.
const roleVariable = "GUESTD_STRESS_ROLE"

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		os.Exit(play(role, os.Args[1:]))
	}
	os.Exit(runTests(m))
}

func runTests(m *testing.M) int {
	dir, err := os.MkdirTemp("", "guestd-stress-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	bin = dir
	if err := programs.Build(dir, raceDetector, "guestd", "guestctl"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// rounds is how often something is done: few times, or full times with
// GUESTD_STRESS=full.
func rounds(few, full int) int {
	if os.Getenv("GUESTD_STRESS") == "full" {
		return full
	}
	if testing.Short() {
		return max(1, few/10)
	}
	return few
}

// guestd is one that runs for a test.
type guestd struct {
	cmd    *exec.Cmd
	socket string
	client *client.Client
	log    bytes.Buffer
	ended  bool // by the test itself
}

func startGuestd(t *testing.T, args ...string) *guestd {
	t.Helper()
	if err := programs.DependOnSources(); err != nil { // TestMain has built them, which go test does not note
		t.Fatal(err)
	}
	dir := t.TempDir()
	g := &guestd{socket: filepath.Join(dir, "s")}
	g.cmd = exec.Command(filepath.Join(bin, "guestd"), append([]string{"--listen", g.target(), "--user", fmt.Sprint(os.Getuid()),
		"--state-dir", filepath.Join(dir, "state"), "--drain", "0s", "--log-format", "text"}, args...)...)
	g.cmd.Stderr = &g.log
	if err := g.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.end(t) })
	g.client = dial(t, g.target())
	if err := g.client.WaitReady(within(t, time.Minute)); err != nil {
		t.Fatal(err)
	}
	return g
}

// end stops guestd, which must have nothing to complain about.
func (g *guestd) end(t *testing.T) {
	if g.ended {
		return
	}
	g.cmd.Process.Signal(os.Interrupt)
	err := g.cmd.Wait()
	if err != nil {
		t.Errorf("guestd ended with %v", err)
	}
	text := g.log.String()
	if strings.Contains(text, "level=ERROR") || strings.Contains(text, "DATA RACE") || t.Failed() {
		t.Errorf("guestd's log:\n%s", text[max(0, len(text)-20_000):])
	}
}

func (g *guestd) target() string { return "unix://" + g.socket }

func dial(t *testing.T, target string) *client.Client {
	t.Helper()
	c, err := client.Dial(target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// calls are the generated stubs, for what package client does not let one do wrong.
func (g *guestd) calls(t *testing.T) guestdv1.ProcessServiceClient {
	t.Helper()
	conn, err := client.Connect(g.target())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return guestdv1.NewProcessServiceClient(conn)
}

// role makes a command of this program, for the guest to run.
func role(name string, args ...any) (argv []string, env string) {
	argv = []string{"/proc/self/exe"}
	if exe, err := os.Executable(); err == nil {
		argv[0] = exe
	}
	for _, arg := range args {
		argv = append(argv, fmt.Sprint(arg))
	}
	return argv, roleVariable + "=" + name
}

// within is a context that ends long after anything here should be over.
func within(t testing.TB, limit time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	return ctx
}

// eventually waits for a condition.
func eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !condition(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}
