package agent

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc/metadata"
)

const (
	minToken = 16
	maxToken = 4096
	// wrongTokenDelay slows down who tries tokens out.
	wrongTokenDelay = 100 * time.Millisecond
)

// errTokenRefused says that a call came without the token it needs.
var errTokenRefused = errors.New(`the token is missing or wrong: send "authorization: Bearer TOKEN"`)

// tokenGuard holds the token that calls must bring. It keeps a digest only: the
// comparison then takes the same time whatever is sent, and the token itself is
// not left in memory for long.
type tokenGuard struct {
	digest atomic.Pointer[[sha256.Size]byte] // nil while there is none
}

// set makes token the one that is demanded from now on.
func (g *tokenGuard) set(token string) {
	digest := sha256.Sum256([]byte(token))
	g.digest.Store(&digest)
}

// check lets a call through that brings the token, or when there is none.
// Otherwise it waits a moment first, while ctx lasts.
func (g *tokenGuard) check(ctx context.Context) error {
	if g.matches(ctx) {
		return nil
	}
	timer := time.NewTimer(wrongTokenDelay)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	return errTokenRefused
}

// matches says whether a call brings the token, or there is none.
func (g *tokenGuard) matches(ctx context.Context) bool {
	want := g.digest.Load()
	if want == nil {
		return true
	}
	got := sha256.Sum256([]byte(bearer(ctx)))
	return subtle.ConstantTimeCompare(got[:], want[:]) == 1
}

// needsToken says whether a method's calls must bring the token.
func needsToken(fullMethod string) bool {
	return !strings.HasPrefix(fullMethod, "/grpc.health.v1.Health/")
}

// maxStrangers is how many calls without the token may be under way at a time: each
// may bring a message before it is refused.
const maxStrangers = 16

// strangers counts them.
type strangers struct {
	inside atomic.Int64
}

// enter lets a call in until ctx ends, or says that there are too many: that one is
// refused at once, and without a reason, for which grpc has no place so early.
func (s *strangers) enter(ctx context.Context) bool {
	if s.inside.Add(1) > maxStrangers {
		s.inside.Add(-1)
		return false
	}
	context.AfterFunc(ctx, func() { s.inside.Add(-1) })
	return true
}

// bearer is the token of the call's only authorization header, or "", which is
// no token (RFC 6750, section 2.1; the scheme's case does not matter).
func bearer(ctx context.Context) string {
	values := metadata.ValueFromIncomingContext(ctx, "authorization")
	if len(values) != 1 {
		return ""
	}
	scheme, token, _ := strings.Cut(values[0], " ")
	if !strings.EqualFold(scheme, "bearer") {
		return ""
	}
	return token
}

// checkToken says what is wrong with a token, "" if nothing.
func checkToken(token string) string {
	if len(token) < minToken || len(token) > maxToken {
		return fmt.Sprintf("a token has %d to %d characters, not %d", minToken, maxToken, len(token))
	}
	for _, c := range []byte(token) {
		if c <= ' ' || c > '~' {
			return "a token is printable ASCII without space"
		}
	}
	return ""
}

// readTokenFile reads a token from a file that no guest user can read.
func readTokenFile(path string) (string, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if err := checkSecret(f); err != nil {
		return "", err
	}
	data, err := io.ReadAll(io.LimitReader(f, maxToken+1024))
	if err != nil {
		return "", err
	}
	token := string(bytes.TrimSpace(data))
	if problem := checkToken(token); problem != "" {
		return "", &fs.PathError{Op: "read", Path: path, Err: errors.New(problem)}
	}
	return token, nil
}

// checkSecret refuses a file that somebody other than root and guestd's own user
// owns, or that others than its owner can read or write.
func checkSecret(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	problem := ""
	stat, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.Mode().IsRegular():
		problem = "is not a regular file"
	case !ok || stat.Uid != 0 && int(stat.Uid) != os.Geteuid():
		problem = "belongs neither to root nor to guestd's own user"
	case info.Mode().Perm()&0o077 != 0:
		problem = fmt.Sprintf("has mode %04o: others than its owner may use it (chmod 600)", info.Mode().Perm())
	default:
		return nil
	}
	return &fs.PathError{Op: "read", Path: f.Name(), Err: errors.New(problem)}
}
