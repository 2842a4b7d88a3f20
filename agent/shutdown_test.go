package agent

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"guestd.internal/proc"
	guestdv1 "guestd.internal/proto/guestd/v1"
)

// sleeper starts a process that ends at SIGTERM, or ignores it.
func (a testAgent) sleeper(t *testing.T, script string) *proc.Process {
	t.Helper()
	p, err := a.processes.Start(t.Context(), proc.Spec{Shell: &proc.ShellLine{Line: script}, Dir: "/"})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func exitOf(t *testing.T, p *proc.Process) proc.Exit {
	t.Helper()
	exit, err := p.Wait(within(t))
	if err != nil {
		t.Fatal(err)
	}
	return exit
}

func TestShutdownGoesInOrder(t *testing.T) {
	a := startAgent(t, Config{Drain: MaxShutdown})
	ctx := within(t)
	health := healthv1.NewHealthClient(a.client)
	watch, err := health.Watch(ctx, &healthv1.HealthCheckRequest{Service: "guestd.v1.ProcessService"})
	if err != nil {
		t.Fatal(err)
	}
	wantHealth := func(want healthv1.HealthCheckResponse_ServingStatus) {
		t.Helper()
		resp, err := watch.Recv()
		if err != nil || resp.GetStatus() != want {
			t.Fatalf("health = %v, %v; want %v", resp, err, want)
		}
	}
	wantHealth(healthv1.HealthCheckResponse_SERVING)

	// Work that is inside holds the drain up.
	if err := a.gate.enter(); err != nil {
		t.Fatal(err)
	}
	p := a.sleeper(t, "exec sleep 1000")
	if _, err := a.system().Shutdown(ctx, &guestdv1.ShutdownRequest{}); err != nil {
		t.Fatal(err)
	}
	wantHealth(healthv1.HealthCheckResponse_NOT_SERVING)
	processes := guestdv1.NewProcessServiceClient(a.client)
	_, err = processes.Start(ctx, &guestdv1.StartRequest{})
	wantCode(t, err, codes.Unavailable, "SHUTTING_DOWN")
	_, err = guestdv1.NewFileServiceClient(a.client).Stat(ctx, &guestdv1.StatRequest{Path: []byte("/")})
	wantCode(t, err, codes.Unavailable, "SHUTTING_DOWN")
	if _, err := a.system().GetInfo(ctx, &guestdv1.GetInfoRequest{}); err != nil {
		t.Errorf("a call that only looks: %v", err)
	}
	if p.Info().State != proc.Running {
		t.Error("the process ended during the drain")
	}

	a.gate.leave()
	<-a.shutdown.done
	if exit := exitOf(t, p); exit.Signal != syscall.SIGTERM {
		t.Errorf("the process ended with %+v, want SIGTERM", exit)
	}
	// Streams that would go on for ever are told why they end.
	_, err = watch.Recv()
	if err == nil {
		t.Error("the health watch goes on")
	}
	if _, err := a.processes.Start(ctx, proc.Spec{Args: []string{"true"}}); !errors.Is(err, proc.ErrClosed) {
		t.Errorf("a start afterwards: %v, want proc.ErrClosed", err)
	}
}

func TestShutdownIsIdempotent(t *testing.T) {
	a := startAgent(t, Config{})
	a.sleeper(t, "exec sleep 1000")
	var all sync.WaitGroup
	for range 5 {
		all.Go(func() {
			if err := a.Shutdown(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if err := a.Shutdown(context.Background()); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

func TestSecondShutdownKillsAtOnce(t *testing.T) {
	a := startAgent(t, Config{Drain: MaxShutdown})
	if err := a.gate.enter(); err != nil { // a call that does not end
		t.Fatal(err)
	}
	defer a.gate.leave()
	p := a.sleeper(t, "trap '' TERM; while :; do sleep 1000; done")
	first := make(chan error, 1)
	go func() { first <- a.Shutdown(context.Background()) }()
	<-a.Stopping()
	atOnce, cancel := context.WithCancelCause(context.Background())
	cancel(errors.New("second signal"))
	start := time.Now()
	if err := a.Shutdown(atOnce); err != nil {
		t.Error(err)
	}
	if err := <-first; err != nil {
		t.Errorf("the first: %v", err)
	}
	// The drain alone would have taken ten seconds.
	if took := time.Since(start); took > MaxShutdown/2 {
		t.Errorf("took %v", took)
	}
	if exit := exitOf(t, p); exit.Signal != syscall.SIGKILL {
		t.Errorf("the process ended with %+v, want SIGKILL", exit)
	}
}

// A shutdown that is late, and ends when what is left is killed, has not given up.
func TestAbandonTakesALateResult(t *testing.T) {
	a := startAgent(t, Config{})
	p := a.sleeper(t, "trap '' TERM; while :; do sleep 1000; done")
	result := make(chan error, 1)
	late := errors.New("the result")
	go func() {
		_, _ = p.Wait(context.Background())
		result <- late
	}()
	if err := a.abandon(result); !errors.Is(err, late) {
		t.Errorf("err = %v, want %v", err, late)
	}
	if a.shutdown.gaveUp {
		t.Error("it has given up")
	}
}

func TestShutdownDoesNotWaitForClients(t *testing.T) {
	block := make(chan struct{})
	defer close(block)
	cause := make(chan error, 1)
	f := &faults{stream: func(s grpc.ServerStream) error {
		if err := s.SendMsg(&guestdv1.WaitResponse{}); err != nil {
			return err
		}
		<-s.Context().Done()
		cause <- context.Cause(s.Context())
		return context.Cause(s.Context())
	}}
	a := startAgent(t, Config{}, f.desc())
	stream, err := a.client.NewStream(within(t), streamDesc, faultsStream)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.RecvMsg(&guestdv1.WaitResponse{}); err != nil {
		t.Fatal(err)
	}
	if err := a.Shutdown(context.Background()); err != nil {
		t.Error(err)
	}
	if err := <-cause; !errors.Is(err, errShuttingDown) {
		t.Errorf("the handler's cause = %v", err)
	}
	wantCode(t, stream.RecvMsg(&guestdv1.WaitResponse{}), codes.Unavailable, "SHUTTING_DOWN")
}

func TestShutdownWithAnInvalidDrain(t *testing.T) {
	a := startAgent(t, Config{})
	_, err := a.system().Shutdown(within(t), &guestdv1.ShutdownRequest{Drain: seconds(11)})
	wantCode(t, err, codes.InvalidArgument, "INVALID_FIELD")
	_, err = a.system().Shutdown(within(t), &guestdv1.ShutdownRequest{Drain: seconds(-1)})
	wantCode(t, err, codes.InvalidArgument, "INVALID_FIELD")
	select {
	case <-a.Stopping():
		t.Error("it shuts down all the same")
	default:
	}
}

func TestServe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	a, err := New(Config{
		Listen:     []string{"unix://" + path, "tcp://127.0.0.1:0"},
		TokenFile:  tokenFile(t, testToken, 0o600),
		StateDir:   t.TempDir(),
		CgroupRoot: "none",
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	served := make(chan error, 1)
	go func() { served <- a.Serve(ctx) }()
	<-a.Ready()
	conn, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := guestdv1.NewSystemServiceClient(conn).GetInfo(withToken(within(t), "Bearer "+testToken), &guestdv1.GetInfoRequest{}); err != nil {
		t.Error(err)
	}
	cancel(errors.New("enough"))
	if err := <-served; err != nil {
		t.Errorf("Serve = %v", err)
	}
	if _, err := net.Dial("unix", path); err == nil {
		t.Error("the socket is still served")
	}
}

func TestServeOpensAllOrNothing(t *testing.T) {
	dir := t.TempDir()
	a, err := New(Config{
		Listen:     []string{"unix://" + filepath.Join(dir, "s"), "unix://" + filepath.Join(dir, "none", "s")},
		StateDir:   t.TempDir(),
		CgroupRoot: "none",
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Serve(t.Context()); !errors.Is(err, syscall.ENOENT) {
		t.Errorf("Serve = %v, want ENOENT", err)
	}
	if entries, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(entries) > 0 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}

func TestGate(t *testing.T) {
	var g gate
	for range 2 {
		if err := g.enter(); err != nil {
			t.Fatal(err)
		}
	}
	empty := g.shut(errShuttingDown)
	if err := g.enter(); !errors.Is(err, errShuttingDown) {
		t.Errorf("enter after shut = %v", err)
	}
	g.leave()
	select {
	case <-empty:
		t.Error("empty with one inside")
	default:
	}
	g.leave()
	<-empty
	var unused gate
	<-unused.shut(errShuttingDown)
}
