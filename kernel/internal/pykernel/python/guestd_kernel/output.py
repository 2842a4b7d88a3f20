"""How output leaves the kernel: the thread of ipykernel that sends it, which
does not send any more, and sys.stdout and sys.stderr."""

import contextvars
import os
import threading
from io import StringIO

import zmq
from ipykernel.iostream import IOPubThread, OutStream
from jupyter_client.session import extract_header

# Characters of one message at most. 64 messages wait in the kernel at most, see
# kernel.App.init_iopub, so these bound what a kernel holds for a slow reader.
_MESSAGE = 128 * 1024
_MESSAGE_NOT_ASCII = 32 * 1024  # up to four bytes each, up to six as JSON

# Seconds that text waits for more of it.
_FLUSH_INTERVAL = 0.05

_send_part = zmq.backend.Socket.send


def send(socket, parts, flags=0, copy=True, track=False):
    """Is socket.send_multipart without the checks of each part, and with the flags
    as numbers: they take longer than the sending."""
    flags, more = int(flags), int(flags | zmq.SNDMORE)
    for part in parts[:-1]:
        _send_part(socket, part, more, copy, track)
    return _send_part(socket, parts[-1], flags, copy, track)


def reply_at_once(stream, shield):
    """Lets a stream send right away what ipykernel queues in it for the event loop.
    The socket never makes its sender wait."""

    def send_multipart(parts, *args, **kwargs):
        with shield:
            send(stream.socket, parts, *args, **kwargs)
            if stream.socket.getsockopt(zmq.EVENTS) & zmq.POLLIN:
                # Sending may have taken the wake-up that the loop would get.
                stream.io_loop.add_callback(stream.flush, zmq.POLLIN)

    stream.send_multipart = send_multipart


class Packer:
    """Encodes what is in messages, and the header of their common parent once."""

    def __init__(self, pack):
        self._pack = pack
        self._parent = (None, b"")

    def __call__(self, obj):
        if obj is not _latest_parent:
            return self._pack(obj)
        parent, packed = self._parent
        if obj is not parent:
            packed = self._pack(obj)
            self._parent = (obj, packed)
        return packed


class DirectIOPubThread(IOPubThread):
    """Sends in the calling thread, under a lock, instead of asking the IOPub
    thread to, which has to get hold of the interpreter first. A reader that does
    not read blocks whoever has something to send. The thread is left with timers,
    and with what others schedule in it.
    """

    def __init__(self, socket, shield, **options):
        self.shield = shield
        self._send_lock = threading.RLock()
        super().__init__(socket, pipe=False, **options)
        os.register_at_fork(after_in_child=self._after_fork)

    def _after_fork(self):
        self._send_lock = threading.RLock()  # whoever had it is not here

    def send_multipart(self, *args, **kwargs):
        if os.getpid() != self._master_pid:
            return  # the socket is the parent's; streams have another way
        with self.shield, self._send_lock:
            if self.socket is not None:
                send(self.socket, *args, **kwargs)

    def schedule(self, f):
        with self.shield:
            super().schedule(f)


# The header of the request that the running task or thread belongs to. A task
# inherits it from the code that made it. A thread has a context of its own, so
# it gets the attribute _PARENT of its Thread at its start.
_context_parent = contextvars.ContextVar("guestd_parent", default=None)
_PARENT = "_guestd_parent"
_latest_parent = {}


def _current_parent():
    parent = _context_parent.get()
    if parent is None:
        parent = getattr(threading.current_thread(), _PARENT, None)
    return _latest_parent if parent is None else parent


def follow_threads():
    """Makes threads belong to the request in which they were started."""
    start = threading.Thread.start

    def start_with_parent(self):
        setattr(self, _PARENT, _current_parent() or None)
        return start(self)

    threading.Thread.start = start_with_parent


