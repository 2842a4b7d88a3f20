package kernel

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

func TestStatePersists(t *testing.T) {
	cs := newContexts(t)
	first := mustOK(t, cs, "x = 20")
	if first.started.FreshKernel || first.started.KernelGeneration != 1 || first.started.PreviousEnd != "" || first.started.ExecutionCount != 1 {
		t.Errorf("first: %+v", first.started)
	}
	second := mustOK(t, cs, "x + 22")
	if second.started.FreshKernel || second.started.ExecutionCount != 2 {
		t.Errorf("second: %+v", second.started)
	}
	if len(second.results) != 1 || second.results[0].Kind != Main || second.results[0].part("text/plain") != "42" {
		t.Errorf("results %+v", second.results)
	}
	if f := second.finished; f.ExecutionCount != 2 || f.Duration <= 0 || f.StateLost || f.OutputIncomplete {
		t.Errorf("finished %+v", f)
	}
}

func TestOutput(t *testing.T) {
	cs := newContexts(t)
	out := mustOK(t, cs, "import sys\nprint('à\\r\\nb\\n\\n', end='')\nprint('err', file=sys.stderr)\nsys.stdout.write('tail')\nNone")
	if out.stdout != "à\r\nb\n\ntail" || out.stderr != "err\n" {
		t.Errorf("stdout %q, stderr %q", out.stdout, out.stderr)
	}
	big := mustOK(t, cs, "_ = sys.stdout.write('0123456789' * 1_000_000)")
	if big.stdout != strings.Repeat("0123456789", 1_000_000) || len(big.gaps) > 0 {
		t.Errorf("10 MB came as %d bytes, gaps %v", len(big.stdout), big.gaps)
	}
	low := mustOK(t, cs, "import os, subprocess\n_ = os.system('echo from a child')")
	if low.stdout != "from a child\n" {
		t.Errorf("a child's output: %q", low.stdout)
	}
	for i := range 30 { // it comes by another way, and must be there before the end
		if low := mustOK(t, cs, fmt.Sprintf("_ = os.system('echo %d; echo %d >&2')", i, i)); low.stdout != fmt.Sprintln(i) || low.stderr != fmt.Sprintln(i) {
			t.Errorf("a child's output %d: %q, %q", i, low.stdout, low.stderr)
		}
	}
	mustOK(t, cs, "background = subprocess.Popen('while echo y; do sleep 0.001; done', shell=True)\nNone") // whoever never stops writing ends no execution late
	if out := mustOK(t, cs, "background.kill(); _ = background.wait()\n'on'"); out.results[0].part("text/plain") != "'on'" {
		t.Errorf("with a busy background process: %+v", out.results)
	}
	if clear := mustOK(t, cs, "from IPython.display import clear_output\nclear_output(wait=True)"); len(clear.clears) != 1 || !clear.clears[0].Wait {
		t.Errorf("clear_output: %+v", clear.clears)
	}
}

func TestErrors(t *testing.T) {
	cs := newContexts(t)
	out := execute(t, cs, "print('before')\n1/0")
	if out.stdout != "before\n" || out.finished.Status != Failed || out.err == nil {
		t.Fatalf("%+v %+v", out.finished, out.err)
	}
	if e := out.err; e.Name != "ZeroDivisionError" || e.Value != "division by zero" || !strings.Contains(strings.Join(e.Traceback, "\n"), "----> 2 1/0") {
		t.Errorf("error %+v", e)
	}
	if strings.Contains(strings.Join(out.err.Traceback, ""), "\x1b") {
		t.Error("colours in the traceback")
	}
	if out := execute(t, cs, "for"); out.err == nil || out.err.Name != "SyntaxError" || out.finished.Status != Failed {
		t.Errorf("syntax error: %+v %+v", out.err, out.finished)
	}
	if out := execute(t, cs, "raise SystemExit(3)"); out.err == nil || out.err.Name != "SystemExit" || out.err.Value != "3" || out.finished.StateLost || out.stderr != "" {
		t.Errorf("SystemExit: %+v %+v, %q", out.err, out.finished, out.stderr)
	}
	if out := execute(t, cs, "input()"); out.err == nil || out.err.Name != "StdinNotImplementedError" {
		t.Errorf("input(): %+v", out.err)
	}
	if out := mustOK(t, cs, "6*7"); out.results[0].part("text/plain") != "42" {
		t.Error("the kernel is no good after errors")
	}
}

