//go:build !amd64

package spawn

import "syscall"

// forkExec is syscall.ForkExec.
func forkExec(path string, args []string, attr *syscall.ProcAttr) (pid int, err error) {
	return syscall.ForkExec(path, args, attr)
}
