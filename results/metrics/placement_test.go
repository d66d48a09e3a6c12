package metrics

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"testbed/results/flows"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// Utilisations of 0.2, 0.4 and 0.6 have the mean 0.4 and the standard deviation 0.1633.
func TestCvOfUtilisations(t *testing.T) {
	f := fabricOf(t, 3, 2, "40Mbps") // 160 Mbps of hosts over 80 Mbps: racks decide
	if got := ReceivingLinks(f); len(got) != 3 || len(got[0]) != 2 {
		t.Fatalf("receiving links %v, want two of each of three racks", got)
	}
	var all []flows.LinkSeries
	for _, l := range f.Links() {
		s := flows.LinkSeries{Link: l.ID, Rate: l.Rate, Interval: 100 * time.Millisecond, Bytes: make([]units.Bytes, 30)}
		if l.Kind != topo.LeafDown {
			// Other links do not count.
			for i := range s.Bytes {
				s.Bytes[i] = units.Bytes(1000 * int(l.ID))
			}
		}
		all = append(all, s)
	}
	// In the first second racks receive 2, 4 and 6 MB of 10, spread in any way over spines
	// and time; in the second nothing; in the third everything goes to one rack.
	for rack, mb := range []units.Bytes{2, 4, 6} {
		all[f.LeafDown(topo.RackID(rack), 0)].Bytes[rack] = mb * 250_000
		all[f.LeafDown(topo.RackID(rack), 1)].Bytes[9-rack] = mb * 750_000
	}
	all[f.LeafDown(1, 1)].Bytes[25] = 1_000_000
	got := BalanceOf(f, all, time.Second)
	if got.Interval != time.Second || got.Links != 3 || len(got.Samples) != 2 || got.Samples[0].From != 0 || got.Samples[1].From != 2*time.Second {
		t.Fatalf("%+v: want samples of the first and the third second, of three links", got)
	}
	if cvs := got.Cvs(); math.Abs(cvs[0]-0.408) > 0.0005 || math.Abs(cvs[1]-math.Sqrt2) > 1e-9 {
		t.Errorf("Cvs %v, want 0.408 and √2", cvs)
	}
	// A meter that reads counters returns the same.
	m := NewMeter(f, time.Second)
	carried := make([]float64, len(all))
	for i := range 3 {
		for l, s := range all {
			for _, b := range s.Bytes[10*i : 10*(i+1)] {
				carried[l] += float64(b)
			}
		}
		m.Read(time.Duration(i)*time.Second, carried)
	}
	if d := cmp.Diff(got, m.Balance()); d != "" {
		t.Errorf("of counters (-captures +meter):\n%s", d)
	}
	if got := ReceivingLinks(fabricOf(t, 3, 2, "80Mbps")); len(got) != 6 || got[4][0] != f.HostDown(4) {
		t.Errorf("receiving links %v where racks are not oversubscribed, want one of each host", got)
	}
	if b := BalanceOf(f, nil, time.Second); len(b.Samples) != 0 {
		t.Errorf("%+v of nothing", b)
	}
}

func placed(id int, at, end time.Duration, size units.Bytes, hosts ...string) flows.BlockRecord {
	return flows.BlockRecord{Block: workloads.BlockID(id), Client: hosts[0], Hosts: hosts, Size: size, Requested: at, End: end}
}

func TestDiskImbalance(t *testing.T) {
	f := fabricOf(t, 2, 1, "40Mbps")
	r := flows.Records{Blocks: []flows.BlockRecord{placed(1, 0, 1, 40, "h0-00", "h1-00"), placed(2, 0, 1, 40, "h0-00", "h1-01")}}
	// 80, 0, 40 and 40 bytes: a standard deviation of √800.
	if got := DiskImbalance(f, r, 1000); got == nil || math.Abs(*got-math.Sqrt(800)/1000) > 1e-12 {
		t.Errorf("%v, want %v", got, math.Sqrt(800)/1000)
	}
	if got := DiskImbalance(f, r, 0); got != nil {
		t.Errorf("%v for disks that are never full", *got)
	}
}

