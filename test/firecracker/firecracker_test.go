package firecracker

import (
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"regexp"
	"testing"
	"time"
)

// echo is a backend that sends everything back; it ends with the test.
func echo(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "backend")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(conn, conn)
				_ = conn.Close()
			}()
		}
	}()
	return path
}

func proxy(t *testing.T, backend string) *Proxy {
	t.Helper()
	p, err := Listen(filepath.Join(t.TempDir(), "vm.vsock"), backend, 5005)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Errorf("closing: %v", err)
		}
	})
	return p
}

func dial(t *testing.T, p *Proxy) *net.UnixConn {
	t.Helper()
	conn, err := net.Dial("unix", p.listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return conn.(*net.UnixConn)
}

func TestHandshakeAndBytesBothWays(t *testing.T) {
	conn := dial(t, proxy(t, echo(t)))
	// What comes right behind the request belongs to the guest.
	if _, err := conn.Write([]byte("CONNECT 5005\nhello")); err != nil {
		t.Fatal(err)
	}
	if err := conn.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	all, err := io.ReadAll(conn)
	if err != nil || !regexp.MustCompile(`^OK [0-9]+\nhello$`).Match(all) {
		t.Errorf("got %q, %v", all, err)
	}
}

func TestWhatNobodyListensOnIsClosedWithoutAWord(t *testing.T) {
	p := proxy(t, filepath.Join(t.TempDir(), "nobody"))
	for _, request := range []string{
		"CONNECT 5005\n", "CONNECT 1\n", "CONNECT x\n", "GET / HTTP/1.1\n", fmt.Sprintf("CONNECT %040d\n", 5005),
	} {
		conn := dial(t, p)
		if _, err := conn.Write([]byte(request)); err != nil {
			t.Fatal(err)
		}
		answer, err := io.ReadAll(conn)
		var broken *net.OpError
		if len(answer) != 0 || (err != nil && !errors.As(err, &broken)) {
			t.Errorf("%q: answer %q, %v; want none", request, answer, err)
		}
	}
}

func TestCloseEndsOpenConnections(t *testing.T) {
	p := proxy(t, echo(t))
	conn := dial(t, p)
	if _, err := conn.Write([]byte("CONNECT 5005\n")); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 64)); err != nil {
		t.Fatal(err)
	}
	idle := dial(t, p)
	if err := p.Close(); err != nil {
		t.Errorf("closing: %v", err)
	}
	for _, c := range []net.Conn{conn, idle} {
		if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil {
			t.Errorf("read %d bytes, %v; want the end", n, err)
		}
	}
}
