package flows

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"testbed/hosts/wire"
	"testbed/results/pcap"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

func TestSeriesAgainstSlow(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		intervals := rapid.IntRange(1, 20).Draw(r, "intervals")
		s := newSeries(intervals)
		type packet struct {
			stamp int64
			bytes int
		}
		var all []packet
		at := rapid.Int64Range(-1e12, 1e12).Draw(r, "start")
		for range rapid.IntRange(1, 60).Draw(r, "packets") {
			at += rapid.Int64Range(-2e6, 40e6).Draw(r, "gap")
			p := packet{at, rapid.IntRange(1, 1514).Draw(r, "bytes")}
			all = append(all, p)
			s.add(p.stamp, p.bytes)
		}
		if len(s.steps) > s.most {
			r.Fatalf("%d steps, want at most %d", len(s.steps), s.most)
		}
		zero := all[0].stamp + rapid.Int64Range(-50e6, 50e6).Draw(r, "zero")
		lo, hi := noStamps.firstAt, noStamps.lastAt
		for _, p := range all {
			lo, hi = min(lo, p.stamp), max(hi, p.stamp)
		}
		if w := widthFor(lo, hi, intervals); w != s.width {
			r.Fatalf("steps of %d ns, want %d", s.width, w)
		}
		width := s.width << rapid.IntRange(0, 3).Draw(r, "coarser")
		interval := width * parts
		got, want := make([]units.Bytes, 2*intervals+100), make([]units.Bytes, 2*intervals+100)
		s.into(got, zero, width)
		var sum, exact units.Bytes
		for _, p := range all {
			step := p.stamp / width
			if p.stamp < 0 && p.stamp%width != 0 {
				step--
			}
			if since := step*width + width/2 - zero; since >= 0 && since/interval < int64(len(want)) {
				want[since/interval] += units.Bytes(p.bytes)
				exact += units.Bytes(p.bytes)
			}
		}
		for i := range got {
			if got[i] != want[i] {
				r.Fatalf("interval %d has %d bytes, want %d", i, got[i], want[i])
			}
			sum += got[i]
		}
		if sum != exact {
			r.Fatalf("%d bytes in all, want %d", sum, exact)
		}
	})
}

// cross is a flow from rack 0 to rack 3 of a fabric with two spines, which loses the
// second of its three packets after the first link.
func cross(t *testing.T) (*network, *topo.Fabric, []topo.LinkID) {
	n := newNetwork(t, a, b)
	n.meta.Seed, n.meta.Fabric = 7, generatedFabric()
	f, err := n.meta.Fabric.Build()
	if err != nil {
		t.Fatal(err)
	}
	n.mark(wire.KindCoflowMark, 0, 0, a, 1, 1, 2*1448)
	conn := n.dial(ms, a, b, 40001, wire.ShufflePort, 5)
	s := n.flow(1, 7, 2*1448)
	conn.data(10*ms, 12*ms, s, 0, 64)
	conn.data(20*ms, lost, s, 64, 1512)
	conn.data(21*ms, 25*ms, s, 1512, 2960)
	conn.ack(26*ms, 28*ms, 64, 100)
	conn.data(30*ms, 33*ms, s, 64, 1512)
	conn.ack(34*ms, 36*ms, 2960, 100)
	src, err1 := f.FindHost(a)
	dst, err2 := f.FindHost(b)
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	return n, f, f.Path(src, dst, workloads.FlowHash(7, 7))
}