class Stream(OutStream):
    """sys.stdout or sys.stderr."""

    descriptors = None  # set once there are any

    def __init__(self, session, pub_thread, name, **options):
        options["watchfd"] = False  # see package descriptors
        super().__init__(session, pub_thread, name, **options)
        self._descriptor = {"stdout": 1, "stderr": 2}[name]
        self._lock = threading.RLock()  # protects the following
        self._text = StringIO()
        self._text_parent = {}
        self._room = 0  # characters that may be added to the text as it is
        self._fork_text = ""  # of a forked child
        os.register_at_fork(after_in_child=self._after_fork)

    def _after_fork(self):
        self._lock = threading.RLock()  # whoever had it is not here
        self._text = StringIO()  # the parent writes that
        self._room = 0
        self._fork_text = ""

    @property
    def parent_header(self):
        return _current_parent()

    @parent_header.setter
    def parent_header(self, header):
        global _latest_parent
        _latest_parent = header
        _context_parent.set(header or None)

    def set_parent(self, parent):
        self.parent_header = extract_header(parent)

    def fileno(self):
        # For subprocess.run(..., stdout=sys.stdout). ipykernel answers with the
        # descriptor as it was before it was captured, where nobody reads.
        return self._descriptor

    def write(self, string):
        parent = _context_parent.get()
        with self._lock:  # mostly there is nothing to do but to add it
            if len(string) < self._room and parent is self._text_parent:
                self._room -= len(string)
                self._text.write(string)
                return len(string)
        return self._write(string)

    def _write(self, string):
        if not isinstance(string, str):
            raise TypeError(f"write() argument must be str, not {type(string)}")
        if self.pub_thread is None:
            raise ValueError("I/O operation on closed file")
        if os.getpid() != self._master_pid:
            self._write_in_fork(string)
        else:
            self.write_for(_current_parent(), string)
        return len(string)

    def write_for(self, parent, string):
        """Writes output of the request with the given header."""
        with self._lock:
            if self._text_parent is not parent:
                self._publish_text()
                self._text_parent = parent
            if len(string) >= _MESSAGE:
                self._publish_text()
                for start in range(0, len(string), _MESSAGE):
                    self._publish(string[start : start + _MESSAGE])
                return
            self._text.write(string)
            if self._text.tell() >= _MESSAGE:
                self._publish_text()
                return
            if not self._flush_pending:
                self._flush_pending = True
                self.pub_thread.schedule(self._flush_later)
            self._room = _MESSAGE - self._text.tell()

    def _flush_later(self):
        self._io_loop.call_later(_FLUSH_INTERVAL, self._flush)

    def _flush(self):
        self._flush_pending = False
        with self.pub_thread.shield, self._lock:
            self._publish_text()

    def flush(self):
        """Returns when all that was written is with the socket."""
        if self.pub_thread is None:
            return
        if os.getpid() != self._master_pid:
            self._write_in_fork("", flush=True)
            return
        if self.descriptors is not None:
            self.descriptors.drain(self)
        # The lock also where there is no text: another thread may just be sending it.
        with self.pub_thread.shield, self._lock:
            if self._text.tell():
                self._publish_text()

    def _publish_text(self):
        # An interrupt between the two lines would lose or repeat text.
        with self.pub_thread.shield:
            self._room = 0
            text, self._text = self._text.getvalue(), StringIO()
            self._publish(text)

    def _publish(self, text):
        if not text:
            return
        limit = _MESSAGE
        if not text.isascii():
            limit = _MESSAGE_NOT_ASCII
            try:
                text.encode("utf-8")
            except UnicodeEncodeError:  # lone surrogates, of os.fsdecode for instance
                text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        for start in range(0, len(text), limit):
            self._send({"name": self.name, "text": text[start : start + limit]})

    def _send(self, content):
        message = self.session.msg("stream", content, parent=self._text_parent)
        for hook in getattr(self, "_hooks", ()):  # ipykernel 6.29 and later
            message = hook(message)
            if message is None:
                return
        self.session.send(self.pub_thread, message, ident=self.topic)

    def _write_in_fork(self, string, flush=False):
        """Writes whole lines to the descriptor, which the parent reads."""
        self._fork_text += string
        end = len(self._fork_text) if flush else self._fork_text.rfind("\n") + 1
        data = self._fork_text[:end].encode("utf-8", "replace")
        self._fork_text = self._fork_text[end:]
        while data:
            data = data[os.write(self._descriptor, data) :]

    def close(self):
        self.flush()
        self._room = 0
        self.pub_thread = None

    def _setup_stream_redirects(self, name):
        raise NotImplementedError("descriptors are not the stream's")
