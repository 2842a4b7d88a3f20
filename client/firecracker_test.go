package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// monitor plays a virtual machine monitor's host-side socket: it reads the CONNECT line and lets
// answer go on.
func monitor(t *testing.T, answer func(conn net.Conn, line string)) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "v.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				line, err := readLine(conn)
				if err != nil {
					conn.Close()
					return
				}
				answer(conn, line)
			}()
		}
	}()
	return path
}

func readLine(r io.Reader) (string, error) {
	var line []byte
	for b := make([]byte, 1); ; {
		if _, err := io.ReadFull(r, b); err != nil {
			return "", err
		}
		if b[0] == '\n' {
			return string(line), nil
		}
		line = append(line, b[0])
	}
}

// dialMonitor makes one attempt.
func dialMonitor(t *testing.T, path string, timeout time.Duration) (net.Conn, error) {
	t.Helper()
	d := &dialer{target: target{transport: transportFirecracker, address: path, port: 5005}}
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	return d.dial(ctx, "")
}

func TestHandshakeSwallowsNothing(t *testing.T) {
	const first = "guestd speaks first, and all at once with the answer"
	path := monitor(t, func(conn net.Conn, line string) {
		if line != "CONNECT 5005" {
			t.Errorf("the client asked with %q", line)
		}
		fmt.Fprint(conn, "OK 1073741824\n"+first)
		conn.Close()
	})
	conn, err := dialMonitor(t, path, 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	got, err := io.ReadAll(conn)
	if err != nil || string(got) != first {
		t.Errorf("behind the answer came %q, %v; want %q", got, err, first)
	}
}

func TestHandshakeByteByByte(t *testing.T) {
	path := monitor(t, func(conn net.Conn, _ string) {
		for _, b := range []byte("OK 52\nx") {
			time.Sleep(time.Millisecond)
			conn.Write([]byte{b})
		}
	})
	conn, err := dialMonitor(t, path, 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	b := make([]byte, 1)
	if _, err := io.ReadFull(conn, b); err != nil || b[0] != 'x' {
		t.Errorf("behind the answer came %q, %v", b, err)
	}
}

func TestHandshakeLeavesNoDeadline(t *testing.T) {
	path := monitor(t, func(conn net.Conn, _ string) { fmt.Fprint(conn, "OK 52\n") })
	const timeout = 50 * time.Millisecond
	conn, err := dialMonitor(t, path, timeout)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	time.Sleep(2 * timeout)
	if _, err := conn.Write([]byte("x")); err != nil {
		t.Errorf("the handshake's deadline holds on: %v", err)
	}
}

func TestHandshakeRefusesWhatIsNoAnswer(t *testing.T) {
	for name, c := range map[string]struct{ answer, problem string }{
		"garbage":      {"HTTP/1.1 400 Bad Request\r\n", "instead of OK"},
		"no port":      {"OK\n", "instead of OK"},
		"empty port":   {"OK \n", "OK without a port"},
		"not a number": {"OK five\n", "OK without a port"},
		"too long":     {"OK " + strings.Repeat("1", 100), "no end within 64 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			path := monitor(t, func(conn net.Conn, _ string) { fmt.Fprint(conn, c.answer) })
			_, err := dialMonitor(t, path, 5*time.Second)
			if err == nil || !strings.Contains(err.Error(), c.problem) {
				t.Errorf("got %v, want it to tell %q", err, c.problem)
			}
			if errors.Is(err, errNothingListens) {
				t.Error("it would be tried again")
			}
		})
	}
}

func TestHandshakeSilentMonitor(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	path := monitor(t, func(conn net.Conn, _ string) {
		fmt.Fprint(conn, "OK 5") // and then nothing
		<-release
		conn.Close()
	})
	_, err := dialMonitor(t, path, 50*time.Millisecond)
	if ne, is := errors.AsType[net.Error](err); err == nil || !is || !ne.Timeout() {
		t.Errorf("a silent monitor gives %v, want a time-out", err)
	}
}

func TestHandshakeTriesAgainWhileNothingListens(t *testing.T) {
	var attempts atomic.Int32
	path := monitor(t, func(conn net.Conn, _ string) {
		if attempts.Add(1) < 4 {
			conn.Close() // as Firecracker does while the guest's port is closed
			return
		}
		fmt.Fprint(conn, "OK 52\n")
	})
	d := &dialer{target: target{transport: transportFirecracker, address: path, port: 5005}, patience: 10 * time.Second}
	conn, err := d.dial(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	if n := attempts.Load(); n != 4 {
		t.Errorf("%d attempts, want 4", n)
	}
	d.patience = 20 * time.Millisecond
	attempts.Store(-1000)
	if _, err := d.dial(t.Context(), ""); !errors.Is(err, errNothingListens) {
		t.Errorf("out of patience it tells %v", err)
	}
	ctx, cancel := context.WithTimeoutCause(t.Context(), 20*time.Millisecond, errors.New("the caller's reason"))
	defer cancel()
	d.patience = time.Hour
	attempts.Store(-1 << 30)
	if _, err := d.dial(ctx, ""); err == nil {
		t.Error("it goes on behind the context's end")
	}
}

// A real gRPC server sends its settings before it has read the client's preface: with windows set,
// a single byte lost there hangs every call.
func TestGRPCThroughMonitor(t *testing.T) {
	guest := filepath.Join(t.TempDir(), "guest.sock")
	l, err := net.Listen("unix", guest)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.InitialWindowSize(windowBytes), grpc.InitialConnWindowSize(windowBytes))
	healthpb.RegisterHealthServer(server, health.NewServer())
	go server.Serve(l)
	defer server.Stop()
	path := monitor(t, func(conn net.Conn, _ string) {
		inner, err := net.Dial("unix", guest)
		if err != nil {
			conn.Close()
			return
		}
		// The server's first bytes come in one piece with the answer.
		head := make([]byte, 9)
		io.ReadFull(inner, head)
		conn.Write(append([]byte("OK 52\n"), head...))
		go io.Copy(inner, conn)
		io.Copy(conn, inner)
		conn.Close()
		inner.Close()
	})
	for range 20 {
		c, err := Dial("firecracker://" + path)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		if state, err := c.Health(ctx, ""); err != nil || state != Serving {
			t.Errorf("health is %s, %v", state, err)
		}
		cancel()
		c.Close()
	}
}

func FuzzAcknowledgement(f *testing.F) {
	for _, seed := range []string{"OK 52\nrest", "OK \n", "\n", "", "OK 99999999999\n", strings.Repeat("O", 100)} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, sent []byte) {
		r := bytes.NewReader(sent)
		line, err := readAcknowledgement(r)
		consumed := len(sent) - r.Len()
		if consumed > maxAcknowledgement {
			t.Errorf("%d bytes were read", consumed)
		}
		if err != nil {
			return
		}
		if bytes.IndexByte(sent, '\n') != consumed-1 || len(line) != consumed-1 {
			t.Errorf("of %q %d bytes were read, and the line is %q", sent, consumed, line)
		}
		_ = checkAcknowledgement(line) // must not panic
	})
}
