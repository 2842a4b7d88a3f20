package listen

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
)

// Kind is a listener's transport.
type Kind string

// The transports, named as in addresses.
const (
	Vsock Kind = "vsock"
	Unix  Kind = "unix"
	TCP   Kind = "tcp"
)

// maxUnixPath is the longest path of a Unix socket in bytes: sun_path without
// its final NUL (unix(7)).
const maxUnixPath = 107

// Address says where to listen.
type Address struct {
	Kind Kind
	Path string // of a Unix socket, absolute
	Host string // of TCP; "" is every address of the machine
	Port uint32 // of TCP (0 to 65,535; 0 takes a free one) and vsock (1 to 2³²-2)
}

// ParseAddress reads "vsock://:PORT", "unix:///PATH" or "tcp://HOST:PORT".
func ParseAddress(s string) (Address, error) {
	u, err := url.Parse(s)
	if err != nil {
		return Address{}, fmt.Errorf("address %q: %w", s, err)
	}
	if u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Opaque != "" {
		return Address{}, addressError(s, "want no user, query or fragment")
	}
	switch Kind(u.Scheme) {
	case Vsock:
		return parseVsock(s, u)
	case Unix:
		return parseUnix(s, u)
	case TCP:
		return parseTCP(s, u)
	default:
		return Address{}, addressError(s, "want vsock://:PORT, unix:///PATH or tcp://HOST:PORT")
	}
}

func parseVsock(s string, u *url.URL) (Address, error) {
	// A fixed context id would make the clone of a snapshot deaf, which has
	// another one: every id is bound, and peers are told apart by theirs.
	if u.Hostname() != "" || u.Path != "" {
		return Address{}, addressError(s, "want vsock://:PORT without a context id; every one of the guest's is served")
	}
	port, err := strconv.ParseUint(u.Port(), 10, 32)
	if err != nil || port == 0 || port == 1<<32-1 {
		return Address{}, addressError(s, "want a port from 1 to 4294967294")
	}
	return Address{Kind: Vsock, Port: uint32(port)}, nil
}

func parseUnix(s string, u *url.URL) (Address, error) {
	if u.Host != "" || !filepath.IsAbs(u.Path) {
		return Address{}, addressError(s, "want unix:///PATH with an absolute path")
	}
	path := filepath.Clean(u.Path)
	if strings.ContainsRune(path, 0) {
		return Address{}, addressError(s, "the path has a NUL")
	}
	if len(path) > maxUnixPath {
		return Address{}, addressError(s, fmt.Sprintf("the path has %d bytes; a Unix socket's has %d at most", len(path), maxUnixPath))
	}
	return Address{Kind: Unix, Path: path}, nil
}

func parseTCP(s string, u *url.URL) (Address, error) {
	port, err := strconv.ParseUint(u.Port(), 10, 16)
	if err != nil || u.Path != "" {
		return Address{}, addressError(s, "want tcp://HOST:PORT with a port from 0 to 65535")
	}
	if !isHost(u.Hostname()) {
		return Address{}, addressError(s, "want an IP address or a name for a host")
	}
	return Address{Kind: TCP, Host: u.Hostname(), Port: uint32(port)}, nil
}

// isHost says whether s may be an IP address, a host's name, or "".
func isHost(s string) bool {
	if ip, err := netip.ParseAddr(s); err == nil {
		return isName(ip.Zone())
	}
	return isName(s)
}

// isName says whether s may be the name of a host or of an interface, or "".
func isName(s string) bool {
	return !strings.ContainsFunc(s, func(c rune) bool {
		return !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '.' || c == '_')
	})
}

func addressError(s, want string) error { return fmt.Errorf("address %q: %s", s, want) }

// String is the address as ParseAddress reads it.
func (a Address) String() string {
	switch a.Kind {
	case Unix:
		return (&url.URL{Scheme: string(Unix), Path: a.Path}).String()
	case TCP:
		return (&url.URL{Scheme: string(TCP), Host: a.hostPort()}).String()
	default:
		return fmt.Sprintf("%s://:%d", a.Kind, a.Port)
	}
}

func (a Address) hostPort() string { return net.JoinHostPort(a.Host, strconv.Itoa(int(a.Port))) }
