// Package conformance is the contract of guestd's API as a suite of tests: what
// any guestd must do, whatever its version, transport or guest. [Run] takes a
// [Target] and runs every case against it through the generated stubs alone, so
// that a failure is guestd's and not a client library's.
//
// A case is an exported method whose name is a sentence of the contract, as in
// Exec/ExitArrivesThoughABackgroundChildHoldsStdout. Cases do not assume that
// they share a file system, a process table or a clock with the guest: what they
// need there they make through the API, with the programs of a small busybox.
// Errors are judged by code, reason and metadata, never by their text.
//
// The package starts no guestd and knows no address: whoever calls Run dials.
// Everything that a case makes in the guest (files below Target.GuestDir,
// processes) it removes at its end; every stream belongs to the case that opened
// it and ends with it, and the connections belong to the test given to Dial.
package conformance
