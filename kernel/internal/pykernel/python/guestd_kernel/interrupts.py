"""What a SIGINT does to the kernel."""

import os
import signal
import sys
import threading

from IPython.core.events import EventManager
from IPython.core.interactiveshell import InteractiveShell

_SHOW_TRACEBACK = InteractiveShell.showtraceback.__code__
_TRIGGER = EventManager.trigger.__code__
_OURS = os.path.dirname(__file__) + os.sep


def end_where_signalled(error, traceback):
    """Lets the traceback of an interrupt, and of each one that led to the error,
    end where the signal came, as with Python's own handler: our frames are no
    part of the user's code."""
    if isinstance(error, KeyboardInterrupt):
        _cut_our_end(traceback)
    seen = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if isinstance(error, KeyboardInterrupt):
            _cut_our_end(error.__traceback__)
        error = error.__cause__ or error.__context__


def _cut_our_end(entry):
    last = None
    while entry is not None:
        if not entry.tb_frame.f_code.co_filename.startswith(_OURS):
            last = entry
        entry = entry.tb_next
    if last is not None:
        last.tb_next = None


class Interrupts:
    """The kernel's handler of SIGINT. It is in place all the time.

    Where a signal finds the user's code on the stack of the main thread it raises
    KeyboardInterrupt, as Python does by itself. Anywhere else, in ipykernel's or
    our own code, an exception would end the kernel or swallow a reply: there the
    signal is kept for the next piece of user code of the same execution. Whether
    user code runs is read off the stack at that moment. A flag that is set and
    cleared around it would be wrong for an instant at either end, and signals
    find that instant.

    As a context manager it is a shield: within it the main thread is not
    interrupted, user code or not. Half a message on a socket must not be.
    """

    def __init__(self, run_code):
        # What surrounds the user's code immediately: IPython's method, and ours.
        self._surroundings = (InteractiveShell.run_code.__code__, run_code.__code__)
        self._main = threading.main_thread().ident
        self._codes = []  # the user's code objects that run, outermost first
        self._shields = 0
        self._pending = False
        self._future = None  # the top-level code that awaits something
        self._loop = None
        self._cancelling = False  # the loop was asked to cancel it, and has not yet
        self.cancelled = False  # the last CancelledError is an interrupt

    def install(self):
        signal.signal(signal.SIGINT, self._on_signal)

    def begin(self):
        """Starts a request: whatever was interrupted before is over."""
        self._pending = self._cancelling = self.cancelled = False
        if not self._finds_user_code(sys._getframe()):
            self._codes.clear()
        self.install()  # user code may have put another handler in its place

    # The user's code, as run_code has it.

    def enter(self, code):
        self._codes.append(code)

    def leave(self):
        self._codes.pop()

    def take(self):
        """Says whether a signal came before the user's code did."""
        pending, self._pending = self._pending, False
        return pending

    # Code that awaits: the stack is the event loop's.

    def awaits(self, future, loop):
        self._future, self._loop = future, loop

    def awaits_no_more(self):
        self._future = self._loop = None
        self._cancelling = False

    def _cancel_soon(self):
        self._cancelling = True
        # Other than call_soon it wakes the loop, which sleeps until something is due.
        self._loop.call_soon_threadsafe(self._cancel)

    def _cancel(self):
        self._cancelling = False
        # Without user code in it the future has not begun or is about to end. One
        # that is cancelled then runs nothing and says nothing.
        if self._codes and self._future is not None and not self._future.done():
            self.cancelled = True
            self._future.cancel()

    # The shield.

    def __enter__(self):
        if threading.get_ident() == self._main:
            self._shields += 1

    def __exit__(self, *exception):
        if threading.get_ident() != self._main:
            return
        self._shields -= 1
        if self._pending and not self._shields and self._finds_user_code(sys._getframe(1)):
            self._pending = False
            raise KeyboardInterrupt

    # The signal.

    def _on_signal(self, signum, frame):
        if self._shields:
            self._pending = True
            return
        runs = self._finds_user_code(frame)
        if runs is None and self._codes:
            # The stack of an event loop, or of something like a greenlet.
            if self._future is None or self._cancelling:
                runs = True  # or of a loop that never gets to our cancellation
            else:
                self._cancel_soon()
                return
        # A traceback that does not come to an end is given up at the second signal,
        # which IPython is prepared for.
        if runs or self._pending and self._shows_traceback(frame):
            self._pending = False
            raise KeyboardInterrupt
        self._pending = True

    def _finds_user_code(self, frame):
        """Says whether the user's code is on the stack: True, False where
        IPython's own surroundings of it are, or None where neither is."""
        while frame is not None:
            code = frame.f_code
            if any(code is known for known in self._codes):
                return True
            if any(code is known for known in self._surroundings):
                return False
            frame = frame.f_back
            # Callbacks after an execution, matplotlib's drawing for instance.
            if frame is not None and frame.f_code is _TRIGGER and code is not _SHOW_TRACEBACK:
                return True
        return None

    @staticmethod
    def _shows_traceback(frame):
        while frame is not None:
            if frame.f_code is _SHOW_TRACEBACK:
                return True
            frame = frame.f_back
        return False
