package need_test

import (
	"fmt"
	"strings"
	"testing"

	"guestd.internal/test/need"
)

// recorder is a test that notes how it was ended.
type recorder struct {
	testing.TB
	end string
}

func (r *recorder) Helper() {}

func (r *recorder) Fatalf(format string, args ...any) {
	r.end = "failed: " + fmt.Sprintf(format, args...)
}

func (r *recorder) Skipf(format string, args ...any) {
	if r.end == "" { // Fatalf returns here, as it does in no test
		r.end = "skipped: " + fmt.Sprintf(format, args...)
	}
}

func TestSkip(t *testing.T) {
	for value, want := range map[string]string{"": "skipped: ", "1": "failed: "} {
		t.Setenv(need.Variable, value)
		r := &recorder{TB: t}
		need.Skip(r, "there is no %s: install it", "tar")
		if !strings.HasPrefix(r.end, want) || !strings.HasSuffix(r.end, "there is no tar: install it") {
			t.Errorf("with %q: %s", value, r.end)
		}
	}
}
