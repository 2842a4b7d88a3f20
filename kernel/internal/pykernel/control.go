package pykernel

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"syscall"
)

// Settings is what a kernel that was started ahead is told before user code runs
// in it.
type Settings struct {
	Dir string            `json:"cwd"` // absolute
	Env map[string]string `json:"env"` // the complete environment
}

// Answer is a kernel's answer to Settings.
type Answer struct {
	Errno syscall.Errno `json:"errno"`
	Error string        `json:"error"`
}

// Err returns what went wrong, nil if nothing did.
func (a Answer) Err() error {
	switch {
	case a.Errno != 0:
		return a.Errno
	case a.Error != "":
		return errors.New(a.Error)
	}
	return nil
}

// maxAnswer bounds a message of a kernel's, in bytes.
const maxAnswer = 64 << 10

// Send writes a message to a kernel or a fork server.
func Send(w io.Writer, message any) error {
	body, err := json.Marshal(message)
	if err != nil {
		return fmt.Errorf("encoding a message to a kernel: %w", err)
	}
	frame := binary.BigEndian.AppendUint32(nil, uint32(len(body)))
	if _, err := w.Write(append(frame, body...)); err != nil {
		return fmt.Errorf("writing to a kernel: %w", err)
	}
	return nil
}

// ErrMalformed says that what came is no message.
var ErrMalformed = errors.New("malformed message of a kernel's")

// Receive reads a message of a kernel's or a fork server's. Both are the user's:
// its size is bounded. The end of all messages is io.EOF.
func Receive(r io.Reader, message any) error {
	var length [4]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return err
	}
	size := binary.BigEndian.Uint32(length[:])
	if size > maxAnswer {
		return fmt.Errorf("%w: %d bytes", ErrMalformed, size)
	}
	body := make([]byte, size)
	if _, err := io.ReadFull(r, body); err != nil {
		return err
	}
	if err := json.Unmarshal(body, message); err != nil {
		return fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return nil
}
