package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// TestEventsSurviveCuts cuts the connection again and again while events of every kind come, and
// wants all of them once, in order and whole.
func TestEventsSurviveCuts(t *testing.T) {
	target := startGuestd(t)
	random := rand.New(rand.NewPCG(3, 5))
	cut := newCutter(t, strings.TrimPrefix(target, "unix://"), func() (int, int) {
		return 20_000 + random.IntN(1_500_000), -1
	})
	c := dialTest(t, cut.target())
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	const rounds = 40
	x, err := c.Execute(ctx, CodeRequest{Timeout: -1, AllowStdin: true, Code: fmt.Sprintf(`
import sys
from IPython.display import display
for i in range(%d):
    for n in range(3000): print(i, n, "grüße")
    print("err", i, file=sys.stderr)
    display(i)
    display("x" * (600_000 + i))
    if i %% 10 == 0: print(input(f"{i}? "))
"value"`, rounds)})
	if err != nil {
		t.Fatal(err)
	}
	var stdout, stderr, values strings.Builder
	var last uint64
	results := &ResultAssembler{}
	for event, err := range x.Events() {
		if err != nil {
			t.Fatalf("after %d events and %d cuts: %v", last, cut.count(), err)
		}
		_, isData := event.Detail.(Data)
		if event.Number != last+1 && !(isData && event.Number == last) {
			t.Fatalf("event %d (%T) after %d", event.Number, event.Detail, last)
		}
		last = event.Number
		switch d := event.Detail.(type) {
		case Text:
			if d.Stream == Stderr {
				stderr.WriteString(d.Text)
			} else {
				stdout.WriteString(d.Text)
			}
		case OutputGap:
			t.Errorf("a gap of %d bytes", d.Bytes)
		case InputRequest:
			if err := answer(ctx, x, "answer to "+d.Prompt); err != nil {
				t.Fatal(err)
			}
		case Finished:
			if d.Status != ExecutionOK {
				t.Errorf("it ended %v", d.Status)
			}
		}
		if result, whole := results.Add(event.Detail); whole {
			text, _ := result.Part("text/plain")
			fmt.Fprintf(&values, "%d %d %.3s\n", result.Number, len(text), text)
		}
	}
	var wantOut, wantErr, wantValues strings.Builder
	for i := range rounds {
		for n := range 3000 {
			fmt.Fprintln(&wantOut, i, n, "grüße")
		}
		fmt.Fprintln(&wantErr, "err", i)
		fmt.Fprintf(&wantValues, "%d %d %d\n%d %d 'xx\n", 2*i+1, len(fmt.Sprint(i)), i, 2*i+2, 600_002+i)
		if i%10 == 0 {
			fmt.Fprintf(&wantOut, "answer to %d? \n", i)
		}
	}
	fmt.Fprintf(&wantValues, "%d 7 'va\n", 2*rounds+1)
	for what, texts := range map[string][2]string{
		"stdout": {stdout.String(), wantOut.String()}, "stderr": {stderr.String(), wantErr.String()},
		"values": {values.String(), wantValues.String()},
	} {
		if texts[0] != texts[1] {
			t.Errorf("%s has %d bytes, want %d; both as wanted are the first %d", what, len(texts[0]), len(texts[1]), common(texts[0], texts[1]))
		}
	}
	if cut.count() < 10 {
		t.Errorf("only %d cuts", cut.count())
	}
	t.Logf("%d cuts, %d events", cut.count(), last)
}

// TestCodeRunsOnceWhateverBreaks breaks the connection before the header comes, at every byte of
// what guestd has to say up to there, and wants code that counts to have run once.
func TestCodeRunsOnceWhateverBreaks(t *testing.T) {
	target := startGuestd(t)
	var next atomic.Int64
	cut := newCutter(t, strings.TrimPrefix(target, "unix://"), func() (int, int) {
		if n := int(next.Swap(-1)); n >= 0 {
			return n, -1
		}
		return -1, -1 // the second connection is a good one
	})
	direct := dialTest(t, target)
	if _, err := runCode(t, direct, "count = 0"); err != nil {
		t.Fatal(err)
	}
	const most, step = 400, 7
	ran := 0
	for n := 1; n < most; n += step {
		next.Store(int64(n))
		c := dialTest(t, cut.target())
		if outcome, err := runCode(t, c, "count += 1"); err == nil && outcome.Finished.Status == ExecutionOK {
			ran++
		} else if !errors.Is(err, ErrUnavailable) { // the connection had not even begun
			t.Errorf("cut after %d bytes: %+v, %v", n, outcome, err)
		}
	}
	outcome, err := runCode(t, direct, "count")
	if err != nil {
		t.Fatal(err)
	}
	result, _ := outcome.Main()
	text, _ := result.Part("text/plain")
	if string(text) != fmt.Sprint(ran) || ran == 0 {
		t.Errorf("the code ran %s times, want %d", text, ran)
	}
	if cut.count() == 0 {
		t.Error("nothing was cut")
	}
	t.Logf("%d executions, %d cuts", ran, cut.count())
}

func runCode(t *testing.T, c *Client, code string) (*Outcome, error) {
	t.Helper()
	x, err := c.Execute(t.Context(), CodeRequest{Code: code})
	if err != nil {
		return nil, err
	}
	return x.Outcome()
}

// answer answers a request for input, over a new connection where one breaks. What a broken one did
// is told by the next: the answer was taken.
func answer(ctx context.Context, x *Execution, line string) error {
	for {
		err := x.ReplyInput(ctx, line)
		if late, is := errors.AsType[*Error](err); err == nil || is && late.Reason == "NO_INPUT_REQUEST" {
			return nil
		}
		if !broken(err) || ctx.Err() != nil {
			return err
		}
	}
}

// common is how many bytes two texts begin with alike.
func common(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}
