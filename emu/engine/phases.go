package engine

import (
	"cmp"
	"slices"
	"time"

	"testbed/topo"
	"testbed/workloads"
)

// Phases are the times of the first reports of hosts, by HostID, and of leaves, by RackID, above 0 and at
// most the interval of reports. Each of them reports again after every interval. Nil means that all report
// at one moment, the first time after one interval.
type Phases struct{ Hosts, Leaves []time.Duration }

// RandomPhases draws each phase uniformly within the interval, from a stream of its own. It depends only on
// the seed and the ID, so that all arms of a repeat have the same phases on every backend.
func RandomPhases(f *topo.Fabric, interval time.Duration, seed uint64) *Phases {
	draw := func(purpose string, n int) []time.Duration {
		out := make([]time.Duration, n)
		for i := range out {
			out[i] = 1 + time.Duration(workloads.Stream(seed, purpose, i).Int64N(int64(interval)))
		}
		return out
	}
	return &Phases{draw("heartbeat", f.Hosts()), draw("leaf-report", f.Racks())}
}

// LeavesReport reports whether the leaves of a fabric have ports towards spines, whose counters they report.
func LeavesReport(f *topo.Fabric) bool { return f.Racks() > 1 && f.Spines() > 0 }

// Reporter is a host or a leaf that reports.
type Reporter struct {
	First time.Duration // its first report
	Leaf  bool
	ID    int // a HostID or a RackID
}

// Agenda yields the reports of hosts and leaves in order of time. At the same time hosts are first, then
// the order is by ID.
type Agenda struct {
	interval time.Duration
	order    []Reporter
	next     int
	round    time.Duration // passed since the first reports
}

// NewAgenda returns the agenda of a fabric's hosts, and of its leaves if they report.
func NewAgenda(f *topo.Fabric, interval time.Duration, p *Phases, leaves bool) *Agenda {
	if p == nil {
		p = &Phases{slices.Repeat([]time.Duration{interval}, f.Hosts()), slices.Repeat([]time.Duration{interval}, f.Racks())}
	}
	a := &Agenda{interval: interval}
	for h, first := range p.Hosts {
		a.order = append(a.order, Reporter{first, false, h})
	}
	for r, first := range p.Leaves {
		if leaves && LeavesReport(f) {
			a.order = append(a.order, Reporter{first, true, r})
		}
	}
	slices.SortStableFunc(a.order, func(x, y Reporter) int { return cmp.Compare(x.First, y.First) })
	return a
}

// Len returns the number of reports of an interval.
func (a *Agenda) Len() int { return len(a.order) }

// Next returns the next report and its time.
func (a *Agenda) Next() (Reporter, time.Duration) {
	r := a.order[a.next]
	return r, r.First + a.round
}

// Pop removes the next report.
func (a *Agenda) Pop() {
	if a.next++; a.next == len(a.order) {
		a.next, a.round = 0, a.round+a.interval
	}
}

// Skip removes the reports that have been due for an interval: their hosts and leaves are due again.
func (a *Agenda) Skip(now time.Duration) {
	for _, at := a.Next(); at <= now-a.interval; _, at = a.Next() {
		a.Pop()
	}
}
