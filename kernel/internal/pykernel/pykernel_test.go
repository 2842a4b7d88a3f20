package pykernel

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestFiles(t *testing.T) {
	names := map[string]bool{}
	for _, file := range Files() {
		if len(file.Data) == 0 || strings.Contains(file.Name, "..") || strings.HasPrefix(file.Name, "/") {
			t.Errorf("%q, %d bytes", file.Name, len(file.Data))
		}
		names[file.Name] = true
	}
	for _, name := range []string{Script, "guestd_kernel/__init__.py", "guestd_kernel/kernel.py", "guestd_kernel/forkserver.py"} {
		if !names[name] {
			t.Errorf("%s is missing", name)
		}
	}
}

func TestParse(t *testing.T) {
	for args, want := range map[string]string{
		"python3 -m ipykernel_launcher -f /c":                       "python3 /l.py -f /c",
		"python3 -Xfrozen_modules=off -m ipykernel_launcher -f /c":  "python3 -Xfrozen_modules=off /l.py -f /c",
		"/opt/bin/python -m ipykernel -f /c --InteractiveShell.x=1": "/opt/bin/python /l.py -f /c --InteractiveShell.x=1",
		"python3 -m bash_kernel -f /c":                              "",
		"xr --connection /c":                                        "",
		"-m ipykernel_launcher":                                     "",
		"python3 -m":                                                "",
	} {
		in, ok := Parse(strings.Fields(args))
		if ok != (want != "") {
			t.Errorf("%s: %v", args, ok)
			continue
		}
		if got := strings.Join(in.Cold("/l.py"), " "); ok && got != want {
			t.Errorf("%s: %s", args, got)
		}
	}
	in, _ := Parse([]string{"python3", "-I", "-m", "ipykernel_launcher", "-f", "/c"})
	if got, want := in.Server("/l.py", []string{"numpy"}), []string{"python3", "-I", "/l.py", "--fork-server", "numpy"}; !slices.Equal(got, want) {
		t.Errorf("server: %q", got)
	}
}

func TestSendReceive(t *testing.T) {
	var wire bytes.Buffer
	if err := Send(&wire, Answer{Errno: syscall.ENOENT, Error: "no such file"}); err != nil {
		t.Fatal(err)
	}
	var answer Answer
	if err := Receive(&wire, &answer); err != nil || !errors.Is(answer.Err(), syscall.ENOENT) {
		t.Errorf("%+v, %v", answer, err)
	}
	if err := Receive(&wire, &answer); !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %v", err)
	}
	for name, data := range map[string]string{
		"too long":  string(binary.BigEndian.AppendUint32(nil, maxAnswer+1)),
		"no JSON":   "\x00\x00\x00\x01x",
		"another":   "\x00\x00\x00\x02[]",
		"cut short": "\x00\x00\x00\x05{}",
	} {
		if err := Receive(strings.NewReader(data), &answer); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if Answer.Err(Answer{}) != nil || Answer.Err(Answer{Error: "x"}) == nil {
		t.Error("an answer's error")
	}
}

