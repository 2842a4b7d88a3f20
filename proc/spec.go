package proc

import (
	"fmt"
	"strings"
	"time"

	"guestd.internal/internal/spawn"
)

const (
	// DefaultKillGrace is the time between SIGTERM and SIGKILL.
	DefaultKillGrace = 2 * time.Second
	// MaxKillGrace is the longest KillGrace.
	MaxKillGrace = time.Hour
	// MinLogLimit is the least LogLimit, in bytes.
	MinLogLimit = 64 << 10
	// MaxLogLimit is the greatest LogLimit, in bytes.
	MaxLogLimit = 64 << 20

	maxLabels     = 64
	maxLabelKey   = 128
	maxLabelValue = 1024
)

// Spec is everything that starting a process needs. Exactly one of Args, Shell
// and LoginShell is set.
type Spec struct {
	// Args is the program, looked up in the child's PATH unless it has a slash,
	// and its arguments.
	Args []string
	// Shell is a command for a shell.
	Shell *ShellLine
	// LoginShell runs the user's own shell as a login shell.
	LoginShell bool

	// User is a name, "name:group", a uid or "uid:gid"; "" is the default user.
	User string
	// Dir is the working directory. A relative one starts at the user's home; ""
	// is the home, or / where the home cannot be entered.
	Dir string
	// Env changes the environment, in order; see spawn.BuildEnv for what it is
	// without. ClearEnv starts from nothing instead.
	Env      []spawn.EnvVar
	ClearEnv bool

	// Stdin gives the process a pipe to read; without it, /dev/null. A terminal
	// always takes input.
	Stdin bool
	// Terminal runs the process in a terminal of this size.
	Terminal *Size
	// Merge makes stdout and stderr one ordered stream, told as Stdout.
	Merge bool

	// Timeout is how long the leader may run; 0 is for ever.
	Timeout time.Duration
	// KillGrace is the time between SIGTERM and SIGKILL, wherever both are sent:
	// nil is DefaultKillGrace, 0 is SIGKILL at once.
	KillGrace *time.Duration
	// KillOnDisconnect ends the tree when readers have been there and the last
	// one's connection is broken for longer than its grace.
	KillOnDisconnect bool

	// Umask (0 to 0777), Nice (-20 to 19), OOMScoreAdj (-1000 to 1000) and Rlimits
	// are as in spawn.Command; nil Nice and OOMScoreAdj are guestd's choice.
	Umask       *uint32
	Nice        *int
	OOMScoreAdj *int
	Rlimits     []spawn.Rlimit

	// Labels are found again by List: at most 64, keys of 1 to 128 bytes, values
	// of at most 1,024.
	Labels map[string]string
	// LogLimit is how many bytes of each stream are kept, MinLogLimit to
	// MaxLogLimit; 0 is 4 MiB.
	LogLimit int
}

// ShellLine is one line, of any length, for a shell.
type ShellLine struct {
	Line string
	// Login runs it as bash -l -c LINE, with the user's profile, instead of
	// /bin/sh -c LINE.
	Login bool
}

// Size is a terminal's size. No rows mean 24, no columns 80; pixels may be
// unknown, which is 0.
type Size struct {
	Rows, Cols, XPixels, YPixels uint16
}

func (s Size) withDefaults() Size {
	if s.Rows == 0 {
		s.Rows = 24
	}
	if s.Cols == 0 {
		s.Cols = 80
	}
	return s
}

// InvalidError says which part of a request is malformed, and how.
type InvalidError struct {
	// Field is the name of the Spec's field, or of the parameter.
	Field string
	// Problem completes "Field ...".
	Problem string
}

func (e *InvalidError) Error() string { return e.Field + " " + e.Problem }

// Validate reports the first malformed field as *InvalidError.
func (s *Spec) Validate() error {
	for _, check := range []func(*Spec) error{
		(*Spec).validateCommand, (*Spec).validateStrings, (*Spec).validateLabels, (*Spec).validateNumbers,
	} {
		if err := check(s); err != nil {
			return err
		}
	}
	return nil
}

