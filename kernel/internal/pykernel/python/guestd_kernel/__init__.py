"""guestd's own way to run an IPython kernel (ipykernel 6 and 7).

It subclasses what ipykernel is made of, and changes these things:

interrupts  A SIGINT interrupts user code and nothing else: no kernel dies of
            one, no reply is lost, none hits the next execution, and one reaches
            code that awaits.
output      Messages are sent at once, in order, by the thread that has them, and
            wait for a slow reader instead of being dropped; they are small, so
            that a kernel whose output nobody reads stops printing; what a thread
            prints late stays with the execution that started it.
descriptors What is written to descriptors 1 and 2 by C code and by child
            processes arrives whole, before the end of the execution.
kernel      All of it together, without debugger, history, heartbeat, extra TCP
            port and pauses.
shortcuts   What is the same for each execution is worked out once.
control     The socket to guestd.
forkserver  Kernels as forks of a process that has imported everything.
start       Starting, and the stock kernel for versions that we do not know.

Nothing here runs as anybody but the user, and nothing is kept from user code.
"""
