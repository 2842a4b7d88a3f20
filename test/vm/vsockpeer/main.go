// Command vsockpeer plays untrusted code in a guest that tries to reach guestd
// over loopback vsock. It runs inside the microVM test's guest.
//
//	vsockpeer PORT
//
// It dials PORT at the guest's loopback address (CID 1) and at the guest's own
// address, speaks first as a gRPC client does, and waits for an answer. Its
// status says what came of it:
//
//	0  refused: both connections were closed without a byte of service
//	1  served: guestd answered somebody that is not the host
//	2  nothing proven: loopback vsock does not work here, or usage
//
// It never dials CID 2, the host.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/mdlayher/vsock"
	"golang.org/x/sys/unix"
)

const (
	refused       = 0
	served        = 1
	nothingProven = 2
)

// deadline bounds each wait for guestd, in an emulated machine.
const deadline = 20 * time.Second

// An HTTP/2 client's first bytes: the preface and an empty SETTINGS frame (RFC
// 9113, sections 3.4 and 6.5). A gRPC server answers with its own SETTINGS.
const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + "\x00\x00\x00\x04\x00\x00\x00\x00\x00"

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: vsockpeer PORT")
		os.Exit(nothingProven)
	}
	port, err := strconv.ParseUint(os.Args[1], 10, 32)
	if err != nil {
		fmt.Fprintln(os.Stderr, "vsockpeer:", err)
		os.Exit(nothingProven)
	}
	os.Exit(try(uint32(port)))
}

func try(port uint32) int {
	// Without this a guest that has no loopback vsock would pass as one that refuses.
	if err := proveLoopback(); err != nil {
		fmt.Println("loopback vsock does not work:", err)
		return nothingProven
	}
	own, err := vsock.ContextID()
	if err != nil {
		fmt.Println("asking for this guest's CID:", err)
		return nothingProven
	}
	for _, cid := range []uint32{vsock.Local, own} {
		n, err := answer(cid, port)
		fmt.Printf("CID %d port %d: %d bytes of service, then: %v\n", cid, port, n, err)
		switch {
		case n > 0, errors.Is(err, os.ErrDeadlineExceeded): // or kept open, so nobody refused it
			return served
		case !closedByPeer(err):
			return nothingProven
		}
	}
	return refused
}

// closedByPeer tells a connection that was closed, at once or after a while, from
// one that failed for reasons of its own.
func closedByPeer(err error) bool {
	for _, closed := range []error{io.EOF, unix.ECONNRESET, unix.EPIPE, unix.ENOTCONN} {
		if errors.Is(err, closed) {
			return true
		}
	}
	return false
}

// proveLoopback sends one byte to itself over CID 1.
func proveLoopback() error {
	listener, err := vsock.ListenContextID(unix.VMADDR_CID_ANY, 0, nil)
	if err != nil {
		return err
	}
	defer listener.Close()
	sent := make(chan error, 1)
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			sent <- err
			return
		}
		_, err = conn.Write([]byte{1})
		sent <- errors.Join(err, conn.Close())
	}()
	conn, err := vsock.Dial(vsock.Local, listener.Addr().(*vsock.Addr).Port, nil)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(deadline)); err != nil {
		return err
	}
	if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
		return err
	}
	return <-sent
}

// answer dials port at cid, speaks as a gRPC client, and returns how many bytes
// came back before the connection's end and what that end was.
func answer(cid, port uint32) (int, error) {
	conn, err := vsock.Dial(cid, port, nil)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(deadline)); err != nil {
		return 0, err
	}
	// A peer that has closed already makes this fail, which is a refusal too.
	if _, err := conn.Write([]byte(preface)); err != nil {
		return 0, err
	}
	return conn.Read(make([]byte, 64))
}
