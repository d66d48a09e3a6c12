package figures

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"testbed/results/flows"
	"testbed/results/metrics"
	"testbed/topo"
)

// Phases of attempts as charts show them: those of metrics, with reading apart from fetching.
const (
	Reading = iota
	Fetching
	Waiting
	Computing
	Writing
)

// PhaseNames are the names of the phases in order.
func PhaseNames() []string {
	return []string{"reading a block", "fetching outputs", "waiting to compute", "computing", "writing and committing"}
}

// Stretch is a phase of an attempt.
type Stretch struct {
	Phase    int
	From, To time.Duration
}

// Stretches returns the phases of an attempt that take time.
func Stretches(a *flows.AttemptRecord) (out []Stretch) {
	at := metrics.PhasesOf(a)
	for i, phase := range [...]int{Fetching, Waiting, Computing, Writing} {
		if i == 0 && a.Locality != "" {
			phase = Reading
		}
		if at[i] < at[i+1] {
			out = append(out, Stretch{phase, at[i], at[i+1]})
		}
	}
	return out
}

// Slot is a slot of a host: a row of a Gantt chart.
type Slot struct {
	Host, Kind string
	Number     int
}

// String returns the slot as charts name it.
func (s Slot) String() string { return fmt.Sprintf("%s %s %d", s.Host, s.Kind, s.Number) }

// SlotOf returns the slot of an attempt.
func SlotOf(a *flows.AttemptRecord) Slot { return Slot{a.Host, a.Kind, a.Slot} }

// SlotsOf returns the slots that attempts used, by rack, host, kind and number.
func SlotsOf(attempts []flows.AttemptRecord) []Slot {
	seen := map[Slot]bool{}
	var out []Slot
	for i := range attempts {
		if s := SlotOf(&attempts[i]); !seen[s] {
			seen[s] = true
			out = append(out, s)
		}
	}
	slices.SortFunc(out, func(a, b Slot) int {
		return cmp.Or(CompareHosts(a.Host, b.Host), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Number, b.Number))
	})
	return out
}

// CompareHosts orders hosts by rack and place; names of other hosts follow by name.
func CompareHosts(a, b string) int {
	rackA, placeA, okA := topo.ParseHostName(a)
	rackB, placeB, okB := topo.ParseHostName(b)
	switch {
	case okA && okB:
		return cmp.Or(cmp.Compare(rackA, rackB), cmp.Compare(placeA, placeB))
	case okA:
		return -1
	case okB:
		return 1
	}
	return cmp.Compare(a, b)
}

// TopUsers sums the slots of all users after the first most ones, as one user with a name.
func TopUsers(all []metrics.UserSlots, most int) []metrics.UserSlots {
	if len(all) <= most {
		return all
	}
	out := slices.Clone(all[:most])
	rest := metrics.UserSlots{User: fmt.Sprintf("others, n = %d", len(all)-most), Slots: make([]float64, len(all[0].Slots))}
	for _, u := range all[most:] {
		rest.Time += u.Time
		for k, x := range u.Slots {
			rest.Slots[k] += x
		}
	}
	return append(out, rest)
}

// Parts of a job's time in the order in which they are drawn, with their names.
var Parts = [metrics.JobParts]struct {
	Part int
	Name string
}{{metrics.JobWaiting, "waiting"}, {metrics.JobMapping, "mapping"}, {metrics.JobShuffling, "shuffling"}, {metrics.JobComputing, "computing"}, {metrics.JobWriting, "writing"}}
