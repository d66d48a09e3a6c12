package plan

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"testbed/topo"
	"testbed/topo/units"
)

var update = flag.Bool("update", false, "rewrite testdata/*.golden")

func shape(leaves, hosts, spines int) topo.LeafSpine {
	return topo.LeafSpine{Leaves: leaves, Spines: spines, HostsPerLeaf: hosts, HostLink: 50 * units.Mbps,
		Oversubscription: units.Ratio{Num: 2, Den: 1}, Queue: topo.Queue{Time: 20 * time.Millisecond}, MTU: 1500}
}

// unlike returns a shape with different rates per link, delays and RED.
func unlike() topo.LeafSpine {
	s := shape(2, 1, 1)
	s.Oversubscription, s.CrossRack, s.Delay = units.Ratio{}, 40*units.Mbps, 1500*time.Microsecond
	s.HostLinks = []topo.HostLink{{Hosts: "h0-*", Rate: 100 * units.Mbps}}
	none := time.Duration(0)
	s.Links = []topo.LinkChange{{Link: "leaf0>spine0", Rate: 10 * units.Mbps, Queue: topo.Queue{Bytes: 80 * units.KB}}, {Link: "h*<>leaf*", Delay: &none}}
	s.RED = &topo.RED{Min: 10 * units.KB, Max: 30 * units.KB, Probability: 0.1, ECN: true}
	return s
}

func mustBuild(t interface{ Fatal(...any) }, s topo.LeafSpine) *topo.Fabric {
	f, err := s.Build()
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestTextGolden(t *testing.T) {
	tests := []struct {
		name string
		s    topo.LeafSpine
	}{
		{"two-racks", shape(2, 2, 2)},
		{"one-rack", shape(1, 2, 0)},
		{"one-spine", shape(2, 1, 1)},
		{"unlike", unlike()},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := Compile(tt.name, mustBuild(t, tt.s), Options{Seed: 1}).Text()
			path := filepath.Join("testdata", tt.name+".golden")
			if *update {
				if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("plan differs from %s (-want +got), \"go test -update\" rewrites it:\n%s", path, diff)
			}
		})
	}
}

func TestCounts(t *testing.T) {
	c := Compile("c", mustBuild(t, shape(10, 10, 2)), Options{}).Counts()
	want := Counts{Namespaces: 112, Hosts: 100, Switches: 12, Links: 120, Shapers: 240, Routes: 100 + 10*3 + 2*10, Ops: c.Ops}
	if c != want {
		t.Errorf("Counts() = %+v, want %+v", c, want)
	}
}

func TestSeedChangesHashSeedsOnly(t *testing.T) {
	f := mustBuild(t, shape(3, 2, 2))
	a, b := Compile("s", f, Options{Seed: 1}), Compile("s", f, Options{Seed: 2})
	if again := Compile("s", f, Options{Seed: 1}); again.Text() != a.Text() {
		t.Error("the same seed gives a different plan")
	}
	la, lb := strings.Split(a.Text(), "\n"), strings.Split(b.Text(), "\n")
	seeds := map[string]bool{}
	for i := range la {
		isSeed := strings.Contains(la[i], "fib_multipath_hash_seed")
		if isSeed {
			seeds[la[i][strings.Index(la[i], "="):]] = true
		}
		if (la[i] != lb[i]) != (isSeed || strings.HasPrefix(la[i], "#") && strings.Contains(la[i], "seed")) {
			t.Errorf("line %d: %q and %q", i, la[i], lb[i])
		}
	}
	if len(seeds) != 5 {
		t.Errorf("%d different hash seeds for 5 switches", len(seeds))
	}
}

