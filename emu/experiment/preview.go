package experiment

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"runtime"
	"strings"
	"time"

	"testbed/emu/calibration"
	"testbed/emu/plan"
	"testbed/emu/scenario"
	"testbed/results/flows"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// PacketCost is the processor time of a packet for each shaper it passes, with
// senders, receivers, captures and the timers of busy shapers: what the quickstart
// took on a virtual machine of two processors, where timers are dear. It is for a
// prediction; whether the machine kept up is measured in each run.
const PacketCost = 16 * time.Microsecond

// Forecast is what running a scenario comes to.
type Forecast struct {
	Scenario string         `json:"scenario"`
	Arms     []string       `json:"arms"`
	Repeats  int            `json:"repeats"`
	Coflows  int            `json:"coflows"`
	Flows    int            `json:"flows"`
	Blocks   int            `json:"blocks"`
	Notes    scenario.Notes `json:"notes"`
	Load     []Load         `json:"load,omitempty"` // by arm
	// Duration of all arms and repeats on packets, without building and reading
	// captures.
	Duration time.Duration `json:"duration_ns,omitempty"`
	Plan     *plan.Plan    `json:"plan,omitempty"`
	// Calibration tells what the links and the load go by.
	Calibration string `json:"calibration,omitempty"`
	// Capacity is the calibrated one at the MTU nearest to the scenario's; nil
	// without a calibration.
	Capacity *calibration.Capacity `json:"capacity,omitempty"`
}

// Load is the predicted load of one arm.
type Load struct {
	Arm      string        `json:"arm"`
	Duration time.Duration `json:"duration_ns"`
	// Packets is full-size packets a second through shapers, every hop counted,
	// averaged over the arm and in its busiest second.
	Packets     float64 `json:"shaped_packets_per_s"`
	PeakPackets float64 `json:"peak_shaped_packets_per_s"`
	// PeakLinks is the links that carry anything in the second with the most
	// packets.
	PeakLinks int `json:"peak_links"`
	// CPU is the share of this machine's processors that PeakPackets take.
	CPU float64 `json:"peak_cpu_share"`
}

// Preview says what a scenario comes to; with the load and the plan only where
// full is asked for, since that simulates each arm. It knows no calibration.
func Preview(ctx context.Context, s *scenario.Scenario, full bool) (*Forecast, error) {
	return preview(ctx, s, full, nil)
}

// Predict is a full Preview by a calibration; nil is none. It refuses what
// Buckets refuses.
func Predict(ctx context.Context, s *scenario.Scenario, c *calibration.Calibration) (*Forecast, error) {
	return preview(ctx, s, true, c)
}

func preview(ctx context.Context, s *scenario.Scenario, full bool, cal *calibration.Calibration) (*Forecast, error) {
	f, err := s.Shape().Build()
	if err != nil {
		return nil, err
	}
	w, notes, err := s.Workload(f, 0)
	if err != nil {
		return nil, err
	}
	out := &Forecast{Scenario: s.Spec.Name, Repeats: s.Spec.Repeat, Coflows: len(w.Coflows), Notes: notes}
	for _, c := range w.Coflows {
		out.Flows += len(c.Flows)
	}
	for _, wr := range w.Writers {
		out.Blocks += len(wr.Blocks)
	}
	r := &run{s: s, fabric: f, arms: s.ArmList()}
	if r.faults, err = timeline(s, f); err != nil {
		return nil, err
	}
	if full {
		if r.burst, out.Calibration, err = Buckets(s, f, cal); err != nil {
			return nil, err
		}
	}
	cost := PacketCost
	if cal != nil {
		if x, ok := cal.At(f.Shape().MTU); ok {
			out.Capacity, cost = &x, x.Cost
		}
	}
	p := r.plan(s.RepeatSeed(0))
	if err := p.Check(); err != nil {
		return nil, err
	}
	for _, a := range r.arms {
		out.Arms = append(out.Arms, a.Name)
	}
	if !full {
		return out, nil
	}
	out.Plan = p
	for i, a := range r.arms {
		rec, err := r.simulate(ctx, i, 0, w, "", nil, nil)
		if err != nil {
			return nil, fmt.Errorf("arm %s: %w", a.Name, err)
		}
		l := r.load(rec, s.RepeatSeed(0), cost)
		l.Arm = a.Name
		out.Load = append(out.Load, l)
		out.Duration += l.Duration * time.Duration(s.Spec.Repeat)
	}
	return out, nil
}

