package stress

import (
	"context"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	guestdv1 "guestd.internal/proto/guestd/v1"
)

// stoppedReaders is how many processes' readers stop in the tests.
const stoppedReaders = 200

// stopped starts processes that write for ever, each with a reader that reads its
// header and then nothing. Its windows are small: what they hold is memory here.
func stopped(ctx context.Context, t *testing.T, g *guestd, spec *guestdv1.ProcessSpec, n int) []string {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+g.target(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithStaticStreamWindowSize(64<<10))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	processes := guestdv1.NewProcessServiceClient(conn)
	var ids []string
	for range n {
		stream, err := processes.Exec(ctx)
		if err != nil {
			t.Fatal(err)
		}
		start := &guestdv1.ProcessRequest{Request: &guestdv1.ProcessRequest_Start{Start: &guestdv1.ExecStart{Spec: spec}}}
		if err := stream.Send(&guestdv1.ExecRequest{Request: start}); err != nil {
			t.Fatal(err)
		}
		header, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, header.GetEvent().GetStarted().GetProcessId())
	}
	return ids
}

// endless writes for ever.
func endless() *guestdv1.ProcessSpec {
	return &guestdv1.ProcessSpec{Command: &guestdv1.ProcessSpec_Arguments{
		Arguments: &guestdv1.Arguments{Values: [][]byte{[]byte("yes")}}}}
}

// TestStoppedReadersShareTheBudget stops the readers of many processes: guestd's
// memory stays within the budget of all logs, other commands go on as if there were
// none, and whoever is to be killed is.
func TestStoppedReadersShareTheBudget(t *testing.T) {
	g := startGuestd(t)
	idle := g.resident(t)
	info, err := g.client.Info(within(t, time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	budget := int(info.Limits.LogBudgetBytes)
	ctx, cancel := context.WithCancel(within(t, 5*time.Minute))
	defer cancel()
	ids := stopped(ctx, t, g, endless(), stoppedReaders)

	processes := g.calls(t)
	written := func() (total uint64) {
		for _, id := range ids {
			resp, err := processes.Get(ctx, &guestdv1.GetRequest{ProcessId: id})
			if err != nil {
				t.Fatal(err)
			}
			total += resp.GetProcess().GetOutput()[0].GetOffset()
		}
		return total
	}
	last := written()
	eventually(t, "all writers are held back", func() bool {
		time.Sleep(200 * time.Millisecond)
		before := last
		last = written()
		return last == before
	})
	resident := g.resident(t)
	t.Logf("%d stopped readers: %d MiB were written; guestd has %d MiB resident, %d MiB before, and a budget of %d MiB",
		stoppedReaders, last>>20, resident>>20, idle>>20, budget>>20)
	// Beside the logs there are the connection's buffers, a goroutine or ten a process, and
	// what the garbage collector lets lie.
	if most := idle + budget + budget/4 + stoppedReaders*(128<<10); resident > most && !raceDetector {
		t.Errorf("%d MiB resident, want at most %d", resident>>20, most>>20)
	}
	othersGoOn(t, g)

	for _, id := range ids {
		kill := &guestdv1.SignalRequest{ProcessId: id, Signal: &guestdv1.ProcessSignal{Signal: 9}}
		if _, err := processes.Signal(ctx, kill); err != nil {
			t.Fatal(err)
		}
		resp, err := processes.Wait(ctx, &guestdv1.WaitRequest{ProcessId: id})
		if err != nil || resp.GetExit().GetSignal() != 9 {
			t.Fatalf("%v, %v, want it killed", resp, err)
		}
	}
}

// othersGoOn runs commands beside those that are held back.
func othersGoOn(t *testing.T, g *guestd) {
	t.Helper()
	c := g.client
	argv, env := role("writer", 20<<20, 0)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			cmd := c.Command(argv...)
			cmd.Env = []string{env}
			out := newSlowHash()
			cmd.Stdout = out
			if err := cmd.Run(within(t, time.Minute)); err != nil {
				t.Errorf("beside stopped readers: %v", err)
			}
			if got, want := sum(out), hashOf(1, 20<<20, ""); got != want {
				t.Errorf("beside stopped readers: %d bytes with the hash %s, want %s", out.taken.Load(), got, want)
			}
		})
	}
	all.Wait()
}
