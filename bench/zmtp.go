package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// A ZMTP frame's flags (https://rfc.zeromq.org/spec/23/).
const (
	flagMore    = 1
	flagLong    = 2
	flagCommand = 4
)

// greetingBytes is the size of a ZMTP 3 greeting.
const greetingBytes = 64

// wireConn is a ZMTP 3.0 connection with nothing around it. It believes its peer.
type wireConn struct {
	net.Conn
	in  *bufio.Reader
	out []byte // the message being written
}

// dialWire connects and does the handshake as a socket of the given type.
func dialWire(path, socketType string) (*wireConn, error) {
	conn, err := net.Dial("unix", path)
	if err != nil {
		return nil, err
	}
	c := &wireConn{Conn: conn, in: bufio.NewReaderSize(conn, 64<<10)}
	if err := c.handshake(socketType); err != nil {
		_ = conn.Close() // the handshake's error is the one that matters
		return nil, fmt.Errorf("speaking ZMTP to %s: %w", path, err)
	}
	return c, nil
}

// handshake exchanges greetings (version 3.0, mechanism NULL) and READY.
func (c *wireConn) handshake(socketType string) error {
	if err := c.SetDeadline(time.Now().Add(leanPatience)); err != nil {
		return err
	}
	greeting := make([]byte, greetingBytes)
	greeting[0], greeting[9], greeting[10] = 0xff, 0x7f, 3
	copy(greeting[12:], "NULL")
	const property = "Socket-Type"
	ready := []byte("\x05READY" + string(rune(len(property))) + property)
	ready = binary.BigEndian.AppendUint32(ready, uint32(len(socketType)))
	ready = append(ready, socketType...)
	greeting = append(greeting, flagCommand, byte(len(ready)))
	if _, err := c.Conn.Write(append(greeting, ready...)); err != nil {
		return err
	}
	if _, err := io.ReadFull(c.in, make([]byte, greetingBytes)); err != nil {
		return err
	}
	flags, body, err := c.frame()
	if err == nil && flags&flagCommand == 0 {
		err = fmt.Errorf("%q instead of READY", body)
	}
	return errors.Join(err, c.SetDeadline(time.Time{}))
}

// write sends one message by one system call.
func (c *wireConn) write(frames ...[]byte) error {
	c.out = c.out[:0]
	for i, frame := range frames {
		var flags byte
		if i < len(frames)-1 {
			flags = flagMore
		}
		if len(frame) < 256 {
			c.out = append(c.out, flags, byte(len(frame)))
		} else {
			c.out = binary.BigEndian.AppendUint64(append(c.out, flags|flagLong), uint64(len(frame)))
		}
		c.out = append(c.out, frame...)
	}
	_, err := c.Conn.Write(c.out)
	return err
}

// read waits for one message, leaving commands out.
func (c *wireConn) read(patience time.Duration) (leanMessage, error) {
	if c.in.Buffered() == 0 {
		if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
			return nil, err
		}
	}
	var message leanMessage
	for {
		flags, body, err := c.frame()
		if err != nil {
			return nil, err
		}
		if flags&flagCommand != 0 {
			continue
		}
		if message = append(message, body); flags&flagMore == 0 {
			return message, nil
		}
	}
}

func (c *wireConn) frame() (flags byte, body []byte, err error) {
	if flags, err = c.in.ReadByte(); err != nil {
		return 0, nil, err
	}
	var size uint64
	if flags&flagLong == 0 {
		short, err := c.in.ReadByte()
		if err != nil {
			return 0, nil, err
		}
		size = uint64(short)
	} else {
		var long [8]byte
		if _, err := io.ReadFull(c.in, long[:]); err != nil {
			return 0, nil, err
		}
		size = binary.BigEndian.Uint64(long[:])
	}
	body = make([]byte, size)
	_, err = io.ReadFull(c.in, body)
	return flags, body, err
}
