package placement

import (
	"slices"
	"testing"
	"time"

	"testbed/policies"
	"testbed/topo"
	"testbed/topo/units"
)

// fourRacks returns a cluster with racks {0,1} {2,3} {4,5} {6,7}, 100 MB/s to a host,
// 50 MB/s to a rack and 60 MB/s to a disk. All hosts reported at 10 s.
func fourRacks(t testing.TB) *policies.PlacementView {
	v := cluster(t, 4, 2, 4)
	v.DiskRate = mbs(60)
	v.Now = 10 * time.Second
	for h := range v.Hosts {
		v.Hosts[h].LastReport, v.Hosts[h].NextReport = 10*time.Second, 11*time.Second
	}
	return v
}

// counted returns the paper's example, with rack loads as counted by the leaves.
func counted(t testing.TB) *policies.PlacementView {
	v := fourRacks(t)
	v.Racks = []policies.RackState{{}, {Rx: mbs(45)}, {Rx: mbs(10)}, {Rx: mbs(25)}}
	for r := range v.Racks {
		v.Racks[r].LastReport, v.Racks[r].NextReport = v.Hosts[0].LastReport, v.Hosts[0].NextReport
	}
	v.Hosts[5].Rx, v.Hosts[6].Rx, v.Hosts[7].Rx = mbs(70), mbs(20), mbs(50)
	return v
}

// byLeaf returns Sinbad with a form and leaf counters.
func byLeaf(f Form) Sinbad {
	p := DefaultSinbad()
	p.Form, p.LeafCounters = f, true
	return p
}

func loadsOf(t testing.TB, p Sinbad, v *policies.PlacementView) *loads {
	t.Helper()
	l, err := p.loads(v)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func (l *loads) racks() (out []units.Rate) {
	for r := range l.rack {
		out = append(out, l.ofRack(topo.RackID(r))/mbs(1))
	}
	return out
}

func (l *loads) hosts() (out []units.Rate) {
	for h := range l.host {
		out = append(out, l.ofHost(topo.HostID(h))/mbs(1))
	}
	return out
}

// with returns v plus a block that is placed now.
func with(v *policies.PlacementView, size units.Bytes, hosts ...topo.HostID) *policies.PlacementView {
	c := *v
	c.Placements = append(slices.Clone(v.Placements), policies.Placement{At: v.Now, Client: hosts[0], Size: size, Hosts: hosts})
	return &c
}

// Vector 2: capacity 125, load 40 and disks 55 MB/s, half a second to the next report.
func TestVector2Hysteresis(t *testing.T) {
	for _, tt := range []struct {
		name     string
		size     units.Bytes
		at       time.Duration // time of the decision; reports at 10 s and 11 s
		load     int64         // MB/s, after the decision
		expected int64
	}{
		{"saturates", 256 * units.MB, 10500 * time.Millisecond, 125, 0},
		{"adds", 16 * units.MB, 10500 * time.Millisecond, 72, 53},
		{"at the report", 16 * units.MB, 10 * time.Second, 56, 55},
		{"measured since", 16 * units.MB, 10*time.Second - 1, 40, 55},
		{"the next report is due", units.MB / 50, 11 * time.Second, 60, 55},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v := fourRacks(t)
			v.DiskRate = mbs(55)
			v.Capacity = slices.Clone(v.Capacity)
			v.Capacity[v.Fabric.HostDown(4)] = mbs(125)
			v.Capacity[v.Fabric.LeafDown(2, 0)] = mbs(125)
			v.Hosts[4].Rx = mbs(40)
			v.Placements = []policies.Placement{{At: tt.at, Size: tt.size, Hosts: []topo.HostID{0, 4}}}
			l := loadsOf(t, DefaultSinbad(), v)
			if got := l.host[4]; got != mbs(tt.load) {
				t.Errorf("load of the host %v, want %v", got, mbs(tt.load))
			}
			if got := l.ofHost(4); got != mbs(tt.expected) {
				t.Errorf("expected capacity %v, want %v", got, mbs(tt.expected))
			}
			if got := l.rack[2]; got != mbs(tt.load) {
				t.Errorf("load of the rack %v, want %v", got, mbs(tt.load))
			}
			if l.host[0] != 0 || l.rack[0] != 0 {
				t.Errorf("the writer's own replica adds load: host %v, rack %v", l.host[0], l.rack[0])
			}
		})
	}
}

