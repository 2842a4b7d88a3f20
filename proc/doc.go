// Package proc runs commands for clients that come and go: with pipes or in a
// terminal, attached or not, each known by an id, each exit told to whoever asks
// within ten minutes.
//
// # The exit rule
//
// The end of the leader, a process's first process, is recorded at once and
// depends on no reader and no pipe. Each output stream then gets its exit mark:
// what was read, plus what was in the pipe when the leader ended. A reader gets
// [Exited] right after the mark of every stream, even while background children
// hold the pipes. What those write later is drained, so that they neither block nor
// get SIGPIPE, holds nobody back, and can be attached to.
//
// # Input
//
// Input is a stream of bytes with offsets, of which 1 MiB is taken in advance of
// the program. Whoever sends more waits; closing, signals and the exit never do.
// It ends with the leader: a background child then reads end of file from a pipe.
//
// # What it does not do
//
// It interprets no output (no lines, no UTF-8), knows no protocol, and sets no
// limits on memory or CPU. Starting one process, waiting for it and killing its
// tree is package spawn; keeping output is package outlog.
//
// # Ownership
//
// A [Table] owns its processes. Each [Process] has one goroutine that supervises
// it, which starts when the goroutine that has started the process does not wait for
// its end any longer, one for each output stream (two with pipes, one in a terminal or with
// merged output), and for as long as they are needed one that writes input and
// one that ends the tree after a time-out. They end when the leader has ended and
// its streams are closed by all who hold them; [Table.Close] ends them all. A
// process owns the files of its pipes or its terminal's master. An [Attachment]
// has no goroutine: it works in the calls of whoever holds it, who must Close
// or Detach it.
package proc
