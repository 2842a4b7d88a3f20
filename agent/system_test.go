package agent

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	"guestd.internal/internal/spawn"
	guestdv1 "guestd.internal/proto/guestd/v1"
)

func seconds(n int) *durationpb.Duration { return durationpb.New(time.Duration(n) * time.Second) }

func TestGetInfo(t *testing.T) {
	a := startAgent(t, Config{Degraded: []string{"the moon is not full"}, DefaultUser: "root"})
	info, err := a.system().GetInfo(within(t), &guestdv1.GetInfoRequest{})
	if err != nil {
		t.Fatal(err)
	}
	bootID, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Fatal(err)
	}
	if info.GetApiVersion() != "v1" || info.GetVersion() == "" || info.GetArchitecture() != runtime.GOARCH ||
		info.GetBootId() != strings.TrimSpace(string(bootID)) || info.GetRoot() != (os.Geteuid() == 0) || info.GetKernelRelease() == "" {
		t.Errorf("info = %v", info)
	}
	if len(info.GetInstanceId()) != 32 || info.GetInstanceId() != a.InstanceID() {
		t.Errorf("instance id = %q, want the agent's %q of 32 digits", info.GetInstanceId(), a.InstanceID())
	}
	if !slices.Contains(info.GetDegraded(), "the moon is not full") {
		t.Errorf("degraded = %q lacks what the program said", info.GetDegraded())
	}
	if since := time.Since(info.GetStartTime().AsTime()); since < 0 || since > time.Minute {
		t.Errorf("started %v ago", since)
	}
	if l := info.GetLimits(); l.GetMaxRequestBytes() != 8<<20 || l.GetLogBudgetBytes() == 0 || l.GetKeepFinished().AsDuration() != 10*time.Minute {
		t.Errorf("limits = %v", l)
	}
	if os.Geteuid() == 0 && info.GetDefaultUser() != "root" {
		t.Errorf("default user = %q", info.GetDefaultUser())
	}
}

func TestInstancesHaveNamesOfTheirOwn(t *testing.T) {
	a, b := startAgent(t, Config{}), startAgent(t, Config{})
	if a.InstanceID() == b.InstanceID() {
		t.Errorf("two agents are %s", a.InstanceID())
	}
}