// A larger MinDelta lowers the load of a block that is placed just before a report.
func TestMinDelta(t *testing.T) {
	v := fourRacks(t)
	v.Placements = []policies.Placement{{At: 11*time.Second - time.Millisecond, Size: units.MB, Hosts: []topo.HostID{0, 4}}}
	for least, want := range map[time.Duration]units.Rate{0: mbs(100), time.Millisecond: mbs(100), 100 * time.Millisecond: mbs(10)} {
		p := DefaultSinbad()
		p.MinDelta = least
		if got := loadsOf(t, p, v).host[4]; got != want {
			t.Errorf("MinDelta %v: load %v, want %v", least, got, want)
		}
	}
}

// Without synchronised reports, the load of a rack includes a block once its leaf has reported, and those of hosts
// once these have. Rates are those until the next report of each.
func TestExpectedTrafficUntilTheNextReport(t *testing.T) {
	const size = 20 * units.MB
	v := counted(t) // at 10 s; blocks are 1 s from the next reports
	at := v.Hosts[0].LastReport
	v = with(v, size, 0, 4, 6)
	v.Now = at + 600*time.Millisecond
	v.Hosts[4].LastReport, v.Hosts[4].NextReport = at+500*time.Millisecond, at+1500*time.Millisecond
	v.Racks[3].LastReport, v.Racks[3].NextReport = at+100*time.Millisecond, at+1100*time.Millisecond
	v.Racks[2].NextReport = at + 500*time.Millisecond // half a second after the block
	l := loadsOf(t, byLeaf(Literal), v)
	if l.host[4] != v.Hosts[4].Rx || l.host[6] != v.Hosts[6].Rx+mbs(20) {
		t.Errorf("hosts 4 and 6: %v and %v, with %v and %v reported: only the second report is from before the block", l.host[4], l.host[6], v.Hosts[4].Rx, v.Hosts[6].Rx)
	}
	if l.rack[2] != mbs(10+40) || l.rack[3] != mbs(25) {
		t.Errorf("racks 2 and 3: %v and %v, want 10 and 40 MB/s more, and 25 MB/s", l.rack[2], l.rack[3])
	}
}

// Vector 3: the paper's selection in its forms, then the state for a second block.
func TestVector3Selection(t *testing.T) {
	const size = 20 * units.MB
	v := counted(t)
	l := loadsOf(t, byLeaf(Literal), v)
	if got, want := l.racks(), []units.Rate{50, 5, 40, 25}; !slices.Equal(got, want) {
		t.Errorf("expected capacity of racks %v, want %v", got, want)
	}
	if got, want := l.hosts()[4:], []units.Rate{60, 30, 60, 50}; !slices.Equal(got, want) {
		t.Errorf("expected capacity of hosts 4 to 7 %v, want %v", got, want)
	}
	// V1: h1, h5, h7 in the paper, which counts from 1.
	first := place(t, byLeaf(Literal), v, block(0, size, 3), 1)
	if want := []topo.HostID{0, 4, 6}; !slices.Equal(first, want) {
		t.Errorf("V1 on %v, want %v", first, want)
	}
	next := with(v, size, first...)
	l = loadsOf(t, byLeaf(Literal), next)
	if got, want := l.racks(), []units.Rate{50, 5, 20, 5}; !slices.Equal(got, want) {
		t.Errorf("after V1 racks %v, want %v", got, want)
	}
	if got4, got6 := l.host[4], l.host[6]; got4 != mbs(20) || got6 != mbs(40) {
		t.Errorf("after V1 loads of hosts 4 and 6 %v and %v, want 20 and 40 MB/s", got4, got6)
	}
	// V2: only rack 2, whose link two replicas load once.
	first = place(t, byLeaf(SameRack), v, block(0, size, 3), 1)
	if want := []topo.HostID{0, 4, 5}; !slices.Equal(first, want) {
		t.Errorf("V2 on %v, want %v", first, want)
	}
	next = with(v, size, first...)
	l = loadsOf(t, byLeaf(SameRack), next)
	if got, want := l.racks(), []units.Rate{50, 5, 20, 25}; !slices.Equal(got, want) {
		t.Errorf("after V2 racks %v, want %v", got, want)
	}
	if got, want := l.hosts(), []units.Rate{60, 60, 60, 60, 60, 10, 60, 50}; !slices.Equal(got, want) {
		t.Errorf("after V2 hosts %v, want %v", got, want)
	}
	if got, want := place(t, byLeaf(SameRack), next, block(0, size, 3), 1), []topo.HostID{0, 6, 7}; !slices.Equal(got, want) {
		t.Errorf("the next V2 block on %v, want %v", got, want)
	}
}

