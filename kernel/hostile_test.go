package kernel

import (
	"runtime"
	"testing"
	"time"
)

// attacks are things that user code can do to its own kernel's sockets. Whatever
// comes of them, the execution ends.
var attacks = map[string]string{
	"forged idle":              "kernel._publish_status('idle', 'shell')\nimport time\ntime.sleep(1)",
	"forged reply and idle":    "import zmq\nkernel.session.send(kernel.shell_stream, 'execute_reply', {'status': 'ok', 'execution_count': 99}, kernel.get_parent('shell'), ident=kernel._parent_ident['shell'] if hasattr(kernel, '_parent_ident') else None)\nkernel._publish_status('idle', 'shell')\nimport time\ntime.sleep(0.5)",
	"forged parents":           "for i in range(1000): send('stream', {'name': 'stdout', 'text': 'x'}, parent={'header': {'msg_id': str(i), 'msg_type': 'execute_request', 'session': '', 'username': '', 'version': '5.3'}})",
	"wrong key":                "kernel.session.key = b'other'\nprint('lost')",
	"garbage":                  "for i in range(1000): socket.send_multipart([b'x' * i])",
	"malformed":                "for part in (b'', b'{', b'[]', b'null', b'{\"msg_id\": 1}', b'[' * 100000): socket.send_multipart([b'<IDS|MSG>', kernel.session.sign([part] * 4), part, part, part, part])",
	"long header":              "send('stream', {'name': 'stdout', 'text': 'x'}, metadata={'x': 'y' * 10_000_000})",
	"deep content":             "import json\nsend('display_data', {'data': {'application/json': None}, 'metadata': {}})\nsocket.send_multipart([b'<IDS|MSG>', b'', b'{}', b'{}', b'{}', b'[' * 1_000_000])",
	"huge frame":               "socket.send(b'x' * 300_000_000)",
	"many frames":              "socket.send_multipart([b'x'] * 100_000)",
	"flood":                    "for i in range(20_000): socket.send_multipart([b'flood'] * 5)",
	"flood of executions":      "for i in range(20_000): send('execute_input', {'code': '', 'execution_count': i})",
	"input requests":           "for i in range(1000): kernel.session.send(kernel.stdin_socket, 'input_request', {'prompt': 'p' * 1000, 'password': False}, kernel.get_parent('shell'), ident=[b'nobody'])",
	"closed iopub":             "thread.socket.close()",
	"closed everything":        "import os\nos.closerange(3, 4096)",
	"dropped sockets":          "kernel.shell_stream.close()\nkernel.control_stream.close()",
	"stopped process":          "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)",
	"blocked signals":          "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())\nwhile True: pass",
	"threads that write":       "import threading\ndef run():\n  while True: send('stream', {'name': 'stdout', 'text': 'x' * 1000})\nfor i in range(8): threading.Thread(target=run, daemon=True).start()\nimport time\ntime.sleep(1)",
	"control socket":           "import os\nos.write(3, b'\\xff' * 100_000)",
	"control socket's end":     "import os\nos.close(3)\nimport time\ntime.sleep(1)",
	"its folder":               "import os, shutil\nshutil.rmtree(os.path.dirname(os.environ['IPYTHONDIR']))\nprint('gone')",
	"replaced standard output": "import sys, os\nsys.stdout = sys.stderr = sys.__stdout__ = None\nos.close(1)\nos.close(2)",
	"output with the GIL held": "import ctypes\n_ = ctypes.PyDLL(None).write(1, b'x' * 5_000_000, 5_000_000)",
	"comms":                    "from ipykernel.comm import Comm\nfor i in range(3000): Comm(target_name='x', data={'i': i})",
	"recursion":                "def f(): f()\nf()",
	"cancelled tasks":          "import asyncio\nfor task in asyncio.all_tasks(): task.cancel()\nawait asyncio.sleep(1)",
	"exit hook":                "import atexit, time\n_ = atexit.register(time.sleep, 600)\nexit()",
}

const attackPrelude = `
kernel = get_ipython().kernel
thread = kernel.iopub_thread
socket = thread.socket
def send(kind, content, parent=None, metadata=None):
    kernel.session.send(thread, kind, content, kernel.get_parent('shell') if parent is None else parent, metadata=metadata)
`

// Code that turns on its own kernel's sockets costs its context at most its kernel:
// each execution ends, memory stays bounded, and another context does not notice.
func TestCodeThatAttacksItsKernel(t *testing.T) {
	bystander := newContexts(t)
	mustOK(t, bystander, "kept = 'kept'")
	for name, code := range attacks {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // some wait for the ladder
			cs := newContexts(t)
			mustOK(t, cs, attackPrelude)
			x := start(t, cs, Request{Code: code, Timeout: after(3 * time.Second)})
			out := collect(t, x)
			t.Logf("%v, state lost: %v, error: %v", out.finished.Status, out.finished.StateLost, out.err)
			// The context is of use again, at the latest after the ladder.
			waitFor(t, "the context to work", func() bool {
				out := collect(t, start(t, cs, Request{Code: "6*7", Timeout: after(20 * time.Second)}))
				return out.finished.Status == OK && len(out.results) == 1 && out.results[0].part("text/plain") == "42"
			})
			if out := mustOK(t, bystander, "kept"); out.results[0].part("text/plain") != "'kept'" || out.started.FreshKernel {
				t.Error("another context has noticed")
			}
		})
	}
	t.Cleanup(func() {
		var now runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&now)
		if now.HeapInuse > 256<<20 {
			t.Errorf("guestd's heap has %d MiB", now.HeapInuse>>20)
		}
	})
}

// A kernel that runs nothing any more must not look as if it did.
func TestKernelThatDoesNotReply(t *testing.T) {
	cs := newContexts(t)
	mustOK(t, cs, "get_ipython().kernel.do_execute = None")
	if out := execute(t, cs, "6*7"); out.finished.Status != Failed || out.err == nil || out.err.Name != ErrorAborted {
		t.Errorf("%+v, error %+v", out.finished, out.err)
	}
}
