package comparison

import (
	"fmt"
	"slices"

	"testbed/emu/flowsim"
	"testbed/topo/units"
	"testbed/workloads"
)

// Needs is the memory of a study without its trace, by part.
type Needs struct {
	Shared units.Bytes // the coflows, laid out, and the memory of runs without coflows
	// Least is the minimum of each policy: for the coflows that arrive at one time. Most is its
	// need if no coflow ends before the last has arrived. Both are by policy.
	Least, Most []units.Bytes
}

// NeedsOf computes the needs of a study of a trace from the numbers of its coflows and flows.
func NeedsOf(t *workloads.Trace, o Options) (Needs, error) {
	const bytesOfFlow = 32 // workloads.Flow
	links := 4 * t.Ports   // of a switch with a sender and a receiver for each port, both directions
	flows := 0
	for _, c := range t.Coflows {
		flows += c.Width()
	}
	n := Needs{Shared: bytesOfFlow*units.Bytes(flows) + flowsim.MemoryOfRun(len(t.Coflows), flows, links)*units.Bytes(len(o.Policies))}
	for _, p := range o.Policies {
		s, err := p.scheduler()
		if err != nil {
			return n, err
		}
		var least, most, now units.Bytes
		for i, c := range t.Coflows {
			if i > 0 && o.Ports.Arrival(c) != o.Ports.Arrival(t.Coflows[i-1]) {
				now = 0
			}
			b := flowsim.MemoryOf(s, c.Width(), links)
			now, most = now+b, most+b
			least = max(least, now)
		}
		n.Least, n.Most = append(n.Least, least), append(n.Most, most)
	}
	return n, nil
}

// divide returns the number of policies, at most most, that run in parallel within the allowed
// memory, and the bytes that each of them may use for its coflows, 0 without a limit.
func (o *Options) divide(t *workloads.Trace, most int) (share units.Bytes, atOnce int, err error) {
	if o.Memory == 0 {
		return 0, most, nil
	}
	n, err := NeedsOf(t, *o)
	if err != nil {
		return 0, 0, err
	}
	left := o.Memory - n.Shared
	for i, least := range n.Least {
		if least > left {
			flows := 0
			for _, c := range t.Coflows {
				flows += c.Width()
			}
			return 0, 0, fmt.Errorf("trace %s: %w", t.Name, &flowsim.MemoryError{What: fmt.Sprintf("policy %s with %d coflows of %d flows", o.Policies[i], len(t.Coflows), flows), Need: n.Shared + least, Allowed: o.Memory})
		}
	}
	// As many in parallel as fit even if no coflow ends early; otherwise one.
	atOnce = max(1, min(most, len(o.Policies), int(left/max(slices.Max(n.Most), 1))))
	return left / units.Bytes(atOnce), atOnce, nil
}
