package zmtp

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// pair returns the two ends of a Unix socket connection.
func pair(t *testing.T) (ours, peer net.Conn) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if ours, err = net.Dial("unix", path); err != nil {
		t.Fatal(err)
	}
	if peer, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = ours.Close(), peer.Close() })
	return ours, peer
}

func greeting() []byte {
	g := make([]byte, greetingSize)
	g[0], g[9], g[10] = 0xff, 0x7f, 3
	copy(g[12:], "NULL")
	return g
}

// frame is a frame as it is on the wire.
func frame(flags byte, body string) []byte {
	if len(body) < 256 {
		return append([]byte{flags, byte(len(body))}, body...)
	}
	return append(header(flags, uint64(len(body))), body...)
}

// header is a long frame's header.
func header(flags byte, size uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte{flags | flagLong}, size)
}

func ready(socketType string) []byte {
	body := "\x05READY\x0bSocket-Type\x00\x00\x00" + string(rune(len(socketType))) + socketType
	return frame(flagCommand, body)
}

// open opens a connection to a peer that behaves during the handshake.
func open(t *testing.T, typ SocketType, limits Limits) (*Conn, net.Conn) {
	t.Helper()
	ours, peer := pair(t)
	peerType := map[SocketType]string{Dealer: "ROUTER", Sub: "PUB"}[typ]
	if _, err := peer.Write(append(greeting(), ready(peerType)...)); err != nil {
		t.Fatal(err)
	}
	c, err := Open(t.Context(), ours, typ, "me", limits)
	if err != nil {
		t.Fatal(err)
	}
	hello := make([]byte, greetingSize+2)
	if _, err := io.ReadFull(peer, hello); err != nil {
		t.Fatal(err)
	}
	command := make([]byte, hello[greetingSize+1])
	if _, err := io.ReadFull(peer, command); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"READY", "Socket-Type", string(typ), "Identity", "me"} {
		if !bytes.Contains(command, []byte(part)) {
			t.Fatalf("READY %q lacks %q", command, part)
		}
	}
	return c, peer
}

func expect(t *testing.T, peer net.Conn, want []byte) {
	t.Helper()
	got := make([]byte, len(want))
	_ = peer.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.ReadFull(peer, got); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("peer got %q, %v, want %q", got, err, want)
	}
}

func TestSendAndSubscribe(t *testing.T) {
	c, peer := open(t, Dealer, Limits{})
	long := strings.Repeat("l", 300)
	if err := c.Send([]byte("a"), nil, []byte(long)); err != nil {
		t.Fatal(err)
	}
	expect(t, peer, bytes.Join([][]byte{frame(flagMore, "a"), frame(flagMore, ""), frame(0, long)}, nil))
	_, peer = open(t, Sub, Limits{})
	expect(t, peer, frame(0, "\x01"))
}

func TestRecv(t *testing.T) {
	c, peer := open(t, Dealer, Limits{})
	big := strings.Repeat("b", 3<<20)
	go func() {
		_, _ = peer.Write(frame(0, "one"))
		_, _ = peer.Write(frame(flagMore, ""))
		_, _ = peer.Write(frame(flagMore, big))
		_, _ = peer.Write(frame(0, "three"))
		_ = peer.Close()
	}()
	for _, want := range [][]string{{"one"}, {"", big, "three"}} {
		msg, err := c.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if fmt.Sprintf("%s", msg.Frames) != fmt.Sprintf("%s", want) || msg.Skipped != 0 {
			t.Errorf("%d frames, %d skipped", len(msg.Frames), msg.Skipped)
		}
	}
	for range 2 { // final, and no hang
		if _, err := c.Recv(); err == nil {
			t.Fatal("no error at the end")
		}
	}
}