func TestCrossRack(t *testing.T) {
	r := flows.Records{
		Flows:  []flows.FlowRecord{{Src: "h0-00", Dst: "h0-01", Size: 7}, {Src: "h0-00", Dst: "h1-00", Size: 100}},
		Blocks: []flows.BlockRecord{placed(1, 0, 1, 10, "h0-00", "h1-00", "h1-01"), placed(2, 0, 1, 10, "h0-00", "h1-00", "h2-01")},
	}
	got := Payload(r)
	if want := (CrossRack{All: 130, Writes: 30}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	for _, tt := range []struct {
		base CrossRack
		want []string
	}{
		{got, nil},
		{CrossRack{130 / 1.05, 30 / 1.05}, nil},
		{CrossRack{120, 20}, []string{"1.50 times the baseline's block-write bytes between racks", "1.08 times the baseline's total bytes between racks"}},
		// The same in total, for a shuffle of many more bytes.
		{CrossRack{131, 60}, []string{"0.50 times the baseline's block-write bytes between racks"}},
		{CrossRack{}, []string{"30 block-write bytes between racks, none in the baseline", "130 total bytes between racks, none in the baseline"}},
	} {
		if d := cmp.Diff(tt.want, got.Unlike(tt.base, DefaultAlike)); d != "" {
			t.Errorf("over %+v (-want +got):\n%s", tt.base, d)
		}
	}
	f := fabricOf(t, 2, 1, "40Mbps")
	var all []flows.LinkSeries
	for _, l := range f.Links() {
		all = append(all, flows.LinkSeries{Link: l.ID, Bytes: []units.Bytes{1 << l.ID, 1 << l.ID}})
	}
	if got, want := Uplinks(f, all), units.Bytes(2<<f.LeafUp(0, 0)+2<<f.LeafUp(1, 0)); got != want {
		t.Errorf("uplinks carried %d, want %d", got, want)
	}
}

// Four blocks of 8 MB, disks of 6.9 MB/s and 16 MB/s of residual link capacity: 1.16, 1.16,
// 1.5 and 2 s.
func TestFluidMean(t *testing.T) {
	const mbps = 8e6 // bits per second in 1 MB/s
	jobs := func(sizeMB units.Bytes, at ...float64) (out []fluidJob) {
		for _, a := range at {
			out = append(out, fluidJob{at: a, size: sizeMB * units.MB})
		}
		return out
	}
	for _, tt := range []struct {
		name       string
		jobs       []fluidJob
		disk, rate float64
		want       float64
	}{
		{"together", jobs(8, 0, 0, 0, 0), 6.9 * mbps, 16 * mbps, (2*8/6.9 + 1.5 + 2) / 4},
		{"later, the same", jobs(8, 7, 7, 7, 7), 6.9 * mbps, 16 * mbps, (2*8/6.9 + 1.5 + 2) / 4},
		{"apart", jobs(8, 0, 10, 20), 6.9 * mbps, 16 * mbps, 8 / 6.9},
		{"no disk", jobs(8, 0, 0), 0, 16 * mbps, 0.75},
		{"one waits for a part of another", jobs(8, 0.25, 0), 0, 16 * mbps, (0.5 + 0.75) / 2},
		// The 2 MB overtake the 16 MB: 0.125 s, and 1.125 s including that wait.
		{"two sizes", append(jobs(16, 0), jobs(2, 0.5)...), 0, 16 * mbps, (1.125 + 0.125) / 2},
		{"two sizes, slow disks", append(jobs(16, 0), jobs(2, 0.5)...), 1 * mbps, 16 * mbps, 9},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := fluidMean(tt.jobs, tt.disk, tt.rate); math.Abs(got-tt.want) > 1e-9 {
				t.Errorf("%v s, want %v", got, tt.want)
			}
		})
	}
}

func TestBoundsOf(t *testing.T) {
	f := fabricOf(t, 2, 1, "40Mbps") // 2 × 5 MB/s into racks
	sec := time.Second
	r := flows.Records{Blocks: []flows.BlockRecord{placed(1, 0, 4*sec, 4*units.MB, "h0-00", "h1-00"), placed(2, 0, 5*sec, 4*units.MB, "h0-00", "h1-00")}}
	// Alone, each block takes 0.8 s over the uplink. As a fluid at 10 MB/s they take 0.4 and
	// 0.8 s, 0.6 s on average; that is less than alone, so the bound stays 0.8 s.
	if got, want := BoundsOf(f, r, 0), (Bounds{Blocks: 2, Lone: 800 * time.Millisecond, Fluid: 800 * time.Millisecond}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	// Disks of 2 MB/s.
	if got, want := BoundsOf(f, r, 16*units.Mbps), (Bounds{Blocks: 2, Lone: 2 * sec, Fluid: 2 * sec}); got != want {
		t.Errorf("with disks %+v, want %+v", got, want)
	}
	// Background takes 9 of the 10 MB/s for 5 s; traffic inside a rack takes nothing.
	r.Flows = []flows.FlowRecord{{Src: "h0-00", Dst: "h1-01", Size: 45 * units.MB, End: 5 * sec}, {Src: "h0-00", Dst: "h0-01", Size: 45 * units.MB, End: 5 * sec}}
	if got, want := BoundsOf(f, r, 16*units.Mbps), (Bounds{Blocks: 2, Lone: 2 * sec, Fluid: 6 * sec}); got != want {
		t.Errorf("with background %+v, want %+v", got, want)
	}
	// Background above the links' capacity gives no bound.
	r.Flows[0].Size = 51 * units.MB
	if got := BoundsOf(f, r, 16*units.Mbps); got.Fluid != 0 {
		t.Errorf("with too much background %+v, want no fluid bound", got)
	}
	// A block that was given up is in no average.
	r.Failed = []flows.Failure{{Kind: flows.FailedBlock, Block: 1}, {Kind: flows.FailedBlock, Block: 2}}
	if got := BoundsOf(f, r, 0); got != (Bounds{}) {
		t.Errorf("of failed blocks %+v", got)
	}
	one := flows.Records{Blocks: []flows.BlockRecord{placed(1, 0, sec, units.MB, "h0-00")}}
	if got := BoundsOf(f, one, 0); got != (Bounds{}) {
		t.Errorf("of one replica without a disk %+v", got)
	}
	// With one rack the path leads to another host: 10 MB/s.
	single := fabricOf(t, 1, 0, "")
	if got := BoundsOf(single, flows.Records{Blocks: []flows.BlockRecord{placed(1, 0, sec, 5*units.MB, "h0-00", "h0-01")}}, 0); got.Lone != 500*time.Millisecond {
		t.Errorf("in one rack %+v, want 500 ms", got)
	}
}
