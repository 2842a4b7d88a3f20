package main

import (
	"errors"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// How long a terminal may take to say what it is; over SSH the answer has a network to cross. One
// that comes later is taken for typed text by whoever reads next.
const (
	answerPatience    = 100 * time.Millisecond
	answerPatienceSSH = time.Second
)

// deviceAttributes is the answer to DA1, which begins with the kind of the terminal.
var deviceAttributes = regexp.MustCompile(`\x1b\[\?([0-9]+(?:;[0-9]+)*)c`)

// canBeAsked tells whether a terminal of which the environment says nothing may know better: a
// multiplexer answers for itself, and whatever is called dumb answers nothing.
func canBeAsked(getenv func(string) string) bool {
	term := getenv("TERM")
	return getenv("TMUX") == "" && !strings.HasPrefix(term, "screen") && term != "" && term != "dumb"
}

// patienceWith is how long to wait for a terminal's answer.
func patienceWith(getenv func(string) string) time.Duration {
	if getenv("SSH_CONNECTION") != "" {
		return answerPatienceSSH
	}
	return answerPatience
}

// asksForSixels asks the terminal that both files are whether it shows sixels. What was typed
// meanwhile is returned. The terminal is as before then.
func asksForSixels(in, out *os.File, patience time.Duration) (can bool, typed []byte) {
	if !isSameTerminal(in, out) || !isForeground(in) {
		return false, nil
	}
	before, err := unix.IoctlGetTermios(int(in.Fd()), unix.TCGETS)
	if err != nil {
		return false, nil
	}
	asking := *before
	asking.Lflag &^= unix.ICANON | unix.ECHO // Ctrl-C stays what it is
	asking.Cc[unix.VMIN], asking.Cc[unix.VTIME] = 1, 0
	if err := unix.IoctlSetTermios(int(in.Fd()), unix.TCSETS, &asking); err != nil {
		return false, nil
	}
	// A terminal that cannot be restored is one that is gone.
	defer func() { _ = unix.IoctlSetTermios(int(in.Fd()), unix.TCSETS, before) }()
	if _, err := out.WriteString("\x1b[c"); err != nil {
		return false, nil
	}
	return attributesIn(readAnswer(in, time.Now().Add(patience)))
}

// readAnswer reads what a terminal says until that has the answer to DA1, or until the deadline.
func readAnswer(in *os.File, deadline time.Time) []byte {
	const most = 64 << 10 // a paste, say
	var said []byte
	for len(said) < most && !deviceAttributes.Match(said) {
		left := time.Until(deadline)
		if left <= 0 {
			break
		}
		poll := []unix.PollFd{{Fd: int32(in.Fd()), Events: unix.POLLIN}}
		n, err := unix.Poll(poll, int(left.Milliseconds())+1)
		if errors.Is(err, unix.EINTR) || err == nil && n == 0 {
			continue
		}
		block := make([]byte, 4<<10)
		if n, err = unix.Read(int(in.Fd()), block); err != nil || n <= 0 {
			break
		}
		said = append(said, block[:n]...)
	}
	return said
}

// attributesIn finds the answer in what a terminal said; the rest was typed.
func attributesIn(said []byte) (sixels bool, typed []byte) {
	const sixelGraphics = "4"
	at := deviceAttributes.FindSubmatchIndex(said)
	if at == nil {
		return false, said
	}
	attributes := strings.Split(string(said[at[2]:at[3]]), ";")
	return slices.Contains(attributes[1:], sixelGraphics), slices.Concat(said[:at[0]], said[at[1]:])
}

// isSameTerminal tells whether two files are the same terminal.
func isSameTerminal(a, b *os.File) bool {
	var first, second unix.Stat_t
	return isTerminal(a) && isTerminal(b) && unix.Fstat(int(a.Fd()), &first) == nil &&
		unix.Fstat(int(b.Fd()), &second) == nil && first.Rdev == second.Rdev
}

// isForeground tells whether this process may change its terminal, and read from it, without being
// stopped for it.
func isForeground(terminal *os.File) bool {
	group, err := unix.IoctlGetInt(int(terminal.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}