// Bytes behind a lost segment count when they arrive, not when the gap is filled: no interval has more than the link
// carries.
func TestPayloadBehindAGap(t *testing.T) {
	const packets, each = 100, 242 * time.Microsecond // frames of 1514 bytes at 50 Mbps
	n := newNetwork(t, a, b)
	n.meta.Seed, n.meta.Fabric = 7, generatedFabric()
	f, err := n.meta.Fabric.Build()
	if err != nil {
		t.Fatal(err)
	}
	n.mark(wire.KindCoflowMark, 0, 0, a, 1, 1, packets*1448)
	conn := n.dial(ms, a, b, 40001, wire.ShufflePort, 5)
	s := n.flow(1, 7, packets*1448)
	conn.data(4*ms, 5*ms, s, 0, 64)
	at := 10 * ms
	for k := range packets + 1 {
		from, arrives := 64+k*1448, at+ms
		if k == packets { // the first again
			from = 64
		} else if k == 0 {
			arrives = lost
		}
		conn.data(at, arrives, s, from, from+1448)
		at += each
	}
	res := n.reduce(Options{})
	wantProblems(t, res)
	dst, err := f.FindHost(b)
	if err != nil {
		t.Fatal(err)
	}
	sum, most := units.Bytes(0), units.Bytes(0)
	for _, l := range res.Links {
		if (l.Payload != nil) != (l.Link == f.HostDown(0) || l.Link == f.HostDown(dst)) {
			t.Errorf("%s: payload %v", l.Name, l.Payload)
		}
		for k, p := range l.Payload {
			sum, most = sum+p, max(most, p)
			if p > l.Bytes[k] {
				t.Errorf("interval %d of %s has %d bytes of payload, its frames %d", k, l.Name, p, l.Bytes[k])
			}
		}
	}
	if link := (50 * units.Mbps).BytesIn(ms) + heads + 1448; sum != packets*1448 || most > link {
		t.Errorf("%d bytes of payload and up to %d in a millisecond, want %d, and %d at most", sum, most, packets*1448, link)
	}
	// Without a gap all but two packets count at the last moment.
	received := res.Trails[0].Received
	if last := len(received) - 1; received[last].At != received[1].At || received[last].At < 30*ms {
		t.Errorf("received without a gap: %v", received)
	}
}

func TestLinkSeries(t *testing.T) {
	n, f, path := cross(t)
	res := n.reduce(Options{})
	wantProblems(t, res)
	if len(res.Links) != len(f.Links()) {
		t.Fatalf("%d links, want %d", len(res.Links), len(f.Links()))
	}
	if diff := cmp.Diff(path, res.Trails[0].Path); diff != "" {
		t.Errorf("Path (-want +got):\n%s", diff)
	}
	mark := units.Bytes(14 + 20 + 8 + 64)
	const full = heads + 1448
	at := func(id topo.LinkID) map[int]units.Bytes {
		m := map[int]units.Bytes{}
		for i, b := range res.Links[id].Bytes {
			if b > 0 {
				m[i] = b
			}
		}
		return m
	}
	for _, tt := range []struct {
		name string
		id   topo.LinkID
		want map[int]units.Bytes
	}{
		// SYN at 1 ms and the acknowledgement of the SYN-ACK at 2 ms.
		{"from the sender", path[0], map[int]units.Bytes{0: mark, 1: heads, 2: heads, 10: heads + 64, 20: full, 21: full, 30: full}},
		{"to the receiver", path[3], map[int]units.Bytes{1: heads, 2: heads, 12: heads + 64, 25: full, 33: full}},
		// What the spine is not known of, before the header, is halved.
		{"to the spine", path[1], map[int]units.Bytes{1: heads / 2, 2: heads / 2, 12: heads + 64, 25: full, 33: full}},
		{"from the spine", path[2], map[int]units.Bytes{1: heads / 2, 2: heads / 2, 12: heads + 64, 25: full, 33: full}},
		{"acknowledgements to a spine", f.LeafUp(3, 0), map[int]units.Bytes{2: heads / 2, 28: heads / 2, 36: heads / 2}},
		{"acknowledgements from the other", f.LeafDown(0, 1), map[int]units.Bytes{2: heads / 2, 28: heads / 2, 36: heads / 2}},
		{"none", f.LeafUp(1, 1), map[int]units.Bytes{}},
	} {
		if diff := cmp.Diff(tt.want, at(tt.id)); diff != "" {
			t.Errorf("%s, %s (-want +got):\n%s", tt.name, res.Links[tt.id].Name, diff)
		}
		if l := res.Links[tt.id]; l.Observed != (tt.id == path[0] || tt.id == path[3]) || l.Interval != ms || len(l.Bytes) != 37 || len(l.Queue) != 37 {
			t.Errorf("%s: %+v", tt.name, l)
		}
	}
	// The lost packet is counted once. The links between the racks are the slowest, and so
	// the fullest, and the first of them in the path is the uplink.
	for i, want := range []int{0, 1, 0, 0} {
		if l := res.Links[path[i]]; l.Drops != want || l.Counted {
			t.Errorf("%s: %d drops, counted %v, want an estimate of %d", l.Name, l.Drops, l.Counted, want)
		}
	}
}

