package calibrate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"testbed/emu/calibration"
	"testbed/emu/experiment"
	"testbed/emu/kernel"
	"testbed/emu/plan"
	"testbed/emu/scenario"
	"testbed/results/verdict"
	"testbed/topo/units"
)

const (
	// first is the number of flows with which the search begins; fewest is that of which
	// an error is none of having too many.
	first, fewest = 32, 8
	// fineness is by how much of itself the answer may be too low.
	fineness = 1.0 / 8
	// wanted of tries runs must pass for a level to count as carried: a machine
	// has other things to do at times. While the search doubles, one is enough.
	wanted, tries = 2, 3
	// capacitySteps is about how many levels are tried, for progress.
	capacitySteps = 5
	// capacityQueue holds several jumbo frames at the reference rate.
	capacityQueue = 50 * time.Millisecond
	capacityRing  = units.MiB
)

// capacity finds the most flows at which real runs have verdict pass, by doubling
// and then halving the interval.
func (m *machine) capacity(ctx context.Context) error {
	for _, mtu := range m.o.MTUs {
		out, err := m.capacityAt(ctx, mtu)
		if err != nil {
			return fmt.Errorf("at MTU %d: %w", int64(mtu), err)
		}
		m.c.Capacity = append(m.c.Capacity, out)
	}
	return nil
}

func (m *machine) capacityAt(ctx context.Context, mtu units.Bytes) (out calibration.Capacity, err error) {
	perFlow := 2 * float64(m.o.Reference) / 8 / float64(mtu+plan.EthernetHeader) // shaped packets/s
	base := m.done
	var costs []float64 // ns, of runs that passed
	why := ""           // what kept the last run that did not pass from it
	good, err := mostCarried(m.o.MaxFlows, func(n int, again bool) (bool, error) {
		if !again {
			m.step(fmt.Sprintf("%d flows of %v at MTU %d", n, m.o.Reference, int64(mtu)), 1)
			m.done = min(m.done, base+capacitySteps)
		}
		reason, busy, err := m.run(ctx, n, mtu)
		if err != nil {
			return false, err
		}
		if reason == "" {
			costs = append(costs, busy*1e9/(perFlow*float64(n)))
		} else {
			why = reason
		}
		return reason == "", nil
	})
	if err != nil {
		return out, err
	}
	out.Bounded = good == m.o.MaxFlows
	m.done = base + capacitySteps
	if good == 0 {
		return out, fmt.Errorf("not even one flow of %v between two hosts has verdict pass: the machine is too busy, or too slow: %s", m.o.Reference, why)
	}
	s := calibration.SpreadOf(costs)
	out.MTU, out.Rate, out.Flows, out.Links, out.Packets = mtu, m.o.Reference, good, 2*good, perFlow*float64(good)
	out.Cost, out.CostFrom = time.Duration(s.Median), [2]float64{s.Least, s.Most}
	return out, nil
}

// mostCarried searches for the most flows that a machine carries, up to a bound; 0 is none.
// once tells whether a run of so many passed; again, whether the level had a run before.
func mostCarried(most int, once func(n int, again bool) (bool, error)) (int, error) {
	passed, failed := make(map[int]int), make(map[int]int)
	carried := func(n, need int) (bool, error) {
		for passed[n] < need && failed[n] <= tries-wanted {
			ok, err := once(n, passed[n]+failed[n] > 0)
			if err != nil {
				return false, err
			}
			if ok {
				passed[n]++
			} else {
				failed[n]++
			}
		}
		return passed[n] >= need, nil
	}
	good, bad := []int{0}, 0 // levels carried so far, and the least that was not
	for {
		n, need, last := 0, wanted, good[len(good)-1]
		switch {
		case bad == 0 && last < most:
			n, need = min(max(2*last, first), most), 1
		case bad > 0 && bad-last > max(1, int(fineness*float64(last))):
			n = (last + bad) / 2
		case passed[last] < wanted && last > 0:
			n, good = last, good[:len(good)-1]
		default:
			return last, nil
		}
		ok, err := carried(n, need)
		if err != nil {
			return 0, err
		}
		if ok {
			good = append(good, n)
		} else {
			bad = n
		}
	}
}

