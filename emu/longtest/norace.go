//go:build !race

package longtest

// Instrumented reports whether the race detector is compiled in.
const Instrumented = false