// Invariants of the plan of every fabric.
func TestPlanOfAnyFabric(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := shape(rapid.IntRange(1, 6).Draw(t, "leaves"), rapid.IntRange(1, 6).Draw(t, "hosts"), rapid.IntRange(1, 4).Draw(t, "spines"))
		anyUplinks(t, &s)
		anyOverrides(t, &s)
		f := mustBuild(t, s)
		p := Compile("any", f, Options{Seed: rapid.Uint64().Draw(t, "seed")})
		if err := p.Check(); err != nil {
			t.Fatal(err)
		}
		macs, addrs, shaped := map[MAC]bool{}, map[netip.Addr]bool{}, map[string]Shaper{}
		delays, reds := map[string]Delay{}, map[string]RED{}
		ends := map[string]string{} // device to the device at the other end
		at := map[netip.Addr]string{}
		mac := map[string]MAC{}
		for _, op := range p.Ops() {
			switch op := op.(type) {
			case Veth:
				macs[op.A.MAC], macs[op.B.MAC] = true, true
				a, b := op.A.Namespace+"/"+op.A.Device, op.B.Namespace+"/"+op.B.Device
				ends[a], ends[b] = b, a
				mac[a], mac[b] = op.A.MAC, op.B.MAC
				if len(op.A.Device) > 15 || len(op.B.Device) > 15 {
					t.Fatalf("%s: a device's name is longer than 15 bytes", op)
				}
			case Address:
				if addrs[op.Prefix.Addr()] {
					t.Fatalf("%s: address given twice", op)
				}
				addrs[op.Prefix.Addr()] = true
				at[op.Prefix.Addr()] = op.Namespace + "/" + op.Device
			case Shaper:
				shaped[op.Namespace+"/"+op.Device] = op
			case Delay:
				delays[op.Namespace+"/"+op.Device] = op
			case RED:
				reds[op.Namespace+"/"+op.Device] = op
			case Neighbour:
				here := op.Namespace + "/" + op.Device
				if there := at[op.Addr]; ends[here] != there || mac[there] != op.MAC {
					t.Fatalf("%s: at the other end is %s with %s", op, ends[here], mac[ends[here]])
				}
			case Route:
				for _, h := range op.Via {
					if here := op.Namespace + "/" + h.Device; ends[here] != at[h.Addr] {
						t.Fatalf("%s: %s is not at the other end of %s", op, h.Addr, here)
					}
				}
			}
		}
		links := len(f.Links())
		if len(macs) != links || len(addrs) != links || len(shaped) != links {
			t.Fatalf("%d MACs, %d addresses, %d shapers for %d directed links", len(macs), len(addrs), len(shaped), links)
		}
		for _, l := range f.Links() {
			ns, dev := Egress(f, l.ID)
			if got := shaped[ns+"/"+dev]; got.Rate != l.Rate || got.Limit != l.Queue {
				t.Fatalf("%s is shaped by %q, want rate %v and queue %v", f.LinkName(l.ID), got, l.Rate, l.Queue)
			}
			d, delayed := delays[ns+"/"+dev]
			if delayed != (l.Delay > 0) || d.Delay != l.Delay || shaped[ns+"/"+dev].Delayed != delayed {
				t.Fatalf("%s of delay %v is delayed by %q", f.LinkName(l.ID), l.Delay, d)
			}
			// At the link's rate, the delay's limit exceeds all packets that the queue admits.
			if delayed && units.Bytes(d.Packets)*smallestPacket < l.Rate.BytesIn(l.Delay)+l.Queue {
				t.Fatalf("%q ahead of %v with a queue of %v", d, l.Rate, l.Queue)
			}
			r, red := reds[ns+"/"+dev]
			if red != (s.RED != nil && l.Kind != topo.HostUp) || red && (r.Limit != l.Queue || r.Min != s.RED.Min || r.Max != s.RED.Max || r.Rate != l.Rate || r.ECN != s.RED.ECN || r.Delayed != delayed) {
				t.Fatalf("%s has %q, want %+v", f.LinkName(l.ID), r, s.RED)
			}
		}
		for _, n := range p.Needs() {
			if want := map[string]int{"tbf": len(shaped), "netem": len(delays), "red": len(reds)}[n.Feature.Name]; want == 0 {
				t.Fatalf("need %+v is not used by the plan", n)
			}
		}
	})
}

func anyRate(t *rapid.T, name string) units.Rate {
	return units.Rate(rapid.Int64Range(1, 1000).Draw(t, name)) * units.Mbps
}

// anyUplinks sets the rate of uplinks in one of the three ways.
func anyUplinks(t *rapid.T, s *topo.LeafSpine) {
	switch rapid.IntRange(0, 2).Draw(t, "uplinks by") {
	case 1:
		s.Oversubscription, s.Uplink = units.Ratio{}, anyRate(t, "uplink")
	case 2:
		s.Oversubscription, s.CrossRack = units.Ratio{}, 4*anyRate(t, "cross-rack")
	}
}