func (s *Spec) validateCommand() error {
	commands := 0
	for _, set := range []bool{len(s.Args) > 0, s.Shell != nil, s.LoginShell} {
		if set {
			commands++
		}
	}
	switch {
	case commands == 0:
		return &InvalidError{"Args", "is empty, and there is no shell line and no login shell"}
	case commands > 1:
		return &InvalidError{"Args", "excludes a shell line and a login shell, as these exclude each other"}
	case len(s.Args) > 0 && s.Args[0] == "":
		return &InvalidError{"Args", "starts with an empty program name"}
	case s.Terminal != nil && s.Merge:
		return &InvalidError{"Merge", "has no meaning in a terminal, which has one stream"}
	}
	return nil
}

func (s *Spec) validateStrings() error {
	for i, arg := range s.Args {
		if err := checkNUL(fmt.Sprintf("Args[%d]", i), arg); err != nil {
			return err
		}
	}
	if s.Shell != nil {
		if err := checkNUL("Shell.Line", s.Shell.Line); err != nil {
			return err
		}
	}
	for i, v := range s.Env {
		field := fmt.Sprintf("Env[%d].", i)
		if err := v.Check(); err != nil {
			return &InvalidError{field + err.Part, err.Problem}
		}
		if v.Unset && v.Value != "" {
			return &InvalidError{field + "Value", "is given for a variable to unset"}
		}
	}
	if err := checkNUL("User", s.User); err != nil {
		return err
	}
	return checkNUL("Dir", s.Dir)
}

func checkNUL(field, value string) error {
	if strings.IndexByte(value, 0) >= 0 {
		return &InvalidError{field, "has a NUL byte"}
	}
	return nil
}

func (s *Spec) validateLabels() error {
	if len(s.Labels) > maxLabels {
		return &InvalidError{"Labels", fmt.Sprintf("has %d entries; %d is the most", len(s.Labels), maxLabels)}
	}
	for key, value := range s.Labels {
		if key == "" || len(key) > maxLabelKey {
			return &InvalidError{"Labels", fmt.Sprintf("has a key of %d bytes; 1 to %d are allowed", len(key), maxLabelKey)}
		}
		if len(value) > maxLabelValue {
			return &InvalidError{"Labels", fmt.Sprintf("has a value of %d bytes; %d is the most", len(value), maxLabelValue)}
		}
	}
	return nil
}

func (s *Spec) validateNumbers() error {
	switch {
	case s.Timeout < 0:
		return &InvalidError{"Timeout", "is negative"}
	case s.KillGrace != nil && (*s.KillGrace < 0 || *s.KillGrace > MaxKillGrace):
		return &InvalidError{"KillGrace", fmt.Sprintf("is not between 0 and %v", MaxKillGrace)}
	case s.Umask != nil && *s.Umask > 0o777:
		return &InvalidError{"Umask", "is not between 0 and 0777"}
	case s.Nice != nil && (*s.Nice < -20 || *s.Nice > 19):
		return &InvalidError{"Nice", "is not between -20 and 19"}
	case s.OOMScoreAdj != nil && (*s.OOMScoreAdj < -1000 || *s.OOMScoreAdj > 1000):
		return &InvalidError{"OOMScoreAdj", "is not between -1000 and 1000"}
	case s.LogLimit != 0 && (s.LogLimit < MinLogLimit || s.LogLimit > MaxLogLimit):
		return &InvalidError{"LogLimit", fmt.Sprintf("is not between %d and %d", MinLogLimit, MaxLogLimit)}
	}
	for _, limit := range s.Rlimits {
		if limit.Soft > limit.Hard {
			return &InvalidError{"Rlimits", "has a soft limit above its hard limit"}
		}
	}
	return nil
}

func (s *Spec) killGrace() time.Duration {
	if s.KillGrace == nil {
		return DefaultKillGrace
	}
	return *s.KillGrace
}
