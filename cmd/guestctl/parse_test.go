package main

import (
	"reflect"
	"syscall"
	"testing"
	"time"

	"guestd.internal/client"
)

func TestDurations(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"90": 90 * time.Second, "1.5": 1500 * time.Millisecond, "500ms": 500 * time.Millisecond, "2m": 2 * time.Minute, "0": 0,
	} {
		var d duration
		if err := d.Set(text); err != nil || d.value != want || !d.set {
			t.Errorf("%q is %v, %v; want %v", text, d.value, err, want)
		}
	}
	for _, bad := range []string{"", "x", "-1", "-5s", "NaN", "1e300", "Inf"} {
		var d duration
		if d.Set(bad) == nil {
			t.Errorf("%q is taken as %v", bad, d.value)
		}
	}
}

func TestSignals(t *testing.T) {
	for text, want := range map[string]syscall.Signal{"TERM": 15, "sigkill": 9, "SIGHUP": 1, "9": 9, "64": 64} {
		if got, err := parseSignal(text); err != nil || got != want {
			t.Errorf("%q is %v, %v; want %d", text, got, err, want)
		}
	}
	for _, bad := range []string{"", "0", "65", "-9", "NOPE", "SIG"} {
		if got, err := parseSignal(bad); err == nil {
			t.Errorf("%q is taken as %v", bad, got)
		}
	}
}

func TestFrom(t *testing.T) {
	for _, c := range []struct {
		from     string
		terminal bool
		offsets  map[client.Stream]uint64
		now, ok  bool
	}{
		{"", false, map[client.Stream]uint64{client.Stdout: 0, client.Stderr: 0}, false, true},
		{"", true, map[client.Stream]uint64{client.Terminal: 0}, false, true},
		{"now", false, nil, true, true},
		{"5", false, map[client.Stream]uint64{client.Stdout: 5, client.Stderr: 0}, false, true},
		{"5,7", false, map[client.Stream]uint64{client.Stdout: 5, client.Stderr: 7}, false, true},
		{"5", true, map[client.Stream]uint64{client.Terminal: 5}, false, true},
		{"5,7", true, nil, false, false},
		{"x", false, nil, false, false},
		{"5,", false, nil, false, false},
		{"-5", false, nil, false, false},
	} {
		var options client.AttachOptions
		err := setFrom(&options, c.from, c.terminal)
		if (err == nil) != c.ok {
			t.Errorf("--from %q: %v", c.from, err)
		}
		if c.ok && (options.FromNow != c.now || !reflect.DeepEqual(options.From, c.offsets)) {
			t.Errorf("--from %q gives %+v", c.from, options)
		}
	}
}

func TestGuestPaths(t *testing.T) {
	for text, want := range map[string]string{":/etc": "/etc", ":file": "file", ":": ".", ":a:b": "a:b"} {
		if got, is := guestPath(text); !is || got != want {
			t.Errorf("%q is %q, %t", text, got, is)
		}
	}
	for _, text := range []string{"/etc", "a:b", "-", ""} {
		if _, is := guestPath(text); is {
			t.Errorf("%q is taken for the guest's", text)
		}
	}
}

func TestEnvironment(t *testing.T) {
	t.Setenv("GUESTCTL_TEST", "here")
	got, err := resolveEnv([]string{"A=1", "B=", "GUESTCTL_TEST", "GUESTCTL_TEST_UNSET", "C=x=y"})
	if err != nil || !reflect.DeepEqual(got, []string{"A=1", "B=", "GUESTCTL_TEST=here", "C=x=y"}) {
		t.Errorf("got %q, %v", got, err)
	}
	if _, err := resolveEnv([]string{"=x"}); err == nil {
		t.Error("a variable without a name is taken")
	}
}