func TestOversizedFramesAreSkipped(t *testing.T) {
	c, peer := open(t, Dealer, Limits{MaxFrame: 1000, MaxMessage: 1500})
	large := strings.Repeat("x", 5000)
	go func() {
		_, _ = peer.Write(bytes.Join([][]byte{
			frame(flagMore, "head"), frame(flagMore, large), frame(0, "tail"), // one frame too large
			frame(flagMore, large[:1000]), frame(0, large[:1000]), // the message too large
			frame(0, large), frame(0, "next"),
		}, nil))
	}()
	for i, want := range []struct {
		frames  []int
		skipped uint64
	}{{[]int{4, 0, 4}, 5000}, {[]int{1000, 0}, 1000}, {[]int{0}, 5000}, {[]int{4}, 0}} {
		msg, err := c.Recv()
		if err != nil {
			t.Fatal(err)
		}
		var sizes []int
		for _, f := range msg.Frames {
			sizes = append(sizes, len(f))
		}
		if fmt.Sprint(sizes) != fmt.Sprint(want.frames) || msg.Skipped != want.skipped {
			t.Errorf("message %d: frames of %v, %d skipped", i, sizes, msg.Skipped)
		}
	}
}

func TestViolations(t *testing.T) {
	many := bytes.Repeat(frame(flagMore, ""), 100)
	for name, wire := range map[string][]byte{
		"reserved flags":          frame(0x80, "x"),
		"command with more":       frame(flagCommand|flagMore, "\x04PING"),
		"command in a message":    append(frame(flagMore, "x"), frame(flagCommand, "\x04PING")...),
		"command without a name":  frame(flagCommand, ""),
		"command name cut short":  frame(flagCommand, "\x09PING"),
		"short PING":              frame(flagCommand, "\x04PING\x00"),
		"long PING":               frame(flagCommand, "\x04PING"+strings.Repeat("x", 19)),
		"ERROR":                   frame(flagCommand, "\x05ERROR\x00"),
		"large command":           header(flagCommand, 1<<20),
		"too many frames":         many,
		"size of 2^62":            header(0, 1<<62),
		"negative size":           header(0, 1<<63),
		"more than is ever taken": header(flagMore, 17<<30),
	} {
		c, peer := open(t, Dealer, Limits{})
		if _, err := peer.Write(wire); err != nil {
			t.Fatal(err)
		}
		for range 2 { // sticky
			if _, err := c.Recv(); !errors.Is(err, ErrProtocol) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

func TestAnnouncedSizeAllocatesNothingBeyondTheLimit(t *testing.T) {
	c, peer := open(t, Dealer, Limits{MaxFrame: 1 << 20})
	if _, err := peer.Write(header(0, 10<<30)); err != nil {
		t.Fatal(err)
	}
	_ = peer.Close()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := c.Recv(); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Error(err)
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 4<<20 {
		t.Errorf("%d bytes allocated", n)
	}
}

func TestPingIsAnswered(t *testing.T) {
	c, peer := open(t, Dealer, Limits{})
	if _, err := peer.Write(append(frame(flagCommand, "\x04PING\x00\x0actx"), frame(0, "after")...)); err != nil {
		t.Fatal(err)
	}
	msg, err := c.Recv()
	if err != nil || string(msg.Frames[0]) != "after" {
		t.Fatalf("%q, %v", msg.Frames, err)
	}
	expect(t, peer, frame(flagCommand, "\x04PONGctx"))
}

func TestEnds(t *testing.T) {
	for name, test := range map[string]struct {
		wire []byte
		want error
	}{
		"between messages": {nil, io.EOF},
		"within a header":  {[]byte{flagLong, 0}, io.ErrUnexpectedEOF},
		"within a body":    {[]byte{0, 5, 'x'}, io.ErrUnexpectedEOF},
		"within a message": {frame(flagMore, "x"), io.ErrUnexpectedEOF},
		"within a command": {[]byte{flagCommand, 5, 'x'}, io.ErrUnexpectedEOF},
	} {
		c, peer := open(t, Dealer, Limits{})
		if _, err := peer.Write(test.wire); err != nil {
			t.Fatal(err)
		}
		_ = peer.Close()
		if _, err := c.Recv(); !errors.Is(err, test.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestStalledMessage(t *testing.T) {
	for name, wire := range map[string][]byte{
		"header": {flagLong, 0}, "body": {0, 5, 'x'}, "message": frame(flagMore, "x"), "command": {flagCommand, 5}, "skipped": header(0, 1<<30),
	} {
		c, peer := open(t, Dealer, Limits{Stall: 50 * time.Millisecond})
		if _, err := peer.Write(wire); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Recv(); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: %v", name, err)
		}
	}
	c, peer := open(t, Dealer, Limits{Stall: 50 * time.Millisecond})
	go func() {
		time.Sleep(150 * time.Millisecond) // silence between messages is fine
		_, _ = peer.Write(frame(0, "late"))
	}()
	if _, err := c.Recv(); err != nil {
		t.Error(err)
	}
}

func TestCloseEndsRecv(t *testing.T) {
	c, _ := open(t, Dealer, Limits{})
	go c.Close()
	if _, err := c.Recv(); !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
}

func TestSendToAPeerThatDoesNotRead(t *testing.T) {
	c, _ := open(t, Dealer, Limits{Write: 100 * time.Millisecond})
	err := c.Send(make([]byte, 32<<20))
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(err)
	}
	if again := c.Send([]byte("x")); !errors.Is(again, err) {
		t.Errorf("a send after a broken one: %v", again)
	}
}

func TestHandshakeFailures(t *testing.T) {
	other := greeting()
	copy(other[12:], "CURVE")
	for name, wire := range map[string][]byte{
		"nothing":           nil,
		"no greeting":       []byte("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"),
		"another mechanism": other,
		"a message first":   append(greeting(), frame(0, "x")...),
		"another command":   append(greeting(), frame(flagCommand, "\x05ERROR\x00")...),
		"wrong socket type": append(greeting(), ready("SUB")...),
		"property cut":      append(greeting(), frame(flagCommand, "\x05READY\xffxy")...),
		"value cut":         append(greeting(), frame(flagCommand, "\x05READY\x01K\x00\x00")...),
		"huge READY":        append(greeting(), header(flagCommand, 1<<40)...),
	} {
		ours, peer := pair(t)
		if _, err := peer.Write(wire); err != nil {
			t.Fatal(err)
		}
		if c, err := Open(t.Context(), ours, Dealer, "", Limits{Handshake: 100 * time.Millisecond}); err == nil {
			t.Errorf("%s: %v", name, c)
		}
		if _, err := ours.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s: the connection was left open: %v", name, err)
		}
	}
}

func TestHandshakeEndsWithItsContext(t *testing.T) {
	ours, _ := pair(t)
	cause := errors.New("the cause")
	ctx, cancel := context.WithCancelCause(t.Context())
	go cancel(cause)
	if _, err := Open(ctx, ours, Dealer, "", Limits{Handshake: time.Minute}); !errors.Is(err, cause) {
		t.Error(err)
	}
}

// FuzzPeer is a peer that sends anything: Open and Recv end, without a panic and
// within their limits.
func FuzzPeer(f *testing.F) {
	good := append(greeting(), ready("ROUTER")...)
	f.Add(append(good, frame(0, "hello")...))
	f.Add(append(good, bytes.Join([][]byte{frame(flagMore, "a"), frame(0, strings.Repeat("b", 300)), frame(flagCommand, "\x04PING\x00\x01")}, nil)...))
	f.Add(append(greeting(), frame(flagCommand, "\x05READY\xffxy")...))
	f.Add(append(good, header(flagMore, 1<<62)...))
	f.Fuzz(func(t *testing.T, wire []byte) {
		conn := &scripted{in: bytes.NewReader(wire)}
		limits := Limits{MaxFrame: 1 << 10, MaxMessage: 2 << 10, MaxFrames: 8}
		c, err := Open(context.Background(), conn, Dealer, "id", limits)
		if err != nil {
			return
		}
		for {
			msg, err := c.Recv()
			if err != nil {
				return
			}
			size := 0
			for _, frame := range msg.Frames {
				size += len(frame)
			}
			if size > 2<<10 || len(msg.Frames) > 8 {
				t.Fatalf("a message of %d bytes in %d frames", size, len(msg.Frames))
			}
		}
	})
}

// scripted is a connection whose peer has sent all it will.
type scripted struct{ in io.Reader }

func (s *scripted) Read(p []byte) (int, error)       { return s.in.Read(p) }
func (s *scripted) Write(p []byte) (int, error)      { return len(p), nil }
func (s *scripted) Close() error                     { return nil }
func (s *scripted) LocalAddr() net.Addr              { return nil }
func (s *scripted) RemoteAddr() net.Addr             { return nil }
func (s *scripted) SetDeadline(time.Time) error      { return nil }
func (s *scripted) SetReadDeadline(time.Time) error  { return nil }
func (s *scripted) SetWriteDeadline(time.Time) error { return nil }
