package conformance

import (
	"testing"

	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"

	pb "guestd.internal/proto/guestd/v1"
)

// freshCases change a guestd of their own.
type freshCases struct{ *guest }

// fresh is a guestd that nobody else uses.
func (g freshCases) fresh(t *testing.T) *guest {
	t.Helper()
	return over(g.Target, g.Target.Fresh(t))
}

func configure(t *testing.T, g *guest, request *pb.ConfigureRequest) {
	t.Helper()
	if _, err := g.system.Configure(within(t), request); err != nil {
		t.Fatalf("Configure: %v", err)
	}
}

func (g freshCases) DefaultUserIsTheConfiguredOne(t *testing.T) {
	g.needRoot(t)
	f := g.fresh(t)
	configure(t, f, &pb.ConfigureRequest{DefaultUser: &g.OtherUser})
	info, err := f.system.GetInfo(within(t), &pb.GetInfoRequest{})
	if err != nil {
		t.Fatalf("GetInfo: %v", err)
	}
	wantText(t, "default_user", info.DefaultUser, g.OtherUser)
	wantText(t, "the uid", f.complete(t, in("/", command("id", "-u"))).stdout(), g.sh(t, `id -u "$1"`, g.OtherUser)+"\n")
	none := ""
	configure(t, f, &pb.ConfigureRequest{DefaultUser: &none})
	wantText(t, "the uid again", f.complete(t, command("id", "-u")).stdout(), g.complete(t, command("id", "-u")).stdout())
}

func (g freshCases) EnvironmentIsALayerBelowTheRequests(t *testing.T) {
	f := g.fresh(t)
	variables := []*pb.EnvVar{env("A", "configured"), env("B", "configured"), env("HOME", "/configured")}
	configure(t, f, &pb.ConfigureRequest{Environment: &pb.Environment{Variables: variables}})
	spec := in("/", script(`printf '%s|' "$A" "$B" "$HOME"`))
	spec.Env = []*pb.EnvVar{env("B", "requested")}
	wantText(t, "the variables", f.complete(t, spec).stdout(), "configured|requested|/configured|")
	configure(t, f, &pb.ConfigureRequest{})
	wantText(t, "the variables", f.complete(t, spec).stdout(), "configured|requested|/configured|")
	configure(t, f, &pb.ConfigureRequest{Environment: &pb.Environment{}})
	cleared := in("/", script(`printf '%s|' "${A-unset}"`))
	wantText(t, "the variable", f.complete(t, cleared).stdout(), "unset|")
}

func (g freshCases) TokenIsDemandedOnceItIsSet(t *testing.T) {
	f, token := g.fresh(t), "a-token-of-the-conformance-suite"
	configure(t, f, &pb.ConfigureRequest{Token: &token})
	refused := refusal{code: codes.Unauthenticated, reason: pb.ErrorReason_ERROR_REASON_TOKEN_REFUSED}
	with := func(value string) metadata.MD { return metadata.Pairs("authorization", value) }
	for _, md := range []metadata.MD{nil, with("Bearer wrong"), with(token), with("Bearer " + token + "x")} {
		_, err := f.system.GetInfo(metadata.NewOutgoingContext(within(t), md), &pb.GetInfoRequest{})
		wantRefusal(t, err, refused)
	}
	_, err := f.openExec(within(t), &pb.ExecStart{Spec: command("true")})
	wantRefusal(t, err, refused)
	_, err = f.system.Configure(within(t), &pb.ConfigureRequest{Token: &token})
	wantRefusal(t, err, refused)
	authorized := metadata.NewOutgoingContext(within(t), with("Bearer "+token))
	if _, err := f.system.GetInfo(authorized, &pb.GetInfoRequest{}); err != nil {
		t.Errorf("with the token: %v", err)
	}
	if _, err := healthpb.NewHealthClient(f.conn).Check(within(t), &healthpb.HealthCheckRequest{}); err != nil {
		t.Errorf("health without a token: %v", err)
	}
	next := "another-token-of-the-suite"
	if _, err := f.system.Configure(authorized, &pb.ConfigureRequest{Token: &next}); err != nil {
		t.Errorf("changing the token: %v", err)
	}
	_, err = f.system.GetInfo(authorized, &pb.GetInfoRequest{})
	wantRefusal(t, err, refused)
}

func (g freshCases) EveryCallAnswersAnEmptyRequestProperly(t *testing.T) {
	f := g.fresh(t)
	for _, method := range methods() {
		if lasting[method] && method != pb.SystemService_Shutdown_FullMethodName {
			f.wantProperAnswer(t, method)
		}
	}
	f.wantProperAnswer(t, pb.SystemService_Shutdown_FullMethodName)
}
