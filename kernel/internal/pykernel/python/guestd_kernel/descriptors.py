"""What is written to descriptors 1 and 2 instead of sys.stdout and sys.stderr:
by C code, by child processes, by forks."""

import codecs
import fcntl
import os
import select
import threading

_READ = 64 * 1024  # bytes at once
_CAPACITY = 1024 * 1024  # bytes that a pipe takes before its writer has to wait
_F_SETPIPE_SZ = 1031  # fcntl.F_SETPIPE_SZ, which Python has from 3.10 on


class Pipe:
    """A pipe behind one descriptor, and the text that was read from it."""

    def __init__(self, descriptor, stream, parent):
        self.descriptor = descriptor
        self.stream = stream
        self.parent = parent  # header of the request that the output belongs to
        self.lock = threading.RLock()  # held while reading
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.read_end, write_end = os.pipe()
        try:
            os.set_blocking(self.read_end, False)
            try:
                fcntl.fcntl(write_end, _F_SETPIPE_SZ, _CAPACITY)
            except OSError:
                pass  # the user has too many of that size: 64 KiB do
            os.dup2(write_end, descriptor)  # unlike the original inheritable
            self.inode = os.fstat(write_end).st_ino
        except OSError:
            os.close(self.read_end)
            raise
        finally:
            os.close(write_end)

    def is_in_place(self):
        """Says whether the descriptor still is ours; user code may redirect it."""
        try:
            return os.fstat(self.descriptor).st_ino == self.inode
        except OSError:
            return False

    def pump(self):
        """Hands on what is in the pipe, at most what fits in, since somebody may
        go on writing for ever. Says whether more can come: some process has it."""
        with self.lock:
            for _ in range(_CAPACITY // _READ):
                if self.read_end < 0:
                    return False
                try:
                    data = os.read(self.read_end, _READ)
                except BlockingIOError:
                    return True
                text = self.decoder.decode(data, final=not data)
                if text:
                    self.stream.write_for(self.parent, text)
                if not data:
                    self.close()
                    return False
        return True

    def close(self):
        with self.lock:
            read_end, self.read_end = self.read_end, -1
            if read_end >= 0:
                os.close(read_end)


class Descriptors(threading.Thread):
    """Reads the pipes. At the end of an execution the main thread does so too.

    Child processes of an earlier execution that go on writing are known by the
    pipe they have. So each execution has pipes of its own. The old ones are read
    until their last writer is gone, and what comes from them belongs to the
    execution that they were made for.
    """

    def __init__(self):
        super().__init__(name="Descriptors", daemon=True)
        self._pid = os.getpid()
        self._poll = select.epoll()
        self._lock = threading.Lock()  # protects the following
        self._pipes = {}  # all of them, by read end
        self._current = []  # those behind the descriptors

    def capture(self, descriptor, stream):
        pipe = Pipe(descriptor, stream, stream.parent_header)
        with self._lock:
            self._current.append(pipe)
        self._watch(pipe)

    def _watch(self, pipe):
        with self._lock:
            self._pipes[pipe.read_end] = pipe
        self._poll.register(pipe.read_end, select.EPOLLIN)

    def _forget(self, pipe, read_end):
        try:
            self._poll.unregister(read_end)
        except OSError:
            pass  # it is closed, and was forgotten so
        with self._lock:
            if self._pipes.get(read_end) is pipe:
                del self._pipes[read_end]

    def run(self):
        while True:
            for read_end, _ in self._poll.poll():
                with self._lock:
                    pipe = self._pipes.get(read_end)
                if pipe is None:
                    continue
                try:
                    more = pipe.pump()
                except (OSError, ValueError):
                    more = False  # user code has closed the pipe or the stream
                if not more:
                    self._forget(pipe, read_end)

    def drain(self, stream):
        """Hands on what was written to the stream's descriptor until now."""
        if os.getpid() != self._pid:
            return  # a forked child, whose parent reads
        with self._lock:
            pipes = [pipe for pipe in self._current if pipe.stream is stream]
        for pipe in pipes:
            try:
                pipe.pump()
            except OSError:
                pass  # user code has closed it

    def begin(self, parent):
        """Starts an execution: from now on the descriptors are its own."""
        with self._lock:
            current = list(self._current)
        self._current = [self._renew(pipe, parent) for pipe in current]

    def _renew(self, old, parent):
        if not old.is_in_place():
            return old
        with old.lock:
            read_end = old.read_end
            if read_end < 0:
                return old
            self._forget(old, read_end)
            try:
                new = Pipe(old.descriptor, old.stream, parent)
            except OSError:
                new = old  # there are no descriptors left
                new.parent = parent
            # With our own end gone a pipe that nobody else has is at its end.
            if new is old or old.pump():
                self._watch(old)
        if new is not old:
            self._watch(new)
        return new
