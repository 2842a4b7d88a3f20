// Package nofile knows the limit of open files that this process was started with.
//
// Package syscall raises the soft limit to one less than the hard one when it is
// initialised, and sets it back in what it starts; it tells others neither. Packages are
// initialised in the order of their import paths as far as their imports allow
// (go.dev/doc/go1.21), so this one looks before syscall: it imports nothing, and must go
// on doing so.
package nofile

// Limit is a struct rlimit64.
type Limit struct{ Soft, Hard uint64 }

var inherited = get()

// prlimit is prlimit64(2) of this process. get is filled in where it is not nil.
//
//go:noescape
func prlimit(resource uintptr, set, get *Limit) (errno uintptr)

const noFile = 7 // RLIMIT_NOFILE

func get() (limit Limit) {
	_ = prlimit(noFile, nil, &limit) // cannot fail
	return limit
}

// Lowered returns the limit that children are to be given, nil where they are to inherit
// what this process has: package syscall has not raised it, or somebody else has changed
// it since.
func Lowered() *Limit {
	raised := Limit{inherited.Hard - 1, inherited.Hard}
	if inherited.Hard == 0 || inherited.Soft >= raised.Soft || get() != raised {
		return nil
	}
	return &inherited
}
