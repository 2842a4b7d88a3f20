package agent

import (
	"fmt"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"guestd.internal/internal/spawn"
	"guestd.internal/proc"
	guestdv1 "guestd.internal/proto/guestd/v1"
)

// maxListedArgs is how many bytes of arguments a list shows of each process.
const maxListedArgs = 4 << 10

// processSpec converts a spec; what proc checks itself is not checked here.
func processSpec(m *guestdv1.ProcessSpec) (proc.Spec, error) {
	if m == nil {
		return proc.Spec{}, invalid("spec", "is missing")
	}
	spec := proc.Spec{
		User:             m.GetUser(),
		Dir:              string(m.GetCwd()),
		ClearEnv:         m.GetClearEnv(),
		Stdin:            m.GetStdin() == guestdv1.StdinMode_STDIN_MODE_PIPE,
		Merge:            m.GetOutput() == guestdv1.OutputMode_OUTPUT_MODE_MERGED,
		KillOnDisconnect: m.GetOnDisconnect() == guestdv1.OnDisconnect_ON_DISCONNECT_KILL,
		Umask:            m.Umask,
		Nice:             optionalInt(m.Nice),
		OOMScoreAdj:      optionalInt(m.OomScoreAdj),
		Labels:           m.GetLabels(),
	}
	if err := checkEnums("spec", m); err != nil {
		return proc.Spec{}, err
	}
	setCommand(&spec, m)
	var err error
	if spec.Env, err = envVars("spec.env", m.GetEnv()); err != nil {
		return proc.Spec{}, err
	}
	if m.GetTerminal() != nil {
		size, err := terminalSize("spec.terminal", m.GetTerminal())
		if err != nil {
			return proc.Spec{}, err
		}
		spec.Terminal = &size
	}
	if spec.Timeout, err = duration("spec.timeout", m.GetTimeout()); err != nil {
		return proc.Spec{}, err
	}
	if spec.KillGrace, err = optionalDuration("spec.kill_grace", m.GetKillGrace()); err != nil {
		return proc.Spec{}, err
	}
	if spec.Rlimits, err = rlimits("spec.limits", m.GetLimits()); err != nil {
		return proc.Spec{}, err
	}
	if m.LogLimitBytes != nil {
		limit := m.GetLogLimitBytes()
		if limit < proc.MinLogLimit || limit > proc.MaxLogLimit {
			return proc.Spec{}, invalid("spec.log_limit_bytes",
				fmt.Sprintf("is %d, must be %d to %d", limit, proc.MinLogLimit, proc.MaxLogLimit))
		}
		spec.LogLimit = int(limit)
	}
	return spec, nil
}

func setCommand(spec *proc.Spec, m *guestdv1.ProcessSpec) {
	switch c := m.GetCommand().(type) {
	case *guestdv1.ProcessSpec_Arguments:
		spec.Args = toStrings(c.Arguments.GetValues())
	case *guestdv1.ProcessSpec_Shell:
		spec.Shell = &proc.ShellLine{Line: string(c.Shell.GetLine()), Login: c.Shell.GetLogin()}
	case *guestdv1.ProcessSpec_LoginShell:
		spec.LoginShell = true
	}
}

// envVars converts changes to an environment.
func envVars(field string, vars []*guestdv1.EnvVar) ([]spawn.EnvVar, error) {
	out := make([]spawn.EnvVar, 0, len(vars))
	for i, v := range vars {
		if v.GetUnset() && len(v.GetValue()) > 0 {
			return nil, invalid(fmt.Sprintf("%s[%d].value", field, i), "must be empty where unset is true")
		}
		out = append(out, spawn.EnvVar{Name: string(v.GetName()), Value: string(v.GetValue()), Unset: v.GetUnset()})
	}
	return out, nil
}