func TestCodeThatDoesNotCompile(t *testing.T) {
	onEachIPykernel(t, func(t *testing.T, use func(*Config)) { checkCodeThatDoesNotCompile(t, newContexts(t, use)) })
}

// checkCodeThatDoesNotCompile wants an error like any other for it, however Python
// says that there is one.
func checkCodeThatDoesNotCompile(t *testing.T, cs *Contexts) {
	t.Helper()
	for name, code := range map[string]string{
		"NUL":              "print('a\x00b')",
		"NUL in a comment": "x = 1 # \x00",
		"NUL alone":        "\x00",
		"brackets":         strings.Repeat("(", 500),
		"nesting":          strings.Repeat("-", 100_000) + "1",
		"indent":           "if 1:\n  1\n 2",
	} {
		out := execute(t, cs, code)
		if out.finished.Status != Failed || out.finished.StateLost || out.err == nil || out.err.Name == ErrorAborted {
			t.Errorf("%s: %+v, error %+v", name, out.finished, out.err)
			continue
		}
		t.Logf("%s: %s: %s", name, out.err.Name, out.err.Value)
	}
	if out := mustOK(t, cs, "6*7"); len(out.results) != 1 {
		t.Errorf("no good after that: %+v", out.finished)
	}
}

func TestDisplays(t *testing.T) {
	cs := newContexts(t)
	out := mustOK(t, cs, `
from IPython.display import display, HTML, JSON
h = display(HTML('<b>1</b>'), display_id='d1')
h.update(HTML('<b>2</b>'))
display(JSON({'a': [1, 2.5]}), metadata={'application/json': {'k': 1}})
display({'image/png': 'iVBORw0KGgo=', 'text/plain': 'raw'}, raw=True)`)
	if len(out.results) != 4 {
		t.Fatalf("results %+v", out.results)
	}
	shown, updated, json, raw := out.results[0], out.results[1], out.results[2], out.results[3]
	if shown.Kind != Display || shown.DisplayID != "d1" || shown.part("text/html") != "<b>1</b>" {
		t.Errorf("display %+v", shown)
	}
	if updated.Kind != Update || updated.DisplayID != "d1" || updated.part("text/html") != "<b>2</b>" {
		t.Errorf("update %+v", updated)
	}
	if json.part("application/json") != `{"a":[1,2.5]}` || !strings.Contains(string(json.MetadataJSON), `"k": 1`) && !strings.Contains(string(json.MetadataJSON), `"k":1`) {
		t.Errorf("JSON %q, metadata %q", json.part("application/json"), json.MetadataJSON)
	}
	if raw.part("image/png") != "\x89PNG\r\n\x1a\n" || raw.part("text/plain") != "raw" {
		t.Errorf("raw %+v", raw)
	}
	later := mustOK(t, cs, "h.update(HTML('<b>3</b>'))")
	if len(later.results) != 1 || later.results[0].Kind != Update || later.results[0].DisplayID != "d1" {
		t.Errorf("update of an earlier display: %+v", later.results)
	}
	if help := mustOK(t, cs, "len?"); len(help.results) != 1 || !strings.Contains(help.results[0].part("text/plain"), "Return the number of items") {
		t.Errorf("help: %+v", help.results)
	}
}

func TestChartAndFrame(t *testing.T) {
	cs := newContexts(t)
	out := mustOK(t, cs, "import matplotlib.pyplot as plt\nplt.plot([1, 4, 2])\nplt.show()")
	if len(out.results) != 1 || !bytes.HasPrefix([]byte(out.results[0].part("image/png")), []byte("\x89PNG\r\n\x1a\n")) {
		t.Errorf("a chart: %d results, stderr %q", len(out.results), out.stderr)
	}
	out = mustOK(t, cs, "import pandas\npandas.DataFrame({'a': [1], 'b': ['<x>']})")
	if len(out.results) != 1 || !strings.Contains(out.results[0].part("text/html"), "<table") || !strings.Contains(out.results[0].part("text/plain"), "<x>") {
		t.Errorf("a data frame: %+v", out.results)
	}
}

