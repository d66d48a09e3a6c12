package placement

import (
	"slices"
	"testing"
	"time"

	"testbed/policies"
	"testbed/topo"
	"testbed/topo/units"
)

// fourRacks has racks {0,1} {2,3} {4,5} {6,7}, 100 MB/s to a host, 50 MB/s to a
// rack, and disks that write 60 MB/s. All hosts reported at 10 s.
func fourRacks(t testing.TB) *policies.View {
	v := cluster(t, 4, 2, 4)
	v.DiskRate = mbs(60)
	v.Now = 10 * time.Second
	for h := range v.Hosts {
		v.Hosts[h].LastReport, v.Hosts[h].NextReport = 10*time.Second, 11*time.Second
	}
	return v
}

// given are loads with measured rack links, as in the paper's example, rather
// than the sums over hosts.
func given(v *policies.View) *loads {
	l := estimate(v)
	l.rack = []units.Rate{0, mbs(45), mbs(10), mbs(25)}
	l.host = []units.Rate{0, 0, 0, 0, 0, mbs(70), mbs(20), mbs(50)}
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

func TestSinbadSelects(t *testing.T) {
	v := fourRacks(t)
	l := given(v)
	if got, want := l.racks(), []units.Rate{50, 5, 40, 25}; !slices.Equal(got, want) {
		t.Errorf("expected capacity of racks %v, want %v", got, want)
	}
	if got, want := l.hosts()[4:], []units.Rate{60, 30, 60, 50}; !slices.Equal(got, want) {
		t.Errorf("expected capacity of hosts 4 to 7 %v, want %v", got, want)
	}
	b := block(0, 20*units.MB, 3)
	got, ok := DefaultSinbad().steer(v, b, shuffled(v, luck(1)), l)
	if want := []topo.HostID{0, 4, 5}; !ok || !slices.Equal(got, want) {
		t.Fatalf("hosts %v, want %v", got, want)
	}
	// One second before the next report, 20 MB count as 20 MB/s: once on the
	// rack's link, once on each host's.
	l.expect(v, policies.Placement{At: v.Now, Block: b.ID, Size: b.Size, Hosts: got})
	if got, want := l.racks(), []units.Rate{50, 5, 20, 25}; !slices.Equal(got, want) {
		t.Errorf("then racks %v, want %v", got, want)
	}
	if got, want := l.hosts(), []units.Rate{60, 60, 60, 60, 60, 10, 60, 50}; !slices.Equal(got, want) {
		t.Errorf("then hosts %v, want %v", got, want)
	}
	got, _ = DefaultSinbad().steer(v, b, shuffled(v, luck(1)), l)
	if want := []topo.HostID{0, 6, 7}; !slices.Equal(got, want) {
		t.Errorf("next block on %v, want %v", got, want)
	}
}

// Disks slower than what two racks' links have left make a tie, which is drawn.
func TestSinbadTieIsRandom(t *testing.T) {
	v := fourRacks(t)
	v.DiskRate = mbs(20)
	drawn := map[topo.RackID]int{}
	for seed := range uint64(300) {
		got, ok := DefaultSinbad().steer(v, block(0, units.MB, 3), shuffled(v, luck(seed)), given(v))
		if !ok {
			t.Fatal("no hosts")
		}
		drawn[v.Fabric.RackOf(got[1])]++
	}
	if drawn[1] != 0 || drawn[2] < 110 || drawn[3] < 110 {
		t.Errorf("racks drawn %v, want 2 and 3 about as often", drawn)
	}
}

// In an idle cluster all is a tie, and Sinbad places as HDFS does.
func TestSinbadIdleIsHDFS(t *testing.T) {
	v := fourRacks(t)
	for seed := range uint64(100) {
		b := block(topo.HostID(seed%8), units.MB, 1+int(seed)%3)
		if got, want := place(t, DefaultSinbad(), v, b, seed), place(t, DefaultHDFS(), v, b, seed); !slices.Equal(got, want) {
			t.Errorf("seed %d: %v, HDFS %v", seed, got, want)
		}
	}
}

func TestSinbadOverdueReport(t *testing.T) {
	v := fourRacks(t)
	set := func(h topo.HostID, mb int64) { v.Hosts[h].Rx = mbs(mb) }
	set(2, 40)
	set(3, 5)
	set(4, 10)
	set(6, 25)
	order := func() []units.Rate { return estimate(v).racks() }
	if got, want := order(), []units.Rate{50, 5, 40, 25}; !slices.Equal(got, want) {
		t.Errorf("racks %v, want %v", got, want)
	}
	for _, h := range []topo.HostID{4, 5} {
		v.Hosts[h].LastReport, v.Hosts[h].NextReport = v.Now-1500*time.Millisecond, v.Now-500*time.Millisecond
	}
	if got, want := order(), []units.Rate{50, 5, 40, 25}; !slices.Equal(got, want) {
		t.Errorf("half an interval late: racks %v, want %v", got, want)
	}
	v.Now++
	if got, want := order(), []units.Rate{50, 5, 0, 25}; !slices.Equal(got, want) {
		t.Errorf("later than that: racks %v, want %v", got, want)
	}
	for seed := range uint64(20) {
		if got := place(t, DefaultSinbad(), v, block(0, units.MB, 3), seed); v.Fabric.RackOf(got[1]) != 3 {
			t.Errorf("hosts %v, want those of rack 3", got)
		}
	}
}

// Before the first report nothing is overdue until one and a half intervals in.
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
		v.Now, v.Hosts[3].NextReport = tt.now, tt.next
		if got := overdue(v, 3); got != tt.want {
			t.Errorf("at %v with the first report due at %v: overdue %v, want %v", tt.now, tt.next, got, tt.want)
		}
	}
}

