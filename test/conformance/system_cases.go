package conformance

import (
	"context"
	"errors"
	"io"
	"slices"
	"testing"

	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	pb "guestd.internal/proto/guestd/v1"
)

// systemCases are the contract of SystemService, health and reflection, and of
// what all services have in common.
type systemCases struct{ *guest }

// services are the names of guestd's own services.
func services() []string {
	return []string{
		pb.ProcessService_ServiceDesc.ServiceName, pb.FileService_ServiceDesc.ServiceName,
		pb.CodeService_ServiceDesc.ServiceName, pb.SystemService_ServiceDesc.ServiceName,
	}
}

func (g systemCases) InfoDescribesGuestdAndItsGuest(t *testing.T) {
	info, err := g.system.GetInfo(within(t), &pb.GetInfoRequest{})
	if err != nil {
		t.Fatalf("GetInfo: %v", err)
	}
	wantText(t, "api_version", info.ApiVersion, "v1")
	wantText(t, "boot_id", info.BootId, g.sh(t, `cat /proc/sys/kernel/random/boot_id`))
	wantText(t, "kernel_release", info.KernelRelease, g.sh(t, `uname -r`))
	wantText(t, "host_name", info.HostName, g.sh(t, `uname -n`))
	if info.Version == "" || info.InstanceId == "" || info.Architecture == "" || info.StartTime.AsTime().Unix() == 0 {
		t.Errorf("%v lacks version, instance, architecture or start time", info)
	}
	if info.Root != g.Capabilities.Root {
		t.Errorf("root is %v, want %v", info.Root, g.Capabilities.Root)
	}
	out := g.complete(t, script(`id -un 2>/dev/null || id -u`))
	wantText(t, "default_user", info.DefaultUser+"\n", out.stdout())
	again, err := g.system.GetInfo(within(t), &pb.GetInfoRequest{})
	if err != nil || again.InstanceId != info.InstanceId {
		t.Errorf("instance %q and then %q, %v", info.InstanceId, again.GetInstanceId(), err)
	}
}

func (g systemCases) LimitsAreTold(t *testing.T) {
	info, err := g.system.GetInfo(within(t), &pb.GetInfoRequest{})
	if err != nil {
		t.Fatalf("GetInfo: %v", err)
	}
	l := info.Limits
	if l.GetMaxRequestBytes() != 8<<20 || l.GetMaxPayloadBytes() != maxPayload || l.GetLogLimitBytes() != 4<<20 {
		t.Errorf("%v, want requests of 8 MiB, payloads of 1 MiB, logs of 4 MiB", l)
	}
	if l.GetMaxFinishedProcesses() == 0 || l.GetKeepFinished().AsDuration() <= 0 || l.GetLogBudgetBytes() == 0 {
		t.Errorf("%v lacks how long what has ended is kept", l)
	}
}

func (g systemCases) EveryServiceIsHealthy(t *testing.T) {
	health := healthpb.NewHealthClient(g.conn)
	for _, service := range append(services(), "") {
		response, err := health.Check(within(t), &healthpb.HealthCheckRequest{Service: service})
		if err != nil || response.Status != healthpb.HealthCheckResponse_SERVING {
			t.Errorf("health of %q: %v, %v", service, response.GetStatus(), err)
		}
	}
	_, err := health.Check(within(t), &healthpb.HealthCheckRequest{Service: "no.such.Service"})
	wantCode(t, err, codes.NotFound)
}

func (g systemCases) ReflectionListsEveryService(t *testing.T) {
	stream, err := reflectionpb.NewServerReflectionClient(g.conn).ServerReflectionInfo(within(t))
	if err != nil {
		t.Fatalf("reflection: %v", err)
	}
	list := &reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}}
	if err := stream.Send(list); err != nil {
		t.Fatalf("reflection: %v", err)
	}
	response, err := stream.Recv()
	if err != nil {
		t.Fatalf("reflection: %v", err)
	}
	var names []string
	for _, service := range response.GetListServicesResponse().GetService() {
		names = append(names, service.Name)
	}
	for _, want := range append(services(), healthpb.Health_ServiceDesc.ServiceName) {
		if !slices.Contains(names, want) {
			t.Errorf("reflection lists %q, want %s too", names, want)
		}
	}
	if err := stream.CloseSend(); err != nil {
		t.Errorf("reflection: %v", err)
	}
}

