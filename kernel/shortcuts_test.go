package kernel

import "testing"

// What our kernel leaves out of ipykernel's and IPython's work is missed by nobody.
func TestShortcuts(t *testing.T) {
	onEachIPykernel(t, func(t *testing.T, use func(*Config)) {
		cs := newContexts(t, use)
		t.Run("broadcasts", func(t *testing.T) { checkBroadcasts(t, cs) })
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
