package proc

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"guestd.internal/internal/account"
	"guestd.internal/internal/outlog"
	"guestd.internal/internal/spawn"
	"guestd.internal/test/need"
)

func TestCommandsRun(t *testing.T) {
	table := newTable(t)
	long := "X=1; : " + strings.Repeat("x", 300_000) + "\necho $0 $# $X; ls /proc/self/fd | tr '\\n' ' '; cat"
	tests := map[string]struct {
		spec        Spec
		out, errOut string
		code        int
	}{
		"arguments":      {Spec{Args: []string{"echo", "a b", "c"}}, "a b c\n", "", 0},
		"separate":       {shell("echo out; echo err >&2; exit 3"), "out\n", "err\n", 3},
		"merged":         {Spec{Shell: &ShellLine{Line: "echo 1; echo 2 >&2; echo 3"}, Merge: true}, "1\n2\n3\n", "", 0},
		"no stdin":       {Spec{Args: []string{"cat"}}, "", "", 0},
		"login":          {Spec{Shell: &ShellLine{Line: "shopt -q login_shell && echo login", Login: true}}, "login\n", "", 0},
		"long line":      {shell(long), "/bin/sh 0 1\n0 1 2 3 ", "", 0},
		"clear env":      {Spec{Args: []string{"/usr/bin/env"}, ClearEnv: true, Env: []spawn.EnvVar{{Name: "A", Value: "1"}, {Name: "B", Value: "2"}, {Name: "B", Unset: true}}}, "A=1\n", "", 0},
		"dir":            {Spec{Args: []string{"pwd"}, Dir: "/usr"}, "/usr\n", "", 0},
		"bytes not text": {shell(`printf '\377\000\r\n\n'`), "\xff\x00\r\n\n", "", 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			h := exec(t, table, test.spec)
			errOut := h.text(Stderr)
			out := h.text(Stdout)
			if name == "clear env" {
				out = regexp.MustCompile(spawn.IDVariable+`=p-\w+\n`).ReplaceAllString(out, "")
			}
			if out != test.out || errOut != test.errOut || h.exit.Code != test.code {
				t.Fatalf("got %q, %q, %+v", out, errOut, h.exit)
			}
		})
	}
}

func TestInvalidSpecsNameTheirField(t *testing.T) {
	table := newTable(t)
	tests := map[string]Spec{
		"Args":        {},
		"Args[1]":     {Args: []string{"a", "b\x00"}},
		"Shell.Line":  {Shell: &ShellLine{Line: "a\x00"}},
		"Env[0].Name": {Args: []string{"a"}, Env: []spawn.EnvVar{{Name: "A=B"}}},
		"Dir":         {Args: []string{"a"}, Dir: "\x00"},
		"User":        {Args: []string{"a"}, User: "\x00"},
		"Timeout":     {Args: []string{"a"}, Timeout: -1},
		"LogLimit":    {Args: []string{"a"}, LogLimit: 1},
		"Merge":       {Args: []string{"a"}, Merge: true, Terminal: &Size{}},
		"Labels":      {Args: []string{"a"}, Labels: map[string]string{"": "x"}},
		"Rlimits":     {Args: []string{"a"}, Rlimits: []spawn.Rlimit{{Soft: 2, Hard: 1}}},
	}
	for field, spec := range tests {
		_, err := table.Start(t.Context(), spec)
		var invalid *InvalidError
		if !errors.As(err, &invalid) || invalid.Field != field {
			t.Errorf("%s: got %v", field, err)
		}
	}
}

