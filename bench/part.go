package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
)

// partVariable in the environment makes this program play one of the parts
// instead: the other process of a floor, or a command for guestd to run.
const partVariable = "GUESTD_BENCH_PART"

// The parts, with their arguments.
const (
	partPour    = "pour"    // SIZE: writes so many bytes to stdout
	partSend    = "send"    // SOCKET SIZE [FILE]: connects and writes a file, or just bytes
	partRelay   = "relay"   // SOCKET SIZE: connects and copies the output of pour into the socket
	partReceive = "receive" // SOCKET FILE: connects and writes all that comes to a file
)

// pieceBytes is how much a floor reads and writes at once, as much as guestd does.
const pieceBytes = 256 << 10

// play plays a part and returns the exit code.
func play(part string, args []string) int {
	if err := playPart(part, args); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", part+":", err)
		return 1
	}
	return 0
}

func playPart(part string, args []string) error {
	switch {
	case part == partPour && len(args) == 1:
		return pour(os.Stdout, args[0])
	case part == partSend && len(args) == 2:
		return withConn(args[0], func(conn net.Conn) error { return pour(conn, args[1]) })
	case part == partSend && len(args) == 3:
		return withConn(args[0], func(conn net.Conn) error { return sendFile(conn, args[2]) })
	case part == partRelay && len(args) == 2:
		return withConn(args[0], func(conn net.Conn) error { return relay(conn, args[1]) })
	case part == partReceive && len(args) == 2:
		return withConn(args[0], func(conn net.Conn) error { return receiveFile(conn, args[1]) })
	}
	return fmt.Errorf("no such part with %d arguments", len(args))
}

func withConn(socket string, job func(net.Conn) error) error {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return err
	}
	return errors.Join(job(conn), conn.Close())
}

func pour(w io.Writer, size string) error {
	left, err := strconv.ParseInt(size, 10, 64)
	if err != nil {
		return err
	}
	return writeBytes(w, left)
}

// writeBytes writes so many bytes, in pieces.
func writeBytes(w io.Writer, left int64) error {
	piece := make([]byte, pieceBytes)
	for i := range piece {
		piece[i] = byte(i)
	}
	for left > 0 {
		n, err := w.Write(piece[:min(left, pieceBytes)])
		if err != nil {
			return err
		}
		left -= int64(n)
	}
	return nil
}

// relay is a daemon without everything that makes one: it runs a command and copies
// its output.
func relay(w io.Writer, size string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	command := exec.Command(self, size)
	command.Env = append(os.Environ(), partVariable+"="+partPour)
	stdout, err := command.StdoutPipe()
	if err != nil {
		return err
	}
	if err := command.Start(); err != nil {
		return err
	}
	return errors.Join(copyPlainly(w, stdout), command.Wait())
}

func sendFile(w io.Writer, path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	return copyPlainly(w, file)
}

func receiveFile(r io.Reader, path string) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(copyPlainly(file, r), file.Close())
}

// copyPlainly reads and writes: io.Copy would let the kernel copy, which no daemon
// that frames what it sends can do.
func copyPlainly(w io.Writer, r io.Reader) error {
	type writer struct{ io.Writer }
	type reader struct{ io.Reader }
	_, err := io.CopyBuffer(writer{w}, reader{r}, make([]byte, pieceBytes))
	return err
}

// partCommand prepares this program to play a part.
func (b *bench) partCommand(part string, args ...string) *exec.Cmd {
	command := exec.Command(b.self, args...)
	command.Env = append(os.Environ(), partVariable+"="+part)
	command.Stderr = os.Stderr
	return command
}

// peer is another process and a socket to it.
type peer struct {
	conn    *net.UnixConn
	command *exec.Cmd
}

// startPeer starts a part that connects to a socket of ours, its first argument.
func (b *bench) startPeer(part string, args ...string) (*peer, error) {
	folder, err := os.MkdirTemp(b.temp, "p")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)
	socket := filepath.Join(folder, "s")
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		return nil, err
	}
	defer listener.Close()
	p := &peer{command: b.partCommand(part, append([]string{socket}, args...)...)}
	if err := p.command.Start(); err != nil {
		return nil, err
	}
	if p.conn, err = listener.AcceptUnix(); err != nil {
		_ = p.command.Process.Kill()
		return nil, errors.Join(err, p.command.Wait())
	}
	return p, nil
}

// wait ends the connection and waits for the process to end.
func (p *peer) wait() error { return errors.Join(p.conn.Close(), p.command.Wait()) }

// countingWriter counts and forgets.
type countingWriter int64

func (c *countingWriter) Write(p []byte) (int, error) {
	*c += countingWriter(len(p))
	return len(p), nil
}

// expect fails unless exactly so many bytes were counted.
func (c *countingWriter) expect(size int64) error {
	if int64(*c) != size {
		return fmt.Errorf("%d bytes came instead of %d", int64(*c), size)
	}
	return nil
}
