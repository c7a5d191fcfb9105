//go:build !race

package propagation_test

const raceDetector = false
