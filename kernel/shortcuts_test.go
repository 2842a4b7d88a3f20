package kernel

import (
	"slices"
	"testing"
)

// What our kernel leaves out of ipykernel's and IPython's work is missed by nobody.
func TestShortcuts(t *testing.T) {
	onEachIPykernel(t, func(t *testing.T, use func(*Config)) {
		cs := newContexts(t, use)
		t.Run("broadcasts", func(t *testing.T) { checkBroadcasts(t, cs) })
		t.Run("questions", func(t *testing.T) { checkQuestionsMeanwhile(t, cs) })
	})
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
