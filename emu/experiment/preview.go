package experiment

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"runtime"
	"strings"
	"time"

	"testbed/emu/plan"
	"testbed/emu/scenario"
	"testbed/results/flows"
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
}

// Load is the predicted load of one arm.
type Load struct {
	Arm      string        `json:"arm"`
	Duration time.Duration `json:"duration_ns"`
	// Packets is full-size packets a second through shapers, every hop counted,
	// averaged over the arm and in its busiest second.
	Packets     float64 `json:"shaped_packets_per_s"`
	PeakPackets float64 `json:"peak_shaped_packets_per_s"`
	// CPU is the share of this machine's processors that PeakPackets take.
	CPU float64 `json:"peak_cpu_share"`
}

// Preview says what a scenario comes to; with the load and the plan only where
// full is asked for, since that simulates each arm.
func Preview(ctx context.Context, s *scenario.Scenario, full bool) (*Forecast, error) {
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
		rec, err := r.simulate(ctx, i, 0, w, "", nil)
		if err != nil {
			return nil, fmt.Errorf("arm %s: %w", a.Name, err)
		}
		l := r.load(rec, w)
		l.Arm = a.Name
		out.Load = append(out.Load, l)
		out.Duration += l.Duration * time.Duration(s.Spec.Repeat)
	}
	return out, nil
}

// load spreads each transfer's packets evenly over its life.
func (r *run) load(rec flows.Records, w workloads.Workload) Load {
	end := lastEnd(rec)
	seconds := make([]float64, int(end/time.Second)+1)
	payload := float64(r.fabric.Shape().MTU - 52)
	var total float64
	spread := func(from, to time.Duration, size units.Bytes, hops int) {
		packets := float64(size) / payload * float64(hops)
		total += packets
		per := packets / max(to-from, 1).Seconds()
		for at := from; at < to; {
			next := min((at/time.Second+1)*time.Second, to)
			seconds[at/time.Second] += per * (next - at).Seconds()
			at = next
		}
	}
	hops := func(a, b string) int {
		src, errA := r.fabric.FindHost(a)
		dst, errB := r.fabric.FindHost(b)
		if errA != nil || errB != nil {
			return 0
		}
		return len(r.fabric.Path(src, dst, 0))
	}
	for _, f := range rec.Flows {
		spread(f.Start, f.End, f.Size, hops(f.Src, f.Dst))
	}
	for _, b := range rec.Blocks {
		from := b.Client
		for _, h := range b.Hosts {
			spread(b.Requested, b.End, b.Size, hops(from, h))
			from = h
		}
	}
	l := Load{Duration: end, Packets: total / max(end.Seconds(), 1)}
	for _, s := range seconds {
		l.PeakPackets = max(l.PeakPackets, s)
	}
	l.CPU = l.PeakPackets * PacketCost.Seconds() / float64(runtime.NumCPU())
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
		if l.CPU > 0.9 {
			warn = ": more than this machine is likely to carry; lower the rates, or raise the MTU"
		}
		fmt.Fprintf(b, "#   %-20s %6.1fs, %.0f shaped packets/s, %.0f in the busiest second: about %.0f %% of %d processors%s\n",
			l.Arm, l.Duration.Seconds(), l.Packets, l.PeakPackets, 100*l.CPU, runtime.NumCPU(), warn)
	}
	fmt.Fprintf(b, "\n%s", f.Plan.Text())
	return b.Flush()
}
