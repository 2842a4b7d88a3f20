package listen

import (
	"bufio"
	"bytes"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mdlayher/vsock"
	"golang.org/x/sys/unix"

	"guestd.internal/test/need"
)

func TestUnixTakesItsOwnUserOnly(t *testing.T) {
	path := socketPath(t)
	openAndServe(t, "unix://"+path, Trust{})
	if err := check(t, "unix://"+path); err != nil {
		t.Errorf("own uid: %v", err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if mode := info.Mode().Perm(); mode != 0o600 {
		t.Errorf("mode = %04o, want 0600: nobody else is served", mode)
	}
	// Whoever opens the file's mode up still meets the check of the peer.
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	if got := knockAs(t, 65534, path); got != refused {
		t.Errorf("uid 65534: %s, want %s", got, refused)
	}
}

func TestUnixAllowUID(t *testing.T) {
	path := socketPath(t)
	openAndServe(t, "unix://"+path, Trust{UnixUIDs: []uint32{12345}})
	if got := knockAs(t, 12345, path); got != taken {
		t.Errorf("allowed uid: %s, want %s", got, taken)
	}
	if got := knockAs(t, 12346, path); got != refused {
		t.Errorf("another uid: %s, want %s", got, refused)
	}
}

func TestUnixOutsideOnly(t *testing.T) {
	if os.Geteuid() != 0 {
		need.Skip(t, "needs root, to make a pid namespace")
	}
	path := socketPath(t)
	cmd := helper(t, "serve", path)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		stdin.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}()
	lines := bufio.NewScanner(stdout)
	if !lines.Scan() || lines.Text() != refused {
		t.Errorf("from inside as root: %q, want %s", lines.Text(), refused)
	}
	if err := check(t, "unix://"+path); err != nil {
		t.Errorf("from outside: %v", err)
	}
	if got := knockAs(t, 65534, path); got != taken {
		t.Errorf("from outside as uid 65534: %s, want %s", got, taken)
	}
}

func TestSilentPeerHoldsNobodyBack(t *testing.T) {
	path := socketPath(t)
	openAndServe(t, "unix://"+path, Trust{})
	for range 20 {
		conn, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	if err := check(t, "unix://"+path); err != nil {
		t.Error(err)
	}
}

func TestTCP(t *testing.T) {
	l := openAndServe(t, "tcp://127.0.0.1:0", Trust{})
	if err := check(t, "passthrough:///"+l.Addr().String()); err != nil {
		t.Error(err)
	}
	if want := "tcp://" + l.Addr().String(); l.String() != want || strings.HasSuffix(want, ":0") {
		t.Errorf("String = %s, want %s with the port that was taken", l, want)
	}
}

func TestAcceptedDescriptorsCloseOnExec(t *testing.T) {
	path := socketPath(t)
	l, err := Open(Address{Kind: Unix, Path: path}, Trust{}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	raw, err := conn.(*acceptedConn).Conn.(syscall.Conn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var flags int
	if err := raw.Control(func(fd uintptr) { flags, err = unix.FcntlInt(fd, unix.F_GETFD, 0) }); err != nil {
		t.Fatal(err)
	}
	if err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("descriptor flags = %#x, %v; want FD_CLOEXEC", flags, err)
	}
}

func TestUnixConnectionsHoldMore(t *testing.T) {
	address, err := ParseAddress("unix://" + socketPath(t))
	if err != nil {
		t.Fatal(err)
	}
	l, err := Open(address, Trust{}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	peer, err := net.Dial("unix", address.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	plain, tuned := sendBufferOf(t, peer), sendBufferOf(t, conn.(*acceptedConn).Conn)
	if text, err := os.ReadFile("/proc/sys/net/core/wmem_max"); err != nil || string(bytes.TrimSpace(text)) == "212992" {
		t.Skipf("no more than the default may be had: wmem_max is %s, %v", text, err)
	}
	if tuned <= plain {
		t.Errorf("an accepted connection holds %d bytes, one as the kernel makes it %d", tuned, plain)
	}
}

// sendBufferOf asks for SO_SNDBUF.
func sendBufferOf(t *testing.T, conn net.Conn) (size int) {
	t.Helper()
	raw, err := conn.(syscall.Conn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var inner error
	err = raw.Control(func(fd uintptr) { size, inner = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUF) })
	if err = errors.Join(err, inner); err != nil {
		t.Fatal(err)
	}
	return size
}

func TestStaleSocketIsReplaced(t *testing.T) {
	path := socketPath(t)
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	if err := dead.Close(); err != nil {
		t.Fatal(err)
	}
	l := openAndServe(t, "unix://"+path, Trust{})
	if err := check(t, "unix://"+path); err != nil {
		t.Error(err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after Close: %v, want the socket gone", err)
	}
}

func TestLiveSocketAndOtherFilesStay(t *testing.T) {
	path := socketPath(t)
	openAndServe(t, "unix://"+path, Trust{})
	log := slog.New(slog.DiscardHandler)
	if _, err := Open(Address{Kind: Unix, Path: path}, Trust{}, log); !errors.Is(err, unix.EADDRINUSE) {
		t.Errorf("where somebody listens: %v, want EADDRINUSE", err)
	}
	if err := check(t, "unix://"+path); err != nil {
		t.Errorf("the first listener has lost its socket: %v", err)
	}
	file := path + ".txt"
	if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Address{Kind: Unix, Path: file}, Trust{}, log); !errors.Is(err, fs.ErrExist) {
		t.Errorf("where a file is: %v, want EEXIST", err)
	}
	if data, err := os.ReadFile(file); string(data) != "precious" {
		t.Errorf("the file is now %q, %v", data, err)
	}
}

func TestCloseLeavesAnothersSocket(t *testing.T) {
	path := socketPath(t)
	log := slog.New(slog.DiscardHandler)
	first, err := Open(Address{Kind: Unix, Path: path}, Trust{}, log)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	openAndServe(t, "unix://"+path, Trust{})
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	if err := check(t, "unix://"+path); err != nil {
		t.Errorf("the second listener has lost its socket: %v", err)
	}
}

// scriptedListener plays a socket: Accept does what the next step says.
type scriptedListener struct {
	steps  chan func() (net.Conn, error)
	closed chan struct{}
}

func script(steps ...func() (net.Conn, error)) *scriptedListener {
	l := &scriptedListener{make(chan func() (net.Conn, error), len(steps)), make(chan struct{})}
	for _, step := range steps {
		l.steps <- step
	}
	return l
}

func (l *scriptedListener) Accept() (net.Conn, error) {
	select {
	case step := <-l.steps:
		return step()
	case <-l.closed:
		return nil, net.ErrClosed
	}
}
func (l *scriptedListener) Close() error   { close(l.closed); return nil }
func (l *scriptedListener) Addr() net.Addr { return nil }

// peerConn is a connection from a given address.
type peerConn struct {
	net.Conn
	remote net.Addr
}

func (c peerConn) RemoteAddr() net.Addr { return c.remote }

func TestVsockTakesTheHostOnly(t *testing.T) {
	for _, tt := range []struct {
		name   string
		remote net.Addr
		cids   []uint32
		want   bool
	}{
		{"host", &vsock.Addr{ContextID: 2, Port: 1}, nil, true},
		{"loopback", &vsock.Addr{ContextID: 1, Port: 1}, nil, false},
		{"guest itself", &vsock.Addr{ContextID: 42, Port: 1}, nil, false},
		{"allowed", &vsock.Addr{ContextID: 42, Port: 1}, []uint32{42}, true},
		{"host not allowed", &vsock.Addr{ContextID: 2, Port: 1}, []uint32{42}, false},
		{"no address", nil, nil, false},
		{"nil address", (*vsock.Addr)(nil), nil, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			client, server := net.Pipe()
			defer client.Close()
			if err := client.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
				t.Fatal(err)
			}
			inner := script(func() (net.Conn, error) { return peerConn{server, tt.remote}, nil })
			serve(t, newListener(Address{Kind: Vsock, Port: 5005}, Trust{VsockCIDs: tt.cids}, slog.New(slog.DiscardHandler), inner, nil))
			_, err := client.Read(make([]byte, 1))
			if got := err == nil; got != tt.want {
				t.Errorf("taken = %t (%v), want %t", got, err, tt.want)
			}
		})
	}
}

func TestAcceptWaitsOutPassingErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fail := func(errno syscall.Errno) func() (net.Conn, error) {
			return func() (net.Conn, error) {
				return nil, &net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", errno)}
			}
		}
		client, server := net.Pipe()
		defer client.Close()
		var logged bytes.Buffer
		inner := script(fail(unix.EMFILE), fail(unix.ENFILE), fail(unix.ENOBUFS), fail(unix.ECONNABORTED),
			func() (net.Conn, error) { return server, nil }, fail(unix.EBADF))
		l := newListener(Address{Kind: Unix, Path: "/x"}, Trust{}, slog.New(slog.NewTextHandler(&logged, nil)), inner, nil)
		start := time.Now()
		conn, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		conn.Close()
		if waited, want := time.Since(start), (5+10+20+40)*time.Millisecond; waited != want {
			t.Errorf("waited %v, want %v", waited, want)
		}
		if n := strings.Count(logged.String(), "accepting failed"); n != 4 {
			t.Errorf("%d lines logged, want 4:\n%s", n, &logged)
		}
		if _, err := l.Accept(); !errors.Is(err, unix.EBADF) {
			t.Errorf("Accept on a broken socket = %v, want EBADF", err)
		}
	})
}

func TestCloseEndsAcceptsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := script(func() (net.Conn, error) { return nil, unix.EMFILE })
		l := newListener(Address{Kind: Unix, Path: "/x"}, Trust{}, slog.New(slog.DiscardHandler), inner, nil)
		var done sync.WaitGroup
		var err error
		done.Go(func() { _, err = l.Accept() })
		synctest.Wait()
		start := time.Now()
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		done.Wait()
		if !errors.Is(err, net.ErrClosed) || time.Since(start) != 0 {
			t.Errorf("Accept = %v after %v, want net.ErrClosed at once", err, time.Since(start))
		}
		if err := l.Close(); err != nil {
			t.Errorf("second Close = %v", err)
		}
	})
}

func TestLogLimit(t *testing.T) {
	now := time.Unix(0, 0)
	l := logLimit{now: func() time.Time { return now }}
	lines := 0
	for range 1000 {
		if _, ok := l.allow(); ok {
			lines++
		}
	}
	if lines != logBurst {
		t.Errorf("%d lines in one window, want %d", lines, logBurst)
	}
	now = now.Add(logWindow)
	if skipped, ok := l.allow(); !ok || skipped != 1000-logBurst {
		t.Errorf("after the window: %t with %d skipped, want %d", ok, skipped, 1000-logBurst)
	}
	if skipped, ok := l.allow(); !ok || skipped != 0 {
		t.Errorf("then: %t with %d skipped, want 0", ok, skipped)
	}
}
