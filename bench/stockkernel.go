package main

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// stockKernel is ipykernel as it is started by everybody, over Unix sockets, and a
// lean client of it.
type stockKernel struct {
	command *exec.Cmd
	folder  string
	client  *leanClient
}

// startStockKernel returns when the kernel works.
func (b *bench) startStockKernel() (_ *stockKernel, err error) {
	python, err := findPython()
	if err != nil {
		return nil, err
	}
	k := &stockKernel{}
	if k.folder, err = os.MkdirTemp(b.temp, "k"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, k.stop())
		}
	}()
	file := connectionFile{Prefix: filepath.Join(k.folder, "s"), Shell: 1, IOPub: 2, Key: rand.Text()}
	text, err := json.Marshal(map[string]any{
		"transport": "ipc", "ip": file.Prefix, "key": file.Key, "signature_scheme": "hmac-sha256",
		"shell_port": file.Shell, "iopub_port": file.IOPub, "stdin_port": 3, "control_port": 4, "hb_port": 5,
	})
	if err != nil {
		return nil, err
	}
	path := filepath.Join(k.folder, "connection.json")
	if err = os.WriteFile(path, text, 0o600); err != nil {
		return nil, err
	}
	command := exec.Command(python, "-m", "ipykernel_launcher", "-f", path)
	command.Env = append(os.Environ(), "PYDEVD_DISABLE_FILE_VALIDATION=1", "IPYTHONDIR="+k.folder)
	if err = command.Start(); err != nil {
		return nil, err
	}
	k.command = command
	for _, port := range []int{file.Shell, file.IOPub} {
		if err = awaitSocket(file.socket(port)); err != nil {
			return nil, err
		}
	}
	k.client, err = dialLean(file)
	return k, err
}

// awaitSocket returns when a kernel listens on a socket.
func awaitSocket(path string) error {
	const pause = time.Millisecond
	for deadline := time.Now().Add(leanPatience); time.Now().Before(deadline); time.Sleep(pause) {
		if conn, err := net.Dial("unix", path); err == nil {
			return conn.Close()
		}
	}
	return fmt.Errorf("the stock kernel does not listen on %s", path)
}

// stop ends the kernel and removes its folder.
func (k *stockKernel) stop() error {
	var err error
	if k.client != nil {
		err = k.client.close()
	}
	if k.command != nil {
		_ = k.command.Process.Kill() // it may have ended
		_ = k.command.Wait()         // of a kill
	}
	return errors.Join(err, os.RemoveAll(k.folder))
}
