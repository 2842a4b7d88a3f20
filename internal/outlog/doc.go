// Package outlog keeps the last bytes of one output stream so that nothing
// gets lost between a process and whoever reads it over a connection that may
// break.
//
// A [Log] has one writer and any number of readers. It counts its bytes from
// offset 0, takes memory as it fills, up to a limit, and keeps what it has
// until it needs the room. A lossless [Reader] holds its place: a byte that it
// has not acknowledged never makes room for a new one, so a full log holds the
// writer back. A following reader holds nobody back: it is told the gap and
// goes on from the oldest byte left.
//
// The exit mark divides what the leader of a process wrote from what its
// background children wrote later. Bytes before the mark enter the log even
// over its limit; later ones hold nobody back. A reader stops at the mark until
// it is told to pass it, so that its owner can put the exit exactly there.
//
// The package does not start processes, does not frame or decode bytes (no
// lines, no UTF-8), and does not merge streams.
//
// It starts no goroutines. [Pump.Run] runs on a goroutine of the caller's and
// ends with the file's end or [Pump.Close]. A detached reader owns one timer, which
// ends with its grace, with Close, or when it is superseded. The caller owns
// the file that a pump reads until it hands it to [NewPump]; then the pump closes it.
package outlog