// VE compares host links in any rack, but not all replicas are in the writer's rack.
func TestEdgeSelection(t *testing.T) {
	v := fourRacks(t)
	v.DiskRate = 0
	for h, mb := range []int64{0, 10, 90, 40, 30, 70, 95, 50} {
		v.Hosts[h].Rx = mbs(mb)
	}
	p := DefaultSinbad()
	p.Form = Edge
	// Host 1 is the best, 4 the best outside its rack. The pipeline goes to the nearest first.
	if got, want := place(t, p, v, block(0, units.MB, 3), 1), []topo.HostID{0, 1, 4}; !slices.Equal(got, want) {
		t.Errorf("hosts %v, want %v", got, want)
	}
	// Two replicas must leave the writer's rack, though host 1 is better.
	if got, want := place(t, p, v, block(0, units.MB, 2), 1), []topo.HostID{0, 4}; !slices.Equal(got, want) {
		t.Errorf("two replicas on %v, want %v", got, want)
	}
	p.Faults = 0
	if got, want := place(t, p, v, block(0, units.MB, 2), 1), []topo.HostID{0, 1}; !slices.Equal(got, want) {
		t.Errorf("without fault domains on %v, want %v", got, want)
	}
}

// Where several links of a path can be the bottleneck, the least expected capacity counts. In
// the example of vector 3 with 80 MB/s to host 5, rack 2 has 40 MB/s left but only 20 for the
// second of a pair, so a pair goes to rack 3 with 25. By the links of hosts alone, host 2 with
// 100 MB/s is the best, but its rack has 5 left; host 1 shares the writer's rack.
func TestSeveralBottlenecks(t *testing.T) {
	for _, tt := range []struct {
		form              Form
		replicas          int
		bottleneck, whole []topo.HostID
	}{
		{SameRack, 3, []topo.HostID{0, 4, 5}, []topo.HostID{0, 6, 7}},
		{SameRack, 2, []topo.HostID{0, 4}, []topo.HostID{0, 4}},
		{Literal, 3, []topo.HostID{0, 4, 6}, []topo.HostID{0, 4, 6}},
		{Edge, 3, []topo.HostID{0, 2, 4}, []topo.HostID{0, 1, 4}},
	} {
		v := counted(t)
		v.DiskRate = 0
		v.Hosts[1].Rx, v.Hosts[3].Rx, v.Hosts[4].Rx, v.Hosts[5].Rx = mbs(10), mbs(50), mbs(5), mbs(80)
		for want, whole := range map[*[]topo.HostID]bool{&tt.bottleneck: false, &tt.whole: true} {
			p := byLeaf(tt.form)
			p.WholePath = whole
			if got := place(t, p, v, block(0, units.MB, tt.replicas), 1); !slices.Equal(got, *want) {
				t.Errorf("form %d, whole path %v: %d replicas on %v, want %v", tt.form, whole, tt.replicas, got, *want)
			}
		}
	}
	// Without fault domains a pair may join the writer: no rack link is on that path.
	v := counted(t)
	v.Racks[0].Rx = mbs(50)
	p := byLeaf(Literal)
	p.Faults, p.WholePath = 0, true
	if got, want := place(t, p, v, block(0, units.MB, 2), 1), []topo.HostID{0, 1}; !slices.Equal(got, want) {
		t.Errorf("without fault domains on %v, want %v", got, want)
	}
}