func (g systemCases) ConfigurationOfNothingChangesNothing(t *testing.T) {
	if _, err := g.system.Configure(within(t), &pb.ConfigureRequest{}); err != nil {
		t.Errorf("Configure: %v", err)
	}
}

func (g systemCases) MalformedConfigurationIsRefused(t *testing.T) {
	text := func(s string) *string { return &s }
	for _, c := range []struct {
		field   string
		request *pb.ConfigureRequest
	}{
		{"token", &pb.ConfigureRequest{Token: text("too short")}},
		{"token", &pb.ConfigureRequest{Token: text("with a space inside")}},
		{"environment.variables.name", &pb.ConfigureRequest{Environment: &pb.Environment{Variables: []*pb.EnvVar{env("A=B", "x")}}}},
		{"environment.variables.value", &pb.ConfigureRequest{Environment: &pb.Environment{Variables: []*pb.EnvVar{env("A", "\x00")}}}},
	} {
		_, err := g.system.Configure(within(t), c.request)
		wantRefusal(t, err, badField(c.field))
	}
	_, err := g.system.Configure(within(t), &pb.ConfigureRequest{DefaultUser: text("no-such-user-here")})
	wantRefusal(t, err, refusal{code: codes.NotFound, reason: pb.ErrorReason_ERROR_REASON_USER_NOT_FOUND})
}

func (g systemCases) UnknownMethodIsUnimplemented(t *testing.T) {
	wantCode(t, g.invoke(within(t), "/guestd.v1.ProcessService/NoSuchCall", nil), codes.Unimplemented)
	wantCode(t, g.invoke(within(t), "/no.such.Service/Call", nil), codes.Unimplemented)
}

// lasting are the calls that an empty request makes do something that stays, so
// that they are not made to a guest that other cases use.
var lasting = map[string]bool{
	pb.SystemService_Shutdown_FullMethodName:        true,
	pb.SystemService_PrepareSnapshot_FullMethodName: true,
	pb.CodeService_CreateContext_FullMethodName:     true,
}

// Which calls are served grows with guestd's versions; the others say so.
func (g systemCases) EveryCallAnswersAnEmptyRequestProperly(t *testing.T) {
	for _, method := range methods() {
		if !lasting[method] {
			t.Run(method, func(t *testing.T) { g.wantProperAnswer(t, method) })
		}
	}
}

// wantProperAnswer fails the case if an empty request to a method shows a fault.
func (g *guest) wantProperAnswer(t *testing.T, method string) {
	t.Helper()
	switch err := g.invoke(within(t), method, nil); status.Code(err) {
	case codes.Internal, codes.Unavailable, codes.Unknown, codes.DeadlineExceeded:
		if !errors.Is(err, io.EOF) {
			t.Errorf("an empty request: %v", err)
		}
	default:
	}
}

// methods is the full names of all calls of the API, from its descriptors.
func methods() []string {
	var names []string
	for _, service := range services() {
		descriptor, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(service))
		if err != nil {
			panic(err)
		}
		list := descriptor.(protoreflect.ServiceDescriptor).Methods()
		for i := range list.Len() {
			names = append(names, "/"+service+"/"+string(list.Get(i).Name()))
		}
	}
	return names
}

// serves says whether a call is served at all; it must not be a lasting one.
func (g *guest) serves(t *testing.T, method string) bool {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), patience, errPatience)
	defer cancel()
	return status.Code(g.invoke(ctx, method, nil)) != codes.Unimplemented
}
