// Package firecracker plays the host's side of a Firecracker microVM's vsock in
// front of an ordinary Unix socket, so that clients' handshake can be tested
// without a virtual machine.
//
// It accepts connections on a socket of its own, reads "CONNECT port\n", connects
// to the backend, answers "OK number\n" and copies bytes both ways; a connection
// that asks for a port where nothing listens is closed without a word, as
// Firecracker does. It knows nothing of what the bytes mean, and it is for tests
// alone.
//
// A Proxy owns its socket, its connections and a few goroutines for each; Close
// ends all of them and removes the socket.
package firecracker

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	// maxRequest bounds the line that asks for a port.
	maxRequest = 32
	// handshakeTimeout bounds the time until it has come.
	handshakeTimeout = 10 * time.Second
	// firstHostPort is the first number of an OK line; Firecracker's is as large.
	firstHostPort = 1 << 30
)

// Proxy plays one microVM's vsock socket.
type Proxy struct {
	listener net.Listener
	backend  string
	port     uint32
	running  sync.WaitGroup

	// mu protects the following.
	mu       sync.Mutex
	closed   bool
	hostPort uint32
	open     map[net.Conn]struct{}
}

// Listen opens the socket at path, behind which the guest's port is the Unix
// socket backend. The caller must call Close.
func Listen(path, backend string, port uint32) (*Proxy, error) {
	listener, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("opening the machine's socket: %w", err)
	}
	p := &Proxy{listener: listener, backend: backend, port: port, hostPort: firstHostPort, open: make(map[net.Conn]struct{})}
	p.running.Go(p.accept)
	return p, nil
}

// Target is the address of the guest's port as clients take it.
func (p *Proxy) Target() string {
	return fmt.Sprintf("firecracker://%s?port=%d", p.listener.Addr(), p.port)
}

// Close ends the proxy and all connections through it.
func (p *Proxy) Close() error {
	err := ignoreClosed(p.listener.Close())
	p.mu.Lock()
	p.closed = true
	for conn := range p.open {
		err = errors.Join(err, ignoreClosed(conn.Close()))
	}
	p.mu.Unlock()
	p.running.Wait()
	return err
}

func (p *Proxy) accept() {
	for {
		conn, err := p.listener.Accept()
		if err != nil {
			return // Close has been called
		}
		p.running.Go(func() { p.serve(conn) })
	}
}

// track registers a connection for Close; false says that it is too late.
func (p *Proxy) track(conn net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.open[conn] = struct{}{}
	}
	return !p.closed
}

func (p *Proxy) forget(conn net.Conn) {
	_ = conn.Close() // it may be closed already
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, conn)
}

// serve answers one connection to its end.
func (p *Proxy) serve(client net.Conn) {
	defer p.forget(client)
	if !p.track(client) {
		return
	}
	from, port, err := readRequest(client)
	if err != nil || port != p.port {
		return
	}
	backend, err := net.Dial("unix", p.backend)
	if err != nil {
		return
	}
	defer p.forget(backend)
	if !p.track(backend) {
		return
	}
	if _, err := fmt.Fprintf(client, "OK %d\n", p.nextHostPort()); err != nil {
		return
	}
	splice(client, from, backend)
}

// readRequest reads "CONNECT port\n". What the client has sent behind it is read
// from the reader returned.
func readRequest(client net.Conn) (io.Reader, uint32, error) {
	if err := client.SetReadDeadline(time.Now().Add(handshakeTimeout)); err != nil {
		return nil, 0, err
	}
	reader := bufio.NewReaderSize(client, maxRequest)
	line, err := reader.ReadSlice('\n')
	if err != nil {
		return nil, 0, fmt.Errorf("reading the request: %w", err)
	}
	number, found := strings.CutPrefix(strings.TrimSuffix(string(line), "\n"), "CONNECT ")
	port, err := strconv.ParseUint(number, 10, 32)
	if !found || err != nil {
		return nil, 0, fmt.Errorf("the request is %q", line)
	}
	return reader, uint32(port), client.SetReadDeadline(time.Time{})
}

func (p *Proxy) nextHostPort() uint32 {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hostPort++
	return p.hostPort
}

// splice copies both ways until each side has ended its own, or one breaks.
func splice(client net.Conn, from io.Reader, backend net.Conn) {
	var upstream sync.WaitGroup
	upstream.Go(func() { pipe(backend, from, client) })
	pipe(client, backend, backend)
	upstream.Wait()
}

// pipe copies what comes from source, through from, and passes the end on; an error ends both directions.
func pipe(to net.Conn, from io.Reader, source net.Conn) {
	_, err := io.Copy(to, from)
	if err == nil {
		err = to.(*net.UnixConn).CloseWrite()
	}
	if err != nil {
		// Either may be closed already.
		_, _ = to.Close(), source.Close()
	}
}

func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}
