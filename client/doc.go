// Package client is the host's side of guestd: it dials a guest over every transport that guestd
// listens on and offers its commands, terminals, files and code as plain Go calls with io.Reader
// and io.Writer.
//
// A Client is one connection to one guest. It is made with Dial, connects when it is first used,
// reconnects by itself, and is safe for concurrent use. Commands are run in the manner of os/exec
// (Command, Cmd.Run, Cmd.Wait, ExitError), files are read and written in the manner of os (Open,
// Create, Stat, List), code is run with Execute. Errors are Go's own wherever Go has one:
// errors.Is(err, fs.ErrNotExist), errors.Is(err, exec.ErrNotFound) and the like hold across the
// connection; see Error.
//
// A command survives its connection. The client acknowledges output only once the user's writers
// have taken it, keeps input until guestd has it, and after a break attaches again at exactly these
// offsets, so that no byte is lost or doubled.
//
// What the package does not do: it starts no guest and no guestd, reads no environment variable and
// no configuration file, logs nothing, and repeats no call that changes something unless guestd can
// tell that it is a repetition.
//
// Goroutines: the connection's belong to the Client and end with Close. A started Cmd or Attachment
// owns up to three (events, input, requests); they end before Wait returns, save for the one that
// reads the user's Stdin, which ends when that Read does. An Execution owns one at a time, which
// acknowledges and ends before Events does. Readers, writers and watchers own none.
package client
