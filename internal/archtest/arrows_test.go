package archtest

import (
	"slices"
	"testing"
)

// An arrow says what the packages that match from may import of this module.
// Everything else is refused, for reason. Patterns are as in matches; a package
// may always import what is below its own pattern.
type arrow struct {
	from   string
	may    []string
	reason string
}

// The arrows point one way: cmd -> agent -> {proc, fsapi, kernel} -> internal on
// the guest's side, cmd -> client -> proto on the host's. Each package of the
// module comes under the first arrow that matches it.
var arrows = []arrow{
	{"cmd/guestd/...", []string{"agent", "internal/version"},
		"the daemon's main turns flags into agent.Config; whatever else it knew could not be embedded or tested"},
	{"cmd/guestctl/...", []string{"client", "client/...", "proto/...", "internal/version"},
		"guestctl is a host program: it reaches a guest through client alone, also the private one that it starts as a program"},
	{"client/...", []string{"proto/...", "internal/wire", "internal/fasttar"},
		"client is imported by other people's host programs: it brings the API, how its messages are carried, and nothing of the guest's side"},
	{"agent/...", []string{"proc", "fsapi", "kernel", "proto/...", "internal/..."},
		"agent translates between the API and the domain packages; the host's side is not its business"},
	{"proc/...", []string{"internal/..."},
		"proc is a plain Go library: no neighbour, no gRPC, no generated code; agent translates"},
	{"fsapi/...", []string{"internal/..."},
		"fsapi is a plain Go library: no neighbour, no gRPC, no generated code; agent translates"},
	{"kernel/...", []string{"internal/..."},
		"kernel is a plain Go library: no neighbour, no gRPC, no generated code; agent translates"},
	{"internal/wire", nil,
		"what carries messages is the same at both ends, for agent and client; it knows neither them nor the API"},
	{"internal/fasttar", nil,
		"archives are written the same at both ends, by fsapi and client; it knows neither"},
	{"internal/...", nil,
		"internal holds mechanisms that the domain packages share; it knows none of its users"},
	{"proto/...", nil,
		"the API depends on nothing, so that any program can speak it"},
	{"test/...", []string{"..."},
		"tests of the whole may use all of it"},
	{"bench/...", []string{"..."},
		"benchmarks of the whole may use all of it"},
}

func TestArrows(t *testing.T) {
	for _, p := range goList(t, "./...") {
		a := slices.IndexFunc(arrows, func(a arrow) bool { return matches(p.ImportPath, a.from) })
		if a < 0 {
			t.Errorf("%s comes under no arrow: add one that says what it may import, and why", p.ImportPath)
			continue
		}
		for _, imported := range p.Imports {
			if !inModule(imported) || matches(imported, arrows[a].from) || matchesAny(imported, arrows[a].may) {
				continue
			}
			t.Errorf("%s must not import %s: %s", p.ImportPath, imported, arrows[a].reason)
		}
	}
}

// A ban refuses packages anywhere below what the packages that match from import,
// so that no neighbour brings them in.
type ban struct {
	from   []string
	except []string // of from
	banned []string
	reason string
}

var (
	domain     = []string{"proc/...", "fsapi/...", "kernel/...", "internal/..."}
	production = append([]string{"cmd/...", "agent/...", "client/...", "proto/..."}, domain...)
)

var bans = []ban{
	{domain, []string{"internal/wire"}, []string{"google.golang.org/...", "proto/..."},
		"what works in the guest is tested without a network and outlives the protocol; agent translates"},
	{[]string{"client/...", "cmd/guestctl/..."}, nil, []string{"agent/...", "proc/...", "fsapi/...", "kernel/...", "github.com/creack/pty/...", "github.com/go-zeromq/..."},
		"the host's side talks to a guest through the API alone, and does not carry what runs in one"},
	{production, nil, []string{"testing", "test/...", "bench/..."},
		"package testing registers flags and grows the binary; what tests need stays in tests"},
	{production, nil, []string{"log"},
		"log writes where nobody configured it; log/slog is the log"},
}

func TestBans(t *testing.T) {
	for _, p := range goList(t, "./...") {
		for _, b := range bans {
			if !matchesAny(p.ImportPath, b.from) || matchesAny(p.ImportPath, b.except) {
				continue
			}
			var found []string
			for _, dep := range reach(p) {
				if matchesAny(dep, b.banned) {
					found = append(found, dep)
				}
			}
			switch len(found) {
			case 0:
			case 1:
				t.Errorf("%s must not depend on %s: %s", p.ImportPath, found[0], b.reason)
			default:
				t.Errorf("%s must not depend on %s, nor on %d others that it reaches: %s", p.ImportPath, found[0], len(found)-1, b.reason)
			}
		}
	}
}

// reach returns what p imports and what that brings in, sorted. Of the standard
// library it holds only p's own imports: what third parties use of it is not ours
// to say.
func reach(p pkg) []string {
	reached := slices.Clone(p.Imports)
	for _, dep := range p.Deps {
		if !standard[dep] {
			reached = append(reached, dep)
		}
	}
	slices.Sort(reached)
	return slices.Compact(reached)
}

// TestMatches pins the rules' little language: a rule that matches nothing
// passes always.
func TestMatches(t *testing.T) {
	tests := []struct {
		path, pattern string
		want          bool
	}{
		{"guestd.internal/proc", "proc/...", true},
		{"guestd.internal/proc/internal/x", "proc/...", true},
		{"guestd.internal/process", "proc/...", false},
		{"guestd.internal/agent/x", "agent", false},
		{"guestd.internal/agent", "agent", true},
		{"guestd.internal/agent", "...", true},
		{"google.golang.org/grpc/codes", "google.golang.org/...", true},
		{"testing", "testing", true},
		{"testing/fstest", "testing", false},
	}
	for _, tt := range tests {
		if got := matches(tt.path, tt.pattern); got != tt.want {
			t.Errorf("matches(%q, %q) = %v, want %v", tt.path, tt.pattern, got, tt.want)
		}
	}
}
