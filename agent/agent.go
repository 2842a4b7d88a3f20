package agent

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"

	"guestd.internal/agent/internal/listen"
	"guestd.internal/fsapi"
	"guestd.internal/internal/account"
	"guestd.internal/internal/outlog"
	"guestd.internal/internal/spawn"
	"guestd.internal/internal/sysmon"
	"guestd.internal/kernel"
	"guestd.internal/proc"
)

// An Agent is one guestd: a guest's processes, files and code, and the server
// that gives access to them. It is safe for concurrent use.
type Agent struct {
	cfg        Config
	log        *slog.Logger
	started    time.Time
	instanceID string
	bootID     string

	token     tokenGuard
	strangers strangers
	settings  settings
	gate      gate

	processors processors

	state     *stateFolder
	accounts  *account.DB
	spawner   *spawn.Spawner
	budget    *outlog.Budget
	processes *proc.Table
	files     *fsapi.FS
	contexts  *kernel.Contexts

	server         *grpc.Server
	health         *health.Server
	requestTimeout time.Duration

	// serving ends when calls that are still there at a shutdown are to end.
	serving     context.Context
	stopServing context.CancelCauseFunc

	ready    chan struct{} // closed when Serve has opened all listeners
	shutdown shutdown
}

// New makes an Agent, which listens nowhere yet. It must be shut down. The error
// is a *ConfigError, or says what could not be opened.
func New(cfg Config) (*Agent, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	a := &Agent{
		cfg:        cfg,
		log:        cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler)),
		started:    time.Now(),
		instanceID: newInstanceID(),
		bootID:     readLine("/proc/sys/kernel/random/boot_id"),
		accounts:   account.Open(""),
		ready:      make(chan struct{}),

		requestTimeout: requestTimeout,
	}
	a.settings.defaultUser = cfg.DefaultUser
	a.settings.template = spawn.NewEnvironmentFile(cmp.Or(cfg.EnvironmentFile, spawn.EnvironmentPath))
	a.budget = outlog.NewBudget(machineMemory())
	a.serving, a.stopServing = context.WithCancelCause(context.Background())
	a.shutdown.init()
	if cfg.TokenFile != "" {
		token, err := readTokenFile(cfg.TokenFile)
		if err != nil {
			return nil, &ConfigError{"TokenFile", err.Error()}
		}
		a.token.set(token)
	}
	if err := a.openDomains(); err != nil {
		return nil, errors.Join(err, a.closeResources())
	}
	for _, what := range a.unusable() {
		a.log.Warn("guestd is degraded", "what", what)
	}
	a.server = a.newServer()
	a.register()
	a.tuneRuntime()
	return a, nil
}

// tuneRuntime fits the Go runtime to what it has to do here, where the process is guestd's.
func (a *Agent) tuneRuntime() {
	if a.cfg.SysmonSlack > 0 {
		if err := sysmon.Calm(a.cfg.SysmonSlack); err != nil {
			a.log.Debug("short commands take a little longer", "error", err)
		}
	}
	if a.cfg.AdaptProcessors {
		a.processors.start(setProcessors)
	}
}

// openDomains opens what the services work on. What was opened before an error is
// closeResources' to close.
func (a *Agent) openDomains() (err error) {
	if a.state, err = openState(a.cfg.StateDir); err != nil {
		return err
	}
	a.spawner, err = spawn.New(spawn.Config{Logger: a.log, CgroupRoot: a.cfg.CgroupRoot, Reaper: a.cfg.Reaper})
	if err != nil {
		return fmt.Errorf("preparing to start processes: %w", err)
	}
	a.files = fsapi.New(fsapi.Config{Accounts: a.accounts, DefaultUser: a.settings.DefaultUser, Logger: a.log})
	a.contexts, err = kernel.New(kernel.Config{
		Spawner: a.spawner, Accounts: a.accounts, StateDir: a.state.path, Logger: a.log,
		DefaultUser: a.settings.DefaultUser, Environment: a.settings.Environment,
		ColdStart: a.cfg.ColdStart,
	})
	if err != nil {
		return fmt.Errorf("preparing to run code: %w", err)
	}
	a.processes = proc.NewTable(proc.Config{
		Spawner: a.spawner, Accounts: a.accounts, Logger: a.log, Budget: a.budget,
		DefaultUser: a.settings.DefaultUser, Environment: a.settings.Environment,
	})
	return nil
}

