"""The socket to guestd, descriptor 3. A message is its length in four bytes,
highest first, and a JSON object.

    guestd -> kernel  {"cwd": …, "env": {…}}   before user code runs
    kernel -> guestd  {} or {"errno": …, "error": …}

Its end means that guestd is gone, and so is the kernel then.
"""

import json
import os
import socket
import struct
import threading
import time

DESCRIPTOR = 3
_LENGTH = struct.Struct(">I")


def connect(descriptor=DESCRIPTOR):
    """Returns guestd's socket; None where there is none, in a trial by hand."""
    try:
        connection = socket.socket(fileno=descriptor)
    except OSError:
        return None
    connection.set_inheritable(False)
    return connection


def receive(connection):
    """Returns the next message, or None at the end."""
    header = _receive_exactly(connection, _LENGTH.size)
    body = header and _receive_exactly(connection, _LENGTH.unpack(header)[0])
    return json.loads(body) if body else None


def _receive_exactly(connection, size):
    data = b""
    while len(data) < size:
        try:
            part = connection.recv(size - len(data))
        except ConnectionError:
            part = b""
        if not part:
            return None
        data += part
    return data


def send(connection, message):
    body = json.dumps(message).encode()
    connection.sendall(_LENGTH.pack(len(body)) + body)


_applied = None  # the environment that guestd has given this process


def apply(settings):
    """Gives this process an environment and a working directory, and returns the
    answer to guestd. What IPython has put into the environment since the last time
    stays."""
    global _applied
    try:
        os.chdir(settings["cwd"])
    except OSError as error:
        return {"errno": error.errno, "error": error.strerror}
    wanted, before = settings["env"], _applied
    if before is None:
        before = dict(os.environ)
    for name in before.keys() - wanted.keys():
        os.environ.pop(name, None)
    for name, value in wanted.items():
        if before.get(name) != value:
            os.environ[name] = value
    _applied = wanted
    time.tzset()
    return {}


def follow(connection, on_settings):
    """Watches the socket in a thread, and ends the process with it."""

    def run():
        while True:
            settings = receive(connection)
            if settings is None:
                os._exit(1)
            send(connection, on_settings(settings))

    threading.Thread(target=run, name="guestd", daemon=True).start()