// Of the links that may have lost a packet, the fullest while its transfer recovered is
// the one: of an incast the receiver's, though the path has slower links.
func TestDropInAnIncast(t *testing.T) {
	const near = "h3-03" // in b's rack
	n := newNetwork(t, a, b, near)
	n.meta.Seed, n.meta.Fabric = 7, generatedFabric()
	f, err := n.meta.Fabric.Build()
	if err != nil {
		t.Fatal(err)
	}
	n.mark(wire.KindCoflowMark, 0, 0, a, 1, 2, 12*1448)
	conn := n.dial(ms, a, b, 40001, wire.ShufflePort, 5)
	s := n.flow(1, 7, 2*1448)
	conn.data(10*ms, 12*ms, s, 0, 64)
	conn.data(20*ms, lost, s, 64, 1512)
	conn.data(21*ms, 25*ms, s, 1512, 2960)
	conn.ack(26*ms, 28*ms, 64, 100)
	other := n.dial(2*ms, near, b, 40002, wire.ShufflePort, 6)
	o := n.flow(1, 8, 10*1448)
	other.data(18*ms, 19*ms, o, 0, 64)
	for i := range 10 {
		at := 20*ms + time.Duration(i)*ms
		other.data(at, at+200*us, o, 64+1448*i, 64+1448*(i+1))
	}
	other.ack(31*ms, 32*ms, 64+14480, 100)
	conn.data(30*ms, 33*ms, s, 64, 1512)
	conn.ack(34*ms, 36*ms, 2960, 100)
	res := n.reduce(Options{})
	wantProblems(t, res)
	dst, err := f.FindHost(b)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range res.Links {
		want := 0
		if l.Link == f.HostDown(dst) {
			want = 1
		}
		if l.Drops != want {
			t.Errorf("%s: %d drops, want %d", l.Name, l.Drops, want)
		}
	}
}

// Losses of transfers whose captures lack packets are in no estimate, and a note says so.
func TestDropsOfCapturesThatLackPackets(t *testing.T) {
	n, _, _ := cross(t)
	n.drops = 1 // of each capture
	res := n.reduce(Options{})
	for _, l := range res.Links {
		if l.Drops != 0 {
			t.Errorf("%s: %d drops, want none", l.Name, l.Drops)
		}
	}
	const want = "captures lack packets: estimates of drops leave out the losses of 1 transfers"
	if !slices.Contains(res.Notes, want) {
		t.Errorf("notes %q, want %q", res.Notes, want)
	}
}

