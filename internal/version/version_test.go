package version

import (
	"runtime/debug"
	"strings"
	"testing"
)

func TestResolve(t *testing.T) {
	vcs := func(main string, settings ...debug.BuildSetting) *debug.BuildInfo {
		return &debug.BuildInfo{Main: debug.Module{Version: main}, Settings: settings}
	}
	tests := []struct {
		name  string
		in    Info
		build *debug.BuildInfo
		want  Info
	}{
		{
			name: "nothing known",
			want: Info{Version: "dev", Commit: "unknown", Date: "unknown"},
		},
		{
			name:  "set by the linker wins",
			in:    Info{Version: "v1.0.0", Commit: "abc", Date: "2026-01-01T00:00:00Z"},
			build: vcs("v0.0.1", debug.BuildSetting{Key: "vcs.revision", Value: "def"}),
			want:  Info{Version: "v1.0.0", Commit: "abc", Date: "2026-01-01T00:00:00Z"},
		},
		{
			name:  "go build in a checkout",
			build: vcs("(devel)", debug.BuildSetting{Key: "vcs.revision", Value: "def"}, debug.BuildSetting{Key: "vcs.modified", Value: "true"}, debug.BuildSetting{Key: "vcs.time", Value: "2026-02-02T00:00:00Z"}),
			want:  Info{Version: "dev", Commit: "def-dirty", Date: "2026-02-02T00:00:00Z"},
		},
		{
			name:  "go install of a release",
			build: vcs("v1.2.3"),
			want:  Info{Version: "v1.2.3", Commit: "unknown", Date: "unknown"},
		},
		{
			name:  "modified without a revision says nothing",
			build: vcs("", debug.BuildSetting{Key: "vcs.modified", Value: "true"}),
			want:  Info{Version: "dev", Commit: "unknown", Date: "unknown"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := resolve(tt.in, tt.build); got != tt.want {
				t.Errorf("resolve = %+v, want %+v", got, tt.want)
			}
		})
	}
}

func TestStringNamesGo(t *testing.T) {
	if got := String(); !strings.Contains(got, "go1.") {
		t.Errorf("String() = %q, want the Go release in it", got)
	}
}
