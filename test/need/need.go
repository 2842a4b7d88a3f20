// Package need lets tests go without what a machine does not have: a program, root, a
// file system that can be mounted. On a developer's machine such a test is skipped. In
// CI, which sets GUESTD_NO_SKIP, it fails, so that nothing goes untested unnoticed.
//
// It is for tests alone. It does not look for anything itself, and it is not for what no
// installation changes, such as a kernel without a feature, nor for what a target under
// test does not serve: those are skipped as usual.
package need

import (
	"os"
	"testing"
)

// Variable is the environment variable which, when it is not empty, forbids skips.
const Variable = "GUESTD_NO_SKIP"

// Skip ends a test for want of what the text names, and how to get it.
func Skip(t testing.TB, format string, args ...any) {
	t.Helper()
	if os.Getenv(Variable) != "" {
		t.Fatalf("not to be skipped, since "+Variable+" is set: "+format, args...)
	}
	t.Skipf(format, args...)
}
