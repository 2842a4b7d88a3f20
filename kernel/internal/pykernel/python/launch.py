"""Starts an IPython kernel, or a fork server of such kernels, for guestd.

    python3 launch.py -f CONNECTION_FILE [ARGUMENT]...
    python3 launch.py --fork-server [MODULE]...

guestd writes this script and the package beside it into a folder of the user
whose Python it is. Descriptor 3 is a socket to guestd, see guestd_kernel.control.
"""

import sys


def main():
    from guestd_kernel import start

    del sys.path[0]  # this folder; user code finds nothing of ours by its name
    if sys.argv[1:2] == ["--fork-server"]:
        from guestd_kernel import forkserver

        forkserver.serve(sys.argv[2:])
    else:
        start.cold(sys.argv[1:])


main()
