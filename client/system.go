package client

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	guestdv1 "guestd.internal/proto/guestd/v1"
)

// Health is whether guestd, or one of its services, serves.
type Health string

// The states of grpc.health.v1.
const (
	Serving        Health = "SERVING"
	NotServing     Health = "NOT_SERVING"
	UnknownHealth  Health = "UNKNOWN"
	ServiceUnknown Health = "SERVICE_UNKNOWN"
)

// Health asks whether a service serves, named in full (e.g. "guestd.v1.ProcessService"); the empty
// name is guestd as a whole. It needs no token. Of a service that guestd does not have the answer is an
// error and ServiceUnknown.
func (c *Client) Health(ctx context.Context, service string) (Health, error) {
	return c.check(ctx, service)
}

func (c *Client) check(ctx context.Context, service string, options ...grpc.CallOption) (Health, error) {
	response, err := c.health.Check(ctx, &healthpb.HealthCheckRequest{Service: service}, options...)
	if status.Code(err) == codes.NotFound {
		return ServiceUnknown, fromCall(ctx, err)
	}
	if err != nil {
		return UnknownHealth, fromCall(ctx, err)
	}
	return Health(response.GetStatus().String()), nil
}

// Info describes guestd and its guest. Its fields are those of the proto's GetInfoResponse, where
// each is documented.
type Info struct {
	Version, Commit, APIVersion           string
	InstanceID, BootID                    string
	StartTime                             time.Time
	Features                              []string
	Degraded                              []string
	Limits                                Limits
	DefaultUser                           string
	HostName, KernelRelease, Architecture string
	Root                                  bool
	Generation                            string
}

// Limits are guestd's own limits; sizes are in bytes.
type Limits struct {
	MaxRequestBytes, MaxPayloadBytes, LogLimitBytes, LogBudgetBytes, MaxResultBytes uint64
	MaxFinishedProcesses, MaxContexts                                               uint32
	KeepFinished                                                                    time.Duration
}

// Info asks guestd who and where it is.
func (c *Client) Info(ctx context.Context) (*Info, error) {
	r, err := c.system.GetInfo(ctx, &guestdv1.GetInfoRequest{})
	if err != nil {
		return nil, fromCall(ctx, err)
	}
	l := r.GetLimits()
	return &Info{
		Version: r.GetVersion(), Commit: r.GetCommit(), APIVersion: r.GetApiVersion(),
		InstanceID: r.GetInstanceId(), BootID: r.GetBootId(),
		StartTime: timeOf(r.GetStartTime()),
		Features:  r.GetFeatures(), Degraded: r.GetDegraded(),
		Limits: Limits{
			MaxRequestBytes: l.GetMaxRequestBytes(), MaxPayloadBytes: l.GetMaxPayloadBytes(),
			LogLimitBytes: l.GetLogLimitBytes(), LogBudgetBytes: l.GetLogBudgetBytes(), MaxResultBytes: l.GetMaxResultBytes(),
			MaxFinishedProcesses: l.GetMaxFinishedProcesses(), MaxContexts: l.GetMaxContexts(),
			KeepFinished: l.GetKeepFinished().AsDuration(),
		},
		DefaultUser: r.GetDefaultUser(),
		HostName:    r.GetHostName(), KernelRelease: r.GetKernelRelease(), Architecture: r.GetArchitecture(),
		Root: r.GetRoot(), Generation: r.GetGeneration(),
	}, nil
}

// ShutdownOptions changes how guestd ends; nil means all defaults.
type ShutdownOptions struct {
	// Drain is how long running calls get to end by themselves; nil is what guestd was started with.
	Drain *time.Duration
	// Sync flushes file systems at the end.
	Sync bool
}

// Shutdown asks guestd to end in order; it returns when the shutdown has begun.
func (c *Client) Shutdown(ctx context.Context, options *ShutdownOptions) error {
	request := &guestdv1.ShutdownRequest{}
	if options != nil {
		request.Sync = options.Sync
		if options.Drain != nil {
			request.Drain = durationpb.New(*options.Drain)
		}
	}
	_, err := c.system.Shutdown(ctx, request)
	return fromCall(ctx, err)
}
