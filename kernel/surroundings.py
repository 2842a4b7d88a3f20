"""Changes the kernel's working directory and environment, and returns what they
were, in the form that this takes. Names and values are bytes in hexadecimal; null
is for no change of the directory, and for a variable that is not set.

guestd evaluates change() in a namespace that is thrown away.
"""

import json
import os


class Before:
    """Shows as JSON, whatever formatters the user has registered."""

    def __init__(self, before):
        self.text = json.dumps(before)

    def __repr__(self):
        return self.text

    def _repr_pretty_(self, printer, cycle):
        printer.text(self.text)


def change(cwd, env):
    before = {"cwd": None, "env": {}}
    if cwd is not None:
        try:
            before["cwd"] = os.getcwdb().hex()
        except FileNotFoundError:
            pass  # it was removed: there is nothing to come back to
        os.chdir(bytes.fromhex(cwd))  # before anything else has changed
    for name, value in env.items():
        variable = bytes.fromhex(name)
        old = os.environb.get(variable)
        before["env"][name] = None if old is None else old.hex()
        if value is None:
            os.environb.pop(variable, None)
        else:
            os.environb[variable] = bytes.fromhex(value)
    return Before(before)