// In one rack there is one queue only that can lose a packet, and make it wait.
func TestLinkOfOneQueue(t *testing.T) {
	const d = "h0-03"
	n := newNetwork(t, a, d)
	n.meta.Fabric = generatedFabric()
	n.mark(wire.KindCoflowMark, 0, 0, a, 1, 1, 4*1448)
	conn := n.dial(ms, a, d, 40001, wire.ShufflePort, 5)
	s := n.flow(1, 7, 4*1448)
	conn.data(10*ms, 10*ms+100*us, s, 0, 64)
	conn.data(20*ms, 25*ms+100*us, s, 64, 1512) // waits for 5 ms
	conn.ack(26*ms, 28*ms, 1512, 100)
	conn.data(30*ms, lost, s, 1512, 2960)
	conn.data(31*ms, 31*ms+100*us, s, 2960, 4408)
	conn.data(40*ms, 40*ms+100*us, s, 1512, 2960) // data that waited for it shows no queue
	conn.ack(41*ms, 42*ms, 4408, 100)
	conn.data(50*ms, 250*ms, s, 4408, 5856) // more than fits
	res := n.reduce(Options{})
	wantProblems(t, res)
	f, err := generatedFabric().Build()
	if err != nil {
		t.Fatal(err)
	}
	l := res.Links[f.HostDown(3)]
	want := map[int]units.Bytes{25: l.Rate.BytesIn(5 * ms), 250: f.Link(f.HostDown(3)).Queue}
	got := map[int]units.Bytes{}
	for i, q := range l.Queue {
		if q > 0 {
			got[i] = q
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Queue (-want +got):\n%s", diff)
	}
	if l.Drops != 1 || l.Counted || res.Links[f.HostUp(0)].Drops != 0 {
		t.Errorf("%d drops, and %d of the sender's link, want 1 and 0", l.Drops, res.Links[f.HostUp(0)].Drops)
	}
}

// Shares of odd bytes add up to the whole.
func TestShares(t *testing.T) {
	whole := []units.Bytes{1, 1, 0, 5, 7}
	var sums []units.Bytes
	for range 3 {
		sums = addShare(sums, whole, 3)
	}
	if diff := cmp.Diff([]units.Bytes{0, 0, 0, 6, 6}, sums); diff != "" {
		t.Errorf("three thirds (-want +got):\n%s", diff)
	}
	if addShare(nil, nil, 2) != nil {
		t.Error("shares of nothing")
	}
}

// How captures are shared among goroutines does not show in the load of links.
func TestLinksDoNotDependOnOrder(t *testing.T) {
	n, _, _ := cross(t)
	n.packets["h1-02"] = nil
	// Packets long before zero, on one host.
	early := n.dial(-300*ms, "h1-02", b, 50000, 80, 9)
	early.data(-290*ms, -280*ms, make([]byte, 100), 0, 99)
	for i := range 50 {
		early.data(time.Duration(i)*ms+time.Duration(i)*130*us, time.Duration(i+2)*ms, make([]byte, 2000), 0, 101+i)
	}
	dir := n.write()
	var want []LinkSeries
	for i := range 6 {
		res, err := Reduce(t.Context(), dir, Options{Intervals: 100, Parallel: 1 + i%3})
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			want = res.Links
		} else if diff := cmp.Diff(want, res.Links); diff != "" {
			t.Errorf("with %d at a time (-want +got):\n%s", 1+i%3, diff)
		}
	}
}

// A long run has longer intervals.
func TestIntervalsAreBounded(t *testing.T) {
	n, _, path := cross(t)
	short := n.reduce(Options{Intervals: 11})
	l := short.Links[path[0]]
	if l.Interval != 4*ms || len(l.Bytes) != 10 {
		t.Errorf("%d intervals of %v, want 10 of 4ms", len(l.Bytes), l.Interval)
	}
	var sum units.Bytes
	for _, b := range l.Bytes {
		sum += b
	}
	if want := short.Captures[0].Interfaces[0].Out.Bytes; sum != want {
		t.Errorf("%d bytes, want the %d that left the host", sum, want)
	}
}

