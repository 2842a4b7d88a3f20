"""What ipykernel and IPython work out anew for each execution though it is known,
and for a short one costs more than the user's code."""

import functools

from IPython.core import formatters
from ipykernel import ipkernel, kernelbase


def apply():
    """Changes the libraries' functions, once in a process."""
    for module in (kernelbase, ipkernel):
        for name in ("_accepts_cell_id", "_accepts_parameters"):
            if hasattr(module, name):
                setattr(module, name, _remember(getattr(module, name)))
    for cls in list(vars(formatters).values()):
        if isinstance(cls, type) and "__call__" in vars(cls):
            _call_directly(cls)


def _remember(asks):
    """Wraps ipykernel's question which parameters a method takes: it inspects the
    signature for each execution."""
    answers = {}

    @functools.wraps(asks)
    def accepts(method, *names):
        key = (getattr(method, "__func__", method), *map(tuple, names))
        if key not in answers:
            answers[key] = asks(method, *names)
        return answers[key]

    return accepts


def _call_directly(cls):
    """Lets a formatter's __call__ do without the binding of its arguments to its
    signature, which the package decorator does for each of the dozen formatters."""
    call = vars(cls)["__call__"]
    format_ = getattr(call, "__wrapped__", None)
    catch = getattr(formatters.catch_format_error, "__wrapped__", None)
    if format_ is None or catch is None:
        return  # it is made in another way

    @functools.wraps(format_)
    def direct(self, obj, *args, **options):
        return catch(format_, self, obj, *args, **options)

    cls.__call__ = direct
