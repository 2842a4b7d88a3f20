package vm

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// serve answers one connection's request with answer and closes it.
func serve(t *testing.T, answer string) (path string, request <-chan string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	got := make(chan string, 1)
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		line := make([]byte, len("CONNECT 5005\n"))
		n, _ := io.ReadFull(conn, line)
		got <- string(line[:n])
		_, _ = io.WriteString(conn, answer)
	}()
	return path, got
}

// TestDialLeavesWhatFollows sends the acknowledgement and the server's first
// bytes in one piece.
func TestDialLeavesWhatFollows(t *testing.T) {
	path, request := serve(t, "OK 1073741824\nSETTINGS")
	conn, err := dial(t.Context(), path, Port)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if got := <-request; got != "CONNECT 5005\n" {
		t.Errorf("the request was %q", got)
	}
	rest, err := io.ReadAll(conn)
	if err != nil || string(rest) != "SETTINGS" {
		t.Errorf("after the handshake came %q, %v, want \"SETTINGS\"", rest, err)
	}
}

func TestDialRefuses(t *testing.T) {
	for name, answer := range map[string]string{
		"nobody listens":   "",
		"cut short":        "OK 50",
		"another protocol": "SSH-2.0-OpenSSH\n",
		"no end of line":   "OK " + strings.Repeat("5", 1000),
	} {
		t.Run(name, func(t *testing.T) {
			path, _ := serve(t, answer)
			if conn, err := dial(t.Context(), path, Port); err == nil {
				_ = conn.Close()
				t.Error("dial succeeded")
			}
		})
	}
}

func TestTailIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(path, []byte(strings.Repeat("x", 2*logTail)+"end\xff"), 0o600); err != nil {
		t.Fatal(err)
	}
	got := tail(path)
	if !strings.HasSuffix(got, "xend\uFFFD") || len(got) > logTail+len("\uFFFD") {
		t.Errorf("tail has %d bytes and ends in %q", len(got), got[len(got)-8:])
	}
}