// Vector 4: disks slower than the residual capacity of two racks' links cause a tie. V1
// takes both racks, V2 draws one.
func TestVector4Ties(t *testing.T) {
	v := counted(t)
	v.DiskRate = mbs(20)
	if got, want := loadsOf(t, byLeaf(Auto), v).racks(), []units.Rate{20, 5, 20, 20}; !slices.Equal(got, want) {
		t.Errorf("expected capacity of racks %v, want %v", got, want)
	}
	drawn := map[topo.RackID]int{}
	for seed := range uint64(300) {
		drawn[v.Fabric.RackOf(place(t, byLeaf(SameRack), v, block(0, units.MB, 3), seed)[1])]++
		both := place(t, byLeaf(Literal), v, block(0, units.MB, 3), seed)
		racks := []topo.RackID{v.Fabric.RackOf(both[1]), v.Fabric.RackOf(both[2])}
		if slices.Sort(racks); !slices.Equal(racks, []topo.RackID{2, 3}) {
			t.Fatalf("V1 on %v, want racks 2 and 3", both)
		}
	}
	if drawn[1] != 0 || drawn[2] < 110 || drawn[3] < 110 {
		t.Errorf("V2 draws racks %v, want 2 and 3 with similar frequency", drawn)
	}
	// Without the disk cap there is no tie.
	p := byLeaf(SameRack)
	p.NoDiskCap = true
	for seed := range uint64(50) {
		if got := place(t, p, v, block(0, units.MB, 3), seed); v.Fabric.RackOf(got[1]) != 2 {
			t.Fatalf("without the disk cap on %v, want rack 2", got)
		}
	}
}

// Vector 5: a rack whose reports are late by more than Grace counts as full.
func TestVector5Stale(t *testing.T) {
	v := counted(t)
	for _, h := range []topo.HostID{4, 5} {
		v.Hosts[h].LastReport, v.Hosts[h].NextReport = v.Now-1500*time.Millisecond, v.Now-500*time.Millisecond
	}
	p := byLeaf(Literal)
	if got, want := loadsOf(t, p, v).racks(), []units.Rate{50, 5, 40, 25}; !slices.Equal(got, want) {
		t.Errorf("half an interval late: racks %v, want %v", got, want)
	}
	v.Now++
	if got, want := loadsOf(t, p, v).racks(), []units.Rate{50, 5, 0, 25}; !slices.Equal(got, want) {
		t.Errorf("later than that: racks %v, want %v", got, want)
	}
	for seed := range uint64(20) {
		if got := place(t, p, v, block(0, units.MB, 3), seed); v.Fabric.RackOf(got[1]) != 3 || v.Fabric.RackOf(got[2]) != 1 {
			t.Errorf("hosts %v, want racks 3 and 1, in that order", got)
		}
		if got := place(t, p, v, block(0, units.MB, 4), seed); v.Fabric.RackOf(got[3]) != 2 {
			t.Errorf("hosts %v, want rack 2 last", got)
		}
	}
	p.Grace = 1
	if got, want := loadsOf(t, p, v).racks(), []units.Rate{50, 5, 40, 25}; !slices.Equal(got, want) {
		t.Errorf("with more grace racks %v, want %v", got, want)
	}
	// With sums over hosts, a silent host adds the capacity of its link, a lost host
	// nothing.
	sums := DefaultSinbad()
	v.Hosts[5].NextReport = v.Now
	if got := loadsOf(t, sums, v).rack[2]; got != mbs(50) {
		t.Errorf("one silent host: load of the rack %v, want all of it", got)
	}
	v.Hosts[4].Lost, v.Hosts[5].Rx = true, mbs(7)
	if got := loadsOf(t, sums, v).rack[2]; got != mbs(7) {
		t.Errorf("one lost host: load of the rack %v, want that of the other", got)
	}
}

