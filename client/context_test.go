package client

import (
	"errors"
	"strings"
	"testing"
)

func TestContexts(t *testing.T) {
	c := dialTest(t, startGuestd(t))
	dir := t.TempDir()
	created, err := c.CreateContext(t.Context(), ContextRequest{
		Language: "sh", Dir: dir, Env: []string{"A=b c"}, Name: "name", Labels: map[string]string{"k": "v"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if created.Language != "bash" || created.Dir != dir || created.Name != "name" || created.State != ContextIdle || created.Default {
		t.Errorf("created %+v", created)
	}
	if out := outcomeIn(t, c, created.ID, `echo "$A $PWD"; exit 3`); out.Stdout != "b c "+dir+"\n" || out.Error.Name != "ExitError" || out.Finished.ExitCode != 3 {
		t.Errorf("got %+v", out)
	}
	python, err := c.CreateContext(t.Context(), ContextRequest{})
	if err != nil {
		t.Fatal(err)
	}
	var listed []string
	for context, err := range c.Contexts(t.Context(), ContextFilter{}) {
		if err != nil {
			t.Fatal(err)
		}
		listed = append(listed, context.ID)
	}
	if strings.Join(listed, " ") != created.ID+" "+python.ID {
		t.Errorf("listed %q", listed)
	}
	for context, err := range c.Contexts(t.Context(), ContextFilter{State: ContextIdle, Labels: map[string]string{"k": "v"}}) {
		if err != nil || context.ID != created.ID {
			t.Errorf("by label: %+v, %v", context, err)
		}
	}
	outcomeIn(t, c, python.ID, "number = 1")
	completion, err := c.Complete(t.Context(), python.ID, "num", 3)
	if err != nil || len(completion.Matches) == 0 || completion.Matches[0] != "number" {
		t.Errorf("completed %+v, %v", completion, err)
	}
	parts, err := c.Inspect(t.Context(), python.ID, "len", 3, false)
	if err != nil || len(parts) == 0 || !strings.Contains(string(parts[0].Bytes), "Return the number of items") {
		t.Errorf("inspected %+v, %v", parts, err)
	}
	watchDeletion(t, c, python.ID)
	if _, err := c.Context(t.Context(), python.ID); err == nil {
		t.Error("it is still there")
	} else if refused, is := errors.AsType[*Error](err); !is || refused.Reason != "CONTEXT_NOT_FOUND" {
		t.Errorf("after its end: %v", err)
	}
	languages, err := c.Languages(t.Context(), "")
	if err != nil || len(languages) < 3 || languages[0].Name != "python" || !languages[0].Available {
		t.Errorf("languages %+v, %v", languages, err)
	}
}

// watchDeletion watches a context of Python from a restart to its end.
func watchDeletion(t *testing.T, c *Client, id string) {
	t.Helper()
	var states []string
	for event, err := range c.WatchContext(t.Context(), id) {
		if err != nil {
			t.Fatal(err)
		}
		if event.Context == nil {
			continue
		}
		states = append(states, event.Context.State.String())
		switch {
		case len(states) == 1:
			if restarted, err := c.RestartContext(t.Context(), id); err != nil || restarted.KernelGeneration != 2 {
				t.Fatalf("restarted %+v, %v", restarted, err)
			}
			if running, err := c.InterruptContext(t.Context(), id); err != nil || running != "" {
				t.Errorf("interrupted %q, %v", running, err)
			}
		case event.Context.KernelGeneration == 2 && event.Context.State == ContextIdle:
			if err := c.DeleteContext(t.Context(), id); err != nil {
				t.Fatal(err)
			}
		}
	}
	if seen := strings.Join(states, " "); !strings.HasPrefix(seen, "idle dead") || !strings.Contains(seen, "starting") {
		t.Errorf("states %s", seen)
	}
}

func outcomeIn(t *testing.T, c *Client, context, code string) *Outcome {
	t.Helper()
	x, err := c.Execute(t.Context(), CodeRequest{ContextID: context, Code: code})
	if err != nil {
		t.Fatal(err)
	}
	outcome, err := x.Outcome()
	if err != nil {
		t.Fatal(err)
	}
	return outcome
}
