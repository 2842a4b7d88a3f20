package client

import (
	"encoding/hex"
	"io"
	"strings"
	"sync"
	"testing"
	"time"
)

func hexOf(b []byte) string { return hex.EncodeToString(b) }

// syncBuffer collects what one goroutine writes while another waits for it.
type syncBuffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// await waits until the text is there.
func (b *syncBuffer) await(t *testing.T, text string) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for !strings.Contains(b.String(), text) {
		if time.Now().After(deadline) {
			t.Fatalf("%q did not come; there is %q", text, b.String())
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// countingWriter counts.
type countingWriter struct {
	w io.Writer
	n int
}

func (c *countingWriter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += n
	return n, err
}
