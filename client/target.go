package client

import (
	"errors"
	"fmt"
	"math"
	"net"
	"strconv"
	"strings"
)

// DefaultPort is the vsock port that guestd listens on unless told otherwise.
const DefaultPort = 5005

// maxSocketPath is the longest path that fits sockaddr_un's 108 bytes with its final NUL (unix(7)).
const maxSocketPath = 107

// targetForms ends every complaint about a target, so that whoever reads it can put it right at once.
const targetForms = "accepted are vsock://CID:PORT, unix:///PATH, firecracker:///PATH?port=PORT and tcp://HOST:PORT"

// transport is how a guest is reached.
type transport string

// The transports, named as their URI schemes.
const (
	transportVsock       transport = "vsock"
	transportUnix        transport = "unix"
	transportFirecracker transport = "firecracker"
	transportTCP         transport = "tcp"
)

// target says where a guest's guestd is.
type target struct {
	transport transport
	// address is a socket's path, or host:port for TCP.
	address string
	// cid is the guest's context id, for vsock.
	cid uint32
	// port is the vsock port, for vsock and Firecracker.
	port uint32
}

// String gives the target as parseTarget takes it.
func (t target) String() string {
	switch t.transport {
	case transportVsock:
		return fmt.Sprintf("vsock://%d:%d", t.cid, t.port)
	case transportFirecracker:
		return fmt.Sprintf("firecracker://%s?port=%d", t.address, t.port)
	default:
		return string(t.transport) + "://" + t.address
	}
}

// CheckTarget tells whether Dial would take a target, and if not, what is wrong with it.
func CheckTarget(text string) error {
	_, err := parseTarget(text)
	return err
}

func parseTarget(text string) (target, error) {
	t, err := splitTarget(text)
	if err != nil {
		return target{}, fmt.Errorf("target %q: %w; %s", text, err, targetForms)
	}
	return t, nil
}

func splitTarget(text string) (target, error) {
	if text == "" {
		return target{}, errors.New("it is empty")
	}
	scheme, rest, found := strings.Cut(text, "://")
	if !found {
		return target{}, errors.New("it has no scheme")
	}
	switch transport(scheme) {
	case transportVsock:
		return parseVsock(rest)
	case transportUnix:
		return parseUnix(rest)
	case transportFirecracker:
		return parseFirecracker(rest)
	case transportTCP:
		return parseTCP(rest)
	default:
		return target{}, fmt.Errorf("its scheme %q is not known", scheme)
	}
}

func parseVsock(rest string) (target, error) {
	cidText, portText, found := strings.Cut(rest, ":")
	if !found {
		return target{}, errors.New("the port is missing")
	}
	cid, err := parseNumber("CID", cidText)
	if err != nil {
		return target{}, err
	}
	port, err := parseNumber("port", portText)
	if err != nil {
		return target{}, err
	}
	return target{transport: transportVsock, cid: cid, port: port}, nil
}

func parseUnix(rest string) (target, error) {
	if err := checkSocketPath(rest); err != nil {
		return target{}, err
	}
	return target{transport: transportUnix, address: rest}, nil
}

func parseFirecracker(rest string) (target, error) {
	path, query, hasQuery := strings.Cut(rest, "?")
	if err := checkSocketPath(path); err != nil {
		return target{}, err
	}
	t := target{transport: transportFirecracker, address: path, port: DefaultPort}
	if !hasQuery {
		return t, nil
	}
	portText, found := strings.CutPrefix(query, "port=")
	if !found {
		return target{}, fmt.Errorf("%q is no query that is known, only port=PORT is", query)
	}
	port, err := parseNumber("port", portText)
	if err != nil {
		return target{}, err
	}
	t.port = port
	return t, nil
}

func parseTCP(rest string) (target, error) {
	host, portText, err := net.SplitHostPort(rest)
	if err != nil {
		return target{}, fmt.Errorf("%q is not HOST:PORT (an IPv6 address stands in brackets)", rest)
	}
	if host == "" {
		return target{}, errors.New("the host is missing")
	}
	port, err := parseNumber("port", portText)
	if err != nil {
		return target{}, err
	}
	if port > math.MaxUint16 {
		return target{}, fmt.Errorf("the port %d is greater than %d", port, math.MaxUint16)
	}
	return target{transport: transportTCP, address: net.JoinHostPort(host, strconv.Itoa(int(port)))}, nil
}

// parseNumber reads a CID or a port: 1 to 4,294,967,294. Zero and the greatest number are wildcards
// in vsock(7), which name nobody.
func parseNumber(what, text string) (uint32, error) {
	if text == "" {
		return 0, fmt.Errorf("the %s is missing", what)
	}
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil || n == 0 || n == math.MaxUint32 {
		return 0, fmt.Errorf("the %s %q is no number from 1 to %d", what, text, uint32(math.MaxUint32-1))
	}
	return uint32(n), nil
}

func checkSocketPath(path string) error {
	switch {
	case path == "":
		return errors.New("the socket's path is missing")
	case path[0] != '/':
		return fmt.Errorf("the socket's path %q is not absolute (three slashes follow the scheme)", path)
	case len(path) > maxSocketPath:
		return fmt.Errorf("the socket's path is %d bytes long, and the kernel takes at most %d", len(path), maxSocketPath)
	case strings.IndexByte(path, 0) >= 0:
		return errors.New("the socket's path has a NUL byte")
	}
	return nil
}
