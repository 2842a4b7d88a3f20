package kernel

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"guestd.internal/internal/spawn"
	"guestd.internal/test/need"
)

func runIn(t *testing.T, cs *Contexts, language, code string) *outcome {
	t.Helper()
	return collect(t, start(t, cs, Request{Language: language, Code: code}))
}

func TestProcessLanguages(t *testing.T) {
	cs := newContexts(t)
	dir := t.TempDir()
	for name, test := range map[string]struct {
		language, code, stdout, stderr string
		status                         Status
		exit                           int
		signal                         syscall.Signal
		trace                          string // the end of the traceback
	}{
		"bash":           {"bash", "x=1; echo out; echo err >&2; [[ $x == 1 ]]", "out\n", "err\n", OK, 0, 0, ""},
		"sh":             {"sh", "echo $0 $#", "bash 0\n", "", OK, 0, 0, ""},
		"no state":       {"shell", "echo ${x-none}", "none\n", "", OK, 0, 0, ""},
		"no input":       {"bash", "cat; echo end", "end\n", "", OK, 0, 0, ""},
		"exit":           {"bash", "for i in {1..30}; do echo line $i >&2; done; exit 3", "", "line 30\n", Failed, 3, 0, "line 30"},
		"signal":         {"bash", "kill -KILL $$", "", "", Failed, -1, syscall.SIGKILL, ""},
		"not UTF-8":      {"bash", `printf 'a\xffb\xc3'; sleep 0.05; printf '\xa9\xe2\x82'`, "a\uFFFDbé\uFFFD\uFFFD", "", OK, 0, 0, ""},
		"its own stdout": {"bash", "echo x > /dev/stdout", "x\n", "", OK, 0, 0, ""},
		"long":           {"bash", "n=0\n" + strings.Repeat("n=$((n+1)) # counts\n", 20_000) + "echo $n $0; cat", "20000 bash\n", "", OK, 0, 0, ""},
		"javascript":     {"javascript", "const fs = require('fs'); console.log('out ' + [1, 2].length); console.error('err')", "out 2\n", "err\n", OK, 0, 0, ""},
		"js error":       {"js", "throw new TypeError('no')", "", "TypeError: no\n", Failed, 1, 0, ""},
		"js no input":    {"node", "console.log(require('fs').readFileSync(0).length)", "0\n", "", OK, 0, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			out := runIn(t, cs, test.language, test.code)
			f := out.finished
			if f.Status != test.status || !f.HasExit || f.ExitCode != test.exit || f.Signal != test.signal || f.StateLost {
				t.Errorf("%+v, error %+v", f, out.err)
			}
			if out.stdout != test.stdout || !strings.Contains(out.stderr, test.stderr) {
				t.Errorf("stdout %q, stderr %q", out.stdout, out.stderr)
			}
			if out.started == nil || out.started.KernelGeneration != 0 || out.started.ExecutionCount != 0 {
				t.Errorf("started %+v", out.started)
			}
			if test.status == Failed {
				if out.err == nil || out.err.Name != ErrorExit || len(out.err.Traceback) > maxTailLines {
					t.Fatalf("error %+v", out.err)
				}
				if trace := strings.Join(out.err.Traceback, "\n"); !strings.HasSuffix(trace, test.trace) {
					t.Errorf("traceback %q", trace)
				}
			}
		})
	}
	x := start(t, cs, Request{Language: "bash", Code: `echo "$PWD" "$ONCE" "${HOME-none}"`, Dir: dir, Env: []spawn.EnvVar{
		{Name: "ONCE", Value: "it's"}, {Name: "HOME", Unset: true}}})
	if out := collect(t, x); out.stdout != dir+" it's none\n" {
		t.Errorf("with surroundings: %q", out.stdout)
	}
}

// processes counts those that run the given program argument.
func processes(t *testing.T, argument string) int {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, entry := range entries {
		command, err := os.ReadFile("/proc/" + entry.Name() + "/cmdline")
		if _, isPID := strconv.Atoi(entry.Name()); isPID == nil && err == nil && strings.Contains(string(command), "sleep\x00"+argument+"\x00") {
			n++
		}
	}
	return n
}

