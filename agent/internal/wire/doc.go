// Package wire turns gRPC messages into Protocol Buffers and back for guestd's
// server: byte for byte what grpc's own "proto" codec does, with three
// differences.
//
// A message that does not parse is no fault of the server. grpc would answer
// INTERNAL before any interceptor runs; [Codec] instead hands over an empty
// message that carries what was wrong with it, and [FaultOf] tells the
// interceptor, which answers INVALID_ARGUMENT and names the field.
//
// What a stream's piece holds is not copied: see [Piece].
//
// Buffers come from [Pool], which holds powers of two and does not clear them:
// grpc's own pool clears a megabyte for each message of 256 KiB, a third of a
// server's time when it streams.
//
// The package knows no service and no transport. It owns no goroutine, file or
// socket.
package wire