// anyOverrides gives random hosts and links different values, selected by patterns.
func anyOverrides(t *rapid.T, s *topo.LeafSpine) {
	for i := range rapid.IntRange(0, 3).Draw(t, "host links") {
		s.HostLinks = append(s.HostLinks, topo.HostLink{
			Hosts: rapid.SampledFrom([]string{"*", "h0-*", "h*-00", "h?-0[0-3]"}).Draw(t, fmt.Sprint("hosts ", i)), Rate: anyRate(t, fmt.Sprint("host rate ", i))})
	}
	for i := range rapid.IntRange(0, 3).Draw(t, "changed links") {
		c := topo.LinkChange{Link: rapid.SampledFrom([]string{"leaf0<>spine0", "leaf*>spine0", "h*-00>leaf*", "*<>leaf0", "leaf0>h0-00"}).Draw(t, fmt.Sprint("link ", i))}
		if rapid.Bool().Draw(t, fmt.Sprint("other rate ", i)) {
			c.Rate = anyRate(t, fmt.Sprint("rate ", i))
		}
		if rapid.Bool().Draw(t, fmt.Sprint("other queue ", i)) {
			c.Queue = topo.Queue{Bytes: units.Bytes(rapid.Int64Range(200e3, 1e6).Draw(t, fmt.Sprint("queue ", i)))}
		}
		if rapid.Bool().Draw(t, fmt.Sprint("other delay ", i)) {
			d := time.Duration(rapid.Int64Range(0, int64(50*time.Millisecond)).Draw(t, fmt.Sprint("delay ", i))).Truncate(time.Microsecond)
			c.Delay = &d
		}
		s.Links = append(s.Links, c)
	}
	s.Queue = topo.Queue{Time: 500 * time.Millisecond} // long enough for the slowest link
	s.Delay = time.Duration(rapid.IntRange(0, 3).Draw(t, "delay")) * time.Millisecond
	if rapid.Bool().Draw(t, "red") {
		s.RED = &topo.RED{Min: 1600, Max: 3200, Probability: rapid.Float64Range(0.001, 1).Draw(t, "probability"), ECN: rapid.Bool().Draw(t, "ecn")}
	}
}

func TestNeeds(t *testing.T) {
	plain := Compile("p", mustBuild(t, shape(2, 2, 1)), Options{}).Needs()
	qdisc := func(name string) Feature { return Feature{QueueingDiscipline, name} }
	if diff := cmp.Diff([]Need{{Feature: qdisc("tbf"), For: "h0-00/eth0 and 11 more"}}, plain); diff != "" {
		t.Errorf("needs of a plain fabric (-want +got):\n%s", diff)
	}
	want := []Need{
		{Feature: qdisc("tbf"), For: "h0-00/eth0 and 7 more"},
		{Feature: qdisc("red"), For: "leaf0/h0-00 and 5 more", Key: "red"},
		{Feature: qdisc("netem"), For: "leaf0/spine0 and 3 more", Key: "delay"},
		{Feature: Feature{CongestionControl, "reno"}, For: "h0-00 and 1 more", Key: "congestion_control"},
	}
	if diff := cmp.Diff(want, Compile("u", mustBuild(t, unlike()), Options{Congestion: "reno"}).Needs()); diff != "" {
		t.Errorf("needs of a fabric with delays and RED (-want +got):\n%s", diff)
	}
}

// The first segments of a connection fit in the window of a SYN.
func TestFirstSegmentsFitInTheWindow(t *testing.T) {
	for mtu, want := range map[units.Bytes]string{1500: "", 6000: "", 6605: "", 6606: " initcwnd 9", 9000: " initcwnd 7"} {
		s := shape(2, 2, 1)
		s.MTU = mtu
		got := 0
		for _, op := range Compile("w", mustBuild(t, s), Options{Congestion: "cubic"}).Ops() {
			if r, ok := op.(Route); ok && r.Dst.Bits() == 0 {
				got++
				if text := r.String(); !strings.HasSuffix(text, " congctl cubic"+want) {
					t.Errorf("MTU %d: %q, want%s at its end", mtu, text, want)
				}
			}
		}
		if got != 4 {
			t.Errorf("%d routes of 4 hosts", got)
		}
	}
}

