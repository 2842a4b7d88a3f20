"""Starting a kernel."""

import atexit
import os
import re
import sys
import threading

from guestd_kernel import control

# Major versions of ipykernel whose parts we know how to change.
_KNOWN = ("6", "7")


class _Block:
    """Makes an import of debugpy fail. Nobody debugs through guestd, and it takes
    a third of the start. ipykernel is prepared to do without."""

    def find_spec(self, name, path=None, target=None):
        if name == "debugpy" or name.startswith("debugpy."):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return None


def load():
    """Imports ipykernel, and returns the application to run: ours, or the stock
    one of a version that we do not know."""
    block = _Block()
    sys.meta_path.insert(0, block)
    try:
        import ipykernel.kernelapp

        try:
            import ipykernel.debugger  # which later versions import late
        except ImportError:
            pass  # or do without
        try:
            if _is_known(ipykernel):
                from guestd_kernel.kernel import App

                return App
        except (ImportError, AttributeError):
            pass  # a known version would have what was missing
        from guestd_kernel.stock import App

        return App
    finally:
        sys.meta_path.remove(block)  # user code may import it


def _is_known(ipykernel):
    from ipykernel.iostream import IOPubThread, OutStream
    from ipykernel.ipkernel import IPythonKernel
    from ipykernel.kernelapp import IPKernelApp

    major = re.split(r"\D", ipykernel.__version__, maxsplit=1)[0]
    used = {
        IOPubThread: ("send_multipart", "schedule", "_setup_event_pipe"),
        OutStream: ("write", "flush", "_flush", "set_parent"),
        IPythonKernel: ("pre_handler_hook", "post_handler_hook", "_cancel_on_sigint", "do_execute"),
        IPKernelApp: ("init_iopub", "init_control", "init_heartbeat", "init_io", "init_signal"),
    }
    return major in _KNOWN and all(hasattr(c, name) for c, names in used.items() for name in names)


def _configuration():
    from traitlets.config import Config

    config = Config()
    config.HistoryManager.enabled = False  # sqlite, a third of a short execution
    config.InteractiveShell.colors = "NoColor"  # in tracebacks
    config.PlainTextFormatter.max_seq_length = 0  # long lists are printed whole
    config.Kernel._execute_sleep = 0.0
    config.IPKernelApp.log_level = 50  # and no banner
    config.Session.copy_threshold = 1 << 20  # or pyzmq starts a thread
    return config


def cold(arguments):
    """Runs a kernel in this process."""
    app_class = load()
    run(app_class, arguments, control.connect())


def run(app_class, arguments, connection):
    """Runs a kernel until it is told to end."""
    app = app_class.instance(config=_configuration())
    app.initialize(arguments)
    if connection is not None:
        control.follow(connection, lambda settings: _apply(app, settings))
    app.start()


def _apply(app, settings):
    """Moves a kernel that was started ahead to where it is wanted."""
    answer = control.apply(settings)
    shell = getattr(app, "shell", None)
    if not answer and shell is not None:
        shell.user_ns["_dh"][:] = [os.getcwd()]  # IPython's list of directories
    return answer


def end():
    """Ends a forked kernel as the interpreter would end by itself."""
    try:
        threading._shutdown()  # waits for threads that are no daemons
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(0)
