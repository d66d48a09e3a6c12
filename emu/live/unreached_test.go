package live

import (
	"slices"
	"testing"
	"time"

	"testbed/emu/fault"
)

// A fault is noted once, and only where no part of it came before the end.
func TestUnreachedFaults(t *testing.T) {
	const s = time.Second
	steps := fault.Timeline{
		{At: s, Action: fault.SetLink{Link: 2}, Why: "a"}, {At: s, Action: fault.SetLink{Link: 3}, Why: "a"},
		{At: 4 * s, Action: fault.SetLink{Link: 2, Up: true}, Why: "a"},
		{At: 5 * s, Action: fault.SetLink{Link: 4}, Why: "b"}, {At: 5 * s, Action: fault.SetLink{Link: 5}, Why: "b"},
	}
	want := []string{"fault b: did not happen: the repeat ended after 3s"}
	if got := unreached(steps, 3*s); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got := unreached(steps, 6*s); len(got) > 0 {
		t.Errorf("%q, want none", got)
	}
}