// The route of every host states the congestion control. Hosts have it as a parameter only where
// the machine allows that.
func TestHostsStateTheCongestionControl(t *testing.T) {
	for _, allowed := range []bool{false, true} {
		p := Compile("c", mustBuild(t, shape(2, 2, 1)), Options{Congestion: "reno", CongestionAllowed: allowed})
		routes, parameters := 0, 0
		for _, op := range p.Ops() {
			host := strings.HasPrefix(fmt.Sprint(op), "ip -n h") || strings.HasPrefix(fmt.Sprint(op), "ip netns exec h")
			if strings.Contains(fmt.Sprint(op), "dev eth0 congctl reno") && host {
				routes++
			}
			if strings.Contains(fmt.Sprint(op), "net.ipv4.tcp_congestion_control=reno") && host {
				parameters++
			}
		}
		if want := map[bool]int{true: 4}[allowed]; routes != 4 || parameters != want {
			t.Errorf("allowed %v: %d routes and %d parameters of 4 hosts, want 4 and %d", allowed, routes, parameters, want)
		}
	}
}

// Hosts enable ECN only if switches mark packets.
func TestHostsEnableECN(t *testing.T) {
	s := unlike()
	const on = "net.ipv4.tcp_ecn=1"
	if got := strings.Count(Compile("u", mustBuild(t, s), Options{}).Text(), on); got != 2 {
		t.Errorf("%d hosts enable ECN, want 2", got)
	}
	s.RED.ECN = false
	if got := strings.Count(Compile("u", mustBuild(t, s), Options{}).Text(), on); got != 0 {
		t.Errorf("%d hosts enable ECN, but no switch marks", got)
	}
}

// Expected values computed by hand from (1 - (1-w)^burst) / w >= burst + 1 - low/packet.
func TestREDWeight(t *testing.T) {
	for _, tt := range []struct {
		low    units.Bytes
		burst  int
		packet units.Bytes
		want   uint8
		ok     bool
	}{
		{30000, 55, 1000, 5, true}, // 26: w = 1/16 gives 15.5, 1/32 gives 26.4
		{10000, 17, 1000, 4, true}, // 8: 1/8 gives 7.2, 1/16 gives 10.7
		{3000, 5, 1000, 2, true},   // 3: 1/2 gives 1.9, 1/4 gives 3.05
		{30000, 10, 1000, 0, false},
	} {
		if got, ok := REDWeight(tt.low, tt.burst, tt.packet); got != tt.want || ok != tt.ok {
			t.Errorf("REDWeight(%d, %d, %d) = %d, %v, want %d, %v", int64(tt.low), tt.burst, int64(tt.packet), got, ok, tt.want, tt.ok)
		}
	}
}

func TestCheckRate(t *testing.T) {
	const mtu = 1500
	burst := DefaultBurst(10*units.Mbps, mtu)
	tests := []struct {
		name         string
		rate         units.Rate
		limit, burst units.Bytes
		want         string // in the error; empty for none
	}{
		{"usual", 10 * units.Mbps, 25 * units.KB, burst, ""},
		{"queue of just the bucket", 10 * units.Mbps, burst, burst, ""},
		{"slowest", MinRate, 25 * units.KB, burst, ""},
		{"fast", 100 * units.Gbps, 10 * units.MB, 5 * units.MB, ""},
		{"too slow", 7999 * units.Bps, 25 * units.KB, burst, "must be 8Kbps or more"},
		{"queue below a frame", 10 * units.Mbps, 1513, burst, "smaller than one frame of 1514 bytes"},
		{"queue below the bucket", 10 * units.Mbps, 2000, burst, "must be 2264 bytes or 2ms, or more"},
		{"bucket below a frame", 10 * units.Mbps, 25 * units.KB, 1513, "must be 1514 bytes or more"},
		{"queue too large", 10 * units.Gbps, 5 * units.GB, burst, "at most 4294967295 bytes"},
		{"bucket too large", 10 * units.Gbps, 4 * units.GB, 3 * units.GB, "at most 2147483647 bytes"},
		{"bucket too slow to fill", 8 * units.Kbps, 400 * units.KB, 300 * units.KB, "takes 5m0s to fill"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := CheckRate(tt.rate, tt.limit, tt.burst, mtu)
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("CheckRate(%v, %v, %v, %d) = %v, want %q", tt.rate, tt.limit, tt.burst, mtu, err, tt.want)
			}
		})
	}
}

