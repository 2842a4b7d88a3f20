// Package listen opens the sockets that guestd serves on and decides who may
// connect to each.
//
// A vsock listener takes peers by their context id, a Unix socket by the uid and
// pid that the kernel vouches for, a TCP listener takes everybody and leaves the
// rest to the token. The decision is made in grpc's handshake, through
// [Credentials]: on the connection's own goroutine and under its deadline, so
// that the accept loop does nothing but accept. Who is refused is closed without
// an answer and logged, so many lines a minute at most.
//
// The package speaks no gRPC besides that handshake, knows no token and starts
// no goroutine. A [Listener] owns its socket and, for Unix sockets, the socket's
// file: Close gives back both.
package listen
