package kernel

import (
	"slices"
	"strings"
	"testing"
)

// What our kernel leaves out of ipykernel's and IPython's work is missed by nobody.
func TestShortcuts(t *testing.T) {
	onEachIPykernel(t, func(t *testing.T, use func(*Config)) {
		cs := newContexts(t, use)
		t.Run("transformers", func(t *testing.T) { checkTransformers(t, cs) })
		t.Run("formatters", func(t *testing.T) { checkFormatters(t, cs) })
		t.Run("broadcasts", func(t *testing.T) { checkBroadcasts(t, cs) })
		t.Run("questions", func(t *testing.T) { checkQuestionsMeanwhile(t, cs) })
	})
}

// checkTransformers wants the user's to see each cell once, and every one.
func checkTransformers(t *testing.T, cs *Contexts) {
	t.Helper()
	mustOK(t, cs, `
import asyncio
seen = []
get_ipython().input_transformers_post.append(lambda lines: seen.append("".join(lines).strip()) or lines)`)
	mustOK(t, cs, "'one'")
	mustOK(t, cs, "'one'")
	mustOK(t, cs, "await asyncio.sleep(0)")
	mustOK(t, cs, "_ = get_ipython().run_cell(\"'inner'\")")
	got := strings.TrimSpace(mustOK(t, cs, "print(*seen, sep=' | ')").stdout)
	want := `'one' | 'one' | await asyncio.sleep(0) | _ = get_ipython().run_cell("'inner'") | 'inner' | print(*seen, sep=' | ')`
	if got != want {
		t.Errorf("transformed: %s, want %s", got, want)
	}
	mustOK(t, cs, "_ = get_ipython().input_transformers_post.pop()")
}

// checkFormatters wants those for any type to work, and an error in one to be shown.
func checkFormatters(t *testing.T, cs *Contexts) {
	t.Helper()
	mustOK(t, cs, "get_ipython().display_formatter.formatters['text/html'].for_type(int, lambda n: f'<b>{n}</b>')\nNone")
	if out := mustOK(t, cs, "40 + 2"); out.results[0].part("text/html") != "<b>42</b>" || out.results[0].part("text/plain") != "42" {
		t.Errorf("an int with a formatter: %+v", out.results)
	}
	out := execute(t, cs, `
class Broken:
    def _repr_html_(self): raise ValueError("no html")
    def _repr_latex_(self): return "$x$"
    def __repr__(self): return "plain"
Broken()`)
	result := out.results[len(out.results)-1]
	if result.part("text/plain") != "plain" || result.part("text/latex") != "$x$" || result.part("text/html") != "" {
		t.Errorf("a broken formatter: %+v", out.results)
	}
	if out.err == nil || out.err.Name != "ValueError" {
		t.Errorf("a broken formatter's error: %+v", out.err)
	}
}

// checkBroadcasts wants no more messages than there is to tell.
func checkBroadcasts(t *testing.T, cs *Contexts) {
	t.Helper()
	mustOK(t, cs, `
import json
told = []
def note(parts, *args, send=get_ipython().kernel.parent.iopub_thread.send_multipart, **options):
    told.append(json.loads(parts[parts.index(b"<IDS|MSG>") + 2])["msg_type"])
    return send(parts, *args, **options)
get_ipython().kernel.parent.iopub_thread.send_multipart = note`)
	mustOK(t, cs, "1 + 1")
	got := valueOf(t, cs, "", "' '.join(told)")
	if want := "'status execute_input execute_result status execute_input'"; got != want {
		t.Errorf("broadcast: %s, want %s", got, want)
	}
	mustOK(t, cs, "del get_ipython().kernel.parent.iopub_thread.send_multipart")
}

// checkQuestionsMeanwhile wants an answer to a question that came while code ran:
// by sending the reply to the code libzmq takes note of it, and forgets to wake the
// event loop.
func checkQuestionsMeanwhile(t *testing.T, cs *Contexts) {
	t.Helper()
	for range 3 {
		x := start(t, cs, Request{Code: `
import select, time
print("ready", flush=True)
known_name = bool(select.select([get_ipython().kernel.shell_stream.socket.FD], [], [], 20)[0])
time.sleep(0.01)  # libzmq looks every millisecond
known_name`})
		awaitText(t, x, "ready\n")
		c, err := cs.Complete(t.Context(), x.ContextID(), Cursor{Code: "known_na", At: len("known_na")})
		if err != nil || !slices.Contains(c.Matches, "known_name") {
			t.Errorf("completion: %+v, %v", c, err)
		}
		if out := collect(t, x); out.results[0].part("text/plain") != "True" {
			t.Errorf("the question did not arrive: %+v", out.results)
		}
	}
}
