"""Sets up a stock ipykernel for guestd, which runs this at the kernel's start
in a namespace that is thrown away.

1. The output socket waits for a slow reader instead of dropping messages, the
   end of the execution among them.
2. What a program or a C library writes to descriptors 1 and 2 goes through a
   pipe that ipykernel reads in a thread of its own, in no order with the end of
   the execution. At the end of each execution we wait until that is through.
"""

import array
import fcntl
import sys
import termios
import time

import zmq
from IPython import get_ipython


def keep_all_output(thread):
    thread.schedule(lambda: thread.socket.setsockopt(zmq.XPUB_NODROP, 1))


class DescriptorOutput:
    """What one of ipykernel's streams takes from its descriptor."""

    LONGEST_WAIT = 0.1  # seconds; somebody may go on writing for ever

    def __init__(self, stream):
        self.thread = getattr(stream, "watch_fd_thread", None)
        self.pipe = getattr(stream, "_fid", None)

    def drain(self):
        if self.thread is None or self.pipe is None or not self.thread.is_alive():
            return
        deadline = time.monotonic() + self.LONGEST_WAIT
        while not self.is_through() and time.monotonic() < deadline:
            time.sleep(0.0002)  # lets the thread have the interpreter

    def is_through(self):
        """The thread is back in its read of the pipe, and the pipe is empty."""
        with open(f"/proc/self/task/{self.thread.native_id}/syscall", "rb", buffering=0) as f:
            call = f.read(64).split()  # "0 0x2c …", the first argument is the pipe; or "running"
        if len(call) < 2 or int(call[1], 16) != self.pipe:
            return False
        unread = array.array("i", [0])
        fcntl.ioctl(self.pipe, termios.FIONREAD, unread)
        return unread[0] == 0


def drain_descriptors(outputs):
    def at_the_end_of_an_execution():
        try:
            for output in outputs:
                output.drain()
        except (OSError, ValueError, KeyboardInterrupt):
            pass  # no such /proc file, or the user closed the pipe: as without us

    return at_the_end_of_an_execution


shell = get_ipython()
keep_all_output(shell.kernel.iopub_thread)
outputs = [DescriptorOutput(sys.stdout), DescriptorOutput(sys.stderr)]
shell.events.register("post_execute", drain_descriptors(outputs))
