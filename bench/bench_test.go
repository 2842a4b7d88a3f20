package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"guestd.internal/test/programs"
)

// TestMain lets the test binary play parts, as the program does.
func TestMain(m *testing.M) {
	if part := os.Getenv(partVariable); part != "" {
		os.Exit(play(part, os.Args[1:]))
	}
	os.Exit(m.Run())
}

// TestQuick runs every measure on next to nothing, so that none of them rots. How
// fast anything is does not matter here.
func TestQuick(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and starts guestd")
	}
	bin := t.TempDir()
	if err := programs.Build(bin, false, "guestd", "guestctl"); err != nil {
		t.Fatal(err)
	}
	fast := t.TempDir()
	only := "."
	if _, err := findPython(); err != nil {
		t.Logf("without kernels: %v", err)
		only = "^(exec|exec-crowd|process.*|stdout|file.*|start|size)$"
	}
	var stdout, stderr bytes.Buffer
	if code := run(t.Context(), []string{"--bin", bin, "--fast", fast, "--quick", "--json", "--run", only}, &stdout, &stderr); code != 0 {
		t.Fatalf("exit code %d\n%s", code, stderr.String())
	}
	var got report
	if err := json.Unmarshal(stdout.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	lines := make(map[string]int)
	for _, r := range got.Results {
		lines[r.Measure]++
		if r.Value <= 0 && r.Unit != sizeInBytes { // what costs no memory at all is fine
			t.Errorf("%s: %s has the value %v", r.Measure, r.Name, r.Value)
		}
		if r.FloorName != "" && (r.Floor <= 0 || r.Ratio <= 0) {
			t.Errorf("%s: %s has the floor %v and the ratio %v", r.Measure, r.Name, r.Floor, r.Ratio)
		}
	}
	for _, m := range measures {
		if lines[m.name] == 0 && regexp.MustCompile(only).MatchString(m.name) {
			t.Errorf("%s has no line", m.name)
		}
	}
	if left, err := filepath.Glob(filepath.Join(fast, "*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v (%v)", left, err)
	}
}

func TestCommandLine(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want int
	}{
		{[]string{"--help"}, 0},
		{[]string{"--run", "("}, 2},
		{[]string{"--size", "0"}, 2},
		{[]string{"surplus"}, 2},
		{[]string{"--bin", t.TempDir()}, 1},
	} {
		var stdout, stderr bytes.Buffer
		if got := run(t.Context(), tt.args, &stdout, &stderr); got != tt.want {
			t.Errorf("run(%q) = %d, want %d\n%s", tt.args, got, tt.want, stderr.String())
		}
	}
}

func TestInterleaveTakesTurns(t *testing.T) {
	var order []string
	named := func(name string, took time.Duration) arm {
		return func() (time.Duration, error) {
			order = append(order, name)
			return took, nil
		}
	}
	samples, err := interleave(1, 2, named("a", 1), named("b", 2))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Join(order, ""), "abbaab"; got != want {
		t.Errorf("order %s, want %s", got, want)
	}
	if got, want := fmt.Sprint(samples), fmt.Sprint([]sample{{1, 1}, {2, 2}}); got != want {
		t.Errorf("samples %v, want %v", got, want)
	}
	broken := errors.New("broken")
	if _, err := interleave(0, 1, func() (time.Duration, error) { return 0, broken }); !errors.Is(err, broken) {
		t.Errorf("error %v, want %v", err, broken)
	}
}

func TestQuantile(t *testing.T) {
	for _, tt := range []struct {
		s    sample
		q    float64
		want time.Duration
	}{
		{nil, 0.5, 0},
		{sample{7}, 0.5, 7},
		{sample{30, 10, 20}, 0.5, 20},
		{sample{40, 10, 30, 20}, 0.5, 25},
		{sample{0, 100}, 0.25, 25},
		{sample{0, 100}, 1, 100},
	} {
		if got := tt.s.quantile(tt.q); got != tt.want {
			t.Errorf("%v.quantile(%v) = %v, want %v", tt.s, tt.q, got, tt.want)
		}
	}
}

func TestRow(t *testing.T) {
	ms := func(n ...time.Duration) (s sample) {
		for _, one := range n {
			s = append(s, one*time.Millisecond)
		}
		return s
	}
	for _, tt := range []struct {
		r    result
		want string
	}{
		{latency("a", ms(3), "f", ms(2), atMost(1.5)), "a|3.00 ms|2.00 ms|f|1.50|≤ 1.50|ok"},
		{latency("a", ms(3), "f", ms(2), atMost(1.4)), "a|3.00 ms|2.00 ms|f|1.50|≤ 1.40|FAIL"},
		{latency("a", ms(3), "f", ms(2), nil), "a|3.00 ms|2.00 ms|f|1.50||"},
		{throughput("t", 4e6, ms(4), "f", ms(2), atLeast(0.5)), "t|1000 MB/s|2000 MB/s|f|0.50|≥ 0.50|ok"},
		{throughput("t", 4e6, ms(5), "f", ms(2), atLeast(0.5)), "t|800 MB/s|2000 MB/s|f|0.40|≥ 0.50|FAIL"},
		{absolute("m", sizeInBytes, 33<<20, atMost(32<<20)), "m|33.0 MiB||||≤ 32.0 MiB|FAIL"},
		{absolute("m", seconds, 0.000_25, nil), "m|250 µs|||||"},
		{absolute("m", seconds, 2.5, nil), "m|2.50 s|||||"},
	} {
		if got := strings.ReplaceAll(tt.r.row(), "\t", "|"); got != tt.want {
			t.Errorf("row %q, want %q", got, tt.want)
		}
	}
}