// peer returns a connected Server and the server's end of its socket.
func peer(t *testing.T) (*Server, *net.UnixConn) {
	t.Helper()
	conn, file, err := NewSocket()
	if err != nil {
		t.Fatal(err)
	}
	other, err := net.FileConn(file)
	if err != nil {
		t.Fatal(err)
	}
	_ = file.Close()
	theirs := other.(*net.UnixConn)
	t.Cleanup(func() { _ = theirs.Close() })
	if _, err := theirs.Write([]byte(`{"ready": true}`)); err != nil {
		t.Fatal(err)
	}
	s, err := Connect(t.Context(), conn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s, theirs
}

func tell(t *testing.T, conn *net.UnixConn, messages ...string) {
	t.Helper()
	for _, message := range messages {
		if _, err := conn.Write([]byte(message)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestServerTellsEnds(t *testing.T) {
	s, theirs := peer(t)
	watched := s.Watch(7, time.Minute)
	tell(t, theirs, `{"pid": 8, "status": 9}`, `{"pid": 7, "status": 1792}`, `{"pid": 7, "status": 0}`)
	if status, ok := watched(); !ok || status.ExitStatus() != 7 {
		t.Errorf("watched: %v, %v", status, ok)
	}
	if status, ok := s.Watch(8, time.Minute)(); !ok || status.Signal() != syscall.SIGKILL {
		t.Errorf("told before: %v, %v", status, ok)
	}
	if _, ok := s.Watch(9, time.Millisecond)(); ok {
		t.Error("an end that nobody told")
	}
	never := s.Watch(10, time.Minute)
	if err := theirs.Close(); err != nil {
		t.Fatal(err)
	}
	if _, ok := never(); ok {
		t.Error("an end that a dead server told")
	}
	<-s.Ended()
}

func TestEndsThatNobodyAsksForAreBounded(t *testing.T) {
	s, theirs := peer(t)
	for pid := 1; pid <= 10*maxEarly; pid++ {
		tell(t, theirs, fmt.Sprintf(`{"pid": %d, "status": 0}`, pid))
	}
	if status, ok := s.Watch(10*maxEarly, time.Minute)(); !ok {
		t.Errorf("the last one: %v, %v", status, ok)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.ends) > maxEarly {
		t.Errorf("%d ends are kept", len(s.ends))
	}
}

func TestStale(t *testing.T) {
	s, theirs := peer(t)
	go func() {
		buf := make([]byte, 100)
		for _, answer := range []string{`{"check": 1, "stale": false}`, `{"check": 99, "stale": true}`} {
			_, _ = theirs.Read(buf)
			_, _ = theirs.Write([]byte(answer))
		}
	}()
	if stale, err := s.Stale(t.Context()); stale || err != nil {
		t.Errorf("first: %v, %v", stale, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := s.Stale(ctx); err == nil {
		t.Error("an answer to another question was taken")
	}
}

func TestForkCarriesDescriptors(t *testing.T) {
	s, theirs := peer(t)
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	defer write.Close()
	if err := s.Fork([]string{"-f", "/c"}, write, write); err != nil {
		t.Fatal(err)
	}
	buf, oob := make([]byte, 1000), make([]byte, 1000)
	n, oobn, _, _, err := theirs.ReadMsgUnix(buf, oob)
	if err != nil || string(buf[:n]) != `{"fork":["-f","/c"]}` {
		t.Fatalf("%q, %v", buf[:n], err)
	}
	messages, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil || len(messages) != 1 {
		t.Fatal(err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 2 {
		t.Errorf("%v, %v", fds, err)
	}
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
	if err := s.Fork([]string{strings.Repeat("x", maxRequest)}, write, write); err == nil {
		t.Error("a request that is too long")
	}
	s.Retire()
	if n, err := theirs.Read(buf); n != 0 || err != nil && !errors.Is(err, io.EOF) {
		t.Errorf("after Retire: %d bytes, %v", n, err)
	}
}

func TestConnectFails(t *testing.T) {
	for name, first := range map[string]string{
		"an error": `{"error": "cannot be forked"}`, "garbage": "\xff", "nothing": "", "not ready": "{}",
	} {
		conn, file, err := NewSocket()
		if err != nil {
			t.Fatal(err)
		}
		if first != "" {
			if _, err := file.WriteString(first); err != nil {
				t.Fatal(err)
			}
		}
		_ = file.Close()
		if _, err := Connect(t.Context(), conn); err == nil || name == "an error" && !strings.Contains(err.Error(), "cannot be forked") {
			t.Errorf("%s: %v", name, err)
		}
	}
	conn, file, err := NewSocket()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	cause := errors.New("no time")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 10*time.Millisecond, cause)
	defer cancel()
	if _, err := Connect(ctx, conn); !errors.Is(err, cause) {
		t.Errorf("a server that says nothing: %v", err)
	}
}

// Both kinds of messages are the user's.
func FuzzReceive(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x02{}"))
	f.Add([]byte("\x00\x00\x00\x1d{\"errno\": 2, \"error\": \"text\"}"))
	f.Add([]byte("\xff\xff\xff\xff"))
	f.Fuzz(func(_ *testing.T, data []byte) {
		r := bytes.NewReader(data)
		for {
			var answer Answer
			if err := Receive(r, &answer); err != nil {
				return
			}
			_ = answer.Err()
		}
	})
}

func FuzzServer(f *testing.F) {
	f.Add([]byte(`{"pid": 7, "status": 9}`), []byte(`{"check": 1, "stale": true}`))
	f.Add([]byte(`{"pid": -1, "status": 4294967295}`), []byte(`{"check": 18446744073709551615}`))
	f.Add([]byte(`[]`), []byte(``))
	f.Fuzz(func(t *testing.T, first, second []byte) {
		if len(first) == 0 || len(first) > maxRequest || len(second) > maxRequest {
			return
		}
		conn, file, err := NewSocket()
		if err != nil {
			t.Fatal(err)
		}
		_, _ = file.WriteString(`{"ready": true}`)
		_, _ = file.Write(first)
		_, _ = file.Write(second)
		_ = file.Close()
		s, err := Connect(t.Context(), conn)
		if err != nil {
			t.Fatal(err)
		}
		<-s.Ended()
		_, _ = s.Watch(7, time.Second)()
		s.Close()
	})
}