// closeResources closes what is left when processes and contexts are closed, or
// were never made.
func (a *Agent) closeResources() error {
	a.stopServing(errShuttingDown)
	a.processors.close()
	var errs []error
	if a.spawner != nil {
		errs = append(errs, a.spawner.Close())
	}
	if a.state != nil {
		errs = append(errs, a.state.close())
	}
	return errors.Join(errs...)
}

// InstanceID is this Agent's name: 32 hexadecimal digits, never used again.
func (a *Agent) InstanceID() string { return a.instanceID }

// Serve opens the configured listeners and serves on them until ctx ends or
// Shutdown is called; then it shuts down, which takes MaxShutdown at most, and
// returns. It is called once. The error says what could not be listened on, that a
// listener broke, or what went wrong at the shutdown.
func (a *Agent) Serve(ctx context.Context) error {
	listeners, err := a.openListeners()
	if err != nil {
		return errors.Join(err, a.Shutdown(ctx))
	}
	failed := make(chan error, len(listeners))
	var serving sync.WaitGroup
	for _, l := range listeners {
		serving.Go(func() {
			if err := a.server.Serve(l); err != nil {
				failed <- fmt.Errorf("serving on %s: %w", l.Addr(), err)
			}
		})
		a.log.Info("listening", "address", l.String())
	}
	close(a.ready)
	serving.Go(a.prewarm)
	select {
	case <-ctx.Done():
		a.log.Info("shutting down", "cause", context.Cause(ctx))
	case <-a.shutdown.begun:
	case err = <-failed:
		a.log.Error("shutting down", "cause", err)
	}
	err = errors.Join(err, a.Shutdown(context.WithoutCancel(ctx)))
	if !a.shutdown.gaveUp {
		serving.Wait()
	}
	return err
}

// prewarm makes Python kernels ready, if that is wanted. A shutdown ends it.
func (a *Agent) prewarm() {
	n := a.cfg.PrewarmPython
	if n <= 0 {
		return
	}
	if err := a.contexts.Prewarm(n); err != nil {
		a.log.Warn("no Python kernel is ready ahead", "error", err)
	}
}

// Ready is closed when Serve has opened every listener: from then on requests are
// answered.
func (a *Agent) Ready() <-chan struct{} { return a.ready }

// ServeListener serves on l, which it closes, until the Agent is shut down. Who
// connects is trusted: that is the caller's affair. A token, where there is one,
// is demanded all the same.
func (a *Agent) ServeListener(l net.Listener) error {
	err := a.server.Serve(l)
	if errors.Is(err, grpc.ErrServerStopped) {
		return nil
	}
	return err
}

// openListeners opens all listeners or none.
func (a *Agent) openListeners() ([]*listen.Listener, error) {
	addresses, err := a.cfg.addresses()
	if err != nil {
		return nil, err
	}
	var listeners []*listen.Listener
	for _, address := range addresses {
		l, err := listen.Open(address, a.cfg.trust(), a.log)
		if err != nil {
			for _, l := range listeners {
				err = errors.Join(err, l.Close())
			}
			return nil, err
		}
		listeners = append(listeners, l)
	}
	return listeners, nil
}

// machineMemory is the machine's memory in bytes.
func machineMemory() uint64 {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return 0 // cannot fail; the logs would live on their minimum
	}
	return uint64(info.Totalram) * uint64(info.Unit)
}

func newInstanceID() string {
	var raw [16]byte
	rand.Read(raw[:])
	return hex.EncodeToString(raw[:])
}

// readLine is the contents of a file of one line, "" where it cannot be read.
func readLine(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}