func TestStartFailures(t *testing.T) {
	table := newTable(t)
	tests := map[string]struct {
		spec   Spec
		reason spawn.Reason
		path   string
	}{
		"no command": {Spec{Args: []string{"no-such-command"}}, spawn.CommandNotFound, "no-such-command"},
		"no folder":  {Spec{Args: []string{"true"}, Dir: "/no/such"}, spawn.CwdNotFound, "/no/such"},
		"a folder":   {Spec{Args: []string{"/usr"}}, spawn.CommandNotExecutable, "/usr"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			for _, terminal := range []*Size{nil, {}} {
				test.spec.Terminal = terminal
				_, err := table.Start(t.Context(), test.spec)
				var failed *spawn.StartError
				if !errors.As(err, &failed) || failed.Reason != test.reason || failed.Path != test.path {
					t.Fatalf("got %v", err)
				}
			}
		})
	}
	var unknown *account.UnknownUserError
	if _, err := table.Start(t.Context(), Spec{Args: []string{"true"}, User: "nobody-of-that-name"}); !errors.As(err, &unknown) {
		t.Fatalf("got %v", err)
	}
	if list, _, _ := table.List(Filter{}); len(list) != 0 {
		t.Fatalf("failed starts are listed: %v", list)
	}
}

func TestMissingHomeFallsBackToRoot(t *testing.T) {
	table := newTable(t)
	if os.Geteuid() != 0 {
		need.Skip(t, "needs root, to run as a user without a home")
	}
	h := exec(t, table, Spec{Args: []string{"pwd"}, User: "54321"})
	if h.text(Stdout) != "/\n" {
		t.Fatalf("started in %q", h.text(Stdout))
	}
}

func TestListFiltersAndPages(t *testing.T) {
	table := newTable(t)
	for i := range 5 {
		spec := Spec{Args: []string{"sleep", "1000"}, Labels: map[string]string{"parity": []string{"even", "odd"}[i%2]}}
		if i == 0 {
			spec.Args = []string{"true"}
		}
		p, err := table.Start(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			if _, err := p.Wait(within(t)); err != nil {
				t.Fatal(err)
			}
		}
	}
	count := func(f Filter) (sizes []int) {
		for {
			page, next, err := table.List(f)
			if err != nil {
				t.Fatal(err)
			}
			sizes = append(sizes, len(page))
			if next == "" {
				return sizes
			}
			f.Token = next
		}
	}
	tests := []struct {
		filter Filter
		want   []int
	}{
		{Filter{}, []int{5}},
		{Filter{Size: 2}, []int{2, 2, 1}},
		{Filter{State: Running}, []int{4}},
		{Filter{State: Ended}, []int{1}},
		{Filter{Labels: map[string]string{"parity": "even"}, Size: 3}, []int{3}},
	}
	for _, test := range tests {
		if diff := cmp.Diff(test.want, count(test.filter)); diff != "" {
			t.Errorf("%+v: %s", test.filter, diff)
		}
	}
	if _, _, err := table.List(Filter{Token: "!"}); err == nil {
		t.Error("a malformed token was taken")
	}
}

func TestFinishedProcessesAreForgottenByNumberAndTime(t *testing.T) {
	table := newTable(t, func(c *Config) { c.MaxFinished = 2; c.KeepFinished = 300 * time.Millisecond })
	var ids []string
	for range 4 {
		p, err := table.Start(t.Context(), Spec{Args: []string{"true"}})
		if err != nil {
			t.Fatal(err)
		}
		<-p.done
		ids = append(ids, p.ID())
	}
	if _, err := table.Get(ids[1]); !errors.Is(err, ErrNotFound) {
		t.Fatalf("got %v", err)
	}
	eventually(t, "all forgotten", func() bool {
		_, err := table.Get(ids[3])
		return errors.Is(err, ErrNotFound)
	})
	eventually(t, "all released", func() bool { return len(table.alive()) == 0 })
}

func TestCapture(t *testing.T) {
	table := newTable(t)
	result, err := table.Capture(within(t), shell("head -c 3000000 /dev/zero | tr '\\0' a; printf END; echo err >&2; exit 4"), nil, 1000)
	if err != nil {
		t.Fatal(err)
	}
	out := result.Outputs[0]
	if len(out.Head) != 500 || len(out.Tail) != 500 || !strings.HasSuffix(string(out.Tail), "aEND") ||
		out.Total != 3000003 || out.Gap != 3000003-1000 {
		t.Fatalf("%d head, %d tail, %d gap, %d total", len(out.Head), len(out.Tail), out.Gap, out.Total)
	}
	want := Captured{Stream: Stderr, Head: []byte("err\n"), Total: 4}
	if diff := cmp.Diff(want, result.Outputs[1]); diff != "" || result.Exit.Code != 4 {
		t.Fatal(diff, result.Exit)
	}
}

