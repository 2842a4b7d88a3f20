package client

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/experimental"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"

	"guestd.internal/internal/wire"
	guestdv1 "guestd.internal/proto/guestd/v1"
)

// The connection's settings, the same as guestd's own: windows that hold a round trip's worth of
// bytes, pieces large enough to make frames cheap, and a Unix socket that holds some of them.
const (
	windowBytes     = 4 << 20
	bufferBytes     = 256 << 10
	socketBytes     = 1 << 20
	chunkBytes      = wire.PieceSize
	maxMessageBytes = 8 << 20
	keepAliveTime   = 10 * time.Second
	keepAliveWait   = 5 * time.Second
)

// bootPatience is how long calls to a virtual machine wait while nothing listens in it, unless
// WithConnectTimeout says otherwise.
const bootPatience = 5 * time.Second

// Client is a connection to one guest's guestd. It is safe for concurrent use.
type Client struct {
	target target
	conn   *grpc.ClientConn
	watch  func(error)

	processes guestdv1.ProcessServiceClient
	files     guestdv1.FileServiceClient
	code      guestdv1.CodeServiceClient
	system    guestdv1.SystemServiceClient
	health    healthpb.HealthClient
}

type config struct {
	token          string
	connectTimeout *time.Duration
	watch          func(error)
}

// Option changes how Dial makes a Client.
type Option func(*config)

// WithToken sends a token with every call, as "authorization: Bearer TOKEN", on every transport;
// vsock and Unix sockets do not leave the machine, and whoever uses TCP has to see to it that
// nobody listens in. An empty token is none.
func WithToken(token string) Option {
	return func(c *config) { c.token = token }
}

// WithConnectTimeout sets how long a call waits for a connection while nothing listens at the
// target: 5 s by default for vsock and Firecracker, whose guest may still be booting, and not at
// all for Unix sockets and TCP. WaitReady waits longer.
func WithConnectTimeout(d time.Duration) Option {
	return func(c *config) { c.connectTimeout = &d }
}

// WithConnectionWatch calls watch when a process or an execution that is followed loses its connection,
// with what it broke with, and with nil when it is followed again or given up. Each that is followed
// tells for itself, from goroutines of its own; watch must not block.
func WithConnectionWatch(watch func(lost error)) Option {
	return func(c *config) { c.watch = watch }
}

// Dial makes a Client for a target:
//
//	vsock://CID:PORT                a virtual machine's vsock, from its host
//	unix:///PATH                    a Unix socket
//	firecracker:///PATH?port=PORT   the host-side Unix socket of Firecracker, cloud-hypervisor or vhost-device-vsock; port 5005 if left out
//	tcp://HOST:PORT                 TCP
//
// It fails only for a target that is malformed: the connection is made when it is first needed.
func Dial(target string, options ...Option) (*Client, error) {
	cfg := configOf(options)
	to, conn, err := connect(target, cfg)
	if err != nil {
		return nil, err
	}
	return &Client{
		target:    to,
		conn:      conn,
		watch:     cfg.watch,
		processes: guestdv1.NewProcessServiceClient(conn),
		files:     guestdv1.NewFileServiceClient(conn),
		code:      guestdv1.NewCodeServiceClient(conn),
		system:    guestdv1.NewSystemServiceClient(conn),
		health:    healthpb.NewHealthClient(conn),
	}, nil
}

// Connect makes the connection of Dial alone, for programs that use the generated stubs themselves.
// They close it.
func Connect(target string, options ...Option) (*grpc.ClientConn, error) {
	_, conn, err := connect(target, configOf(options))
	return conn, err
}

func configOf(options []Option) config {
	cfg := config{watch: func(error) {}}
	for _, option := range options {
		option(&cfg)
	}
	return cfg
}

func connect(text string, cfg config) (target, *grpc.ClientConn, error) {
	to, err := parseTarget(text)
	if err != nil {
		return target{}, nil, err
	}
	d := &dialer{target: to, patience: cfg.patience(to)}
	conn, err := grpc.NewClient("passthrough:///guestd", dialOptions(d, cfg)...)
	if err != nil {
		return target{}, nil, fmt.Errorf("preparing the connection to %s: %w", to, err)
	}
	return to, conn, nil
}

func (c config) patience(to target) time.Duration {
	switch {
	case c.connectTimeout != nil:
		return *c.connectTimeout
	case to.transport == transportVsock, to.transport == transportFirecracker:
		return bootPatience
	default:
		return 0
	}
}

func dialOptions(d *dialer, cfg config) []grpc.DialOption {
	options := []grpc.DialOption{
		grpc.WithContextDialer(d.dial),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDisableServiceConfig(),
		grpc.WithInitialWindowSize(windowBytes),
		grpc.WithInitialConnWindowSize(windowBytes),
		grpc.WithReadBufferSize(bufferBytes),
		grpc.WithWriteBufferSize(bufferBytes),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessageBytes), grpc.ForceCodecV2(wire.Codec{})),
		experimental.WithBufferPool(wire.Pool),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{
			Time: keepAliveTime, Timeout: keepAliveWait, PermitWithoutStream: true,
		}),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: minBackoff, Multiplier: 2, MaxDelay: maxBackoff},
			MinConnectTimeout: d.patience + handshakeTimeout,
		}),
	}
	if cfg.token != "" {
		options = append(options, grpc.WithPerRPCCredentials(bearer(cfg.token)))
	}
	return options
}

// bearer is a token that goes with each call.
type bearer string

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(b)}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials: none of guestd's transports
// has any of its own.
func (b bearer) RequireTransportSecurity() bool { return false }

// Target gives the target in its full form.
func (c *Client) Target() string { return c.target.String() }

// Close ends the connection. Calls in flight end with context.Canceled; processes in the guest go
// on as their OnDisconnect says.
func (c *Client) Close() error { return c.conn.Close() }

// WaitReady waits until guestd serves, however long nothing listens, and until ctx is done.
func (c *Client) WaitReady(ctx context.Context) error {
	backoff := minBackoff
	for {
		status, err := c.check(ctx, "", grpc.WaitForReady(true))
		if err == nil && status == Serving {
			return nil
		}
		if err == nil {
			err = fmt.Errorf("guestd is %s", status)
		}
		if final(err) || !pause(ctx, backoff) {
			return fmt.Errorf("waiting for %s: %w", c.target, withCause(ctx, err))
		}
		backoff = min(2*backoff, maxBackoff)
	}
}
