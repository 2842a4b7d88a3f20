// Package id makes guestd's opaque identifiers: "p-" for a process, "c-" for a
// code context, "x-" for an execution, each followed by 13 random characters.
//
// An id is drawn when it is used and never reused, also across restarts of the
// daemon: 65 random bits make a second draw of the same id a matter of
// thousands of millions of ids. It is a name and no secret; knowing one grants
// nothing. The package keeps no state and starts nothing.
package id

import (
	"crypto/rand"
	"encoding/base32"
)

// length is the number of random characters after the prefix: 13 characters of
// 5 bits are 65 bits.
const length = 13

// encoding is RFC 4648's base32 alphabet in lower case: it survives file
// systems without case, host names and cgroup folder names.
var encoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// New returns prefix, a hyphen and 13 random characters out of a-z and 2-7, for
// example "p-4jx2mq7ahk3ub" for the prefix "p". It cannot fail: crypto/rand
// ends the program when the kernel has no randomness.
func New(prefix string) string {
	var raw [(length*5 + 7) / 8]byte
	rand.Read(raw[:]) // documented never to return an error
	return prefix + "-" + encoding.EncodeToString(raw[:])[:length]
}
