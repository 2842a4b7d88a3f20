package client

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"
)

// maxAcknowledgement bounds the line with which the monitor answers CONNECT: "OK ", ten digits and
// a line end are 14 bytes.
const maxAcknowledgement = 64

// errNothingListens tells that the guest's kernel runs but nobody listens on the port yet: the
// monitor closes the connection before its OK. It passes by itself once guestd is up.
var errNothingListens = errors.New("nothing listens on the guest's port yet")

// handshake asks a monitor's host-side vsock socket for a connection to a guest's port, as
// Firecracker documents it ("CONNECT PORT\n", answered with "OK HOST_PORT\n"); cloud-hypervisor and
// vhost-device-vsock speak it too. On success the next byte that conn delivers is guestd's first.
func handshake(conn net.Conn, port uint32, deadline time.Time) error {
	if err := conn.SetDeadline(deadline); err != nil {
		return fmt.Errorf("setting the handshake's deadline: %w", err)
	}
	if _, err := fmt.Fprintf(conn, "CONNECT %d\n", port); err != nil {
		return fmt.Errorf("asking for port %d: %w", port, closedEarly(err))
	}
	line, err := readAcknowledgement(conn)
	if err != nil {
		return fmt.Errorf("waiting for the answer to CONNECT %d: %w", port, closedEarly(err))
	}
	if err := checkAcknowledgement(line); err != nil {
		return err
	}
	return conn.SetDeadline(time.Time{})
}

// readAcknowledgement reads one line byte by byte: guestd may speak first, so what follows the line
// belongs to gRPC, and a buffered reader would swallow it.
func readAcknowledgement(r io.Reader) ([]byte, error) {
	var line [maxAcknowledgement]byte
	for n := range line {
		if _, err := io.ReadFull(r, line[n:n+1]); err != nil {
			if n > 0 && err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
		if line[n] == '\n' {
			return line[:n], nil
		}
	}
	return nil, fmt.Errorf("the answer %.80q… has no end within %d bytes", line[:], maxAcknowledgement)
}

// checkAcknowledgement takes "OK" and a port number, without the line end.
func checkAcknowledgement(line []byte) error {
	number, found := bytes.CutPrefix(line, []byte("OK "))
	if !found {
		return fmt.Errorf("the monitor answered %q instead of OK", line)
	}
	if _, err := strconv.ParseUint(string(number), 10, 32); err != nil {
		return fmt.Errorf("the monitor answered %q, which is OK without a port", line)
	}
	return nil
}

// closedEarly adds errNothingListens to an error that means that the other side has closed the
// connection.
func closedEarly(err error) error {
	if errors.Is(err, io.EOF) || isConnectionClosed(err) {
		return fmt.Errorf("%w (%w)", errNothingListens, err)
	}
	return err
}
