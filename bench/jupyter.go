package main

import (
	"bufio"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// jupyterScript is what most programs that run code in a kernel are built on.
//
//go:embed jupyter.py
var jupyterScript string

// errNoJupyter says that there is nothing to compare with.
var errNoJupyter = errors.New("no Python on this machine has jupyter_client and ipykernel (Debian: python3-ipykernel)")

// jupyterClient is a Python process that drives a stock kernel.
type jupyterClient struct {
	command *exec.Cmd
	stdin   io.WriteCloser
	lines   *bufio.Reader
}

// startJupyterClient returns when the kernel works.
func startJupyterClient() (*jupyterClient, error) {
	python, err := findPython()
	if err != nil {
		return nil, err
	}
	j := &jupyterClient{command: exec.Command(python, "-c", jupyterScript)}
	j.command.Env = append(os.Environ(), "PYDEVD_DISABLE_FILE_VALIDATION=1") // a debugger's chatter
	j.command.Stderr = os.Stderr
	if j.stdin, err = j.command.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := j.command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	j.lines = bufio.NewReader(stdout)
	if err := j.command.Start(); err != nil {
		return nil, err
	}
	if _, err := j.line(); err != nil {
		return nil, errors.Join(err, j.stop())
	}
	return j, nil
}

// findPython finds an interpreter that has what the script needs.
func findPython() (string, error) {
	for _, python := range []string{"python3", "/usr/bin/python3"} {
		if exec.Command(python, "-c", "import ipykernel, jupyter_client").Run() == nil {
			return python, nil
		}
	}
	return "", errNoJupyter
}

func (j *jupyterClient) line() (string, error) {
	line, err := j.lines.ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("jupyter_client ended: %w", err)
	}
	return strings.TrimSpace(line), nil
}

// run is an arm: one execution, timed in Python.
func (j *jupyterClient) run() (time.Duration, error) {
	if _, err := io.WriteString(j.stdin, "\n"); err != nil {
		return 0, err
	}
	line, err := j.line()
	if err != nil {
		return 0, err
	}
	nanoseconds, err := strconv.ParseInt(line, 10, 64)
	return time.Duration(nanoseconds), err
}

// stop ends the process and its kernel.
func (j *jupyterClient) stop() error { return errors.Join(j.stdin.Close(), j.command.Wait()) }