// A queue that is too small is reported once, not for each link.
func TestCheckReportsEqualShapersOnce(t *testing.T) {
	s := shape(2, 4, 2)
	s.Queue = topo.Queue{Time: time.Microsecond}
	err := Compile("tiny", mustBuild(t, s), Options{}).Check()
	if err == nil || strings.Count(err.Error(), "\n") != 0 || !strings.Contains(err.Error(), "h0-00") {
		t.Errorf("Check() = %v, want one line about h0-00", err)
	}
}

func TestCheckFindsBadOrder(t *testing.T) {
	tests := []struct {
		name string
		ops  []Op
		want string
	}{
		{"no namespace", []Op{Up{"a", "lo"}}, `namespace "a" before it is created`},
		{"no device", []Op{Namespace{"a"}, Up{"a", "eth0"}}, `device "eth0" before it is created`},
		{"twice", []Op{Namespace{"a"}, Namespace{"a"}}, `creates "a" a second time`},
		{"delay after the shaper", []Op{Namespace{"a"}, Veth{A: End{Namespace: "a", Device: "x"}, B: End{Namespace: "a", Device: "y"}},
			Shaper{Namespace: "a", Device: "x", Rate: units.Mbps, Burst: 2 * units.KB, Limit: units.MB, MTU: 1500, Delayed: true}}, "a delay before it: false"},
		{"RED without a shaper", []Op{Namespace{"a"}, Veth{A: End{Namespace: "a", Device: "x"}, B: End{Namespace: "a", Device: "y"}},
			RED{Namespace: "a", Device: "x", Min: 10 * units.KB, Max: 20 * units.KB, Packet: 1000, Burst: 14, Probability: 0.1}}, "no matching shaper"},
		{"RED below a packet", []Op{Namespace{"a"}, Veth{A: End{Namespace: "a", Device: "x"}, B: End{Namespace: "a", Device: "y"}},
			RED{Namespace: "a", Device: "x", Min: 500, Max: 20 * units.KB, Packet: 1000, Burst: 14, Probability: 0.1}}, "fewer than one packet"},
		{"delay of nothing", []Op{Namespace{"a"}, Veth{A: End{Namespace: "a", Device: "x"}, B: End{Namespace: "a", Device: "y"}},
			Delay{Namespace: "a", Device: "x"}}, "delay 0s: must be 1µs"},
		{"route through nothing", []Op{Namespace{"a"}, Route{Namespace: "a", Dst: rackPrefix0, Via: []Hop{{Device: "x"}}}}, `device "x"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := (&Plan{Stages: []Stage{{"", tt.ops}}}).Check()
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Check() = %v, want %q", err, tt.want)
			}
		})
	}
}

var rackPrefix0 = topo.RackPrefix(0)

func TestDefaultBurst(t *testing.T) {
	tests := []struct {
		rate      units.Rate
		mtu, want units.Bytes
	}{
		{10 * units.Mbps, 1500, 1514 + 750},
		{100 * units.Mbps, 1500, 1514 + 1250},
		{200 * units.Mbps, 1500, 1514 + 2500},
		{100 * units.Mbps, 9000, 9014 + 1250},
	}
	for _, tt := range tests {
		if got := DefaultBurst(tt.rate, tt.mtu); got != tt.want {
			t.Errorf("DefaultBurst(%v, %d) = %d, want %d", tt.rate, int64(tt.mtu), int64(got), int64(tt.want))
		}
	}
}

func TestJSON(t *testing.T) {
	p := Compile("j", mustBuild(t, shape(1, 2, 0)), Options{})
	data, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Name   string
		Stages []struct {
			Name string
			Ops  []struct {
				Op, Command string
				Fields      map[string]any
			}
		}
	}
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	var commands []string
	for _, s := range got.Stages {
		for _, o := range s.Ops {
			commands = append(commands, o.Command)
		}
	}
	var want []string
	for _, op := range p.Ops() {
		want = append(want, op.String())
	}
	if diff := cmp.Diff(want, commands); diff != "" {
		t.Errorf("commands (-want +got):\n%s", diff)
	}
	if o := got.Stages[3].Ops[0]; o.Op != "shaper" || o.Fields["rate"] != "50Mbps" {
		t.Errorf("first shaper = %+v", o)
	}
}
