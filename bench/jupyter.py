"""Runs 1+1 in a stock kernel with jupyter_client's blocking client.

Once the kernel works it prints "ready". Then, for each line on stdin, it runs the
code once and prints how long that took until all of its events were there, in
nanoseconds. It ends, and ends the kernel, with stdin.
"""

import sys
import time

from jupyter_client.manager import start_new_kernel


def ignore(message):
    """Takes an output message and does nothing."""


def main():
    manager, client = start_new_kernel(kernel_name="python3")
    try:
        print("ready", flush=True)
        for _ in sys.stdin:
            begun = time.perf_counter_ns()
            reply = client.execute_interactive("1+1", output_hook=ignore)
            took = time.perf_counter_ns() - begun
            if reply["content"]["status"] != "ok":
                raise RuntimeError(reply["content"])
            print(took, flush=True)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


main()
