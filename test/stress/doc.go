// Package stress proves what shows only after many rounds: that no byte, exit,
// process, goroutine or descriptor is ever lost, through connections that break
// anywhere, readers that stop, and commands without number.
//
// It has tests alone. They run real guestds, guestctls and tmuxes, each in a process of its
// own, built with the race detector where the tests are. By default they take about
// a minute together; with GUESTD_STRESS=full they do as many rounds as the
// design's claims are about, for an hour or so. A test owns the processes that it
// starts and ends them with itself.
package stress
