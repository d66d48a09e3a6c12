package runner

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"time"

	"testbed/emu/calibration"
	"testbed/emu/kernel"
	"testbed/emu/plan"
	"testbed/emu/scenario"
	"testbed/results/flows"
	"testbed/results/rundir"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads/jobs"
)

// PacketCost is the processor time of a packet for each shaper it passes, including
// senders, receivers, captures and the timers of busy shapers. It was measured with the
// quickstart on a virtual machine with two processors, where timers are expensive. It serves
// predictions only; each run measures whether the machine kept up.
const PacketCost = 16 * time.Microsecond

// Forecast describes the run of a scenario in advance.
type Forecast struct {
	Scenario string   `json:"scenario"`
	Arms     []string `json:"arms"`
	AtLeast  int      `json:"repeats_at_least"`
	Repeats  int      `json:"repeats"` // at most
	Coflows  int      `json:"coflows"`
	Flows    int      `json:"flows"`
	Blocks   int      `json:"blocks"`
	// Tasks are the jobs of tasks of repeat 0; nil for none. Their blocks and flows are not part of
	// the numbers above.
	Tasks *TaskForecast  `json:"tasks,omitempty"`
	Notes scenario.Notes `json:"notes"`
	Load  []Load         `json:"load,omitempty"` // by arm
	// Duration is the total of all arms and, at most, repeats on packets, without the construction of
	// the fabric and the reading of captures.
	Duration time.Duration `json:"duration_ns,omitempty"`
	Plan     *plan.Plan    `json:"plan,omitempty"`
	// Planned are numbers of repeats that show a difference, by completion time.
	Planned []PlannedRepeats `json:"planned_repeats,omitempty"`
	// Calibration states the calibration, or the defaults, of links and loads.
	Calibration string `json:"calibration,omitempty"`
	// Capacity is the calibrated capacity at the MTU nearest to that of the scenario; nil
	// without a calibration.
	Capacity *calibration.Capacity `json:"capacity,omitempty"`
	// Host is the predicted time of one processor of this machine for all trials in virtual time.
	Host time.Duration `json:"host_ns,omitempty"`
	// Cost is the predicted time of a guest for a packet at each shaper it passes.
	Cost time.Duration `json:"guest_ns_per_packet,omitempty"`
	// Decision is the reaction of Execute to the predicted load.
	Decision *Decision `json:"decision,omitempty"`

	// Resources are the limited resources of this machine that a run needs. Lack
	// names those that exceed the limits; the run is then refused.
	Resources *kernel.Resources `json:"resources,omitempty"`
	Disk      *DiskSpace        `json:"disk,omitempty"`
	Lack      []string          `json:"lack,omitempty"`

	// Machine has the features that the scenario needs and this kernel lacks.
	Machine
}

// TaskForecast counts the jobs of tasks of a repeat. Bytes exclude replicas.
type TaskForecast struct {
	Jobs     int   `json:"jobs"`
	Maps     int   `json:"maps"`
	Reduces  int   `json:"reduces"`
	Input    int64 `json:"input_bytes"`
	Shuffled int64 `json:"shuffle_bytes"` // between stages
	Written  int64 `json:"output_bytes"`
}

// Load is the predicted load of one arm.
type Load struct {
	Arm      string        `json:"arm"`
	Duration time.Duration `json:"duration_ns"`
	// Packets is the mean number of full-size packets per second through shapers, counting every
	// hop. PeakPackets is the number in the busiest second.
	Packets     float64 `json:"shaped_packets_per_s"`
	PeakPackets float64 `json:"peak_shaped_packets_per_s"`
	// PeakLinks is the number of links in use in the busiest second.
	PeakLinks int `json:"peak_links"`
	// CPU is the share of this machine's processors that PeakPackets need.
	CPU float64 `json:"peak_cpu_share"`
	// Share is PeakPackets as a share of the machine's capacity: of the calibrated
	// packets/s if the calibration reached the limit, otherwise CPU.
	Share float64 `json:"peak_share"`
}

// Preview returns the forecast of a scenario without a calibration, and without the load and the plan, which require a
// simulation of each arm.
func Preview(s *scenario.Scenario) (*Forecast, error) {
	r, err := newRun(s, Options{}, BackendOf(s))
	if err != nil {
		return nil, err
	}
	return r.preview()
}

// Predict returns the full forecast of a scenario with the options' calibration and
// load limit, and the reaction of Execute to the load. It fails if Buckets fails.
func Predict(ctx context.Context, s *scenario.Scenario, o Options) (*Forecast, error) {
	r, err := newRun(s, o, BackendOf(s))
	if err != nil {
		return nil, err
	}
	return r.predict(ctx)
}