// Capacity 125, load 40, disks at 55, half a second to the next report.
func TestSinbadHysteresis(t *testing.T) {
	for _, tt := range []struct {
		name     string
		size     units.Bytes
		at       time.Duration // of the decision; reports at 10 s and 11 s
		load     int64         // MB/s, after it
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
			l := estimate(v)
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
				t.Errorf("the writer's own replica counts: host %v, rack %v", l.host[0], l.rack[0])
			}
		})
	}
}

// The average disk is half full: 60 % is still in balance, 61 % is not.
func TestSinbadStorageBalance(t *testing.T) {
	v := fourRacks(t)
	for h, percent := range []units.Bytes{50, 50, 50, 29, 61, 60, 50, 50} {
		v.Hosts[h].Used = percent * v.Hosts[h].Disk / 100
	}
	kept := DefaultSinbad().balance(v)
	for h, want := range []bool{true, true, true, true, false, true, true, true} {
		if got := kept(topo.HostID(h)); got != want {
			t.Errorf("host %d: kept %v, want %v", h, got, want)
		}
	}
	// Rack 2 has the best link but only one host in balance: the block needs two.
	got, ok := DefaultSinbad().steer(v, block(0, units.MB, 3), shuffled(v, luck(1)), given(v))
	if want := []topo.HostID{0, 6, 7}; !ok || !slices.Equal(got, want) {
		t.Errorf("hosts %v, want %v", got, want)
	}
	// Two replicas need one.
	got, ok = DefaultSinbad().steer(v, block(0, units.MB, 2), shuffled(v, luck(1)), given(v))
	if want := []topo.HostID{0, 5}; !ok || !slices.Equal(got, want) {
		t.Errorf("two replicas on %v, want %v", got, want)
	}
}

// A rack's load is the sum over its hosts, though some of it may stay inside
// the rack.
func TestSinbadRackIsSumOfHosts(t *testing.T) {
	v := cluster(t, 2, 3, 1)
	for h, mb := range []int64{10, 20, 30} {
		v.Hosts[h].Rx = mbs(mb)
	}
	if got := estimate(v).rack[0]; got != mbs(60) {
		t.Errorf("load of the rack %v, want %v", got, mbs(60))
	}
}

func TestSinbadFallsBack(t *testing.T) {
	p := Sinbad{Threshold: units.MB, Tolerance: 10, Fallback: DefaultHDFS()}
	v := fourRacks(t)
	for _, h := range []topo.HostID{2, 3, 4, 5} {
		v.Hosts[h].Rx = mbs(40)
	}
	steered := func(size units.Bytes, replicas int) (n int) {
		for seed := range uint64(60) {
			if got := place(t, p, v, block(0, size, replicas), seed); v.Fabric.RackOf(got[1]) == 3 {
				n++
			}
		}
		return n
	}
	if n := steered(units.MB, 3); n != 60 {
		t.Errorf("block of the threshold: the free rack chosen %d times of 60", n)
	}
	if n := steered(units.MB-1, 3); n == 60 || n == 0 {
		t.Errorf("smaller block: the free rack chosen %d times of 60, want a draw", n)
	}
	v.Hosts[0].Used = v.Hosts[0].Disk
	if n := steered(units.MB, 3); n == 60 || n == 0 {
		t.Errorf("writer's disk full: the free rack chosen %d times of 60, want a draw", n)
	}
	v.Hosts[0].Used = 0
	// Five replicas: two pairs; eight would need the writer's rack too.
	if got := place(t, p, v, block(0, units.MB, 5), 1); len(got) != 5 || v.Fabric.RackOf(got[1]) != 3 || v.Fabric.RackOf(got[2]) != 3 || v.Fabric.RackOf(got[3]) != v.Fabric.RackOf(got[4]) {
		t.Errorf("five replicas on %v", got)
	}
	if got := place(t, p, v, block(0, units.MB, 8), 1); len(got) != 8 {
		t.Errorf("eight replicas on %v", got)
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