// resources are the names of setrlimit's resources, as the API has them.
var resources = map[string]int{
	"as":         unix.RLIMIT_AS,
	"core":       unix.RLIMIT_CORE,
	"cpu":        unix.RLIMIT_CPU,
	"data":       unix.RLIMIT_DATA,
	"fsize":      unix.RLIMIT_FSIZE,
	"locks":      unix.RLIMIT_LOCKS,
	"memlock":    unix.RLIMIT_MEMLOCK,
	"msgqueue":   unix.RLIMIT_MSGQUEUE,
	"nice":       unix.RLIMIT_NICE,
	"nofile":     unix.RLIMIT_NOFILE,
	"nproc":      unix.RLIMIT_NPROC,
	"rss":        unix.RLIMIT_RSS,
	"rtprio":     unix.RLIMIT_RTPRIO,
	"rttime":     unix.RLIMIT_RTTIME,
	"sigpending": unix.RLIMIT_SIGPENDING,
	"stack":      unix.RLIMIT_STACK,
}

func rlimits(field string, limits []*guestdv1.ResourceLimit) ([]spawn.Rlimit, error) {
	var out []spawn.Rlimit
	for i, l := range limits {
		at := field + "[" + strconv.Itoa(i) + "]"
		resource, ok := resources[l.GetResource()]
		if !ok {
			return nil, invalid(at+".resource", fmt.Sprintf("is %q, which is no resource of setrlimit(2)", l.GetResource()))
		}
		if slices.ContainsFunc(out, func(o spawn.Rlimit) bool { return o.Resource == resource }) {
			return nil, invalid(at+".resource", fmt.Sprintf("%q is given twice", l.GetResource()))
		}
		limit := spawn.Rlimit{Resource: resource, Soft: unix.RLIM_INFINITY, Hard: unix.RLIM_INFINITY}
		if l.Soft != nil {
			limit.Soft = l.GetSoft()
		}
		if l.Hard != nil {
			limit.Hard = l.GetHard()
		}
		if limit.Soft > limit.Hard {
			return nil, invalid(at+".soft", "is above the hard limit")
		}
		out = append(out, limit)
	}
	return out, nil
}

// terminalSize converts a size.
func terminalSize(field string, m *guestdv1.TerminalSize) (proc.Size, error) {
	var size proc.Size
	for _, part := range []struct {
		name string
		from uint32
		to   *uint16
	}{
		{"rows", m.GetRows(), &size.Rows},
		{"columns", m.GetColumns(), &size.Cols},
		{"x_pixels", m.GetXPixels(), &size.XPixels},
		{"y_pixels", m.GetYPixels(), &size.YPixels},
	} {
		if part.from > 65535 {
			return proc.Size{}, invalid(field+"."+part.name, fmt.Sprintf("is %d, must be at most 65535", part.from))
		}
		*part.to = uint16(part.from)
	}
	return size, nil
}

// streams pairs the streams of proc with the API's.
var streams = map[proc.Stream]guestdv1.OutputStream{
	proc.Stdout:   guestdv1.OutputStream_OUTPUT_STREAM_STDOUT,
	proc.Stderr:   guestdv1.OutputStream_OUTPUT_STREAM_STDERR,
	proc.Terminal: guestdv1.OutputStream_OUTPUT_STREAM_TERMINAL,
}

func streamOffset(field string, m *guestdv1.StreamOffset) (proc.StreamOffset, error) {
	for stream, value := range streams {
		if value == m.GetStream() {
			return proc.StreamOffset{Stream: stream, Offset: m.GetOffset()}, nil
		}
	}
	return proc.StreamOffset{}, invalid(field+".stream", fmt.Sprintf("is %v, which is no stream", m.GetStream()))
}

func streamOffsets(offsets []proc.StreamOffset) []*guestdv1.StreamOffset {
	out := make([]*guestdv1.StreamOffset, 0, len(offsets))
	for _, o := range offsets {
		out = append(out, &guestdv1.StreamOffset{Stream: streams[o.Stream], Offset: o.Offset})
	}
	return out
}

func sizeMessage(s proc.Size) *guestdv1.TerminalSize {
	return &guestdv1.TerminalSize{Rows: uint32(s.Rows), Columns: uint32(s.Cols),
		XPixels: uint32(s.XPixels), YPixels: uint32(s.YPixels)}
}

func toStrings(values [][]byte) []string {
	out := make([]string, len(values))
	for i, v := range values {
		out[i] = string(v)
	}
	return out
}
