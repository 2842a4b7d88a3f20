"""The kernel and its application: ipykernel's, with our parts put in."""

import asyncio
import logging
import os
import sys
import threading
import warnings
from contextlib import contextmanager

import zmq
from ipykernel.ipkernel import IPythonKernel
from ipykernel.kernelapp import IPKernelApp
from ipykernel.zmqshell import ZMQInteractiveShell
from tornado.ioloop import IOLoop
from traitlets import Type

from guestd_kernel import output, shortcuts
from guestd_kernel.descriptors import Descriptors
from guestd_kernel.interrupts import Interrupts, end_where_signalled

# Messages that wait in the kernel for a slow reader. Whoever sends more waits.
_HIGH_WATER_MARK = 64

class Shell(ZMQInteractiveShell):
    """Runs user code so that Interrupts knows it."""

    _cell = _transformed = None

    def expect(self, cell):
        """Says that a cell is about to be transformed twice: by do_execute, to learn
        whether it awaits something, and by run_cell."""
        self._cell, self._transformed = cell, None

    def transform_cell(self, raw_cell):
        if raw_cell is not self._cell:
            return super().transform_cell(raw_cell)
        if self._transformed is None:
            self._transformed = super().transform_cell(raw_cell)
        else:
            self._cell = None
        return self._transformed

    def should_run_async(self, *args, **kwargs):
        # It compiles the code, and before Python 3.12 what is wrong with a NUL byte is
        # no SyntaxError, which would leave the request without a reply. What does not
        # compile is told as an error when it is run.
        try:
            return super().should_run_async(*args, **kwargs)
        except Exception:
            return False

    async def run_code(self, code_obj, result=None, *, async_=False):
        interrupts = self.kernel.interrupts
        interrupts.enter(code_obj)
        try:
            if interrupts.take():
                raise KeyboardInterrupt
            failed = await super().run_code(code_obj, result, async_=async_)
        except KeyboardInterrupt as interrupt:
            if result is not None:
                result.error_in_exec = interrupt
            self.showtraceback()
            return True
        finally:
            interrupts.leave()
        if result is not None and self._was_interrupted(result.error_in_exec):
            result.error_in_exec = KeyboardInterrupt()
        return failed

    def _was_interrupted(self, error):
        return self.kernel.interrupts.cancelled and isinstance(error, asyncio.CancelledError)

    def _get_exc_info(self, exc_tuple=None):
        # An interrupted await raises CancelledError, which is not what happened.
        etype, value, traceback = super()._get_exc_info(exc_tuple)
        if self._was_interrupted(value):
            etype, value = KeyboardInterrupt, KeyboardInterrupt()
        end_where_signalled(value, traceback)
        return etype, value, traceback

    def _showtraceback(self, etype, evalue, stb):
        if os.getpid() == self.kernel.pid:
            super()._showtraceback(etype, evalue, stb)
        else:  # a fork has descriptor 2
            sys.stdout.flush()
            print("\n".join(stb), file=sys.stderr, flush=True)


class _NoSubshells:
    """Stands for ipykernel 7's shell_channel_thread where there is none: None but
    for the one attribute that is asked for nevertheless."""

    parent_thread = threading.main_thread()

    def __bool__(self):
        return False


