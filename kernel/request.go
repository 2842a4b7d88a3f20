package kernel

import (
	"crypto/sha256"
	"fmt"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"guestd.internal/internal/spawn"
)

// Request asks for one execution.
type Request struct {
	// ContextID is where to run; "" is the language's default context, which is
	// made on first use.
	ContextID string
	// Language is python, the default, bash, javascript, an alias of one of them
	// (see Languages), or the name of an installed kernelspec. With a ContextID it is
	// empty or that context's.
	Language string
	// Code is valid UTF-8, and more than white space: Jupyter takes empty code
	// for done without a count, which hides a caller's mistake.
	Code string
	// Timeout counts from Started; nil is DefaultTimeout, 0 none.
	Timeout *time.Duration
	// AllowStdin lets the code ask for input, with InputRequest and
	// Contexts.ReplyInput. Without it input() raises an error at once.
	AllowStdin bool
	// Env changes the environment, and Dir the working directory, for this execution
	// only. A relative Dir starts at the context's own; "" is that. Languages whose
	// kernels do not speak Python have neither.
	Env []spawn.EnvVar
	Dir string
	// RequestID, if not empty, makes a repeated request return the first one's
	// execution for as long as that is kept: 1 to 128 printable ASCII characters.
	RequestID string
}

func (r *Request) check() error {
	switch {
	case len(r.Code) > MaxCode:
		return &InvalidError{Field: "code", Problem: fmt.Sprintf("%d bytes, more than %d", len(r.Code), MaxCode)}
	case !utf8.ValidString(r.Code):
		return &InvalidError{Field: "code", Problem: "not valid UTF-8"}
	case strings.TrimSpace(r.Code) == "":
		return &InvalidError{Field: "code", Problem: "empty"}
	case r.Timeout != nil && *r.Timeout < 0:
		return &InvalidError{Field: "timeout", Problem: "negative"}
	case strings.ContainsRune(r.Dir, 0):
		return &InvalidError{Field: "cwd", Problem: "has a NUL"}
	case !isLanguage(r.Language):
		return &InvalidError{Field: "language", Problem: "not a language's name"}
	case !isPrintable(r.RequestID):
		return &InvalidError{Field: "request_id", Problem: "not 1 to 128 printable ASCII characters"}
	}
	return checkEnv(r.Env)
}

// timeout is the request's time-out, and MaxInt64 for none.
func (r *Request) timeout() time.Duration {
	switch {
	case r.Timeout == nil:
		return DefaultTimeout
	case *r.Timeout == 0:
		return math.MaxInt64
	}
	return *r.Timeout
}

// fingerprint tells requests apart, without keeping their code.
func (r *Request) fingerprint() [sha256.Size]byte {
	h := sha256.New()
	_, _ = fmt.Fprintf(h, "%q %q %d %t %q %#v\n%s", // a hash takes everything
		r.ContextID, canonicalLanguage(r.Language), r.timeout(), r.AllowStdin, r.Dir, r.Env, r.Code)
	return [sha256.Size]byte(h.Sum(nil))
}