// Before the first report, a host is overdue only after one and a half intervals.
func TestSinbadFirstInterval(t *testing.T) {
	v := cluster(t, 4, 2, 4)
	for _, tt := range []struct {
		now  time.Duration
		next time.Duration
		want bool
	}{
		{0, time.Second, false}, {1500 * time.Millisecond, time.Second, false}, {1501 * time.Millisecond, time.Second, true},
		{time.Hour, 0, false}, {time.Hour, 1<<63 - 1, false},
	} {
		v.Hosts[3].NextReport = tt.next
		if got := DefaultEstimate().overdue(tt.now, &v.Hosts[3]); got != tt.want {
			t.Errorf("at %v with the first report due at %v: overdue %v, want %v", tt.now, tt.next, got, tt.want)
		}
	}
}

// Vector 6: requests of A (5 blocks left), B (1), C (3) and D (1, later) are placed
// in the order B, D, C, A.
func TestVector6Order(t *testing.T) {
	q := []policies.Request{{At: 0, Left: 5}, {At: 1, Left: 1}, {At: 1, Left: 3}, {At: 2, Left: 1}}
	p := DefaultSinbad()
	if got, want := p.Order(q), []int{1, 3, 2, 0}; !slices.Equal(got, want) {
		t.Errorf("order %v, want %v", got, want)
	}
	p.Arrival = true
	if got, want := p.Order(q), []int{0, 1, 2, 3}; !slices.Equal(got, want) {
		t.Errorf("by arrival %v, want %v", got, want)
	}
	p.Interval = 10 * time.Second
	if got := p.Every(); got != 10*time.Second {
		t.Errorf("every %v, want 10s", got)
	}
}

// Vector 7: with disks half full on average, 60 % is in balance and 61 % is not.
func TestVector7StorageBalance(t *testing.T) {
	v := counted(t)
	for h, percent := range []units.Bytes{50, 50, 50, 29, 61, 60, 50, 50} {
		v.Hosts[h].Used = percent * v.Hosts[h].Disk / 100
	}
	p := byLeaf(SameRack)
	limit := p.balance(v)
	for h, want := range []bool{true, true, true, true, false, true, true, true} {
		if got := limit.allows(&v.Hosts[h]); got != want {
			t.Errorf("host %d: allowed %v, want %v", h, got, want)
		}
	}
	// Rack 2 has the best link but only one host in balance: the block needs two.
	if got, want := place(t, p, v, block(0, units.MB, 3), 1), []topo.HostID{0, 6, 7}; !slices.Equal(got, want) {
		t.Errorf("hosts %v, want %v", got, want)
	}
	// Two replicas need one.
	if got, want := place(t, p, v, block(0, units.MB, 2), 1), []topo.HostID{0, 5}; !slices.Equal(got, want) {
		t.Errorf("two replicas on %v, want %v", got, want)
	}
	p.Tolerance = 11
	if got, want := place(t, p, v, block(0, units.MB, 3), 1), []topo.HostID{0, 4, 5}; !slices.Equal(got, want) {
		t.Errorf("with more tolerance %v, want %v", got, want)
	}
}

// Vector 8: a rack's load is the sum over its hosts, which may include traffic inside the
// rack. The leaf's counter shows only the traffic that enters it.
func TestVector8InternalSum(t *testing.T) {
	v := cluster(t, 2, 3, 1)
	for h, mb := range []int64{10, 20, 30} {
		v.Hosts[h].Rx = mbs(mb)
	}
	v.Racks = []policies.RackState{{Rx: mbs(35)}, {}}
	if got := loadsOf(t, DefaultSinbad(), v).rack[0]; got != mbs(60) {
		t.Errorf("load of the rack %v, want %v", got, mbs(60))
	}
	if got := loadsOf(t, byLeaf(Auto), v).rack[0]; got != mbs(35) {
		t.Errorf("load of the rack by its leaf %v, want %v", got, mbs(35))
	}
	v.Racks = v.Racks[:1]
	if _, err := byLeaf(Auto).Place(v, block(0, 1, 1), random(1)); err == nil {
		t.Error("placed without the counters of a rack")
	}
}