func TestConfigure(t *testing.T) {
	a := startAgent(t, Config{})
	ctx := within(t)
	user := "root"
	if os.Geteuid() != 0 {
		user = ""
	}
	_, err := a.system().Configure(ctx, &guestdv1.ConfigureRequest{
		DefaultUser: &user,
		Environment: &guestdv1.Environment{Variables: []*guestdv1.EnvVar{
			{Name: []byte("A"), Value: []byte("\xff")}, {Name: []byte("B"), Unset: true},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []spawn.EnvVar{{Name: "A", Value: "\xff"}, {Name: "B", Unset: true}}
	check := func() {
		t.Helper()
		if diff := cmp.Diff(want, a.settings.Environment()); diff != "" {
			t.Errorf("environment (-want +got):\n%s", diff)
		}
		if got := a.settings.DefaultUser(); got != user {
			t.Errorf("default user = %q, want %q", got, user)
		}
	}
	check()
	// What is absent stays, and a request that is refused changes nothing.
	if _, err := a.system().Configure(ctx, &guestdv1.ConfigureRequest{}); err != nil {
		t.Error(err)
	}
	check()
	nobody, empty := "no-such-user", "short"
	for _, tt := range []struct {
		req    *guestdv1.ConfigureRequest
		code   codes.Code
		reason string
	}{
		{&guestdv1.ConfigureRequest{DefaultUser: &nobody, Environment: &guestdv1.Environment{}}, codes.NotFound, "USER_NOT_FOUND"},
		{&guestdv1.ConfigureRequest{Token: &empty, Environment: &guestdv1.Environment{}}, codes.InvalidArgument, "INVALID_FIELD"},
		{&guestdv1.ConfigureRequest{Environment: &guestdv1.Environment{Variables: []*guestdv1.EnvVar{{Name: []byte("A=B")}}}}, codes.InvalidArgument, "INVALID_FIELD"},
		{&guestdv1.ConfigureRequest{Environment: &guestdv1.Environment{Variables: []*guestdv1.EnvVar{{Name: []byte("A"), Value: []byte("x"), Unset: true}}}}, codes.InvalidArgument, "INVALID_FIELD"},
	} {
		_, err := a.system().Configure(ctx, tt.req)
		wantCode(t, err, tt.code, tt.reason)
		check()
	}
	if _, err := a.system().Configure(ctx, &guestdv1.ConfigureRequest{Environment: &guestdv1.Environment{}}); err != nil {
		t.Error(err)
	}
	want = nil
	if got := a.settings.Environment(); len(got) != 0 {
		t.Errorf("environment = %v, want none", got)
	}
}

// Each layer changes the one before: built-in, the template's file, Configure, the
// request.
func TestEnvironmentPrecedence(t *testing.T) {
	file := filepath.Join(t.TempDir(), "environment")
	template := "LANG=file\nA=file\nB=file\nC=file\nD=file\n"
	if err := os.WriteFile(file, []byte(template), 0o644); err != nil {
		t.Fatal(err)
	}
	a := startAgent(t, Config{EnvironmentFile: file})
	configured := &guestdv1.Environment{Variables: []*guestdv1.EnvVar{
		{Name: []byte("B"), Value: []byte("configured")}, {Name: []byte("C"), Value: []byte("configured")},
		{Name: []byte("D"), Unset: true},
	}}
	if _, err := a.system().Configure(within(t), &guestdv1.ConfigureRequest{Environment: configured}); err != nil {
		t.Fatal(err)
	}
	user := fmt.Sprint(os.Geteuid())
	show := func() string {
		t.Helper()
		resp, err := a.processCalls().Run(within(t), &guestdv1.RunRequest{Spec: &guestdv1.ProcessSpec{
			User: user,
			Command: &guestdv1.ProcessSpec_Shell{Shell: &guestdv1.ShellLine{
				Line: []byte(`echo "$LANG $A $B $C ${D-unset}"`)}},
			Env: []*guestdv1.EnvVar{{Name: []byte("C"), Value: []byte("request")}},
		}})
		if err != nil {
			t.Fatal(err)
		}
		return string(resp.GetOutputs()[0].GetHead())
	}
	if got, want := show(), "file file configured request unset\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if err := os.WriteFile(file, []byte("malformed\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if got, want := show(), "C.UTF-8  configured request unset\n"; got != want {
		t.Errorf("without the file: got %q, want %q", got, want)
	}
	info, err := a.system().GetInfo(within(t), &guestdv1.GetInfoRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if told := strings.Join(info.GetDegraded(), "\n"); !strings.Contains(told, file) {
		t.Errorf("degraded does not name the file: %s", told)
	}
}

// TestUnusableSettingsAreTold: a start with settings that cannot be used goes on, since the guest may
// still get what is missing, but says so where an operator looks.
func TestUnusableSettingsAreTold(t *testing.T) {
	file := filepath.Join(t.TempDir(), "environment")
	if err := os.WriteFile(file, []byte("malformed\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	a, err := New(Config{
		DefaultUser: "no-such-user", EnvironmentFile: file, StateDir: t.TempDir(), CgroupRoot: "none",
		Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	info, err := (&systemService{agent: a}).GetInfo(within(t), &guestdv1.GetInfoRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Shutdown(within(t)); err != nil {
		t.Error(err)
	}
	logged := log.String()
	told := strings.Join(info.GetDegraded(), "\n")
	for _, want := range []string{"no-such-user", file} {
		if !strings.Contains(logged, want) {
			t.Errorf("the log does not name %s: %s", want, logged)
		}
		if !strings.Contains(told, want) {
			t.Errorf("GetInfo does not name %s: %s", want, told)
		}
	}
}