func TestCapturedAnswersTheSameUntilItIsDropped(t *testing.T) {
	table := newTable(t)
	p, err := table.StartCaptured(within(t), shell("printf out; printf err >&2"), nil, 1000)
	if err != nil {
		t.Fatal(err)
	}
	var results []*Result
	for range 2 {
		result, err := p.Captured(within(t))
		if err != nil {
			t.Fatal(err)
		}
		results = append(results, result)
	}
	want := []Captured{{Stream: Stdout, Head: []byte("out"), Total: 3}, {Stream: Stderr, Head: []byte("err"), Total: 3}}
	for _, result := range results {
		if diff := cmp.Diff(want, result.Outputs); diff != "" {
			t.Error(diff)
		}
	}
	p.DropCaptured()
	result, err := p.Captured(within(t))
	if err != nil {
		t.Fatal(err)
	}
	want = []Captured{{Stream: Stdout, Gap: 3, Total: 3}, {Stream: Stderr, Gap: 3, Total: 3}}
	if diff := cmp.Diff(want, result.Outputs); diff != "" {
		t.Error(diff)
	}
}

func TestCapturesShareOneLimit(t *testing.T) {
	table := newTable(t)
	const each = 8 << 20
	var processes []*Process
	for range 6 {
		p, err := table.StartCaptured(within(t), shell(fmt.Sprintf("head -c %d /dev/zero", each)), nil, each)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Captured(within(t)); err != nil {
			t.Fatal(err)
		}
		processes = append(processes, p)
	}
	var held int
	for _, p := range processes {
		result, err := p.Captured(within(t))
		if err != nil {
			t.Fatal(err)
		}
		out := result.Outputs[0]
		if out.Gap != 0 && out.Gap != each {
			t.Errorf("%d of %d bytes are missing, want all or none", out.Gap, each)
		}
		held += len(out.Head) + len(out.Tail)
	}
	if held != maxCaptured {
		t.Errorf("%d bytes are held, want the limit, %d", held, maxCaptured)
	}
	if last, _ := processes[5].Captured(within(t)); last.Outputs[0].Gap != 0 {
		t.Error("the newest capture was dropped")
	}
}

func TestAMalformedReaderStartsNothing(t *testing.T) {
	table := newTable(t)
	trace := filepath.Join(t.TempDir(), "ran")
	_, _, err := table.Exec(within(t), Spec{Args: []string{"touch", trace}}, AttachOptions{ReaderID: "new\nline"})
	var malformed *InvalidError
	if !errors.As(err, &malformed) || malformed.Field != "ReaderID" {
		t.Fatalf("got %v, want an *InvalidError about ReaderID", err)
	}
	if err := table.Close(within(t)); err != nil { // whatever had been started would have ended by now
		t.Fatal(err)
	}
	if _, err := os.Stat(trace); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the command ran: %v", err)
	}
}

func TestCaptureFeedsStdin(t *testing.T) {
	table := newTable(t)
	data := []byte(strings.Repeat("0123456789abcde\n", 5<<16)) // 5 MiB
	result, err := table.Capture(within(t), Spec{Args: []string{"cat"}}, data, 1000)
	if err != nil {
		t.Fatal(err)
	}
	if result.Outputs[0].Total != uint64(len(data)) || result.InputClosed {
		t.Fatalf("%+v", result)
	}
	result, err = table.Capture(within(t), shell("head -c 5; exec <&-"), data, 1000)
	if err != nil {
		t.Fatal(err)
	}
	if string(result.Outputs[0].Head) != "01234" || !result.InputClosed {
		t.Fatalf("%+v", result)
	}
}

func TestCaptureEndsWithABackgroundChild(t *testing.T) {
	table := newTable(t)
	result, err := table.Capture(within(t), shell("(while echo later; do :; done) & echo out"), nil, 10)
	if err != nil || result.Exit.Code != 0 {
		t.Fatal(result, err)
	}
	_ = result.Process.Signal(syscall.SIGKILL, spawn.Tree)
}