// Charts of plotly and altair are JSON for a front end, with HTML beside it: as
// they come, with the libraries' own types, whether the libraries are there or not.
func TestChartsForFrontEnds(t *testing.T) {
	cs := newContexts(t)
	const specification = `{"data":[{"y":[1,2.5,null],"type":"scatter","name":"grüße"}],"layout":{"title":{"text":"<b>"}}}`
	for _, mime := range []string{"application/vnd.plotly.v1+json", "application/vnd.vegalite.v4+json", "application/vnd.vega.v5+json"} {
		out := mustOK(t, cs, fmt.Sprintf(`
import json
class Chart:
    def _repr_mimebundle_(self, include=None, exclude=None):
        return {%q: json.loads(%q), 'text/html': '<div/>', 'text/plain': 'a chart'}, {%[1]q: {'embed_options': {}}}
from IPython.display import display
display(Chart())
Chart()`, mime, specification))
		if len(out.results) != 2 || out.results[0].Kind != Display || out.results[1].Kind != Main {
			t.Fatalf("%s: %+v", mime, out.results)
		}
		for _, r := range out.results {
			if r.part(mime) != specification || r.part("text/html") != "<div/>" || r.part("text/plain") != "a chart" || !strings.Contains(string(r.MetadataJSON), "embed_options") {
				t.Errorf("%s: %+v", mime, r)
			}
		}
	}
	for library, code := range map[string]string{
		"plotly": "import plotly.graph_objects\nplotly.graph_objects.Figure(plotly.graph_objects.Scatter(y=[1, 2]))",
		"altair": "import altair, pandas\naltair.Chart(pandas.DataFrame({'a': [1], 'b': [2]})).mark_line().encode(x='a', y='b')",
	} {
		if !hasModule(t, cs, library) {
			t.Logf("without %s (Debian: python3-%[1]s)", library)
			continue
		}
		out := mustOK(t, cs, code)
		if len(out.results) != 1 || out.results[0].part("text/html") == "" {
			t.Errorf("%s: %+v", library, out.results)
		}
	}
}

func TestNothingIsLeftInTheNamespace(t *testing.T) {
	cs := newContexts(t)
	known := "{'In', 'Out', '_', '__', '___', '_dh', '_i', '_i1', '_ih', '_ii', '_iii', '_oh', 'exit', 'get_ipython', 'open', 'quit'}"
	out := mustOK(t, cs, "print(sorted(n for n in globals() if not (n.startswith('__') and n.endswith('__')) and n not in "+known+"))")
	if out.stdout != "[]\n" {
		t.Errorf("names that are not IPython's own: %s", out.stdout)
	}
	out = mustOK(t, cs, "import os; home = os.path.expanduser('~'); print(os.getcwd() == (home if os.path.isdir(home) else '/'), os.getsid(0) == os.getpid(), os.readlink('/proc/self/fd/0'))")
	if out.stdout != "True True /dev/null\n" {
		t.Errorf("cwd is home, session leader, stdin: %s", out.stdout)
	}
}

func TestQueueKeepsOrder(t *testing.T) {
	cs := newContexts(t)
	mustOK(t, cs, "order = []")
	var all []*Execution
	for i := range 10 {
		all = append(all, start(t, cs, Request{Code: fmt.Sprintf("import time; time.sleep(0.05); order.append(%d)", i)}))
	}
	for i, x := range all {
		out := collect(t, x)
		if out.finished.Status != OK || out.accepted.QueuePosition != i {
			t.Errorf("execution %d: %+v, position %d", i, out.finished, out.accepted.QueuePosition)
		}
	}
	if out := mustOK(t, cs, "order"); out.results[0].part("text/plain") != "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]" {
		t.Errorf("order %s", out.results[0].part("text/plain"))
	}
}
