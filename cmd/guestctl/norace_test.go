//go:build !race

package main

// raceEnabled: guestctl is tested with the race detector as well.
const raceEnabled = false