func TestProcessIsKilledWhole(t *testing.T) {
	cs := newContexts(t)
	const argument = "617.25"
	code := "echo begun; setsid sleep " + argument + " & (trap '' INT TERM; sleep " + argument + ") & trap '' TERM; sleep " + argument + "; echo over"
	out := collect(t, start(t, cs, Request{Language: "bash", Code: code, Timeout: after(300 * time.Millisecond)}))
	if f := out.finished; f.Status != TimedOut || f.StateLost || out.err == nil || out.err.Name != ErrorTimeout || out.stdout != "begun\n" {
		t.Errorf("%+v, error %+v, output %q", f, out.err, out.stdout)
	}
	waitFor(t, "the tree's end", func() bool { return processes(t, argument) == 0 })

	x := start(t, cs, Request{Language: "bash", Code: "trap 'echo caught; exit 7' INT; echo begun; while :; do sleep 0.05; done"})
	awaitText(t, x, "begun\n")
	if id, err := cs.InterruptContext(x.ContextID()); err != nil || id != x.ID() {
		t.Errorf("%q, %v", id, err)
	}
	out = collect(t, x)
	if f := out.finished; f.Status != Interrupted || f.ExitCode != 7 || out.stdout != "begun\ncaught\n" || out.err == nil || out.err.Name != ErrorInterrupted {
		t.Errorf("interrupted: %+v, error %+v, output %q", f, out.err, out.stdout)
	}
	x = start(t, cs, Request{Language: "bash", Code: "trap '' INT; echo begun; sleep " + argument})
	awaitText(t, x, "begun\n")
	queued := start(t, cs, Request{Language: "bash", Code: "echo next"})
	if stopped, err := cs.InterruptExecution(x.ID()); err != nil || !stopped {
		t.Errorf("%v, %v", stopped, err)
	}
	if f := collect(t, x).finished; f.Status != Interrupted || f.Signal != syscall.SIGKILL {
		t.Errorf("one that ignores it: %+v", f)
	}
	if out := collect(t, queued); out.stdout != "next\n" {
		t.Errorf("the next one: %q", out.stdout)
	}
}

// awaitText reads an execution until it has written the text.
func awaitText(t *testing.T, x *Execution, want string) {
	t.Helper()
	r := events(t, x, 0)
	defer r.Close()
	for got := ""; got != want; {
		if body, ok := next(t, r).Body.(Stdout); ok {
			got += body.Text
		}
	}
}

func TestProcessThatLivesOn(t *testing.T) {
	cs := newContexts(t)
	const argument = "618.25"
	began := time.Now()
	x := start(t, cs, Request{Language: "bash", Code: "(sleep 0.5; echo late; exec sleep " + argument + ") & echo at once"})
	out := collect(t, x)
	if out.stdout != "at once\n" || out.finished.Status != OK || time.Since(began) > 10*time.Second {
		t.Errorf("%+v, output %q", out.finished, out.stdout)
	}
	w, err := cs.Watch(x.ContextID())
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for {
		event, err := w.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if event.Output != nil {
			if *event.Output != (BackgroundOutput{ExecutionID: x.ID(), Stream: StreamStdout, Text: "late\n"}) {
				t.Errorf("%+v", event.Output)
			}
			break
		}
	}
	if out := runIn(t, cs, "bash", "echo beside"); out.stdout != "beside\n" {
		t.Errorf("the next one: %q", out.stdout)
	}
	waitFor(t, "the process", func() bool { return processes(t, argument) == 1 })
	if err := cs.Delete(t.Context(), x.ContextID()); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "its end with the context", func() bool { return processes(t, argument) == 0 })
}

// A process that writes more than anybody reads has to wait, and loses nothing.
func TestProcessWaitsForItsReader(t *testing.T) {
	cs := newContexts(t, func(cfg *Config) { cfg.OutputLimit = 256 << 10 })
	const lines = 300_000
	x := start(t, cs, Request{Language: "bash", Code: fmt.Sprintf("seq %d; echo done >&2", lines)})
	r := events(t, x, 0)
	next(t, r)
	waitFor(t, "a full log", func() bool { return isBlocked(x.log) })
	time.Sleep(100 * time.Millisecond)
	if held := x.log.retained(); held > 2<<20 {
		t.Errorf("%d bytes are held", held)
	}
	var got strings.Builder
	for {
		event, err := r.Next(t.Context())
		if err != nil {
			break
		}
		switch body := event.Body.(type) {
		case Stdout:
			got.WriteString(body.Text)
		case Gap:
			t.Errorf("%+v", body)
		}
	}
	var want strings.Builder
	for i := range lines {
		fmt.Fprintln(&want, i+1)
	}
	if got.String() != want.String() {
		t.Errorf("%d bytes, want %d", got.Len(), want.Len())
	}
}

// What was taken from a process's pipe makes room there at once. (A reader that says
// nothing counts for half a second as one that may.)
func TestProcessThatWritesMuchWaitsForNothing(t *testing.T) {
	cs := newContexts(t)
	const size, attempts = 2_000_000, 5
	quickest := time.Hour
	for range attempts {
		out := collect(t, start(t, cs, Request{Language: "bash", Code: fmt.Sprintf("head -c %d /dev/zero | tr '\\0' x", size)}))
		if out.finished.Status != OK || len(out.stdout) != size {
			t.Fatalf("%+v, %d bytes", out.finished, len(out.stdout))
		}
		quickest = min(quickest, out.finished.Duration)
	}
	if quickest >= 500*time.Millisecond {
		t.Errorf("%d bytes took %v", size, quickest)
	}
}

