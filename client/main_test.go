package client

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	guestdv1 "guestd.internal/proto/guestd/v1"
	"guestd.internal/test/programs"
)

// programDir is where guestd is built for the tests that run a real one.
var programDir string

// guestdProgram builds guestd, once and only for a test that wants it: fuzz workers do not.
var guestdProgram = sync.OnceValues(func() (string, error) {
	return filepath.Join(programDir, "guestd"), programs.Build(programDir, false, "guestd")
})

func TestMain(m *testing.M) { os.Exit(runTests(m)) }

func runTests(m *testing.M) int {
	dir, err := os.MkdirTemp("", "client-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	programDir = dir
	code := m.Run()
	if leaked := leakedGoroutines(); code == 0 && leaked != "" {
		fmt.Fprintf(os.Stderr, "goroutines are left:\n%s\n", leaked)
		return 1
	}
	return code
}

// leakedGoroutines are the stacks of this package's goroutines that are still there after a while.
func leakedGoroutines() string {
	deadline := time.Now().Add(5 * time.Second)
	for {
		stacks := make([]byte, 1<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		var leaked []string
		for stack := range strings.SplitSeq(string(stacks), "\n\n") {
			if strings.Contains(stack, "guestd.internal/client") && !strings.Contains(stack, "leakedGoroutines") {
				leaked = append(leaked, stack)
			}
		}
		if len(leaked) == 0 || time.Now().After(deadline) {
			return strings.Join(leaked, "\n\n")
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// startGuestd starts a real guestd and gives its target.
func startGuestd(t *testing.T) string {
	t.Helper()
	program, err := guestdProgram()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	target := "unix://" + filepath.Join(dir, "s")
	cmd := exec.Command(program, "--listen", target, "--user", fmt.Sprint(os.Getuid()),
		"--state-dir", filepath.Join(dir, "state"), "--drain", "0s", "--log-format", "text")
	var log strings.Builder
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Signal(os.Interrupt)
		cmd.Wait()
		if t.Failed() {
			t.Logf("guestd's log:\n%s", log.String())
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := dialTest(t, target).WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	return target
}

func dialTest(t *testing.T, target string, options ...Option) *Client {
	t.Helper()
	c, err := Dial(target, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// fakeGuestd answers as a script says, for what no real guestd does. A call without a script is
// UNIMPLEMENTED.
type fakeGuestd struct {
	exec    func(guestdv1.ProcessService_ExecServer) error
	attach  func(guestdv1.ProcessService_AttachServer) error
	execute func(*guestdv1.ExecuteRequest, guestdv1.CodeService_ExecuteServer) error
	again   func(*guestdv1.AttachExecutionRequest, guestdv1.CodeService_AttachExecutionServer) error
	write   func(guestdv1.FileService_WriteServer) error
	read    func(*guestdv1.ReadRequest, guestdv1.FileService_ReadServer) error
	search  func(*guestdv1.SearchRequest, guestdv1.FileService_SearchServer) error
}

type fakeProcesses struct {
	guestdv1.UnimplementedProcessServiceServer
	f *fakeGuestd
}

func (s fakeProcesses) Exec(stream guestdv1.ProcessService_ExecServer) error { return s.f.exec(stream) }

func (s fakeProcesses) Attach(stream guestdv1.ProcessService_AttachServer) error {
	if s.f.attach == nil {
		return s.UnimplementedProcessServiceServer.Attach(stream)
	}
	return s.f.attach(stream)
}

type fakeCode struct {
	guestdv1.UnimplementedCodeServiceServer
	f *fakeGuestd
}

func (s fakeCode) Execute(r *guestdv1.ExecuteRequest, stream guestdv1.CodeService_ExecuteServer) error {
	return s.f.execute(r, stream)
}

func (s fakeCode) AttachExecution(r *guestdv1.AttachExecutionRequest, stream guestdv1.CodeService_AttachExecutionServer) error {
	if s.f.again == nil {
		return s.UnimplementedCodeServiceServer.AttachExecution(r, stream)
	}
	return s.f.again(r, stream)
}

type fakeFiles struct {
	guestdv1.UnimplementedFileServiceServer
	f *fakeGuestd
}

func (s fakeFiles) Write(stream guestdv1.FileService_WriteServer) error { return s.f.write(stream) }

func (s fakeFiles) Read(r *guestdv1.ReadRequest, stream guestdv1.FileService_ReadServer) error {
	return s.f.read(r, stream)
}

func (s fakeFiles) Search(r *guestdv1.SearchRequest, stream guestdv1.FileService_SearchServer) error {
	return s.f.search(r, stream)
}

// serveFake serves f and gives a client of it, and what cuts all connections.
func serveFake(t *testing.T, f *fakeGuestd, options ...Option) (*Client, *cutter) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "fake.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	guestdv1.RegisterProcessServiceServer(server, fakeProcesses{f: f})
	guestdv1.RegisterCodeServiceServer(server, fakeCode{f: f})
	guestdv1.RegisterFileServiceServer(server, fakeFiles{f: f})
	go server.Serve(l)
	t.Cleanup(server.Stop)
	cut := newCutter(t, path, nil)
	return dialTest(t, cut.target(), options...), cut
}

// cutter is a proxy between a client and a guestd that can cut every connection at once, or each
// after so many bytes.
type cutter struct {
	listener net.Listener
	guest    string
	// limits gives, for a new connection, after how many bytes from and to the guest it is cut; -1
	// is never.
	limits func() (from, to int)

	mu    sync.Mutex
	conns map[net.Conn]struct{}
	cuts  int
}

func newCutter(t *testing.T, guest string, limits func() (from, to int)) *cutter {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "cut.sock"))
	if err != nil {
		t.Fatal(err)
	}
	c := &cutter{listener: l, guest: guest, limits: limits, conns: make(map[net.Conn]struct{})}
	go c.accept()
	t.Cleanup(func() {
		l.Close()
		c.cut()
	})
	return c
}

func (c *cutter) target() string { return "unix://" + c.listener.Addr().String() }

func (c *cutter) accept() {
	for {
		conn, err := c.listener.Accept()
		if err != nil {
			return
		}
		inner, err := net.Dial("unix", c.guest)
		if err != nil {
			conn.Close()
			continue
		}
		c.mu.Lock()
		c.conns[conn], c.conns[inner] = struct{}{}, struct{}{}
		c.mu.Unlock()
		from, to := -1, -1
		if c.limits != nil {
			from, to = c.limits()
		}
		go c.copy(inner, conn, to)
		go c.copy(conn, inner, from)
	}
}

// copy copies until either end closes or limit bytes were copied, and then closes both.
func (c *cutter) copy(to, from net.Conn, limit int) {
	buffer := make([]byte, 32<<10)
	for limit != 0 {
		if limit > 0 {
			buffer = buffer[:min(cap(buffer), limit)]
		}
		n, err := from.Read(buffer)
		if _, werr := to.Write(buffer[:n]); err != nil || werr != nil {
			limit = -1
			break
		}
		if limit > 0 {
			limit -= n
		}
	}
	to.Close()
	from.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.conns, to)
	delete(c.conns, from)
	if limit == 0 {
		c.cuts++
	}
}

// cut closes all connections.
func (c *cutter) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for conn := range c.conns {
		conn.Close()
	}
}

// count is how many connections were cut at their limit.
func (c *cutter) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cuts
}
