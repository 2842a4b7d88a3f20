//go:build !race

package stress

// raceDetector tells that these tests are built with it.
const raceDetector = false