// In an idle cluster every choice is a tie, and each form equals its baseline.
func TestIdleIsBaseline(t *testing.T) {
	v := fourRacks(t)
	uniform, twoRacks := DefaultUniform(), DefaultUniform()
	twoRacks.TwoRacks = true
	for form, baseline := range map[Form]policies.Placer{SameRack: DefaultHDFS(), Literal: twoRacks, Edge: uniform} {
		p := DefaultSinbad()
		p.Form = form
		for seed := range uint64(100) {
			b := block(topo.HostID(seed%8), units.MB, 1+int(seed)%3)
			if got, want := place(t, p, v, b, seed), place(t, baseline, v, b, seed); !slices.Equal(got, want) {
				t.Errorf("form %d, seed %d: %v, baseline %v", form, seed, got, want)
			}
		}
	}
}

// Auto uses rack links if they are oversubscribed and host links otherwise, also when
// rates do not divide evenly.
func TestAutoForm(t *testing.T) {
	for _, tt := range []struct {
		racks, spines, hosts int
		over                 int64
		want                 Form
	}{{4, 1, 2, 4, SameRack}, {4, 1, 2, 1, Edge}, {4, 3, 5, 1, Edge}, {4, 3, 5, 2, SameRack}, {1, 0, 5, 3, Edge}} {
		f, err := topo.LeafSpine{Leaves: tt.racks, Spines: tt.spines, HostsPerLeaf: tt.hosts, HostLink: 10 * units.Mbps,
			Oversubscription: units.Ratio{Num: tt.over, Den: 1}, Queue: topo.Queue{Time: time.Millisecond}, MTU: 1500}.Build()
		if err != nil {
			t.Fatal(err)
		}
		if got := DefaultSteering().form(f); got != tt.want {
			t.Errorf("%v: form %d, want %d", f.Shape(), got, tt.want)
		}
		if got := (Steering{Form: Literal}).form(f); tt.racks > 1 && got != Literal {
			t.Errorf("%v: form %d, want the configured one", f.Shape(), got)
		}
	}
}

func TestSinbadThreshold(t *testing.T) {
	v := fourRacks(t)
	for _, h := range []topo.HostID{2, 3, 4, 5} {
		v.Hosts[h].Rx = mbs(40)
	}
	steered := func(p Sinbad, size units.Bytes) (n int) {
		for seed := range uint64(60) {
			got, want := place(t, p, v, block(0, size, 3), seed), place(t, DefaultHDFS(), v, block(0, size, 3), seed)
			if v.Fabric.RackOf(got[1]) == 3 {
				n++
			} else if !slices.Equal(got, want) {
				t.Errorf("seed %d: neither steered nor as HDFS places: %v, %v", seed, got, want)
			}
		}
		return n
	}
	bySize, byFraction := DefaultSinbad(), DefaultSinbad()
	bySize.Threshold, bySize.Fraction = units.MB, 0
	byFraction.Fraction = 0.25
	v.LargestBlock = 4 * units.MB
	for name, p := range map[string]Sinbad{"size": bySize, "fraction": byFraction} {
		if n := steered(p, units.MB); n != 60 {
			t.Errorf("%s: block of the threshold: the free rack chosen %d times of 60", name, n)
		}
		if n := steered(p, units.MB-1); n == 60 || n == 0 {
			t.Errorf("%s: smaller block: the free rack chosen %d times of 60, want a random choice", name, n)
		}
	}
}

