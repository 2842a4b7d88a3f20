package agent

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	guestdv1 "guestd.internal/proto/guestd/v1"
)

func TestMain(m *testing.M) {
	goroutines, descriptors := runtime.NumGoroutine(), countDescriptors()
	code := m.Run()
	if flag.Lookup("test.fuzz").Value.String() != "" {
		os.Exit(code)
	}
	leaked := func() bool { return runtime.NumGoroutine() > goroutines || countDescriptors() > descriptors }
	for deadline := time.Now().Add(10 * time.Second); code == 0 && leaked(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			buf := make([]byte, 1<<20)
			fmt.Fprintf(os.Stderr, "leaked: %d goroutines and %d descriptors before, %d and %d after\n%s",
				goroutines, descriptors, runtime.NumGoroutine(), countDescriptors(), buf[:runtime.Stack(buf, true)])
			code = 1
		}
	}
	os.Exit(code)
}

func countDescriptors() int {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0
	}
	count := 0
	for _, e := range entries {
		// The runtime's poller opens descriptors once and keeps them.
		link, err := os.Readlink("/proc/self/fd/" + e.Name())
		if err == nil && link != "anon_inode:[eventpoll]" && link != "anon_inode:[eventfd]" {
			count++
		}
	}
	return count
}

// testAgent is an Agent that serves in memory, with a client.
type testAgent struct {
	*Agent
	client *grpc.ClientConn
}

// startAgent starts an Agent, with more services if given; it is shut down when
// the test ends.
func startAgent(t *testing.T, cfg Config, more ...*grpc.ServiceDesc) testAgent {
	t.Helper()
	if cfg.StateDir == "" {
		cfg.StateDir = t.TempDir()
	}
	if cfg.Drain == 0 {
		cfg.Drain = -1
	}
	cfg.CgroupRoot = "none"
	a, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, desc := range more {
		a.server.RegisterService(desc, nil)
	}
	listener := bufconn.Listen(1 << 20)
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := a.ServeListener(listener); err != nil {
			t.Errorf("ServeListener = %v", err)
		}
	})
	client, err := grpc.NewClient("passthrough:///memory",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.Close(); err != nil {
			t.Error(err)
		}
		if err := a.Shutdown(context.Background()); err != nil {
			t.Errorf("Shutdown = %v", err)
		}
		serving.Wait()
	})
	return testAgent{a, client}
}

func (a testAgent) processCalls() guestdv1.ProcessServiceClient {
	return guestdv1.NewProcessServiceClient(a.client)
}

func (a testAgent) system() guestdv1.SystemServiceClient {
	return guestdv1.NewSystemServiceClient(a.client)
}

// withToken is a call's context with an authorization header.
func withToken(ctx context.Context, header string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "authorization", header)
}

// wantCode checks an error's code and, unless it is "", ErrorInfo's reason.
func wantCode(t *testing.T, err error, code codes.Code, reason string) {
	t.Helper()
	st := status.Convert(err)
	if st.Code() != code {
		t.Errorf("code = %v (%v), want %v", st.Code(), err, code)
	}
	if info := errorInfo(st); reason != "" && (info == nil || info.GetReason() != reason || info.GetDomain() != ErrorDomain) {
		t.Errorf("error info = %v, want reason %s", info, reason)
	}
}

// within is a context for one test step that must not hang.
func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), 30*time.Second, errors.New("the test has waited long enough"))
	t.Cleanup(cancel)
	return ctx
}
