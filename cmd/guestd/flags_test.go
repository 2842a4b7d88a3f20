package main

import (
	"bytes"
	"flag"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"guestd.internal/agent"
)

func TestFlags(t *testing.T) {
	opts, err := parseFlags(strings.Fields("--listen vsock://:1 -listen unix:///s --vsock-allow-cid 2 --vsock-allow-cid 3 --unix-allow-uid 0 " +
		"--unix-outside-only --token-file /t --user bob --state-dir /d --cgroup-root none --reaper=false --drain 0s --log-level warn --log-format text"))
	if err != nil {
		t.Fatal(err)
	}
	want := agent.Config{
		Listen: []string{"vsock://:1", "unix:///s"}, VsockAllowCIDs: []uint32{2, 3}, UnixAllowUIDs: []uint32{0}, UnixOutsideOnly: true,
		TokenFile: "/t", DefaultUser: "bob", StateDir: "/d", CgroupRoot: "none", Drain: -1,
	}
	if diff := cmp.Diff(want, opts.config); diff != "" {
		t.Errorf("config (-want +got):\n%s", diff)
	}
	if opts.logLevel.String() != "WARN" || opts.logFormat != "text" {
		t.Errorf("log level %v, format %q", opts.logLevel, opts.logFormat)
	}
	if opts, err = parseFlags(nil); err != nil || !opts.config.Reaper {
		t.Errorf("without flags: %+v, %v; want a reaper", opts.config, err)
	}
	for flag, want := range map[string]int{"python": 1, "python:3": 3} {
		if opts, err := parseFlags([]string{"--prewarm", flag, "--cold-start"}); err != nil || opts.config.PrewarmPython != want || !opts.config.ColdStart {
			t.Errorf("prewarm %s = %d, %v", flag, opts.config.PrewarmPython, err)
		}
	}
	if opts, err = parseFlags([]string{"--drain", "1500ms"}); err != nil || opts.config.Drain != 1500*time.Millisecond {
		t.Errorf("drain = %v, %v", opts.config.Drain, err)
	}
}

func TestWrongUsage(t *testing.T) {
	for args, says := range map[string]string{
		"serve":                       `unexpected argument "serve"`,
		"--nonsense":                  "-nonsense",
		"--listen nonsense":           "--listen: ",
		"--listen tcp://127.0.0.1:0":  "needs a token: anybody could connect (set --token-file)",
		"--vsock-allow-cid x":         "want a number",
		"--unix-allow-uid 4294967295": "want a number",
		"--prewarm ruby":              "want python",
		"--prewarm python:0":          "N from 1 to 32",
		"--prewarm python:33":         "N from 1 to 32",
		"--prewarm python:":           "N from 1 to 32",
		"--drain -1s":                 "not negative",
		"--drain 1h":                  "--drain: 1h0m0s; 10s is the most",
		"--state-dir here":            "--state-dir: ",
		"--log-level loud":            "want debug, info, warn or error",
		"--log-format xml":            "want text or json",
		"--unix-outside-only=perhaps": "unix-outside-only",
		"--cgroup-root off":           "--cgroup-root: ",
	} {
		var stdout, stderr bytes.Buffer
		if code := run(strings.Fields(args), &stdout, &stderr); code != exitUsage {
			t.Errorf("%s: exit code %d, want %d", args, code, exitUsage)
		}
		if !strings.Contains(stderr.String(), says) || !strings.Contains(stderr.String(), "--help") || stdout.Len() > 0 {
			t.Errorf("%s: says %q, want %q and a word of --help", args, &stderr, says)
		}
	}
}

func TestHelpAndVersion(t *testing.T) {
	var stdout, stderr bytes.Buffer
	if code := run([]string{"--help"}, &stdout, &stderr); code != 0 || stderr.Len() > 0 {
		t.Errorf("--help: exit code %d, %s", code, &stderr)
	}
	newFlags(new(options)).VisitAll(func(f *flag.Flag) {
		if !strings.Contains(stdout.String(), "\n  --"+f.Name) {
			t.Errorf("--help says nothing of --%s", f.Name)
		}
	})
	stdout.Reset()
	if code := run([]string{"--version"}, &stdout, &stderr); code != 0 || !strings.HasPrefix(stdout.String(), "guestd ") {
		t.Errorf("--version: exit code %d, %q", code, &stdout)
	}
}

func TestFlagNamesAreThoseOfFields(t *testing.T) {
	flags := newFlags(new(options))
	for field, name := range flagNames {
		if _, ok := reflect.TypeFor[agent.Config]().FieldByName(field); !ok {
			t.Errorf("agent.Config has no %s", field)
		}
		if flags.Lookup(name) == nil {
			t.Errorf("there is no flag --%s", name)
		}
	}
}