class Kernel(IPythonKernel):
    """Handles requests one after the other."""

    shell_class = Type(Shell)

    def __init__(self, **kwargs):
        self.pid = os.getpid()
        self.interrupts = kwargs["parent"].interrupts
        super().__init__(**kwargs)
        output.reply_at_once(self.shell_stream, self.interrupts)
        self.session.pack = output.Packer(self.session.pack)
        # The application's handler takes nothing less, and its log_level is the handler's.
        self.log.setLevel(logging.CRITICAL)

    @property
    def kernel_info(self):
        # How guestd tells this kernel from a stock one.
        return {**super().kernel_info, "guestd": {"launcher": 1}}

    @property
    def _supports_kernel_subshells(self):
        return False

    def _publish_status(self, status, *args, **kwargs):
        # guestd knows from execute_input that the code has begun, and needs no more
        # than the end of any other request.
        if status != "busy":
            super()._publish_status(status, *args, **kwargs)

    def pre_handler_hook(self):
        self.interrupts.begin()

    def post_handler_hook(self):
        pass  # our handler stays

    async def _flush_control_queue(self):
        # Before each request ipykernel 6 waits for its control thread. What comes
        # on the control connection does not have to be in any order with requests.
        pass

    def _initialize_thread_hooks(self):
        pass  # ipykernel 6.29's way to follow threads; see output.follow_threads

    @contextmanager
    def _cancel_on_sigint(self, future):
        self.interrupts.awaits(future, asyncio.get_running_loop())
        try:
            yield
        finally:
            self.interrupts.awaits_no_more()

    async def do_execute(self, code, silent, *args, **kwargs):
        app = self.parent
        app.descriptors.begin(app.streams[0].parent_header)
        self.shell.expect(code)
        try:
            reply = await super().do_execute(code, silent, *args, **kwargs)
        except asyncio.CancelledError:
            reply = self._cancelled()
        finally:
            if os.getpid() != self.pid:
                self._end_fork()
            for stream in app.streams:  # sys.stdout may be something else by now
                stream.flush()
        return reply

    def _cancelled(self):
        """The reply for code that cancelled the task it was running in."""
        return {
            "status": "error",
            "ename": "CancelledError",
            "evalue": "",
            "traceback": [],
            "execution_count": self.shell.execution_count - 1,
            "user_expressions": {},
            "payload": [],
        }

    async def dispatch_queue(self):
        # ipykernel 6 handles all requests in one task, which user code can find, and
        # which must not end for anything.
        while True:
            try:
                await super().dispatch_queue()
            except (asyncio.CancelledError, KeyboardInterrupt):
                continue

    def _end_fork(self):
        """Ends a child that user code has forked and let run on into here. The
        sockets are its parent's."""
        try:
            for stream in self.parent.streams:
                stream.flush()
        finally:
            os._exit(0)


class App(IPKernelApp):
    """Puts a kernel together and runs it."""

    kernel_class = Type(Kernel)

    def __init__(self, **kwargs):
        self.interrupts = Interrupts(Shell.run_code)
        self.descriptors = Descriptors()
        self.streams = []
        shortcuts.apply()
        super().__init__(**kwargs)

    def init_control(self, context):
        super().init_control(context)
        # ipykernel 7 has a thread that hands requests to others that run beside the
        # main one. guestd does not use them, and each request would be slower.
        if hasattr(self, "shell_channel_thread"):
            self.shell_channel_thread = _NoSubshells()

    def init_iopub(self, context):
        self.iopub_socket = context.socket(zmq.PUB)
        self.iopub_socket.linger = 1000
        # The sender waits. Without this the socket would drop messages, the end of
        # the execution among them. Both must be set before the socket is bound.
        self.iopub_socket.setsockopt(zmq.XPUB_NODROP, 1)
        self.iopub_socket.setsockopt(zmq.SNDHWM, _HIGH_WATER_MARK)
        self.iopub_port = self._bind_socket(self.iopub_socket, self.iopub_port)
        self.configure_tornado_logger()
        self.iopub_thread = output.DirectIOPubThread(self.iopub_socket, self.interrupts)
        self.iopub_thread.start()
        self.iopub_socket = self.iopub_thread.background_socket

    def init_heartbeat(self):
        pass  # a process is watched by its parent

    def init_io(self):
        output.follow_threads()
        self.outstream_class = "guestd_kernel.output.Stream"
        super().init_io()
        self.streams = [sys.stdout, sys.stderr]
        for descriptor, stream in enumerate(self.streams, start=1):
            stream.descriptors = self.descriptors
            self.descriptors.capture(descriptor, stream)
        self.descriptors.start()

    def init_shell(self):
        super().init_shell()
        # After a SystemExit IPython tells people to type exit, which would end the
        # kernel and all that it knows.
        warnings.filterwarnings("ignore", "To exit: use", UserWarning)

    def init_signal(self):
        self.interrupts.install()

    def start(self):
        # Nothing of ours lets a KeyboardInterrupt through to the event loop, but
        # user code can raise one in a callback. It is no reason to end.
        loop = IOLoop.current()
        run = loop.start

        def run_on():
            while True:
                try:
                    return run()
                except KeyboardInterrupt:
                    continue

        loop.start = run_on
        super().start()
