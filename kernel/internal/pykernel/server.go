package pykernel

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Server is guestd's end of a fork server's socket. It is safe for concurrent use.
// One goroutine reads, until the server has ended or Close.
type Server struct {
	conn  *net.UnixConn
	ended chan struct{} // nothing more comes

	mu     sync.Mutex // protects the following
	checks map[uint64]chan bool
	last   uint64 // number of a check
	ends   map[int]*end
	early  []int // pids in ends that nobody has asked for yet, oldest first
}

// end is the end of one kernel, told or awaited.
type end struct {
	told   chan struct{} // closed once status is there
	status syscall.WaitStatus
}

// maxEarly bounds the ends that are kept before somebody asks for them. A kernel is
// asked for before it runs anything, so there are none in good order.
const maxEarly = 64

// ErrServerEnded says that a fork server is not there any more.
var ErrServerEnded = errors.New("the fork server has ended")

// maxRequest is the longest message in either direction, in bytes.
const maxRequest = 64 << 10

// message is what a fork server sends.
type message struct {
	Ready  bool   `json:"ready"`
	Error  string `json:"error"`
	Check  uint64 `json:"check"`
	Stale  bool   `json:"stale"`
	PID    int    `json:"pid"`
	Status uint32 `json:"status"`
}

// NewSocket returns the two ends of a fork server's socket, of which the second is
// the server's descriptor 3.
func NewSocket() (*net.UnixConn, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("making a fork server's socket: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "server"), os.NewFile(uintptr(fds[1]), "server")
	conn, err := net.FileConn(ours)
	_ = ours.Close() // conn has a duplicate
	if err != nil {
		_ = theirs.Close() // not used
		return nil, nil, fmt.Errorf("making a fork server's socket: %w", err)
	}
	return conn.(*net.UnixConn), theirs, nil
}

// Connect waits until the server at the other end is ready, and takes over conn,
// which it closes if that does not come about.
func Connect(ctx context.Context, conn *net.UnixConn) (*Server, error) {
	s := &Server{
		conn:   conn,
		ended:  make(chan struct{}),
		checks: make(map[uint64]chan bool),
		ends:   make(map[int]*end),
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })
	first, err := s.receive()
	stop()
	switch {
	case err != nil && ctx.Err() != nil:
		err = context.Cause(ctx)
	case err == nil && !first.Ready:
		err = errors.New(first.Error)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("waiting for a fork server: %w", err), conn.Close())
	}
	go s.read()
	return s, nil
}

func (s *Server) receive() (message, error) {
	buf := make([]byte, maxRequest)
	n, err := s.conn.Read(buf)
	if err != nil {
		return message{}, err
	}
	if n == 0 {
		return message{}, ErrServerEnded
	}
	var msg message
	if err := json.Unmarshal(buf[:n], &msg); err != nil {
		return message{}, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return msg, nil
}

func (s *Server) read() {
	defer close(s.ended)
	for {
		msg, err := s.receive()
		switch {
		case err != nil:
			return
		case msg.Check != 0:
			s.answer(msg)
		case msg.PID != 0:
			s.tell(msg)
		}
	}
}

func (s *Server) answer(msg message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if check := s.checks[msg.Check]; check != nil {
		check <- msg.Stale // has room for the one answer
		delete(s.checks, msg.Check)
	}
}

func (s *Server) tell(msg message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.ends[msg.PID]
	if e == nil {
		e = s.await(msg.PID)
		s.early = append(s.early, msg.PID)
		if len(s.early) > maxEarly {
			delete(s.ends, s.early[0])
			s.early = s.early[1:]
		}
	}
	select {
	case <-e.told: // it repeats itself
	default:
		e.status = syscall.WaitStatus(msg.Status)
		close(e.told)
	}
}

func (s *Server) await(pid int) *end {
	e := &end{told: make(chan struct{})}
	s.ends[pid] = e
	return e
}

// Ended is closed once the server is gone or does not answer any more.
func (s *Server) Ended() <-chan struct{} { return s.ended }

// Fork asks for a kernel with the given arguments. It gets the two descriptors,
// which stay the caller's. Whether it starts shows on its control socket.
func (s *Server) Fork(args []string, control, stderr *os.File) error {
	body, err := json.Marshal(map[string]any{"fork": args})
	if err != nil || len(body) > maxRequest {
		return fmt.Errorf("asking for a kernel: %d bytes of arguments: %w", len(body), err)
	}
	rights := unix.UnixRights(int(control.Fd()), int(stderr.Fd()))
	if _, _, err := s.conn.WriteMsgUnix(body, rights, nil); err != nil {
		return fmt.Errorf("asking for a kernel: %w", err)
	}
	return nil
}

// Stale says whether packages have changed since the server has imported them.
func (s *Server) Stale(ctx context.Context) (bool, error) {
	answer := make(chan bool, 1)
	s.mu.Lock()
	s.last++
	number := s.last
	s.checks[number] = answer
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.checks, number)
		s.mu.Unlock()
	}()
	if _, err := fmt.Fprintf(s.conn, `{"check": %d}`, number); err != nil {
		return false, fmt.Errorf("asking a fork server: %w", err)
	}
	select {
	case stale := <-answer:
		return stale, nil
	case <-s.ended:
		return false, ErrServerEnded
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
}

// Watch returns the function that tells how the kernel with the given process id
// has ended, for which it waits for a time; false where the server did not say.
func (s *Server) Watch(pid int, wait time.Duration) func() (syscall.WaitStatus, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.ends[pid]
	if e == nil {
		e = s.await(pid)
	}
	return func() (syscall.WaitStatus, bool) {
		defer func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.ends, pid)
		}()
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-e.told:
			return e.status, true
		case <-s.ended:
		case <-timer.C:
		}
		select {
		case <-e.told: // as its last word
			return e.status, true
		default:
			return 0, false
		}
	}
}

// Retire tells the server to end as soon as its last kernel has.
func (s *Server) Retire() { _ = s.conn.CloseWrite() } // or it has ended

// Close gives up the socket. The server ends when its kernels have.
func (s *Server) Close() {
	_ = s.conn.Close() // nothing is left to be told
	<-s.ended
}
