package main

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// startWatch starts guestctl watch and returns its lines, once the watch is in place.
func (g *guest) startWatch(t *testing.T, args ...string) (*exec.Cmd, *bufio.Reader) {
	t.Helper()
	cmd := exec.Command(filepath.Join(bin, "guestctl"), append([]string{"watch"}, args...)...)
	cmd.Env = append(os.Environ(), envTarget+"="+g.target)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	notices, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	if line, err := bufio.NewReader(notices).ReadString('\n'); err != nil || !strings.HasPrefix(line, "guestctl: watching /") {
		t.Fatalf("%q, %v", line, err)
	}
	return cmd, bufio.NewReader(out)
}

func TestWatch(t *testing.T) {
	g := startGuest(t)
	dir := t.TempDir() + "/dir"
	if err := os.MkdirAll(dir+"/sub", 0o755); err != nil {
		t.Fatal(err)
	}
	cmd, lines := g.startWatch(t, "--exclude", "skip", dir)
	for _, err := range []error{
		os.Mkdir(dir+"/skip", 0o755), os.Mkdir(dir+"/sub/a", 0o755), os.Rename(dir+"/sub/a", dir+"/b"), os.RemoveAll(dir),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{"created DIR/sub/a", "renamed DIR/sub/a -> DIR/b", "removed DIR/*", "removed DIR/*", "ended removed"} {
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		pattern := strings.NewReplacer("DIR", regexp.QuoteMeta(dir), "*", `\w+`).Replace(want)
		if !regexp.MustCompile(`^(\d\d:\d\d:\d\d\.\d{3} )?` + pattern + `\n$`).MatchString(line) {
			t.Errorf("%q, want %q", line, want)
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("the end: %v", err)
	}
	g.run(t, "", "watch", dir).want(t, 125, "", "no such file")
}

func TestWatchJSONUntilInterrupted(t *testing.T) {
	g := startGuest(t)
	dir := t.TempDir()
	if err := os.Mkdir(dir+"/sub", 0o755); err != nil {
		t.Fatal(err)
	}
	cmd, lines := g.startWatch(t, "--json", "--no-recurse", dir)
	for _, err := range []error{os.Mkdir(dir+"/sub/x", 0o755), os.Rename(dir+"/sub", dir+"/\xff")} {
		if err != nil {
			t.Fatal(err)
		}
	}
	line, err := lines.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	var event struct {
		Kind, Path, Type, Time string
		Base64                 string `json:"path_base64"`
		Old                    struct{ Path string }
	}
	if err := json.Unmarshal([]byte(line), &event); err != nil {
		t.Fatal(err)
	}
	if event.Kind != "renamed" || event.Old.Path != dir+"/sub" || event.Base64 == "" || event.Type != "directory" || event.Time == "" {
		t.Errorf("%s: %+v", line, event)
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	if code := exitCodeOf(cmd); code != 130 {
		t.Errorf("exit code %d after an interrupt", code)
	}
}
