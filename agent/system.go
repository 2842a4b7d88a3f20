package agent

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"guestd.internal/agent/internal/codec"
	"guestd.internal/internal/outlog"
	"guestd.internal/internal/spawn"
	"guestd.internal/internal/version"
	"guestd.internal/kernel"
	"guestd.internal/proc"
	guestdv1 "guestd.internal/proto/guestd/v1"
)

// systemService serves guestd.v1.SystemService; what it does not have answers
// UNIMPLEMENTED.
type systemService struct {
	guestdv1.UnimplementedSystemServiceServer
	agent *Agent
}

// GetInfo implements guestdv1.SystemServiceServer.
func (s *systemService) GetInfo(context.Context, *guestdv1.GetInfoRequest) (*guestdv1.GetInfoResponse, error) {
	a := s.agent
	build := version.Get()
	hostName, _ := os.Hostname() // "" is what the API says for unknown
	degraded := slices.Concat(a.cfg.Degraded, a.spawner.Degraded(), a.unusable())
	user, _ := a.defaultUserName() // "" where it is unusable
	return &guestdv1.GetInfoResponse{
		Version:       build.Version,
		Commit:        build.Commit,
		ApiVersion:    "v1",
		InstanceId:    a.instanceID,
		BootId:        a.bootID,
		StartTime:     timestamppb.New(a.started),
		Features:      a.features(),
		Degraded:      degraded,
		Limits:        a.limits(),
		DefaultUser:   user,
		HostName:      hostName,
		KernelRelease: readLine("/proc/sys/kernel/osrelease"),
		Architecture:  runtime.GOARCH,
		Root:          os.Geteuid() == 0,
	}, nil
}

// unusable says which of the guest's own settings cannot be used as they are now: the guest may
// still come to have the user, for example.
func (a *Agent) unusable() []string {
	var told []string
	if _, err := a.defaultUserName(); err != nil {
		told = append(told, fmt.Sprintf("the default user cannot be resolved: %v", err))
	}
	if _, err := a.settings.template.Vars(); err != nil {
		told = append(told, fmt.Sprintf("the template's environment is left out: %v", err))
	}
	return told
}

// defaultUserName is the name of who runs what names no user, or the uid where
// there is no name.
func (a *Agent) defaultUserName() (string, error) {
	acc, err := a.accounts.Serve("", a.settings.DefaultUser())
	if err != nil {
		return "", err
	}
	if acc.Name == "" {
		return strconv.FormatUint(uint64(acc.UID), 10), nil
	}
	return acc.Name, nil
}

// features are what this version serves, and how it keeps trees of processes
// together; see spawn.Features. A name never changes its meaning.
func (a *Agent) features() []string {
	return append([]string{"process", "terminal", "file", "code", "reflection"}, a.spawner.Features()...)
}

func (a *Agent) limits() *guestdv1.Limits {
	return &guestdv1.Limits{
		MaxRequestBytes:      codec.MaxMessage,
		MaxPayloadBytes:      maxPayload,
		LogLimitBytes:        outlog.DefaultLimit,
		LogBudgetBytes:       uint64(a.budget.Limit()),
		MaxFinishedProcesses: proc.DefaultMaxFinished,
		MaxContexts:          kernel.MaxContexts,
		MaxResultBytes:       kernel.MaxResult,
		KeepFinished:         durationpb.New(proc.DefaultKeepFinished),
	}
}

// Configure implements guestdv1.SystemServiceServer. Either all of a request
// holds afterwards or nothing has changed.
func (s *systemService) Configure(_ context.Context, req *guestdv1.ConfigureRequest) (*guestdv1.ConfigureResponse, error) {
	a := s.agent
	if req.DefaultUser != nil {
		if _, err := a.accounts.Serve("", req.GetDefaultUser()); err != nil {
			return nil, err
		}
	}
	var environment *[]spawn.EnvVar
	if req.Environment != nil {
		vars, err := envVars("environment.variables", req.Environment.GetVariables())
		if err != nil {
			return nil, err
		}
		for i, v := range vars {
			if err := v.Check(); err != nil {
				return nil, invalid(fmt.Sprintf("environment.variables[%d].%s", i, strings.ToLower(err.Part)), err.Problem)
			}
		}
		environment = &vars
	}
	if req.Token != nil {
		// The call itself has brought the old one, where there is one.
		if problem := checkToken(req.GetToken()); problem != "" {
			return nil, invalid("token", problem)
		}
		a.token.set(req.GetToken())
	}
	a.settings.change(req.DefaultUser, environment)
	a.log.Info("configured", "default_user", req.DefaultUser != nil, "environment", req.Environment != nil, "token", req.Token != nil)
	return &guestdv1.ConfigureResponse{}, nil
}

// Shutdown implements guestdv1.SystemServiceServer. It answers at once.
func (s *systemService) Shutdown(_ context.Context, req *guestdv1.ShutdownRequest) (*guestdv1.ShutdownResponse, error) {
	drain := s.agent.cfg.drain()
	if req.Drain != nil {
		if err := req.Drain.CheckValid(); err != nil {
			return nil, invalid("drain", err.Error())
		}
		if drain = req.Drain.AsDuration(); drain < 0 || drain > MaxShutdown {
			return nil, invalid("drain", fmt.Sprintf("not between 0 and %v", MaxShutdown))
		}
	}
	s.agent.log.Info("shutting down", "cause", "SystemService.Shutdown")
	s.agent.beginShutdown(drain, req.GetSync())
	return &guestdv1.ShutdownResponse{}, nil
}
