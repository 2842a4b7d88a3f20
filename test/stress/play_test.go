package stress

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"time"
)

// play is a command in the guest: this program in another role.
func play(role string, args []string) int {
	numbers := make([]int, len(args))
	for i, arg := range args {
		numbers[i], _ = strconv.Atoi(arg)
	}
	switch role {
	case "everything":
		return playEverything(numbers[0], numbers[1], numbers[2])
	case "writer":
		io.CopyN(os.Stdout, noise(1), int64(numbers[0]))
		return numbers[1]
	case "digest":
		return playDigest(os.Stdin)
	case "sip":
		return playDigest(&sipper{os.Stdin})
	}
	return 100
}

// playEverything writes noise to stdout and stderr as fast as it can, hashes its stdin
// meanwhile, and writes the hash behind the noise on stderr.
func playEverything(out, err, code int) int {
	var side sync.WaitGroup
	input := sha256.New()
	side.Go(func() { io.Copy(input, os.Stdin) })
	side.Go(func() { io.CopyN(os.Stdout, noise(1), int64(out)) })
	io.CopyN(os.Stderr, noise(2), int64(err))
	side.Wait()
	fmt.Fprintf(os.Stderr, "%s", sum(input))
	return code
}

// playDigest reads everything and writes its hash.
func playDigest(r io.Reader) int {
	input := sha256.New()
	if _, err := io.Copy(input, r); err != nil {
		return 1
	}
	fmt.Print(sum(input))
	return 0
}

// sipper reads little at a time and pauses between.
type sipper struct{ io.Reader }

func (s *sipper) Read(p []byte) (int, error) {
	time.Sleep(200 * time.Microsecond)
	return s.Reader.Read(p[:min(len(p), 5000)])
}

// noise is an endless stream of bytes that nobody can mistake for another place in
// it; the same one for the same seed.
func noise(seed byte) io.Reader {
	return bufio.NewReaderSize(rand.NewChaCha8([32]byte{seed}), 64<<10)
}

// hashOf is the hash of the first n bytes of noise and what follows them.
func hashOf(seed byte, n int, then string) string {
	h := sha256.New()
	io.CopyN(h, noise(seed), int64(n))
	io.WriteString(h, then)
	return sum(h)
}

func sum(h hash.Hash) string { return hex.EncodeToString(h.Sum(nil)) }
