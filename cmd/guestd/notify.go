package main

import (
	"log/slog"
	"net"
	"os"

	"guestd.internal/agent"
)

// notifier tells the supervisor how guestd does, in systemd's protocol
// (sd_notify(3)): datagrams to the Unix socket that NOTIFY_SOCKET names, an
// abstract one where that begins with "@".
type notifier struct {
	socket string // "" where nobody asked
	log    *slog.Logger
}

// newNotifier takes the socket's name out of the environment.
func newNotifier(log *slog.Logger) *notifier {
	n := &notifier{socket: os.Getenv("NOTIFY_SOCKET"), log: log}
	os.Unsetenv("NOTIFY_SOCKET") //nolint:errcheck // fails for malformed names only
	return n
}

// follow tells of a's stages until ended is closed.
func (n *notifier) follow(a *agent.Agent, ended <-chan struct{}) {
	select {
	case <-a.Ready():
		n.tell("READY=1")
	case <-ended:
		return
	}
	select {
	case <-a.Stopping():
		n.tell("STOPPING=1")
	case <-ended:
	}
}

// tell sends one message. That nobody takes it is no reason to fail.
func (n *notifier) tell(state string) {
	if n.socket == "" {
		return
	}
	// Package net takes "@" for an abstract address as sd_notify does.
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: n.socket, Net: "unixgram"})
	if err == nil {
		defer conn.Close()
		_, err = conn.Write([]byte(state))
	}
	if err != nil {
		n.log.Warn("the supervisor was not told", "state", state, "error", err)
	}
}
