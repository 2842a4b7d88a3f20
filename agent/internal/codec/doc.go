// Package codec turns gRPC messages into Protocol Buffers and back for guestd's
// server: as package wire does, but a message that does not parse is no fault of
// the server. grpc would answer INTERNAL before any interceptor runs; [Codec]
// instead hands over an empty message that carries what was wrong with it, and
// [FaultOf] tells the interceptor, which answers INVALID_ARGUMENT and names the
// field.
//
// The package knows no service and no transport. It owns no goroutine, file or
// socket.
package codec