// A writer without room gets no replica, and all replicas are steered.
func TestSinbadWriterWithoutRoom(t *testing.T) {
	v := counted(t)
	v.Hosts[0].Used = v.Hosts[0].Disk
	p := byLeaf(SameRack)
	p.Tolerance = NoTolerance
	// Rack 0 is idle, but its one other host is not enough for a pair; it takes a single replica.
	if got, want := place(t, p, v, block(0, units.MB, 1), 1), []topo.HostID{1}; !slices.Equal(got, want) {
		t.Errorf("one replica on %v, want %v", got, want)
	}
	if got, want := place(t, p, v, block(0, units.MB, 3), 1), []topo.HostID{1, 4, 5}; !slices.Equal(got, want) {
		t.Errorf("three replicas on %v, want %v", got, want)
	}
	p.Hosts = "h2-*,h3-01"
	v.Hosts[0].Used = 0
	if got, want := place(t, p, v, block(0, units.MB, 3), 1), []topo.HostID{4, 5, 7}; !slices.Equal(got, want) {
		t.Errorf("a writer outside the allowed hosts: %v, want %v", got, want)
	}
}

// An attempted choice of a rack with too few hosts leaves no hysteresis.
func TestSinbadUndoesHysteresis(t *testing.T) {
	v := counted(t)
	v.Hosts[5].Lost = true // in the best rack
	p := byLeaf(SameRack)
	got := place(t, p, v, block(0, 20*units.MB, 3), 1)
	if want := []topo.HostID{0, 6, 7}; !slices.Equal(got, want) {
		t.Fatalf("hosts %v, want %v", got, want)
	}
	if got, want := loadsOf(t, p, with(v, 20*units.MB, got...)).racks(), []units.Rate{50, 5, 40, 5}; !slices.Equal(got, want) {
		t.Errorf("then racks %v, want %v", got, want)
	}
}

func TestSinbadManyReplicas(t *testing.T) {
	v := counted(t)
	p := byLeaf(SameRack)
	if got, want := place(t, p, v, block(0, units.MB, 5), 1), []topo.HostID{0, 4, 5, 6, 7}; !slices.Equal(got, want) {
		t.Errorf("five replicas on %v, want %v", got, want)
	}
	if got := place(t, p, v, block(0, units.MB, 8), 1); len(got) != 8 {
		t.Errorf("eight replicas, more than the other racks hold, on %v", got)
	}
	// Two faults require three racks, which separates the pair.
	p.Faults = 2
	if got, want := place(t, p, v, block(0, units.MB, 3), 1), []topo.HostID{0, 4, 6}; !slices.Equal(got, want) {
		t.Errorf("two faults: %v, want %v", got, want)
	}
	if got, want := place(t, p, v, block(0, units.MB, 4), 1), []topo.HostID{0, 4, 5, 6}; !slices.Equal(got, want) {
		t.Errorf("two faults, four replicas: %v, want %v", got, want)
	}
	// Two zones, with all lightly loaded racks in the writer's, separate the pair too.
	p.Faults, p.Partitions = 1, 2
	v.Zone = []int{7, 9, 7, 7}
	if got := place(t, p, v, block(0, units.MB, 3), 1); got[1] != 4 || v.Fabric.RackOf(got[2]) != 1 {
		t.Errorf("two zones: %v, want host 4 and one of rack 1", got)
	}
	p.Form = Literal
	if got := place(t, p, v, block(0, units.MB, 3), 1); v.Fabric.RackOf(got[1]) != 2 || v.Fabric.RackOf(got[2]) != 1 {
		t.Errorf("two zones, racks apart: %v, want racks 2 and 1", got)
	}
}

func TestSinbadSingleRack(t *testing.T) {
	v := cluster(t, 1, 5, 1)
	for h, mb := range []int64{90, 40, 10, 30, 20} {
		v.Hosts[h].Rx = mbs(mb)
	}
	if got, want := place(t, DefaultSinbad(), v, block(0, units.MB, 3), 1), []topo.HostID{0, 2, 4}; !slices.Equal(got, want) {
		t.Errorf("hosts %v, want %v", got, want)
	}
	if got, want := place(t, DefaultSinbad(), v, block(1, units.MB, 5), 1), []topo.HostID{1, 2, 4, 3, 0}; !slices.Equal(got, want) {
		t.Errorf("hosts %v, want %v", got, want)
	}
}