func TestCancelledCaptureKeepsOrKillsAsAsked(t *testing.T) {
	table := newTable(t)
	for _, kill := range []bool{false, true} {
		spec := Spec{Args: []string{"sleep", "1000"}, KillOnDisconnect: kill, Labels: map[string]string{"kill": fmt.Sprint(kill)}}
		ctx, cancel := context.WithCancelCause(t.Context())
		gone := errors.New("client is gone")
		result := make(chan error)
		go func() {
			_, err := table.Capture(ctx, spec, nil, 10)
			result <- err
		}()
		var list []Info
		eventually(t, "started", func() bool {
			list, _, _ = table.List(Filter{Labels: spec.Labels})
			return len(list) == 1
		})
		cancel(gone)
		if err := <-result; !errors.Is(err, gone) {
			t.Fatalf("got %v", err)
		}
		p, err := table.Get(list[0].ID)
		if err != nil {
			t.Fatal(err)
		}
		if kill {
			if exit, err := p.Wait(within(t)); err != nil || exit.Signal != syscall.SIGTERM {
				t.Fatalf("%+v, %v", exit, err)
			}
		} else if p.hasEnded() {
			t.Fatal("killed")
		}
	}
}

func TestCloseAsksBackgroundChildrenFirst(t *testing.T) {
	table := newTable(t)
	p, a, err := table.Exec(t.Context(), shell("sh -c 'trap \"echo asked; exit\" TERM; echo ready; while :; do sleep 0.01; done' &"),
		AttachOptions{FollowAfterExit: true})
	if err != nil {
		t.Fatal(err)
	}
	h := newHeard()
	done := make(chan error)
	go func() { done <- h.listen(within(t), a) }()
	eventually(t, "ready", func() bool { return p.hasEnded() && p.Info().Output[0].Offset > 0 })
	if err := table.Close(within(t)); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil || h.text(Stdout) != "ready\nasked\n" {
		t.Fatalf("%q, %v", h.text(Stdout), err)
	}
	a.Close()
}

func TestReaderComesBackAndLosesNothing(t *testing.T) {
	table := newTable(t)
	spec := shell("i=0; while [ $i -lt 40000 ]; do echo $i; i=$((i+1)); done")
	spec.LogLimit = MinLogLimit
	p, a, err := table.Exec(t.Context(), spec, AttachOptions{ReaderID: "me"})
	if err != nil {
		t.Fatal(err)
	}
	var got []byte
	for {
		event, err := a.Next(within(t))
		if err != nil {
			t.Fatal(err)
		}
		if out, ok := event.(Output); ok {
			if len(got)/1000%2 == 0 { // the connection takes the frame with it
				got = append(got, out.Data...)
				if err := a.Ack(Stdout, uint64(len(got))); err != nil {
					t.Fatal(err)
				}
			} else {
				got = append(got, out.Data[:1]...)
			}
			out.Release()
			a.Detach()
			if a, err = p.Attach(AttachOptions{ReaderID: "me", Offsets: []StreamOffset{{Stdout, uint64(len(got))}}}); err != nil {
				t.Fatal(err)
			}
		}
		if _, ok := event.(Gap); ok {
			t.Fatal("lost output")
		}
		if _, ok := event.(Exited); ok {
			break
		}
	}
	lines := strings.Split(strings.TrimSpace(string(got)), "\n")
	if len(lines) != 40000 || lines[39999] != "39999" {
		t.Fatalf("%d lines, the last %q", len(lines), lines[len(lines)-1])
	}
	a.Close()
}

