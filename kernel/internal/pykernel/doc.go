// Package pykernel is guestd's own way to run an IPython kernel: a Python package,
// embedded here, that subclasses ipykernel's parts, and the Go ends of the two
// sockets that it has to guestd.
//
// What the Python does and why is written in python/guestd_kernel. It supports
// ipykernel 6 and 7, by what it finds in them, and runs the stock kernel of any
// other version; a kernel that answers kernel_info with the field "guestd" is ours.
//
// The package starts no process and writes no file: it says what is to be
// written and run. A [Server] has one goroutine, which reads, until Close. Control
// sockets are the caller's, who closes them. What comes over either is the user's:
// it is bounded and believed only about the user's own processes.
package pykernel