// portCapture is the capture of a switch's ports, with the packets of the network that
// left each at a time.
func portCapture(t *testing.T, n *network, name string, ports map[string][]seen) []byte {
	t.Helper()
	var buf bytes.Buffer
	m := n.meta
	m.Host = name
	var nics []pcap.Interface
	var all [][]seen
	for link, packets := range ports {
		nics = append(nics, pcap.Interface{Name: "p" + link, SnapLen: 96, Description: link + ": as it leaves"})
		all = append(all, packets)
	}
	w, err := pcap.NewWriter(&buf, m, nics)
	if err != nil {
		t.Fatal(err)
	}
	for i, packets := range all {
		for _, p := range packets {
			if err := w.Write(i, epoch.Add(p.at), p.frame[:min(96, len(p.frame))], len(p.frame)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(pcap.Stats{}); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// Captured ports show the link that lost the packet, and the link's load.
func TestCapturedPorts(t *testing.T) {
	for lostAt := 1; lostAt <= 3; lostAt++ {
		n, f, path := cross(t)
		files := map[string][]byte{a: n.file(a), b: n.file(b)}
		ports := map[string]map[string][]seen{}
		for i, id := range path[1:] {
			name := f.LinkName(id)
			from, _, _ := strings.Cut(name, ">")
			if ports[from] == nil {
				ports[from] = map[string][]seen{}
			}
			for _, p := range n.packets[a] {
				if p.frame[14+9] != protoTCP || p.frame[14+12+1] != 0 || p.at == 20*ms && i+1 >= lostAt {
					continue // marks, acknowledgements, and the packet that is lost
				}
				ports[from][name] = append(ports[from][name], seen{at: p.at + time.Duration(i+1)*100*us, frame: p.frame})
			}
		}
		for name, of := range ports {
			files[name] = portCapture(t, n, name, of)
		}
		r := NewReducer(Options{})
		for _, name := range []string{a, "leaf0", "leaf3", "spine0", "spine1", b} {
			if files[name] == nil {
				continue
			}
			p, err := pcap.NewReader(bytes.NewReader(files[name]))
			if err != nil {
				t.Fatal(err)
			}
			if err := r.Add(t.Context(), name, p); err != nil {
				t.Fatal(err)
			}
		}
		res, err := r.Result()
		if err != nil {
			t.Fatal(err)
		}
		wantProblems(t, res)
		if len(res.Switches) != 3 || len(res.Captures) != 2 {
			t.Errorf("%d switches, %d hosts, want 3 and 2", len(res.Switches), len(res.Captures))
		}
		for i, id := range path {
			want := 0
			if i == lostAt {
				want = 1
			}
			if l := res.Links[id]; l.Drops != want || l.Counted || !l.Observed {
				t.Errorf("lost at %d: %s: %d drops, observed %v, want %d, true", lostAt, l.Name, l.Drops, l.Observed, want)
			}
		}
		var sum units.Bytes
		for _, v := range res.Links[path[1]].Bytes {
			sum += v
		}
		if want := res.Switches[0].Ports[0].Sent.Bytes; sum != want {
			t.Errorf("%d bytes on %s, want what its port sent, %d", sum, res.Links[path[1]].Name, want)
		}
	}
}

func TestPortsOfNoLink(t *testing.T) {
	n, _, _ := cross(t)
	r := NewReducer(Options{})
	for name, file := range map[string][]byte{a: n.file(a), b: n.file(b), "leaf1": portCapture(t, n, "leaf1", map[string][]seen{"leaf1>spine9": nil})} {
		p, err := pcap.NewReader(bytes.NewReader(file))
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Add(t.Context(), name, p); err != nil {
			t.Fatal(err)
		}
	}
	res, err := r.Result()
	if err != nil {
		t.Fatal(err)
	}
	wantProblems(t, res)
	if want := `leaf1: port 0 of its capture is of link "leaf1>spine9", which does not start at the switch`; len(res.Notes) != 1 || !strings.Contains(res.Notes[0], want) {
		t.Errorf("notes %q, want %q", res.Notes, want)
	}
}

// A fabric that cannot be is a problem, and the records are there all the same.
func TestFabricThatCannotBe(t *testing.T) {
	n := newNetwork(t, a, b)
	n.meta.Fabric = &topo.LeafSpine{Leaves: -1}
	simple(n)
	res := n.reduce(Options{})
	wantProblems(t, res, "captures state a fabric that cannot be built")
	if len(res.Flows) != 1 || res.Links != nil || len(res.Trails) != 1 {
		t.Errorf("%d flows, %d links, %d trails", len(res.Flows), len(res.Links), len(res.Trails))
	}
}

// The load of each link of a generated capture adds up to what the host received.
func TestLinksOfManyFlows(t *testing.T) {
	var buf bytes.Buffer
	n := generated{flows: 300, packets: 20_000, snap: 96, t: t}.write(&buf)
	p, err := pcap.NewReader(&buf)
	if err != nil {
		t.Fatal(err)
	}
	res := reduceGenerated(t, p, 300, n)
	f, err := generatedFabric().Build()
	if err != nil {
		t.Fatal(err)
	}
	sum := func(id topo.LinkID) (s units.Bytes) {
		for _, v := range res.Links[id].Bytes {
			s += v
		}
		return s
	}
	nic := res.Captures[0].Interfaces[0]
	// The zero of records is the first payload, where no capture has a mark: SYNs come before.
	if got, want := sum(f.HostUp(0)), nic.Out.Bytes; got > want || got < want-300*2*heads {
		t.Errorf("%d bytes from the host, want %d or little less", got, want)
	}
	var crossed units.Bytes
	for s := range f.Spines() {
		crossed += sum(f.LeafDown(0, s))
	}
	var up units.Bytes
	for r := range topo.RackID(f.Racks()) {
		for s := range f.Spines() {
			up += sum(f.LeafUp(r, s))
		}
	}
	if in := sum(f.HostDown(0)); crossed >= in || crossed < in/2 || up > crossed || up < crossed-8 {
		t.Errorf("%d bytes to the host, %d from spines and %d to them", in, crossed, up)
	}
}
