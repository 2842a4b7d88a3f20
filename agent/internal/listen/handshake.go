package listen

import (
	"context"
	"errors"
	"log/slog"
	"net"

	"google.golang.org/grpc/credentials"
)

// AuthInfo is what grpc hands to calls about their connection.
type AuthInfo struct {
	credentials.CommonAuthInfo
	Kind Kind // "" for a connection that did not come through a Listener
	Peer Peer
}

// AuthType implements credentials.AuthInfo.
func (AuthInfo) AuthType() string { return "guestd-peer" }

// transportCredentials decides about a connection in grpc's handshake.
type transportCredentials struct {
	log *slog.Logger
}

// Credentials makes the server's credentials, for grpc.Creds. A connection
// accepted by a [Listener] is checked against that listener's Trust; one from
// elsewhere is taken: whoever accepted it vouches for it.
func Credentials(log *slog.Logger) credentials.TransportCredentials {
	return &transportCredentials{log: log}
}

// ServerHandshake implements credentials.TransportCredentials. grpc closes the
// connection on an error.
func (c *transportCredentials) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, ok := raw.(*acceptedConn)
	if !ok {
		return raw, AuthInfo{}, nil
	}
	peer, err := conn.listener.admit(conn.Conn)
	if err != nil {
		return nil, nil, err
	}
	// From here on the connection is used bare: its own type may do more than
	// net.Conn asks.
	return conn.Conn, AuthInfo{Kind: conn.listener.address.Kind, Peer: peer}, nil
}

// admit checks a connection's peer, and logs a refusal.
func (l *Listener) admit(conn net.Conn) (Peer, error) {
	peer, err := peerOf(l.address.Kind, conn)
	if err == nil {
		reason := l.trust.refusal(l.address.Kind, peer)
		if reason == "" {
			return peer, nil
		}
		err = &RefusedError{Peer: peer, Reason: reason}
	}
	if skipped, ok := l.refusals.allow(); ok {
		l.log.Warn("connection refused", "listener", l.address.String(), "error", err, "not_logged", skipped)
	}
	return Peer{}, err
}

var errServerOnly = errors.New("these credentials serve; they do not dial")

// ClientHandshake implements credentials.TransportCredentials; it always fails.
func (c *transportCredentials) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errServerOnly
}

// Info implements credentials.TransportCredentials.
func (c *transportCredentials) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "guestd-peer"}
}

// Clone implements credentials.TransportCredentials.
func (c *transportCredentials) Clone() credentials.TransportCredentials {
	clone := *c
	return &clone
}

// OverrideServerName implements credentials.TransportCredentials; there is no
// name to override.
func (c *transportCredentials) OverrideServerName(string) error { return nil }
