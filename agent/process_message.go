package agent

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"guestd.internal/proc"
	guestdv1 "guestd.internal/proto/guestd/v1"
)

// A list tells of a thousand processes, each of which is a dozen messages: those of one
// process are allocated together.

// exitMessages are a ProcessExit and the messages in it.
type exitMessages struct {
	exit                   guestdv1.ProcessExit
	code                   guestdv1.ProcessExit_ExitCode
	signal                 guestdv1.ProcessExit_Signal
	user, system, duration durationpb.Duration
	start, end             timestamppb.Timestamp
}

func exitMessage(e *proc.Exit) *guestdv1.ProcessExit { return new(exitMessages).fill(e) }

func (m *exitMessages) fill(e *proc.Exit) *guestdv1.ProcessExit {
	exit := &m.exit
	exit.CoreDumped, exit.TimedOut, exit.OomKilled = e.CoreDumped, e.TimedOut, e.OOMKilled
	exit.PeakMemoryBytes = uint64(max(e.PeakMemory, 0))
	exit.UserTime = fillDuration(&m.user, e.UserTime)
	exit.SystemTime = fillDuration(&m.system, e.SystemTime)
	exit.Duration = fillDuration(&m.duration, e.Duration)
	exit.StartTime, exit.EndTime = fillTime(&m.start, e.Start), fillTime(&m.end, e.End)
	if e.Signal != 0 {
		m.signal.Signal = uint32(e.Signal)
		exit.Status = &m.signal
	} else {
		m.code.ExitCode = uint32(e.Code)
		exit.Status = &m.code
	}
	return exit
}

func fillDuration(m *durationpb.Duration, d time.Duration) *durationpb.Duration {
	m.Seconds, m.Nanos = int64(d/time.Second), int32(d%time.Second)
	return m
}

// fillTime is timestamp for a message that is there already.
func fillTime(m *timestamppb.Timestamp, t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	m.Seconds, m.Nanos = t.Unix(), int32(t.Nanosecond())
	return m
}

// processMessages are a Process and the messages in it that most have.
type processMessages struct {
	process guestdv1.Process
	start   timestamppb.Timestamp
	offsets [2]guestdv1.StreamOffset
	output  [2]*guestdv1.StreamOffset
	exit    exitMessages
}

// processMessage describes a process, with at most maxArgs bytes of arguments
// where that is not 0.
func processMessage(info *proc.Info, maxArgs int) *guestdv1.Process {
	slab := new(processMessages)
	m := &slab.process
	m.ProcessId, m.Pid, m.User, m.Cwd = info.ID, uint32(info.PID), info.User, []byte(info.Dir)
	m.State = guestdv1.ProcessState_PROCESS_STATE_RUNNING
	m.Labels, m.Readers = info.Labels, uint32(info.Readers)
	m.StartTime = fillTime(&slab.start, info.Start)
	m.Output = slab.output[:len(info.Output)]
	for i, o := range info.Output {
		offset := &slab.offsets[i]
		offset.Stream, offset.Offset = streams[o.Stream], o.Offset
		m.Output[i] = offset
	}
	m.Arguments, m.ArgumentsTruncated = listedArguments(info.Args, maxArgs)
	m.ArgumentsTruncated = m.ArgumentsTruncated || info.ArgsCut
	if info.Terminal != nil {
		m.Terminal = sizeMessage(*info.Terminal)
	}
	if info.Timeout > 0 {
		m.Timeout = durationpb.New(info.Timeout)
	}
	if info.Exit != nil {
		m.State = guestdv1.ProcessState_PROCESS_STATE_EXITED
		m.Exit = slab.exit.fill(info.Exit)
	}
	return m
}

// listedArguments cuts arguments after most bytes; 0 is no limit.
func listedArguments(args []string, most int) (listed [][]byte, truncated bool) {
	listed = make([][]byte, 0, len(args))
	left := most
	for _, arg := range args {
		if most == 0 {
			listed = append(listed, []byte(arg))
			continue
		}
		if left == 0 {
			return listed, true
		}
		cut := arg[:min(len(arg), left)]
		listed = append(listed, []byte(cut))
		if len(cut) < len(arg) {
			return listed, true
		}
		left -= len(cut)
	}
	return listed, false
}
