package client

import (
	"google.golang.org/protobuf/types/known/durationpb"

	guestdv1 "guestd.internal/proto/guestd/v1"
)

// spec translates the command for guestd, which checks it; only what could not be sent at all is
// refused here.
func (c *Cmd) spec() (*guestdv1.ProcessSpec, error) {
	if err := checkText("spec.user", c.User); err != nil {
		return nil, err
	}
	if err := checkLabels("spec.labels", c.Labels); err != nil {
		return nil, err
	}
	spec := &guestdv1.ProcessSpec{
		User: c.User, Cwd: []byte(c.Dir), Env: environment(c.Env), ClearEnv: c.ClearEnv,
		KillGrace: optionalDuration(c.KillGrace), Labels: c.Labels,
	}
	c.setCommand(spec)
	if c.Timeout != 0 {
		spec.Timeout = durationpb.New(c.Timeout)
	}
	if c.Stdin != nil && c.Terminal == nil {
		spec.Stdin = guestdv1.StdinMode_STDIN_MODE_PIPE
	}
	if c.Terminal != nil {
		spec.Terminal = c.Terminal.proto()
	}
	if c.Merge {
		spec.Output = guestdv1.OutputMode_OUTPUT_MODE_MERGED
	}
	if c.OnDisconnect == KillOnDisconnect {
		spec.OnDisconnect = guestdv1.OnDisconnect_ON_DISCONNECT_KILL
	}
	return spec, nil
}

func (c *Cmd) setCommand(spec *guestdv1.ProcessSpec) {
	switch {
	case c.Shell != "":
		spec.Command = &guestdv1.ProcessSpec_Shell{Shell: &guestdv1.ShellLine{Line: []byte(c.Shell), Login: c.Login}}
	case c.Login && len(c.Args) == 0:
		spec.Command = &guestdv1.ProcessSpec_LoginShell{LoginShell: &guestdv1.LoginShell{}}
	default:
		spec.Command = &guestdv1.ProcessSpec_Arguments{Arguments: &guestdv1.Arguments{Values: byteStrings(c.Args)}}
	}
}

func (s Size) proto() *guestdv1.TerminalSize {
	return &guestdv1.TerminalSize{
		Rows: clampDimension(s.Rows), Columns: clampDimension(s.Columns),
		XPixels: clampDimension(s.XPixels), YPixels: clampDimension(s.YPixels),
	}
}

// clampDimension fits a terminal's dimension into what TIOCSWINSZ takes.
func clampDimension(n int) uint32 { return uint32(max(0, min(n, 65535))) }
