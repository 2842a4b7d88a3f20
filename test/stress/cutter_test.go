package stress

import (
	"math/rand/v2"
	"net"
	"path/filepath"
	"sync"
	"testing"
)

// cutter is a proxy before a guestd that cuts each connection after a random number of
// bytes, in the middle of whatever frame that is.
type cutter struct {
	listener net.Listener
	guest    string
	most     int // bytes that a connection lives for, either way

	mu     sync.Mutex
	random *rand.Rand
	conns  map[net.Conn]struct{}
	cuts   int
	ended  bool
	copies sync.WaitGroup
}

func newCutter(t *testing.T, guest string, most int, seed uint64) *cutter {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "cut"))
	if err != nil {
		t.Fatal(err)
	}
	c := &cutter{listener: l, guest: guest, most: most, random: rand.New(rand.NewPCG(seed, 1)), conns: make(map[net.Conn]struct{})}
	c.copies.Go(c.accept)
	t.Cleanup(func() {
		l.Close()
		c.mu.Lock()
		c.ended = true
		for conn := range c.conns {
			conn.Close()
		}
		c.mu.Unlock()
		c.copies.Wait()
	})
	return c
}

func (c *cutter) target() string { return "unix://" + c.listener.Addr().String() }

func (c *cutter) accept() {
	for {
		outside, err := c.listener.Accept()
		if err != nil {
			return
		}
		inside, err := net.Dial("unix", c.guest)
		if err != nil {
			outside.Close()
			continue
		}
		c.mu.Lock()
		if c.ended {
			outside.Close()
			inside.Close()
			c.mu.Unlock()
			return
		}
		c.conns[outside], c.conns[inside] = struct{}{}, struct{}{}
		c.copies.Go(func() { c.copy(inside, outside, 1+c.draw(c.most)) })
		c.copies.Go(func() { c.copy(outside, inside, 1+c.draw(c.most)) })
		c.mu.Unlock()
	}
}

func (c *cutter) draw(n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.random.IntN(n)
}

// copy copies limit bytes and then closes both.
func (c *cutter) copy(to, from net.Conn, limit int) {
	buffer := make([]byte, 32<<10)
	for limit > 0 {
		n, err := from.Read(buffer[:min(len(buffer), limit)])
		if _, failed := to.Write(buffer[:n]); err != nil || failed != nil {
			break
		}
		limit -= n
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

// count is how often a connection was cut.
func (c *cutter) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cuts
}
