// Package wire moves gRPC messages that carry pieces of a stream - a process's
// output, a file's contents - without copying the pieces and without leaving
// garbage behind, on both ends. What goes over the connection is what grpc's own
// "proto" codec would send: the other end may be any gRPC program.
//
// [Piece] is such a message to send, [View] one to receive into, and [Codec] is
// what makes SendMsg and RecvMsg take them. Everything else goes through package
// proto, into and out of buffers from [Pool], which holds powers of two and does
// not clear them: grpc's own pool clears a megabyte for each message of 256 KiB, a
// third of a server's time when it streams.
//
// In programs built with the race detector a buffer that goes back to the Pool is
// overwritten, so that who keeps a view for too long is found out.
//
// The package knows no service and no transport. It owns no goroutine, file or
// socket.
package wire
