package main

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
)

// TestErrorsNameWhatTheyAreAbout: of several arguments it is clear which failed, and no error speaks
// of a thing that the user never named.
func TestErrorsNameWhatTheyAreAbout(t *testing.T) {
	g := startGuest(t)
	dir := plant(t, map[string]string{"tree/a": "1", "file": "2"})
	ended := strings.TrimSpace(g.run(t, "", "exec", "-d", "--", "true").stdout)
	g.run(t, "", "wait", ended).want(t, 0, "", "")
	full := t.TempDir() + "/full"
	if err := os.Symlink("/dev/full", full); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		names string
		args  []string
	}{
		{ended, []string{"kill", ended}},
		{ended, []string{"resize", ended, "--rows", "1", "--columns", "1"}},
		{`"c-none"`, []string{"context", "delete", "c-none"}},
		{`"c-none"`, []string{"context", "restart", "c-none"}},
		{`"c-none"`, []string{"run", "--context", "c-none", "-c", "1"}},
		{`"/": the path is`, []string{"rm", "-r", "/"}},
		{`"` + dir + `/.": the path ends`, []string{"rm", "-r", dir + "/."}},
		{`"/dev/zero" is a device`, []string{"cp", ":/dev/zero", dir}},
		{`"` + dir + `/tree" is a directory: cp -r`, []string{"cp", ":" + dir + "/tree", "."}},
		{`create "` + dir + `/none/file":`, []string{"cp", ":" + dir + "/file", dir + "/none/file"}},
		{`write "` + full + `":`, []string{"cp", ":" + dir + "/file", full}},
		{`"frobnicate"`, []string{"health", "frobnicate"}},
		{`"frobnicate"`, []string{"frobnicate"}},
		{"Try 'guestctl context --help'", []string{"context", "frobnicate"}},
	} {
		if out := g.run(t, "", c.args...); out.code != exitFailure || !strings.Contains(out.stderr, c.names) || strings.Contains(out.stderr, ".guestctl-") {
			t.Errorf("%q: exit code %d, %q; want it to name %q", c.args, out.code, out.stderr, c.names)
		}
	}
}

// TestJSONLeavesOutWhatIsNotKnown: an empty value would be a false one.
func TestJSONLeavesOutWhatIsNotKnown(t *testing.T) {
	g := startGuest(t)
	id := strings.TrimSpace(g.run(t, "", "exec", "-d", "--", "sh", "-c", "exit 3").stdout)
	out := g.run(t, "", "wait", "--json", id)
	for _, field := range []string{"duration_seconds", "user_seconds", "system_seconds", "peak_memory_bytes"} {
		if !strings.Contains(out.stdout, `"`+field+`":`) {
			t.Errorf("%s is not told", field)
		}
	}
	var process map[string]any
	if err := json.Unmarshal([]byte(out.stdout), &process); err != nil || out.code != 3 {
		t.Fatalf("%+v: %v", out, err)
	}
	if process["process_id"] != id || process["exit_code"] != 3.0 || process["running"] != false {
		t.Errorf("got %s", out.stdout)
	}
	for name, value := range process {
		if list, is := value.([]any); value == "" || value == nil || name == "pid" && value == 0.0 || is && len(list) == 0 {
			t.Errorf("%s is %v", name, value)
		}
	}
}