func TestSupersededAndStalledReadersAreTold(t *testing.T) {
	table := newTable(t)
	p, old, err := table.Exec(t.Context(), Spec{Args: []string{"yes"}}, AttachOptions{ReaderID: "a"})
	if err != nil {
		t.Fatal(err)
	}
	young, err := p.Attach(AttachOptions{ReaderID: "a", StallTimeout: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	for err = nil; err == nil; {
		_, err = old.Next(within(t))
	}
	if !errors.Is(err, ErrSuperseded) {
		t.Fatalf("got %v", err)
	}
	eventually(t, "the writer goes on", func() bool { return p.Info().Output[0].Offset > 3*outlog.DefaultLimit })
	for err = nil; err == nil; {
		_, err = young.Next(within(t))
	}
	if !errors.Is(err, ErrStalled) {
		t.Fatalf("got %v", err)
	}
	old.Close()
	young.Close()
}

func TestLosslessReaderHoldsItsProcessBackAndNoOther(t *testing.T) {
	table := newTable(t)
	slow, a, err := table.Exec(t.Context(), Spec{Args: []string{"yes"}}, AttachOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	eventually(t, "the log is full", func() bool { return slow.Info().Output[0].Offset >= outlog.DefaultLimit*3/4 })
	if h := exec(t, table, shell("head -c 20000000 /dev/zero")); h.output[Stdout].Len() != 20000000 {
		t.Fatalf("a neighbour got %d bytes", h.output[Stdout].Len())
	}
	if end := slow.Info().Output[0].Offset; end > outlog.DefaultLimit {
		t.Fatalf("ran on to %d", end)
	}
	if err := slow.Signal(syscall.SIGKILL, spawn.Tree); err != nil {
		t.Fatal(err)
	}
	if _, err := slow.Wait(within(t)); err != nil {
		t.Fatal(err)
	}
}

func TestKillOnDisconnectWaitsForTheGrace(t *testing.T) {
	table := newTable(t)
	long, short := time.Hour, time.Millisecond
	p, a, err := table.Exec(t.Context(), Spec{Args: []string{"sleep", "1000"}, KillOnDisconnect: true},
		AttachOptions{ReaderID: "a", ReconnectGrace: &long})
	if err != nil {
		t.Fatal(err)
	}
	a.Detach()
	if p.hasEnded() || !p.isAbandoned() {
		t.Fatal("not waiting for its reader")
	}
	back, err := p.Attach(AttachOptions{ReaderID: "a", ReconnectGrace: &short})
	if err != nil {
		t.Fatal(err)
	}
	if p.isAbandoned() {
		t.Fatal("to be killed although its reader came back")
	}
	back.Detach()
	exit, err := p.Wait(within(t))
	if err != nil || exit.Signal != syscall.SIGTERM {
		t.Fatalf("%+v, %v", exit, err)
	}
}

func (p *Process) isAbandoned() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.abandoned != nil
}

func TestCloseEndsEverythingAndRefusesMore(t *testing.T) {
	table := newTable(t)
	var all []*Process
	for _, line := range []string{"sleep 1000", "trap '' TERM; sleep 1000 & wait; sleep 1000", "setsid sleep 1000 &"} {
		spec := shell(line)
		grace := 50 * time.Millisecond
		spec.KillGrace = &grace
		p, err := table.Start(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	if err := table.Close(within(t)); err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		<-p.done
		eventually(t, "the tree is gone", func() bool {
			return errors.Is(p.Signal(syscall.SIGKILL, spawn.Tree), os.ErrProcessDone)
		})
	}
	if _, err := table.Start(t.Context(), shell("true")); !errors.Is(err, ErrClosed) {
		t.Fatalf("got %v", err)
	}
}

func TestLongShellLinesRunAsAnyUser(t *testing.T) {
	if os.Geteuid() != 0 {
		need.Skip(t, "needs root, to run as another user")
	}
	table := newTable(t)
	for _, login := range []bool{false, true} {
		spec := Spec{User: "54321", Shell: &ShellLine{Line: "id -u; : " + strings.Repeat("x", 3<<20), Login: login}}
		for _, spec.Terminal = range []*Size{nil, {}} {
			h := exec(t, table, spec)
			if got := h.text(Stdout) + h.text(Terminal); strings.TrimSpace(got) != "54321" || h.exit.Code != 0 {
				t.Fatalf("login %v: %q, %q, %+v", login, got, h.text(Stderr), h.exit)
			}
		}
	}
}
