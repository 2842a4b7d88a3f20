//go:build !amd64

package spawn

import "syscall"

// hasVfork: package syscall starts all children.
const hasVfork = false

// forkExec is syscall.ForkExec.
func (l *launch) forkExec(path string, args []string, attr *syscall.ProcAttr) (pid int, err error) {
	return syscall.ForkExec(path, args, attr)
}
