// Package kernel runs code: with state in Jupyter kernels that it launches and
// speaks to itself, and without in a fresh process each time.
//
// A context is a place where code runs: a language, a user, a working directory
// and, for the languages that have kernels, one kernel with its variables. An
// execution is one run of one piece of code in a context; those of a context run
// one after the other, those of different contexts side by side. What happens in
// an execution is a numbered list of events, kept until ten minutes after its end,
// that any number of readers follow. What happens outside of executions, changes
// of state and late output, goes to the context's watchers.
//
// The package knows no gRPC, decides nobody's access rights and installs
// nothing. It does not share kernels with other Jupyter programs.
//
// # Who owns what
//
// [Contexts] owns the contexts and what is left of finished executions;
// [Contexts.Close] ends everything. Each context has one goroutine (an actor, see
// codeContext.loop and processContext.loop) that owns all of its state: the queue,
// the running execution, the kernel or process. It never waits for a reader of
// events, a watcher, a kernel or a process, so an interrupt or a time-out always
// gets through. A process's pipes have a pump each, and whoever lives on after its
// execution a goroutine that reads them; the context ends them all.
//
// A kernel's session has one goroutine for each connection, which only decodes and
// hands over, and one that drains stderr; the session owns the process, the
// connections and the folder of one kernel, and its close ends and removes them
// all.
//
// # Hostile kernels
//
// Code that runs in a kernel can read the kernel's key and write to its sockets.
// Frames, messages, counts and waiting times have limits, the peer's uid is
// checked, and whatever breaks the protocol costs that context its kernel and
// nothing else.
package kernel
