package coordinator

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"testbed/topo"
)

// The counts of random flows and decisions equal those that follow from the definitions, interval
// by interval. Decisions occur while a flow is unfinished, and no flow
// ends before the first one.
func TestCounter(t *testing.T) {
	type sent struct {
		host     topo.HostID
		from, to int // ms; to is -1 while the flow is unfinished
		reported bool
	}
	type decision struct {
		at      int // ms
		reports bool
		hosts   map[topo.HostID]bool
	}
	const hosts, interval = 3, 4 // ms
	rapid.Check(t, func(t *rapid.T) {
		k := NewCounter(interval*ms, hosts)
		var flows []*sent
		var decisions []decision
		now, until := 0, rapid.IntRange(0, 30).Draw(t, "until")
		reportsFrom := rapid.IntRange(0, 5).Draw(t, "reports from decision")
		for ; now <= until; now++ {
			at := time.Duration(now) * ms
			for _, f := range flows {
				if f.to < 0 && len(decisions) > 0 && rapid.IntRange(0, 3).Draw(t, "ends") == 0 {
					f.to, f.reported = now, rapid.Bool().Draw(t, "reported")
					k.Ended(f.host, at, f.reported)
				}
			}
			k.Settle()
			if rapid.IntRange(0, 3).Draw(t, "arrives") == 0 {
				f := &sent{host: topo.HostID(rapid.IntRange(0, hosts-1).Draw(t, "host")), from: now, to: -1}
				flows = append(flows, f)
				k.Arrived(f.host, at)
			}
			if !slices.ContainsFunc(flows, func(f *sent) bool { return f.to < 0 }) || rapid.IntRange(0, 3).Draw(t, "decides") > 0 {
				continue
			}
			d := decision{now, len(decisions) >= reportsFrom, map[topo.HostID]bool{}}
			k.Decided(at, d.reports)
			for range rapid.IntRange(0, 3).Draw(t, "messages") {
				h := topo.HostID(rapid.IntRange(0, hosts-1).Draw(t, "notified"))
				d.hosts[h] = true
				k.Notify(h)
			}
			decisions = append(decisions, d)
		}
		now--
		if len(decisions) == 0 || len(flows) == 0 {
			return
		}

		want := Messages{Interval: interval * ms}
		multiples := int64(0)
		for _, d := range decisions {
			want.Told += int64(len(d.hosts))
			if len(d.hosts) > 0 {
				want.Flushes++
			}
		}
		for i := 0; i <= now; i += interval {
			var reports [hosts]bool
			busy, unfinished, flushed := false, false, false
			for n, d := range decisions {
				flushed = flushed || d.at >= i && d.at < i+interval && len(d.hosts) > 0
				if !d.reports || d.at >= i+interval && n > 0 {
					continue // hosts do not report regularly yet
				}
				for _, f := range flows {
					if f.from < i+interval && (f.to < 0 || f.to >= i) {
						reports[f.host] = reports[f.host] || f.to < 0 || f.to > d.at || n == 0
					}
				}
			}
			for _, f := range flows {
				ended := f.to >= i && f.to < i+interval
				reports[f.host] = reports[f.host] || ended && f.reported
				busy = busy || f.from < i+interval && (f.to < 0 || f.to >= i)
				unfinished = unfinished || f.from <= i && (f.to < 0 || f.to > i)
			}
			updates := int64(0)
			for _, r := range reports {
				if r {
					updates++
				}
			}
			want.Updates += updates
			if unfinished {
				multiples++
			}
			if busy {
				want.Intervals++
				if updates == 0 {
					want.Silent++
				}
				if !flushed {
					want.Unflushed++
				}
			}
		}
		at := time.Duration(now) * ms
		if d := cmp.Diff(want, k.Messages(at)); d != "" || k.Multiples(at) != multiples || k.Decisions() != int64(len(decisions)) {
			t.Fatalf("until %v: %d multiples, want %d; %d decisions, want %d (-want +got):\n%s", at, k.Multiples(at), multiples, k.Decisions(), len(decisions), d)
		}
	})
}

// Without intervals, every end that a host reports counts.
func TestCounterWithoutIntervals(t *testing.T) {
	k := NewCounter(0, 2)
	for range 3 {
		k.Arrived(1, ms)
	}
	k.Decided(ms, false)
	k.Notify(1)
	k.Notify(1)
	for i := range 3 {
		k.Ended(1, 2*ms, i > 0)
	}
	k.Settle()
	if d := cmp.Diff(Messages{Updates: 2, Flushes: 1, Told: 1}, k.Messages(3*ms)); d != "" || k.Multiples(3*ms) != 0 {
		t.Errorf("%d multiples (-want +got):\n%s", k.Multiples(3*ms), d)
	}
}

// Ends between two calls of Settle are counted in the order of their times.
func TestCounterSortsEnds(t *testing.T) {
	k := NewCounter(ms, 1)
	k.Arrived(0, 0)
	k.Arrived(0, 0)
	k.Ended(0, 5*ms, true)
	k.Ended(0, 2*ms, true)
	k.Settle()
	if d := cmp.Diff(Messages{Interval: ms, Intervals: 6, Updates: 2, Silent: 4, Unflushed: 6}, k.Messages(5*ms)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
