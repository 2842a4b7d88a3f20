package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"guestd.internal/test/need"
)

// sorted is what find printed, in order; its own is not promised.
func sorted(stdout, end string) string {
	lines := strings.Split(strings.TrimSuffix(stdout, end), end)
	slices.Sort(lines)
	return strings.Join(lines, " ")
}

func TestFind(t *testing.T) {
	g := startGuest(t)
	dir := plant(t, map[string]string{
		"a.go": "", "a.txt": "", "sub/b.go": "", "sub/.c.go": "", "sub/deep/d.go": "", "skip/e.go": "", "two\nlines \xff": "",
		"link": "-> sub", "broken": "-> nowhere",
	})
	for want, args := range map[string][]string{
		"D D/a.go D/a.txt D/broken D/link D/skip D/skip/e.go D/sub D/sub/.c.go D/sub/b.go D/sub/deep D/sub/deep/d.go D/two\nlines \xff": {"D"},
		"D/a.go D/skip/e.go D/sub/.c.go D/sub/b.go D/sub/deep/d.go":                                                                     {"D", "-name", "*.go"},
		"D/a.go D/a.txt D/sub/.c.go D/sub/b.go D/sub/deep/d.go":                                                                         {"D", "-name=*.go", "--name", "*.txt", "-exclude", "skip"},
		"D/sub/b.go D/sub/deep/d.go":    {"D", "-name", "sub/**/[!.]*.go"},
		"D D/skip D/sub":                {"D", "-maxdepth", "1", "-type", "d"},
		"D/broken D/link":               {"D", "-type", "l"},
		"D/sub D/sub/deep":              {"D/sub", "-type", "d,l"},
		"D/sub/ D/sub/.c.go D/sub/b.go": {"D/sub/", "-maxdepth", "1", "-exclude", "d*p"},
		"D/link":                        {"D/link"},
		"D/link/ D/link/.c.go D/link/b.go D/link/deep D/link/deep/d.go": {"D/link/"},
		"D/a.go": {"D/a.go", "D/a.txt", "-name", "*.go"},
		"D/sub":  {"-maxdepth", "0", "--", "D/sub"},
	} {
		for i := range args {
			args[i] = strings.ReplaceAll(args[i], "D", dir)
		}
		out := g.run(t, "", append([]string{"find", "-print0"}, args...)...)
		if got := sorted(out.stdout, "\x00"); got != strings.ReplaceAll(want, "D", dir) || out.code != 0 || out.stderr != "" {
			t.Errorf("find %q: %+v, want %s", args, out, want)
		}
	}
	g.run(t, "", "find", dir+"/nothing", dir+"/a.go", "-0").want(t, 125, dir+"/a.go\x00", "nothing")
	g.run(t, "", "find", dir, "-type", "x").want(t, 125, "", "want f, d")
	g.run(t, "", "find", dir, "-maxdepth", "257").want(t, 125, "", "0 to 256")
	g.run(t, "", "find", dir, "-name", "[").want(t, 125, "", "syntax")
	out := g.run(t, "", "find", "--json", dir, "-name", "two*")
	if !strings.Contains(out.stdout, `"path_base64":`) || !strings.Contains(out.stdout, `"type":"regular file"`) || strings.Count(out.stdout, "\n") != 1 {
		t.Errorf("got %+v", out)
	}
}

func TestFindGoesOnAfterWhatItMayNotRead(t *testing.T) {
	if os.Getuid() != 0 {
		need.Skip(t, "guestd serves other users as root only")
	}
	const user = "65534"
	g := startGuest(t)
	dir := plant(t, map[string]string{"a/x": "", "b/x": "", "c/x": ""})
	// A test's directory is in one that is its user's alone.
	if err := errors.Join(os.Chmod(filepath.Dir(dir), 0o755), os.Chmod(dir+"/b", 0o700)); err != nil {
		t.Fatal(err)
	}
	out := g.run(t, "", "find", "-u", user, dir+"/b", dir, "-name", "x")
	if got := sorted(out.stdout, "\n"); out.code != 125 || got != dir+"/a/x "+dir+"/c/x" || strings.Count(out.stderr, "permission denied") != 2 {
		t.Errorf("got %+v", out)
	}
	out = g.run(t, "", "ls", "-R", "-u", user, dir)
	want := dir + ":\na\nb\nc\n\n" + dir + "/a:\nx\n\n" + dir + "/c:\nx\n"
	if out.code != 125 || out.stdout != want || strings.Count(out.stderr, "permission denied") != 1 {
		t.Errorf("ls -R: %+v", out)
	}
	out = g.run(t, "", "grep", "-u", user, "-l", "^", dir)
	if out.code != 125 || strings.Count(out.stderr, "permission denied") != 1 {
		t.Errorf("grep: %+v", out)
	}
}

func TestFindEndsWithItsReader(t *testing.T) {
	g := startGuest(t)
	cmd := exec.Command("sh", "-c", `"$1" find /proc | head -n 1; "$1" find /proc -maxdepth 1 >/dev/full; echo $?`, "sh", filepath.Join(bin, "guestctl"))
	cmd.Env = append(os.Environ(), envTarget+"="+g.target)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	stdout, err := cmd.Output()
	if err != nil || string(stdout) != "/proc\n125\n" || strings.Count(stderr.String(), "\n") != 1 || !strings.Contains(stderr.String(), "no space left") {
		t.Errorf("got %q and %q, %v", stdout, stderr.String(), err)
	}
}

func TestFindTellsWhatIsTooDeep(t *testing.T) {
	g := startGuest(t)
	deep := strings.Repeat("d/", findDepth)
	dir := plant(t, map[string]string{deep: ""})
	out := g.run(t, "", "find", dir)
	if out.code != 125 || strings.Count(out.stdout, "\n") != findDepth+1 || !strings.Contains(out.stderr, "nested too deeply") {
		t.Errorf("exit code %d, %d lines, stderr %q", out.code, strings.Count(out.stdout, "\n"), out.stderr)
	}
	if out := g.run(t, "", "find", "-maxdepth", "255", dir+"/d"); out.code != 0 || strings.Count(out.stdout, "\n") != findDepth {
		t.Errorf("exit code %d, %d lines, stderr %q", out.code, strings.Count(out.stdout, "\n"), out.stderr)
	}
}

func TestLongFlagsBehindOneHyphen(t *testing.T) {
	a := &app{stdout: os.Stdout, stderr: os.Stderr}
	for given, want := range map[string]string{
		"--target x find a -name b":       "--target x find a --name b",
		"find -name=b -user x -u y":       "find --name=b -user x -u y",
		"find -print0 -- -name":           "find --print0 -- -name",
		"exec -- find -name b":            "exec -- find -name b",
		"grep -name b":                    "grep -name b",
		"--json find -type f -maxdepth 1": "--json find --type f --maxdepth 1",
		"no-such-verb -name b":            "no-such-verb -name b",
	} {
		if got := strings.Join(spellFlags(newRoot(a), strings.Fields(given)), " "); got != want {
			t.Errorf("%q becomes %q, want %q", given, got, want)
		}
	}
}