func TestRestartEndsProcesses(t *testing.T) {
	cs := newContexts(t)
	const argument = "619.25"
	x := start(t, cs, Request{Language: "bash", Code: "setsid sleep " + argument + " & echo begun"})
	collect(t, x)
	running := start(t, cs, Request{Language: "bash", Code: "echo begun; sleep " + argument})
	awaitText(t, running, "begun\n")
	queued := start(t, cs, Request{Language: "bash", Code: "echo next"})
	if _, err := cs.Restart(t.Context(), x.ContextID()); err != nil {
		t.Fatal(err)
	}
	if out := collect(t, running); out.finished.Status != KernelDied || out.finished.StateLost || out.err == nil || out.err.Name != ErrorKernelDied {
		t.Errorf("%+v, error %+v", out.finished, out.err)
	}
	if out := collect(t, queued); out.stdout != "next\n" {
		t.Errorf("what was queued: %+v", out.finished)
	}
	waitFor(t, "the processes' end", func() bool { return processes(t, argument) == 0 })
}

func TestMissingProgramIsAnErrorOfTheExecution(t *testing.T) {
	cs := newContexts(t, func(cfg *Config) {
		cfg.Environment = func() []spawn.EnvVar { return []spawn.EnvVar{{Name: "PATH", Value: "/nowhere"}} }
	})
	out := runIn(t, cs, "js", "1")
	if out.finished.Status != Failed || out.finished.HasExit || out.err == nil || out.err.Name != ErrorLanguageUnavailable || !strings.Contains(out.err.Value, "apt-get install nodejs") {
		t.Errorf("%+v, error %+v", out.finished, out.err)
	}
	if _, err := cs.Create(t.Context(), ContextRequest{Language: "js"}); !errors.As(err, new(*LanguageUnavailableError)) {
		t.Errorf("a context: %v", err)
	}
	languages, err := cs.Languages("")
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range languages {
		if l.Name == "javascript" && !strings.Contains(l.Unavailable, "node") {
			t.Errorf("%+v", l)
		}
	}
}

func TestLanguages(t *testing.T) {
	cs := newContexts(t)
	languages, err := cs.Languages("")
	if err != nil {
		t.Fatal(err)
	}
	byName := make(map[string]Language)
	for _, l := range languages {
		byName[l.Name] = l
	}
	for name, aliases := range map[string]string{"python": "[py python3]", "bash": "[sh shell]", "javascript": "[js node]"} {
		if l := byName[name]; fmt.Sprint(l.Aliases) != aliases || l.DisplayName == "" || l.Unavailable != "" || l.Stateful != (name == "python") {
			t.Errorf("%s: %+v", name, l)
		}
	}
	if _, twice := byName["python3"]; twice {
		t.Error("python3 is listed beside python")
	}
}

// xpython is a kernel that is not ipykernel, nor has anything of it.
func TestAnotherKernelByName(t *testing.T) {
	cs := newContexts(t)
	info, err := cs.Create(t.Context(), ContextRequest{Language: "xpython"})
	if errors.As(err, new(*LanguageNotFoundError)) {
		need.Skip(t, "xpython is not installed: apt-get install xpython")
	}
	if err != nil {
		t.Fatal(err)
	}
	out := collect(t, start(t, cs, Request{ContextID: info.ID, Code: "print('out')\n6 * 7"}))
	if out.finished.Status != OK || out.stdout != "out\n" || len(out.results) != 1 || out.results[0].part("text/plain") != "42" {
		t.Errorf("%+v, output %q, results %+v", out.finished, out.stdout, out.results)
	}
	out = collect(t, start(t, cs, Request{ContextID: info.ID, Code: "1/0"}))
	if out.finished.Status != Failed || out.err == nil || out.err.Name != "ZeroDivisionError" {
		t.Errorf("%+v, error %+v", out.finished, out.err)
	}
	dir := t.TempDir()
	out = collect(t, start(t, cs, Request{ContextID: info.ID, Code: "import os; os.getcwd()", Dir: dir}))
	if out.finished.Status != OK || out.results[0].part("text/plain") != "'"+dir+"'" {
		t.Errorf("in a folder: %+v, error %+v, results %+v", out.finished, out.err, out.results)
	}
	if got := valueOf(t, cs, info.ID, "os.getcwd()"); got == "'"+dir+"'" {
		t.Error("it stays in the folder")
	}
	out = collect(t, start(t, cs, Request{ContextID: info.ID, Code: "while True: pass", Timeout: after(300 * time.Millisecond)}))
	if out.finished.Status != TimedOut {
		t.Errorf("%+v, error %+v", out.finished, out.err)
	}
}