// load spreads each transfer's packets evenly over its life and along the path
// that routing chooses while no link is down; seed is the repeat's.
func (r *run) load(rec flows.Records, seed uint64, cost time.Duration) Load {
	end := lastEnd(rec)
	seconds := make([]float64, int(end/time.Second)+1)
	inUse := make([]map[topo.LinkID]bool, len(seconds))
	payload := float64(r.fabric.Shape().MTU - 52)
	var total float64
	spread := func(from, to time.Duration, size units.Bytes, path []topo.LinkID) {
		packets := float64(size) / payload * float64(len(path))
		total += packets
		per := packets / max(to-from, 1).Seconds()
		for at := from; at < to; {
			next := min((at/time.Second+1)*time.Second, to)
			seconds[at/time.Second] += per * (next - at).Seconds()
			if inUse[at/time.Second] == nil {
				inUse[at/time.Second] = map[topo.LinkID]bool{}
			}
			for _, l := range path {
				inUse[at/time.Second][l] = true
			}
			at = next
		}
	}
	path := func(a, b string, hash uint32) []topo.LinkID {
		src, errA := r.fabric.FindHost(a)
		dst, errB := r.fabric.FindHost(b)
		if errA != nil || errB != nil {
			return nil
		}
		return r.fabric.Path(src, dst, hash)
	}
	for _, f := range rec.Flows {
		spread(f.Start, f.End, f.Size, path(f.Src, f.Dst, workloads.FlowHash(seed, f.Flow)))
	}
	for _, b := range rec.Blocks {
		from := b.Client
		for hop, h := range b.Hosts {
			spread(b.Requested, b.End, b.Size, path(from, h, workloads.HopHash(seed, b.Block, hop)))
			from = h
		}
	}
	l := Load{Duration: end, Packets: total / max(end.Seconds(), 1)}
	for i, s := range seconds {
		if s > l.PeakPackets {
			l.PeakPackets, l.PeakLinks = s, len(inUse[i])
		}
	}
	l.CPU = l.PeakPackets * cost.Seconds() / float64(runtime.NumCPU())
	return l
}

// String is the forecast in one line.
func (f *Forecast) String() string {
	return fmt.Sprintf("%d coflows of %d flows and %d blocks under %d arms (%s), %d repeats", f.Coflows, f.Flows, f.Blocks, len(f.Arms), strings.Join(f.Arms, ", "), f.Repeats)
}

// Script writes a full forecast: it as comments, and the plan as commands.
func (f *Forecast) Script(w io.Writer) error {
	b := bufio.NewWriter(w)
	fmt.Fprintf(b, "# scenario %s: %s\n", f.Scenario, f)
	for _, n := range f.Notes {
		fmt.Fprintf(b, "#   %s\n", n)
	}
	fmt.Fprintf(b, "# predicted on the fluid model, all arms and repeats: %v\n", f.Duration.Round(100*time.Millisecond))
	for _, l := range f.Load {
		warn := ""
		if (f.Capacity == nil || f.Capacity.Bounded) && l.CPU > 0.9 {
			warn = ": more than this machine is likely to carry; lower the rates, or raise the MTU"
		}
		fmt.Fprintf(b, "#   %-20s %6.1fs, %.0f shaped packets/s, %.0f in the busiest second: about %.0f %% of %d processors%s\n",
			l.Arm, l.Duration.Seconds(), l.Packets, l.PeakPackets, 100*l.CPU, runtime.NumCPU(), warn)
	}
	if f.Calibration != "" {
		fmt.Fprintf(b, "# %s\n", f.Calibration)
	}
	if c := f.Capacity; c != nil {
		fmt.Fprintf(b, "# calibrated capacity at MTU %d: %.0f shaped packets/s over %d saturated links, %.2g links x packets/s\n", int64(c.MTU), c.Packets, c.Links, c.Product())
		for _, l := range f.Load {
			fmt.Fprintf(b, "#   %-20s %.0f %% of the packets/s, %.0f %% of the links x packets/s (%d links in use)\n", l.Arm,
				100*l.PeakPackets/c.Packets, 100*l.PeakPackets*float64(l.PeakLinks)/c.Product(), l.PeakLinks)
		}
	}
	if over := f.Overload(); over != "" {
		fmt.Fprintf(b, "# testbed run refuses this without --force: %s\n", over)
	}
	fmt.Fprintf(b, "\n%s", f.Plan.Text())
	return b.Flush()
}