func (r *run) preview() (*Forecast, error) {
	if err := r.o.Virtual.check(); err != nil {
		return nil, err
	}
	w, err := r.drawn(0)
	if err != nil {
		return nil, err
	}
	out := &Forecast{Scenario: r.s.Spec.Name, AtLeast: r.s.Spec.Repeat.AtLeast, Repeats: r.s.Spec.Repeat.AtMost, Coflows: len(w.Coflows), Notes: r.notes}
	for _, c := range w.Coflows {
		out.Flows += len(c.Flows)
	}
	for _, wr := range w.Writers {
		out.Blocks += len(wr.Blocks)
	}
	if len(w.tasks) > 0 {
		st := jobs.Describe(w.tasks, nil)
		out.Tasks = &TaskForecast{Jobs: st.Jobs, Maps: st.Maps, Reduces: st.Reduces, Input: st.Input, Shuffled: st.Shuffled, Written: st.Written}
	}
	for _, a := range r.arms {
		out.Arms = append(out.Arms, a.Name)
		p := a.plan(0)
		if err := p.Check(); err != nil {
			return nil, err
		}
		if r.backend == rundir.Packets {
			out.Machine.add(machineOfRun(a.s, p))
		}
	}
	return out, nil
}

// predict returns the full forecast, and sets the token buckets and predictions of the arms.
func (r *run) predict(ctx context.Context) (*Forecast, error) {
	out, err := r.preview()
	if err != nil {
		return nil, err
	}
	w, err := r.drawn(0)
	if err != nil {
		return nil, err
	}
	var packets, samples []float64 // captured in a repeat, and bytes of its samples, by arm
	var records []flows.Records
	var need kernel.Resources
	var share float64
	for i, a := range r.arms {
		var note string
		if a.burst, note, err = Buckets(a.s, a.fabric, r.o.Calibration); err != nil {
			return nil, err
		}
		if r.backend == rundir.Virtual {
			note = "links of guests use the default buckets"
		}
		if !strings.Contains(out.Calibration, note) {
			out.Calibration = strings.TrimPrefix(out.Calibration+"; "+note, "; ")
		}
		var capacity *calibration.Capacity
		cost := PacketCost
		if c := r.o.Calibration; c != nil {
			if x, ok := c.At(a.fabric.Shape().MTU); ok {
				capacity, cost = &x, x.Cost
			}
		}
		processors := runtime.NumCPU()
		if r.backend == rundir.Virtual {
			capacity, cost, processors = nil, r.o.Virtual.cost(), 1
		}
		links, err := a.s.CapturedLinks(a.fabric)
		if err != nil {
			return nil, err
		}
		carried := newCarried(a.fabric)
		t := a.trial(0, *w)
		var p *progress
		if r.o.Progress != nil {
			p = t.progress(Progress{Trial: i + 1, Trials: len(r.arms)}, r.o.Progress)
			p.phase(PhasePredict)
		}
		rec, err := t.simulate(ctx, "", nil, carried.sent, p)
		if err != nil {
			return nil, fmt.Errorf("arm %s: %w", a.Name, err)
		}
		l := carried.load(lastEnd(rec), cost, processors)
		packets = append(packets, carried.captured(a.fabric, links))
		samples = append(samples, sampled(a.fabric.Hosts(), l.Duration, a.settings().SampleRows))
		l.Arm, l.Share = a.Name, l.CPU
		if capacity != nil && !capacity.Bounded {
			l.Share = l.PeakPackets / capacity.Packets
		}
		if capacity != nil && (out.Capacity == nil || l.Share > share) { // of the arm that loads the machine most
			out.Capacity, share = capacity, l.Share
		}
		a.predicted, records, out.Load = &rec, append(records, rec), append(out.Load, l)
		out.Duration += l.Duration * time.Duration(r.s.Spec.Repeat.AtMost)
		if r.backend == rundir.Virtual {
			out.Cost = cost
			out.Host += time.Duration(r.s.Spec.Repeat.AtMost) * r.o.Virtual.host(l.Packets*l.Duration.Seconds())
		}
		need = need.Most(resources(a.s, a.fabric, []flows.Records{rec}))
	}
	out.Plan = r.arms[0].plan(0)
	out.Decision = out.decide(r.s, r.o)
	out.Resources = &need
	if r.backend == rundir.Packets {
		var lack *kernel.LackError
		if err := kernel.CheckResources("this", need); errors.As(err, &lack) {
			out.Lack = lack.Lack
		} else if err != nil {
			return nil, err
		}
	}
	out.Disk = space(r.s, *w, packets, samples, records, r.o)
	if missing := out.Disk.missing(r.o.tamper.free); missing != "" {
		out.Lack = append(out.Lack, missing)
	}
	if r.backend == rundir.Virtual {
		if lacks := r.o.Virtual.lacks(out.Disk.trial, need.Memory); lacks != "" {
			out.Lack = append(out.Lack, lacks)
		}
	}
	return out, nil
}

// carried counts the full-size packets that the links of a fabric carry on the fluid model in each
// second.
type carried struct {
	packet []float64 // packets of a byte, by LinkID
	total  []float64 // packets so far, by LinkID
	all    []float64 // packets of all links, by second
	links  []int     // number of links in use, by second
}

