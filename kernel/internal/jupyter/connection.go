package jupyter

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
)

// Channel is one of a kernel's sockets. Its number is the "port" that the
// connection file gives it, which ends the socket file's name.
type Channel int

// A kernel's channels.
const (
	Shell Channel = 1 + iota
	IOPub
	Stdin
	Control
	Heartbeat
)

// maxSocketPath is what sockaddr_un holds, less the final NUL (unix(7)).
const maxSocketPath = 107

// Connection says where a kernel's sockets are and how its messages are signed.
type Connection struct {
	dir string
	key string
}

// prefix is how the names of the sockets' files begin.
const prefix = "/k"

// NewConnection returns a connection over Unix sockets in dir, with a fresh key
// of 32 random bytes. dir is too long when its socket paths do not fit into a
// socket address.
func NewConnection(dir string) (Connection, error) {
	var key [32]byte
	_, _ = rand.Read(key[:]) // never fails, says its documentation
	c := Connection{dir: dir, key: hex.EncodeToString(key[:])}
	if path := c.Path(Heartbeat); len(path) > maxSocketPath {
		return Connection{}, fmt.Errorf("socket path %q has %d bytes, more than the %d of a Unix socket address", path, len(path), maxSocketPath)
	}
	return c, nil
}

// Path is the file of a channel's socket.
func (c Connection) Path(channel Channel) string {
	return fmt.Sprintf("%s%s-%d", c.dir, prefix, channel) // ipykernel: "{ip}-{port}"
}

// Codec returns a codec for the connection's messages.
func (c Connection) Codec() *Codec { return NewCodec(c.key) }

// File returns the connection file, which tells a kernel all this. seen is the path
// by which the kernel finds the folder of the sockets.
func (c Connection) File(kernelName, seen string) ([]byte, error) {
	data, err := json.Marshal(map[string]any{
		"transport":        "ipc",
		"ip":               seen + prefix,
		"shell_port":       Shell,
		"iopub_port":       IOPub,
		"stdin_port":       Stdin,
		"control_port":     Control,
		"hb_port":          Heartbeat,
		"key":              c.key,
		"signature_scheme": "hmac-sha256",
		"kernel_name":      kernelName,
	})
	if err != nil {
		return nil, fmt.Errorf("encoding the connection file: %w", err)
	}
	return data, nil
}
