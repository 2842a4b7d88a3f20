// Package agent is guestd as a library: the gRPC services of guestd.v1 over
// packages proc, fsapi and kernel, the listeners they are served on, who may
// call them, and the life cycle of it all.
//
// A handler converts a request, calls one of those packages, and converts the
// answer. Everything that all calls share happens in the interceptors: panics
// are contained, errors translated by one table (errors.go), malformed messages
// and missing tokens refused, and new work turned away once a shutdown has begun.
//
// The package installs no signal handler, changes nothing of its process besides
// what it opens, and talks to no supervisor: that is cmd/guestd. It does not reap
// orphans unless told to (Config.Reaper), so that a program may embed it.
//
// # Ownership
//
// An [Agent] owns its listeners, the gRPC server with its connections, the state
// folder, and the Spawner, Table, FS and Contexts behind the services.
// [Agent.Shutdown] ends all of them; nothing outlives it but what package spawn
// documents as unkillable. Each [Agent.Serve] has one goroutine a listener, which
// ends before Serve returns.
package agent
