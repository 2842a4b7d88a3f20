"""A process that has imported all that a kernel needs, and forks kernels.

The socket to guestd keeps the boundaries of messages; each is a JSON object.

    server -> guestd  {"ready": true} or {"error": …}      once
    guestd -> server  {"fork": [ARGUMENT, …]} and two descriptors: the kernel's
                      control socket and its stderr
    guestd -> server  {"check": NUMBER}
    server -> guestd  {"check": NUMBER, "stale": BOOL}
    server -> guestd  {"pid": PID, "status": STATUS}       a kernel has ended

A fork answers through its own control socket, first with an empty message that
shows guestd who it is, and runs nothing of the user's before guestd has answered
with its settings. The server has one thread, opens no ZeroMQ context and no event
loop: none of these survives a fork. It waits for its children, and ends when
guestd has closed the socket and the last of them has ended.
"""

import array
import gc
import importlib
import json
import os
import select
import signal
import site
import socket
import sys
import traceback
import warnings

from guestd_kernel import control, start

_LONGEST = 64 * 1024  # bytes of a message

# What IPython imports for its first traceback and its first completion.
_EARLY = [
    "IPython.core.completerlib",
    "IPython.core.ultratb",
    "asttokens",
    "executing",
    "pygments.formatters.terminal256",
    "pygments.lexers.python",
    "pygments.styles.default",
    "stack_data",
]


class Packages:
    """Notices that packages were installed or removed: their folders change.

    A folder also changes when something in it is imported for the first time, by a
    __pycache__. So one whose time has changed is looked through: an upgrade has
    another folder for its metadata, or another file.
    """

    def __init__(self):
        folders = {f for f in sys.path if f.endswith(("site-packages", "dist-packages"))}
        folders.update(site.getsitepackages())
        folders.add(site.getusersitepackages())
        self._times = {folder: self._time(folder) for folder in folders}
        self._entries = {folder: self._look_through(folder) for folder in folders}

    @staticmethod
    def _time(folder):
        try:
            return os.stat(folder).st_mtime_ns
        except OSError:
            return None

    @staticmethod
    def _look_through(folder):
        entries = set()
        try:
            with os.scandir(folder) as scan:
                for entry in scan:
                    if entry.name != "__pycache__":
                        is_file = entry.is_file()
                        entries.add((entry.name, is_file and entry.stat().st_mtime_ns))
        except OSError:
            pass  # it is not there, or something vanishes right now
        return entries

    def changed(self):
        for folder, before in self._times.items():
            time = self._time(folder)
            if time == before:
                continue
            if self._look_through(folder) != self._entries[folder]:
                return True
            self._times[folder] = time
        return False


def _import(name):
    try:
        importlib.import_module(name)
    except Exception:
        return  # it is not there, or broken: a kernel will say so itself
    if name == "matplotlib.pyplot":
        _draw()


def _draw():
    """Draws a figure, so that fonts and the like are loaded. pyplot, which would
    choose a backend, has no part in it."""
    try:
        import io

        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        figure = Figure()
        figure.add_subplot().plot([0, 1])
        FigureCanvasAgg(figure).print_png(io.BytesIO())
    except Exception:
        pass


class Server:
    def __init__(self, connection, app_class, packages):
        self._connection = connection
        self._app_class = app_class
        self._packages = packages
        self._poll = select.poll()
        self._children = {}  # process ids by pidfd

    def run(self):
        """Serves until it is told to end, and the last kernel has. In a kernel it
        does not return."""
        self._poll.register(self._connection, select.POLLIN)
        open_ = True
        while open_ or self._children:
            for descriptor, _ in self._poll.poll():
                if descriptor in self._children:
                    self._on_end(descriptor)
                elif open_ and not self._on_request():
                    open_ = False
                    self._poll.unregister(self._connection)

    def _send(self, message):
        try:
            self._connection.send(json.dumps(message).encode())
        except OSError:
            pass  # guestd is gone

    def _on_end(self, pidfd):
        pid = self._children.pop(pidfd)
        self._poll.unregister(pidfd)
        os.close(pidfd)
        _, status = os.waitpid(pid, 0)
        self._send({"pid": pid, "status": status})

    def _on_request(self):
        """Does what guestd asks for; says whether it may ask for more."""
        descriptors = array.array("i")
        space = socket.CMSG_SPACE(2 * descriptors.itemsize)
        try:
            data, ancillary, _, _ = self._connection.recvmsg(_LONGEST, space)
        except ConnectionError:
            return False
        for _, kind, content in ancillary:
            if kind == socket.SCM_RIGHTS:
                descriptors.frombytes(content[: len(content) - len(content) % descriptors.itemsize])
        if not data:
            return False
        request = json.loads(data)
        if "check" in request:
            self._send({"check": request["check"], "stale": self._packages.changed()})
        elif "fork" in request and len(descriptors) == 2:
            self._fork(request["fork"], *descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        return True

    def _fork(self, arguments, control_descriptor, stderr):
        try:
            with warnings.catch_warnings():
                # Of threads: OpenBLAS has some, and takes care of them.
                warnings.simplefilter("ignore")
                pid = os.fork()
        except OSError:
            return  # guestd sees the control socket's end
        if pid == 0:
            try:
                self._become_kernel(arguments, control_descriptor, stderr)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            start.end()
        pidfd = os.pidfd_open(pid)
        self._children[pidfd] = pid
        self._poll.register(pidfd, select.POLLIN)

    def _become_kernel(self, arguments, control_descriptor, stderr):
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor, source in enumerate((null, null, stderr)):
            os.dup2(source, descriptor)
        self._connection.close()
        os.dup2(control_descriptor, control.DESCRIPTOR, inheritable=False)
        for descriptor in (null, stderr, control_descriptor, *self._children):
            os.close(descriptor)
        connection = control.connect()
        control.send(connection, {})
        settings = control.receive(connection)
        if settings is None:
            os._exit(1)
        answer = control.apply(settings)
        control.send(connection, answer)
        if answer:
            os._exit(1)
        sys.argv[1:] = arguments
        _part_from_siblings()
        start.run(self._app_class, arguments, connection)


def _part_from_siblings():
    """Undoes what a fork has in common with all others and a process of its own
    would not. Python does so for the random generator of its own."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()
    # Whichever backend pyplot chose by itself in here was chosen without a shell.
    sys.modules.pop("matplotlib_inline.backend_inline", None)


def serve(modules):
    connection = socket.socket(fileno=control.DESCRIPTOR)
    connection.set_inheritable(False)
    packages = Packages()
    app_class = start.load()
    if app_class.__module__ == "guestd_kernel.stock" or not hasattr(os, "pidfd_open"):
        connection.send(json.dumps({"error": "this Python or ipykernel cannot be forked"}).encode())
        return
    for name in _EARLY + modules:
        _import(name)
    gc.collect()
    gc.freeze()  # a collection in a fork copies no page of what is here
    connection.send(json.dumps({"ready": True}).encode())
    Server(connection, app_class, packages).run()