// run runs n flows at once, host i to host n+i of one rack, as a scenario, and
// tells why its verdict is not pass, or nothing where it is, and how many
// processors it kept busy.
func (m *machine) run(ctx context.Context, n int, mtu units.Bytes) (reason string, busy float64, err error) {
	payload := float64(m.o.Reference) / 8 * float64(mtu-52) / float64(mtu+plan.EthernetHeader) * m.o.Run.Seconds()
	var trace strings.Builder
	fmt.Fprintf(&trace, "%d %d\n", 2*n, n)
	for i := range n {
		fmt.Fprintf(&trace, "%d 0 1 %d 1 %d:%s\n", i+1, i, n+i, strconv.FormatFloat(payload/1e6, 'f', 6, 64))
	}
	text := fmt.Sprintf(`name: calibrate
fabric: {leaves: 1, spines: 0, hosts_per_leaf: %d, host_link: %v, mtu: %d, queue: %v}
capture: {ring: %dB}
workload: [{kind: trace, path: trace, mb: MB}]
arms: {coflow: [fair]}
`, 2*n, m.o.Reference, int64(mtu), capacityQueue, int64(capacityRing))
	if err := os.WriteFile(filepath.Join(m.dir, "trace"), []byte(trace.String()), 0o644); err != nil {
		return "", 0, err
	}
	s, err := scenario.Parse(filepath.Join(m.dir, "calibrate.yaml"), []byte(text), scenario.Options{CheckPolicy: experiment.CheckPolicy})
	if err != nil {
		return "", 0, err
	}
	dir := filepath.Join(m.dir, "runs")
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	var from, to sample
	var sampleErr error
	take := func(into *sample) {
		if into.at.IsZero() {
			p, err := kernel.ProcessorTimes()
			*into = sample{time.Now(), p}
			sampleErr = errors.Join(sampleErr, err)
		}
	}
	out, err := experiment.Execute(ctx, s, experiment.Options{Out: dir, StateRoot: m.o.StateRoot, Version: m.o.Version, Progress: func(p experiment.Progress) {
		switch p.Phase {
		case "run":
			take(&from)
		case "settle":
			take(&to)
		}
	}})
	if err == nil {
		err = sampleErr
	}
	if ctx.Err() != nil {
		return "", 0, context.Cause(ctx)
	}
	if err != nil && n > fewest {
		return err.Error(), 0, nil // a machine that is asked for too much may fail in many ways
	}
	if err != nil {
		return "", 0, err
	}
	return notPassed(out), to.busySince(from), nil
}

// notPassed is what kept a run's verdict from being pass; empty if nothing did.
func notPassed(out *experiment.Outcome) string {
	level := out.Level()
	if level == verdict.Pass {
		return ""
	}
	reasons := []string{"verdict " + level.String()}
	for _, a := range out.Report.Summary.Arms {
		for _, v := range a.Verdicts {
			for _, c := range v.Checks {
				if c.Level != verdict.Pass {
					reasons = append(reasons, fmt.Sprintf("%s is %s, for pass %s", c.Name, c.Value, c.Pass))
				}
			}
		}
	}
	return strings.Join(reasons, "; ")
}

// sample is how the processors had spent their time by a moment.
type sample struct {
	at time.Time
	kernel.Processors
}

// busySince is how many processors were busy on average. Time that was stolen
// from a virtual machine is not ours.
func (s sample) busySince(from sample) float64 {
	busy := func(p kernel.Processors) time.Duration { return p.Tasks + p.Softirq + p.Irq }
	return (busy(s.Processors) - busy(from.Processors)).Seconds() / max(s.at.Sub(from.at).Seconds(), 1e-3)
}
