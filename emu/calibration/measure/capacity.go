package measure

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
	"testbed/emu/kernel/processors"
	"testbed/emu/plan"
	"testbed/emu/runner"
	"testbed/emu/scenario"
	"testbed/policies/catalog"
	"testbed/results/safefile"
	"testbed/results/verdict"
	"testbed/topo/units"
)

const (
	// first is the number of flows with which the search begins. With up to fewest flows, an
	// error of a run is not attributed to overload.
	first, fewest = 32, 8
	// fineness is the relative error by which the answer may be too low.
	fineness = 1.0 / 8
	// required of attempts runs must pass for a level to count as carried, because other
	// work of the machine may spoil one. While the search doubles, one is enough.
	required, attempts = 2, 3
	// capacitySteps is the approximate number of levels, for progress.
	capacitySteps = 5
	// capacityQueue holds several jumbo frames at the reference rate.
	capacityQueue = 50 * time.Millisecond
	capacityRing  = units.MiB
)

// capacity finds the highest number of flows at which real runs have verdict pass, by
// doubling and then bisecting.
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
	why := ""           // the reason of the last run that did not pass
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
		return out, fmt.Errorf("a single flow of %v between two hosts does not have verdict pass: the machine is too busy or too slow: %s", m.o.Reference, why)
	}
	s := calibration.SpreadOf(costs)
	out.MTU, out.Rate, out.Flows, out.Links, out.Packets = mtu, m.o.Reference, good, 2*good, perFlow*float64(good)
	out.Cost, out.CostFrom = time.Duration(s.Median), [2]float64{s.Least, s.Most}
	return out, nil
}

// mostCarried searches for the highest number of flows that a machine carries, up to a
// bound; 0 is none. once reports whether a run of n flows passed; again is true if that
// level had a run before.
func mostCarried(most int, once func(n int, again bool) (bool, error)) (int, error) {
	passed, failed := make(map[int]int), make(map[int]int)
	carried := func(n, need int) (bool, error) {
		for passed[n] < need && failed[n] <= attempts-required {
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
	good, bad := []int{0}, 0 // carried levels, and the lowest level that was not carried
	for {
		n, need, last := 0, required, good[len(good)-1]
		switch {
		case bad == 0 && last < most:
			n, need = min(max(2*last, first), most), 1
		case bad > 0 && bad-last > max(1, int(fineness*float64(last))):
			n = (last + bad) / 2
		case passed[last] < required && last > 0:
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

// run runs n simultaneous flows as a scenario, host i to host n+i of one rack. It returns
// the reason why the verdict is not pass, empty if it is, and the average number of busy
// processors.
func (m *machine) run(ctx context.Context, n int, mtu units.Bytes) (reason string, busy float64, err error) {
	payload := float64(plan.Payload(m.o.Reference, mtu)) / 8 * m.o.Run.Seconds()
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
	if err := safefile.WriteData(filepath.Join(m.dir, "trace"), []byte(trace.String())); err != nil {
		return "", 0, err
	}
	s, err := scenario.Parse(filepath.Join(m.dir, "calibrate.yaml"), []byte(text), scenario.Options{Catalog: catalog.All()})
	if err != nil {
		return "", 0, err
	}
	dir := filepath.Join(m.dir, "runs")
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	var from, to sample
	var sampleErr error
	take := func(into *sample) {
		if into.at.IsZero() {
			p, err := processors.Read()
			*into = sample{time.Now(), p}
			sampleErr = errors.Join(sampleErr, err)
		}
	}
	out, err := runner.Execute(ctx, s, runner.Options{Out: dir, StateRoot: m.o.StateRoot, Version: m.o.Version, Force: true, Progress: func(p runner.Progress) {
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
		return err.Error(), 0, nil // an overloaded machine may fail in many ways
	}
	if err != nil {
		return "", 0, err
	}
	return notPassed(out), to.busySince(from), nil
}

// notPassed returns the reasons why a run's verdict is not pass; empty if it is.
func notPassed(out *runner.Outcome) string {
	level := out.Level()
	if level == verdict.Pass {
		return ""
	}
	reasons := []string{"verdict " + level.String()}
	for _, a := range out.Report.Summary.Arms {
		for _, v := range a.Verdicts {
			for _, c := range v.Checks {
				if c.Level != verdict.Pass {
					reasons = append(reasons, fmt.Sprintf("%s is %s (pass: %s)", c.Name, c.Value, c.Pass))
				}
			}
		}
	}
	return strings.Join(reasons, "; ")
}

// sample is the time that the processors have spent, by kind, at a moment.
type sample struct {
	at time.Time
	processors.Reading
}

// busySince returns the average number of busy processors. It excludes time stolen from a
// virtual machine.
func (s sample) busySince(from sample) float64 {
	busy := func(p processors.Reading) time.Duration { return p.Tasks + p.Softirq + p.Irq }
	return (busy(s.Reading) - busy(from.Reading)).Seconds() / max(s.at.Sub(from.at).Seconds(), 1e-3)
}
