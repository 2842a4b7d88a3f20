// Guestd is the execution daemon inside a sandbox: it runs commands, terminals,
// files and code for a host that drives it over gRPC. Run it with --help.
//
// This program turns flags into an agent.Config, signals into an orderly end, and
// tells a supervisor how it goes. What it does to its own process (not dumpable,
// out of the out-of-memory killer's way, on one processor while there is one call
// at most, unless GOMAXPROCS is set) is done or asked for here too, since a program
// that embeds package agent must not have it done to itself.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"guestd.internal/agent"
	"guestd.internal/internal/version"
)

// Exit codes.
const (
	exitFailure = 1 // guestd could not start, or not end in order
	exitUsage   = 2 // the command line is wrong
)

// sysmonSlack is longer than a short command takes, and still little for what happens to
// wait for sysmon.
const sysmonSlack = time.Millisecond

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run is main with its surroundings, and returns the exit code.
func run(args []string, stdout, stderr io.Writer) int {
	opts, err := parseFlags(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(stdout, helpText())
		return 0
	case err != nil:
		fmt.Fprintf(stderr, "guestd: %v\nSee guestd --help.\n", err)
		return exitUsage
	case opts.version:
		fmt.Fprintln(stdout, "guestd", version.String())
		return 0
	}
	log := newLogger(stderr, opts.logLevel, opts.logFormat)
	opts.config.Logger = log
	opts.config.Degraded = harden(log)
	opts.config.SysmonSlack = sysmonSlack
	opts.config.AdaptProcessors = os.Getenv("GOMAXPROCS") == "" // else somebody has decided
	if err := serve(opts.config, log); err != nil {
		log.Error("guestd ends", "error", describe(err))
		return exitFailure
	}
	return 0
}

// serve runs an agent until a signal or a call ends it.
func serve(cfg agent.Config, log *slog.Logger) error {
	signals := make(chan os.Signal, 2)
	for _, s := range []os.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP} {
		if !signal.Ignored(s) { // as after nohup: whoever started guestd does not want it to end
			signal.Notify(signals, s)
		}
	}
	defer signal.Stop(signals)
	a, err := agent.New(cfg)
	if err != nil {
		return err
	}
	log.Info("guestd starts", "version", version.String(), "instance", a.InstanceID(), "uid", os.Geteuid())
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	ended := make(chan struct{})
	var followers sync.WaitGroup
	followers.Go(func() { obeySignals(signals, a, cancel, ended) })
	followers.Go(func() { newNotifier(log).follow(a, ended) })
	err = a.Serve(ctx)
	close(ended)
	followers.Wait()
	return err
}

// signalError is the cause of an end that a signal asked for.
type signalError struct{ signal os.Signal }

func (e *signalError) Error() string { return "received " + e.signal.String() }

// obeySignals ends the agent in order at the first signal, and at once at the
// second.
func obeySignals(signals <-chan os.Signal, a *agent.Agent, end context.CancelCauseFunc, ended <-chan struct{}) {
	for {
		select {
		case s := <-signals:
			end(&signalError{s})
		case <-ended:
			return
		}
		select {
		case s := <-signals:
			atOnce, cancel := context.WithCancelCause(context.Background())
			cancel(&signalError{s})
			a.Shutdown(atOnce) //nolint:errcheck // Serve returns the same error
		case <-ended:
			return
		}
	}
}

// describe names the flag for a setting that is wrong, and for each that could right it.
func describe(err error) string {
	if e, ok := errors.AsType[*agent.ConfigError](err); ok {
		if name, ok := flagNames[e.Field]; ok {
			problem := e.Problem
			for field, name := range flagNames {
				problem = strings.ReplaceAll(problem, "set "+field, "set --"+name)
			}
			return fmt.Sprintf("--%s: %s", name, problem)
		}
	}
	return err.Error()
}
