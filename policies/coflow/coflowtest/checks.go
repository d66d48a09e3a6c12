package coflowtest

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"testbed/policies"
	"testbed/policies/policytest"
	"testbed/topo"
	"testbed/topo/units"
)

const mib = units.Bytes(1 << 20)

// CheckNoSizes checks policies that know no sizes: they satisfy the contract, and decide
// the same for different sizes, as long as their Views are equal: until a flow ends.
func CheckNoSizes(t *testing.T, blind map[string]policies.CoflowScheduler) {
	for name, p := range blind {
		t.Run(name, func(t *testing.T) {
			const allowed = policies.NewFlows | policies.PilotFlows | policies.MostSent | policies.Links
			if n := p.Needs(); !allowed.Has(n) {
				t.Errorf("Needs() = %v: at most %v are allowed", n, allowed)
			}
			policytest.Scheduler(t, p)
		})
	}
	const hosts = 6
	f := EightMillis(t, hosts)
	rapid.Check(t, func(t *rapid.T) {
		jobs := DrawJobs(t, hosts, 4*mib)
		others := make([]Job, len(jobs))
		for i, j := range jobs {
			others[i] = Job{At: j.At, Flows: rapid.Permutation(j.Flows).Draw(t, "permuted")}
			for k, d := range j.Flows {
				others[i].Flows[k].Src, others[i].Flows[k].Dst = d.Src, d.Dst
			}
			// The other sizes are also larger by a factor.
			for k := range others[i].Flows {
				others[i].Flows[k].Bytes *= units.Bytes(rapid.IntRange(1, 1000).Draw(t, "factor"))
			}
		}
		for name, p := range blind {
			a, b := firstDecisions(t, f, p, jobs), firstDecisions(t, f, p, others)
			n := min(len(a), len(b))
			if n == 0 {
				t.Fatalf("%s: no decision to compare", name)
			}
			if d := cmp.Diff(a[:n], b[:n]); d != "" {
				t.Fatalf("%s: decisions depend on sizes:\n%s", name, d)
			}
		}
	})
}

// firstDecisions returns the decisions of a policy, as text, before any flow can have ended.
func firstDecisions(t *rapid.T, f *topo.Fabric, p policies.CoflowScheduler, jobs []Job) (out []string) {
	over := false
	l := Loop{T: t, Fabric: f, Policy: p, Until: 200 * time.Millisecond}
	l.Observe = func(v *policies.CoflowView, s *policies.Schedule) {
		arrived := 0
		for _, j := range jobs {
			if j.At <= v.Now {
				arrived++
			}
		}
		over = over || arrived > len(v.Coflows)
		for i := range v.Coflows {
			over = over || v.Coflows[i].Finished > 0
		}
		if !over {
			out = append(out, fmt.Sprint(v.Now, Steps(s), s.Budgets, s.Queues, s.Watch, s.WatchMost, s.Pilots, s.Wake))
		}
	}
	l.Run(jobs)
	return out
}

// CheckWatch checks that decisions that Schedule.Watch declares unnecessary are: without
// them every coflow ends at the same time. It draws coflows as DrawJobs does.
func CheckWatch(t *testing.T, hosts int, largest units.Bytes, watching map[string]policies.CoflowScheduler) {
	f := EightMillis(t, hosts)
	rapid.Check(t, func(t *rapid.T) {
		jobs := DrawJobs(t, hosts, largest)
		for name, p := range watching {
			always, seldom := Loop{T: t, Fabric: f, Policy: p}, Loop{T: t, Fabric: f, Policy: p, Skip: true}
			want, got := always.Run(jobs), seldom.Run(jobs)
			if d := cmp.Diff(want, got, About); d != "" {
				t.Errorf("%s (-always +seldom):\n%s", name, d)
			}
			if seldom.Decisions > always.Decisions {
				t.Errorf("%s: %d decisions, but only %d without Watch", name, seldom.Decisions, always.Decisions)
			}
		}
	})
}

// Starves reports whether a coflow that has sent much, or is long, cannot end during a
// stream of small coflows that fill the port of its sender.
func Starves(t *testing.T, p policies.CoflowScheduler) bool {
	const stream = 8 * time.Second
	// A coflow of 16 MiB, of which 6 MiB remain when Aalo moves it to the next queue, and
	// coflows of 2 MiB with 8 flows each that fill the port.
	jobs := []Job{{0, All(Hosts(0, 0), Hosts(1, 8), 2*mib)}}
	const each = 16 * time.Millisecond
	for at := each; at < stream; at += each {
		jobs = append(jobs, Job{at, All(Hosts(0, 0), Hosts(9, 16), mib/4)})
	}
	l := &Loop{T: t, Fabric: EightMillis(t, 24), Policy: p, Skip: true, Until: stream}
	return l.Run(jobs)[0] == 0
}
