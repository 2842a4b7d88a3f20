package main

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// leanPatience is how long the lean client waits for a kernel.
const leanPatience = 30 * time.Second

// longestStatus is more than the content of any status has bytes.
const longestStatus = 256

// leanClient is the least that can drive a Jupyter kernel: two sockets, no
// goroutine, no JSON decoded, no signature checked, nothing expected to go wrong.
type leanClient struct {
	key     []byte
	session string
	next    int // number of the next message
	shell   *wireConn
	iopub   *wireConn

	received int64 // bytes of contents on iopub
}

// connectionFile is Jupyter's, as far as it is needed.
type connectionFile struct {
	Prefix string `json:"ip"` // of the sockets' paths
	Shell  int    `json:"shell_port"`
	IOPub  int    `json:"iopub_port"`
	Key    string `json:"key"`
}

// findConnection finds the connection file of the only kernel below a folder.
func findConnection(folder string) (file connectionFile, err error) {
	var found []string
	err = filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && filepath.Ext(path) == ".json" {
			found = append(found, path)
		}
		return err
	})
	if err != nil {
		return file, err
	}
	if len(found) != 1 {
		return file, fmt.Errorf("%d connection files in %s instead of one", len(found), folder)
	}
	text, err := os.ReadFile(found[0])
	if err != nil {
		return file, err
	}
	return file, json.Unmarshal(text, &file)
}

// dialLean connects to a kernel, and returns once its output arrives.
func dialLean(file connectionFile) (_ *leanClient, err error) {
	l := &leanClient{key: []byte(file.Key), session: fmt.Sprintf("lean-%d", os.Getpid())}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.close())
		}
	}()
	if l.iopub, err = dialWire(file.socket(file.IOPub), "SUB"); err != nil {
		return nil, err
	}
	if err = l.iopub.write([]byte{1}); err != nil { // subscribes to everything
		return nil, err
	}
	if l.shell, err = dialWire(file.socket(file.Shell), "DEALER"); err != nil {
		return nil, err
	}
	return l, l.awaitOutput()
}

func (f connectionFile) socket(port int) string { return f.Prefix + "-" + strconv.Itoa(port) }

// awaitOutput asks the kernel for anything until it is seen to have done so: a
// subscription takes effect at some time.
func (l *leanClient) awaitOutput() error {
	const attempts, each = 100, 300 * time.Millisecond
	for range attempts {
		id, err := l.send("kernel_info_request", "{}")
		if err != nil {
			return err
		}
		err = l.untilIdle(id, each)
		if slow, ok := errors.AsType[net.Error](err); ok && slow.Timeout() {
			continue
		}
		return err
	}
	return errors.New("the kernel's output does not arrive")
}

// run runs code until both halves of its end are there.
func (l *leanClient) run(code string) error {
	quoted, err := json.Marshal(code)
	if err != nil {
		return err
	}
	id, err := l.send("execute_request", `{"code":`+string(quoted)+
		`,"silent":false,"store_history":true,"user_expressions":{},"allow_stdin":false,"stop_on_error":false}`)
	if err != nil {
		return err
	}
	if err := l.untilIdle(id, leanPatience); err != nil {
		return err
	}
	for {
		message, err := l.shell.read(leanPatience)
		if err != nil {
			return err
		}
		if message.answers(id) {
			if !bytes.Contains(message.content(), []byte(`"ok"`)) {
				return fmt.Errorf("the kernel replied %s", message.content())
			}
			return nil
		}
	}
}

func (l *leanClient) untilIdle(id string, patience time.Duration) error {
	for {
		message, err := l.iopub.read(patience)
		if err != nil {
			return err
		}
		content := message.content()
		l.received += int64(len(content))
		if len(content) < longestStatus && message.answers(id) &&
			bytes.Contains(content, []byte(`"execution_state"`)) && bytes.Contains(content, []byte(`"idle"`)) {
			return nil
		}
	}
}

// send sends a request on shell and returns its id.
func (l *leanClient) send(kind, content string) (string, error) {
	l.next++
	id := fmt.Sprintf("%s-%d.", l.session, l.next)
	header := fmt.Sprintf(`{"msg_id":%q,"session":%q,"username":"lean","date":"2000-01-01T00:00:00Z","msg_type":%q,"version":"5.3"}`,
		id, l.session, kind)
	signed := [][]byte{[]byte(header), []byte("{}"), []byte("{}"), []byte(content)}
	mac := hmac.New(sha256.New, l.key)
	for _, part := range signed {
		mac.Write(part)
	}
	signature := hex.AppendEncode(nil, mac.Sum(nil))
	return id, l.shell.write(append([][]byte{[]byte("<IDS|MSG>"), signature}, signed...)...)
}

// leanMessage is a message's frames; the last four are header, parent header,
// metadata and content, since nothing here has buffers.
type leanMessage [][]byte

func (m leanMessage) answers(id string) bool {
	return len(m) >= 4 && bytes.Contains(m[len(m)-3], []byte(id))
}

func (m leanMessage) content() []byte { return m[len(m)-1] }

func (l *leanClient) close() error {
	var errs []error
	for _, conn := range []*wireConn{l.shell, l.iopub} {
		if conn != nil {
			errs = append(errs, conn.Close())
		}
	}
	return errors.Join(errs...)
}
