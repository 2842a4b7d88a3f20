package zmtp

import (
	"fmt"
	"io"

	"github.com/go-zeromq/zmq4"
)

// nullSecurity is the NULL mechanism (https://rfc.zeromq.org/spec/23/), which
// zmq4 does not export: both ends send READY with their metadata, nothing is
// encrypted.
type nullSecurity struct{}

var _ zmq4.Security = nullSecurity{}

// Type implements zmq4.Security.
func (nullSecurity) Type() zmq4.SecurityType { return zmq4.NullSecurity }

// Handshake exchanges READY.
func (nullSecurity) Handshake(conn *zmq4.Conn, _ bool) error {
	ready, err := conn.Meta.MarshalZMTP()
	if err != nil {
		return fmt.Errorf("encoding READY: %w", err)
	}
	if err := conn.SendCmd(zmq4.CmdReady, ready); err != nil {
		return fmt.Errorf("sending READY: %w", err)
	}
	cmd, err := conn.RecvCmd()
	if err != nil {
		return fmt.Errorf("receiving READY: %w", err)
	}
	if cmd.Name != zmq4.CmdReady {
		return fmt.Errorf("%w: %q instead of READY", ErrProtocol, cmd.Name)
	}
	if err := conn.Peer.Meta.UnmarshalZMTP(cmd.Body); err != nil {
		return fmt.Errorf("%w: decoding READY: %w", ErrProtocol, err)
	}
	return nil
}

// Encrypt changes nothing.
func (nullSecurity) Encrypt(w io.Writer, data []byte) (int, error) { return w.Write(data) }

// Decrypt changes nothing.
func (nullSecurity) Decrypt(w io.Writer, data []byte) (int, error) { return w.Write(data) }
