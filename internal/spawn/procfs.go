package spawn

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strconv"
	"strings"
)

// process is what /proc/PID/stat says about one process.
type process struct {
	pid     int
	ppid    int
	session int
	start   uint64 // clock ticks since boot
	state   byte   // of the main thread; 'Z' is a zombie
	threads int    // the main thread counts until it is waited for
}

// processKey names a process for as long as the machine runs, unlike its pid.
type processKey struct {
	pid   int
	start uint64
}

func (p process) key() processKey { return processKey{p.pid, p.start} }

// zombie says that nothing of the process runs any more. One whose main thread
// alone has ended looks dead and is not.
func (p process) zombie() bool {
	return (p.state == 'Z' || p.state == 'X') && p.threads <= 1
}

// unchanged says whether the pid still belongs to this process.
func (p process) unchanged() bool {
	now, err := readProcess(p.pid)
	return err == nil && now.start == p.start
}

var errMalformedStat = errors.New("malformed stat file")

// readProcess reads /proc/PID/stat.
func readProcess(pid int) (process, error) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return process{}, err
	}
	return parseStat(data)
}

// parseStat parses "PID (NAME) STATE PPID PGRP SESSION …", the number of threads
// being field 20 and the start time 22 (proc_pid_stat(5)). The name is the
// process's own choice and may contain blanks and parentheses.
func parseStat(data []byte) (process, error) {
	open, end := bytes.IndexByte(data, '('), bytes.LastIndexByte(data, ')')
	if open < 1 || end < open {
		return process{}, errMalformedStat
	}
	fields := strings.Fields(string(data[end+1:]))
	if len(fields) < 20 || len(fields[0]) != 1 {
		return process{}, errMalformedStat
	}
	var errs [5]error
	p := process{state: fields[0][0]}
	p.pid, errs[0] = strconv.Atoi(strings.TrimSpace(string(data[:open])))
	p.ppid, errs[1] = strconv.Atoi(fields[1])
	p.session, errs[2] = strconv.Atoi(fields[3])
	p.threads, errs[4] = strconv.Atoi(fields[17])
	p.start, errs[3] = strconv.ParseUint(fields[19], 10, 64)
	if errors.Join(errs[:]...) != nil {
		return process{}, errMalformedStat
	}
	return p, nil
}

// startTime returns the start time of pid, 0 when it is gone.
func startTime(pid int) uint64 {
	p, err := readProcess(pid)
	if err != nil {
		return 0
	}
	return p.start
}

// allProcesses reads every process that /proc shows.
func allProcesses() []process {
	proc, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer proc.Close()
	names, err := proc.Readdirnames(-1)
	if err != nil {
		return nil
	}
	var all []process
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if p, err := readProcess(pid); err == nil {
			all = append(all, p)
		}
	}
	return all
}

// environMax bounds what is read of a process's environment: the kernel allows
// megabytes, and it is the process's own choice.
const environMax = 256 << 10

// markOf returns the value of GUESTD_PROCESS_ID in the environment that pid's
// program was started with; "" when there is none or it cannot be read.
func markOf(pid int) string {
	f, err := os.Open("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return ""
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, environMax))
	if err != nil {
		return ""
	}
	for entry := range bytes.SplitSeq(data, []byte{0}) {
		if value, ok := bytes.CutPrefix(entry, []byte(IDVariable+"=")); ok {
			return string(value)
		}
	}
	return ""
}