func newCarried(f *topo.Fabric) *carried {
	c := &carried{total: make([]float64, len(f.Links()))}
	mtu := f.Shape().MTU
	for _, l := range f.Links() {
		share := float64(plan.Payload(l.Rate, mtu)) / float64(l.Rate)
		c.packet = append(c.packet, share/float64(mtu-plan.TCPHeaders))
	}
	return c
}

// sent adds what links have carried in the newest second, as fluid.Config.Sent reports it.
func (c *carried) sent(now time.Duration, bytes []float64) {
	const nothing = 1e-6 // packets: rounding
	all, links := 0.0, 0
	for l, n := range bytes {
		if p := n*c.packet[l] - c.total[l]; p > nothing {
			all, links = all+p, links+1
			c.total[l] += p
		}
	}
	if second := int((now - 1) / time.Second); links > 0 {
		more := second + 1 - len(c.all)
		c.all, c.links = append(c.all, make([]float64, more)...), append(c.links, make([]int, more)...)
		c.all[second], c.links[second] = c.all[second]+all, c.links[second]+links
	}
}

// load returns the load until end, with a processor time of cost per packet.
func (c *carried) load(end, cost time.Duration, processors int) Load {
	l := Load{Duration: end}
	for i, p := range c.all {
		l.Packets += p
		if p > l.PeakPackets {
			l.PeakPackets, l.PeakLinks = p, c.links[i]
		}
	}
	l.Packets /= max(end.Seconds(), 1)
	l.CPU = l.PeakPackets * cost.Seconds() / float64(processors)
	return l
}

// processors names what the loads are shares of.
func (f *Forecast) processors() string {
	if f.Host > 0 {
		return "the processor of a guest"
	}
	return fmt.Sprintf("%d processors", runtime.NumCPU())
}

// String returns the forecast in one line.
func (f *Forecast) String() string {
	work := fmt.Sprintf("%d coflows of %d flows and %d blocks", f.Coflows, f.Flows, f.Blocks)
	if t := f.Tasks; t != nil {
		bytes := func(n int64) string { return units.Short(float64(n), "B") }
		tasks := fmt.Sprintf("%d jobs of %d maps and %d reduces, which read %s, shuffle %s and write %s", t.Jobs, t.Maps, t.Reduces, bytes(t.Input), bytes(t.Shuffled), bytes(t.Written))
		if f.Coflows+f.Blocks == 0 {
			work = tasks
		} else {
			work += ", and " + tasks + ","
		}
	}
	repeats := fmt.Sprint(f.Repeats)
	if f.AtLeast < f.Repeats {
		repeats = fmt.Sprintf("%d to %d", f.AtLeast, f.Repeats)
	}
	return fmt.Sprintf("%s under %d arms (%s), %s repeats", work, len(f.Arms), strings.Join(f.Arms, ", "), repeats)
}

// Script writes a full forecast: the figures as comments and the plan as commands, limited to
// operations as in plan.Plan.TextOf.
func (f *Forecast) Script(w io.Writer, operations int) error {
	b := bufio.NewWriter(w)
	fmt.Fprintf(b, "# scenario %s: %s\n", f.Scenario, f)
	for _, n := range f.Notes {
		fmt.Fprintf(b, "#   %s\n", n)
	}
	fmt.Fprintf(b, "# predicted duration of all arms and repeats (fluid model): %v\n", f.Duration.Round(100*time.Millisecond))
	for _, p := range f.Planned {
		fmt.Fprintf(b, "# %v\n", p)
	}
	for _, l := range f.Load {
		fmt.Fprintf(b, "#   %-20s %6.1fs, %.0f shaped packets/s, %.0f in the busiest second: about %.0f %% of %s\n",
			l.Arm, l.Duration.Seconds(), l.Packets, l.PeakPackets, 100*l.CPU, f.processors())
	}
	if f.Host > 0 {
		fmt.Fprintf(b, "# virtual time: about %v of one processor of this machine for all trials\n", f.Host.Round(time.Second))
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
	fmt.Fprintf(b, "# needs about %v\n", f.Resources)
	fmt.Fprintf(b, "# %v\n", f.Disk)
	for _, missing := range f.Missing {
		fmt.Fprintf(b, "# testbed run refuses this: %v\n", missing)
	}
	for _, lack := range f.Lack {
		fmt.Fprintf(b, "# testbed run refuses this, because the machine lacks %s\n", lack)
	}
	for _, unchecked := range f.Unchecked {
		fmt.Fprintf(b, "# unknown whether testbed run starts this: %v\n", unchecked)
	}
	if f.Decision.Action == Refuse || len(f.Lack)+len(f.Missing)+len(f.Unchecked) == 0 {
		fmt.Fprintf(b, "# testbed run %s\n", f.Decision)
	}
	fmt.Fprintf(b, "\n%s", f.Plan.TextOf(operations))
	return b.Flush()
}
