package agent

import (
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/experimental"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	"guestd.internal/agent/internal/codec"
	"guestd.internal/agent/internal/listen"
	"guestd.internal/internal/wire"
	guestdv1 "guestd.internal/proto/guestd/v1"
)

const (
	// handshakeTimeout is how long a connection may take to be checked and to send
	// HTTP/2's preface.
	handshakeTimeout = 10 * time.Second

	// The windows are fixed, since what connects is near: an estimate would only
	// have to grow to them. One window is sixteen pieces of a file or stream.
	windowSize = 4 << 20
	// bufferSize is grpc's buffer for reading and for writing, for a connection
	// each; smaller ones cost system calls.
	bufferSize = 256 << 10
	// maxHeaders bounds a call's headers, the token among them, in bytes.
	maxHeaders = 32 << 10

	// A peer that does not answer a ping for keepaliveTimeout after keepaliveTime
	// without a sound is gone: after a snapshot is restored, connections die without
	// a word.
	keepaliveTime    = 10 * time.Second
	keepaliveTimeout = 5 * time.Second
	minClientPing    = 2 * time.Second
)

// newServer makes the gRPC server, without services.
func (a *Agent) newServer() *grpc.Server {
	return grpc.NewServer(
		grpc.Creds(listen.Credentials(a.log)),
		grpc.ForceServerCodecV2(codec.Codec{}),
		experimental.BufferPool(wire.Pool),
		grpc.MaxRecvMsgSize(codec.HardLimit),
		grpc.MaxHeaderListSize(maxHeaders),
		grpc.StaticStreamWindowSize(windowSize),
		grpc.StaticConnWindowSize(windowSize),
		grpc.ReadBufferSize(bufferSize),
		grpc.WriteBufferSize(bufferSize),
		grpc.ConnectionTimeout(handshakeTimeout),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: keepaliveTime, Timeout: keepaliveTimeout}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: minClientPing, PermitWithoutStream: true}),
		grpc.InTapHandle(a.tap),
		grpc.UnaryInterceptor(a.interceptUnary),
		grpc.StreamInterceptor(a.interceptStream),
	)
}

// register puts every service on the server.
func (a *Agent) register() {
	own := registrar{a}
	guestdv1.RegisterSystemServiceServer(own, &systemService{agent: a})
	guestdv1.RegisterProcessServiceServer(own, newProcessService(a.processes, a.instanceID))
	guestdv1.RegisterFileServiceServer(own, newFileService(a.files))
	guestdv1.RegisterCodeServiceServer(own, newCodeService(a.contexts))
	a.health = health.NewServer()
	for name := range a.server.GetServiceInfo() {
		a.health.SetServingStatus(name, healthv1.HealthCheckResponse_SERVING)
	}
	healthv1.RegisterHealthServer(a.server, a.health)
	reflection.Register(a.server)
}
