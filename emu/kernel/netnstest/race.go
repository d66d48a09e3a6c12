//go:build race

package netnstest

// instrumented reports whether the race detector is compiled in.
const instrumented = true
