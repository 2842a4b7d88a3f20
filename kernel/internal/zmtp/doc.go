// Package zmtp carries ZMTP 3.0 messages over one connection whose peer may be
// hostile.
//
// The protocol itself (greeting, READY, framing) is github.com/go-zeromq/zmq4,
// used at its connection layer, [zmq4.Open]. Its socket layer is not used: it
// allocates whatever size a peer announces, has no deadline on a handshake and
// leaks goroutines when a peer goes away. This package puts a guard between
// zmq4 and the network connection. The guard buffers in both directions, checks
// every frame header before zmq4 sees it, bounds frames and messages, gives
// handshakes, writes and half-arrived frames deadlines, and turns zmq4's panics
// on malformed metadata into errors.
//
// The package does not dial, reconnect, route, queue or interpret messages.
// End of file is final: a caller that wants to go on makes a new connection.
//
// A [Conn] owns the network connection that it was opened on, and closes it. It
// starts no goroutines: Send runs on the callers' goroutines, one at a time, and
// Recv on the goroutine of its only reader.
package zmtp
