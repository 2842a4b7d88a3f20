// Bench measures how fast guestd is, each time against a floor: the same job done
// by the least that can do it, in the same run, on the same machine. It prints the
// ratio of the two medians beside the limit that guestd is to hold.
//
//	make bench                 everything
//	make bench BENCH='^file'   the measures whose names match
//	go run ./bench --help      what else can be chosen
//
// Guestd runs as a process of its own on a Unix socket, as it does in a guest;
// bench itself is the client, through package client. The runs of what is compared
// are interleaved and take turns at going first, so that a change in the machine's
// load meets all of them. Where there is one call at a time this process runs its
// goroutines on one processor, as guestd does then, whatever it measures. Absolute figures say little about another machine, and
// on a loaded one even ratios move: the report tells the load.
//
// The exit status tells whether everything could be measured. It does not tell
// whether the limits were held, since that takes a quiet machine; the report and
// its JSON do.
//
// There is one file for each measure. Every measure starts its own guestd and ends
// it, and removes its files. For the floors bench starts itself with a part to
// play (part.go); those processes end with the measure that started them.
// Bench tests nothing: it believes what the conformance suite has checked, beyond
// counting bytes. Nothing in the product imports it.
package main
