package live

import (
	"bytes"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"testbed/emu/engine"
	"testbed/emu/plan"
	"testbed/policies"
	"testbed/results/flows"
	"testbed/results/pcap"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// seen is one packet as one interface saw it.
type seen struct {
	stamp    int64
	len      int
	src, dst netip.Addr
}

// look reads what one interface of a capture saw, by what stays the same at every
// hop: all but the Ethernet addresses, the time to live and the IP checksum.
func look(t *testing.T, dir, name, device string) (all map[string]seen, nic pcap.Interface) {
	t.Helper()
	r, err := pcap.Open(filepath.Join(dir, name+flows.Suffix))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if m, ok := r.Meta(); !ok || m.Host != name || m.Run != 77 {
		t.Errorf("%s: Meta() = %+v, %v", name, m, ok)
	}
	all = map[string]seen{}
	for {
		p, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if r.Interfaces()[p.Interface].Name != device {
			continue
		}
		ip := p.Data[14:]
		key := string(ip[2:8]) + string(ip[12:])
		if _, again := all[key]; again {
			t.Fatalf("%s %s: a packet twice", name, device)
		}
		src, _ := netip.AddrFromSlice(ip[12:16])
		dst, _ := netip.AddrFromSlice(ip[16:20])
		all[key] = seen{p.Stamp, p.Len, src, dst}
	}
	for _, i := range r.Interfaces() {
		if i.Name == device {
			return all, i
		}
	}
	t.Fatalf("%s: no interface %s in %+v", name, device, r.Interfaces())
	return nil, pcap.Interface{}
}

// Every packet is captured once where it leaves its host, its leaf, its spine and
// the other leaf, and where it arrives, in that order, and ports show nothing else:
// their bytes are what hosts say and what their counters say.
func TestCapturedLinks(t *testing.T) {
	t.Parallel()
	r := newRigOf(t, 50*units.Mbps, nil, []string{"leaf*>h*", "leaf*<>spine*"}, 0)
	f := r.fabric
	// Less than the queues hold, so that nothing is dropped; one stays in its rack.
	sent := []workloads.Flow{{ID: 1, Src: 0, Dst: 4, Size: 40 * units.KB}, {ID: 2, Src: 1, Dst: 5, Size: 20 * units.KB}, {ID: 3, Src: 0, Dst: 2, Size: 10 * units.KB}}
	for i, x := range sent {
		r.do(t, engine.Mark{Kind: engine.MarkCoflow, ID: 9 + i, Host: x.Src, Parts: 1, Size: x.Size},
			engine.StartTransfer{Coflow: workloads.CoflowID(9 + i), Flow: x, Hash: uint32(i), Ceiling: policies.NoLimit})
	}
	for n := 0; n < len(sent); {
		_, evs, err := r.Await(t.Context(), engine.NextNever)
		if err != nil {
			t.Fatal(err)
		}
		for _, ev := range evs {
			if _, ok := ev.(engine.TransferFinished); ok {
				n++
			}
		}
	}
	m, res := r.finish(t)
	if len(res.Problems) > 0 || len(res.Flows) != len(sent) || len(res.Captures) != f.Hosts() {
		t.Errorf("from %d captures %d flows, problems %q", len(res.Captures), len(res.Flows), res.Problems)
	}

	hosts := make([]map[string]seen, f.Hosts())
	host := map[netip.Addr]topo.HostID{}
	for h := range hosts {
		hosts[h], _ = look(t, r.captures, f.HostName(topo.HostID(h)), plan.Uplink)
		host[f.HostAddr(topo.HostID(h))] = topo.HostID(h)
	}
	ports := make([]map[string]seen, len(f.Links()))
	counted := map[string]uint64{}
	for id, l := range f.Links() {
		if l.Kind == topo.HostUp {
			continue
		}
		ns, device := plan.Egress(f, topo.LinkID(id))
		var nic pcap.Interface
		ports[id], nic = look(t, r.captures, ns, device)
		if name, ok := pcap.LinkOf(nic); !ok || name != f.LinkName(topo.LinkID(id)) || nic.Speed != l.Rate {
			t.Errorf("%s %s: LinkOf(%+v) = %q, %v, want %s at %v", ns, device, nic, name, ok, f.LinkName(topo.LinkID(id)), l.Rate)
		}
		for _, p := range ports[id] {
			counted[ns] += uint64(p.len)
		}
	}
	if len(m.Switches) != f.Racks()+f.Spines() || len(m.Dropped) != f.Hosts() {
		t.Errorf("captures of %d switches, %d hosts", len(m.Switches), len(m.Dropped))
	}
	for _, s := range m.Switches {
		if s.Dropped != 0 || s.Counted != counted[s.Host] || s.Counted == 0 && strings.HasPrefix(s.Host, "leaf") {
			t.Errorf("%s: %d bytes counted, %d captured, %d packets dropped", s.Host, s.Counted, counted[s.Host], s.Dropped)
		}
	}

	crossed := 0
	for h, all := range hosts {
		for key, p := range all {
			src := topo.HostID(h)
			dst, ok := host[p.dst]
			if p.src != f.HostAddr(src) || !ok {
				continue // comes in, or is a mark
			}
			at := []seen{p}
			take := func(id topo.LinkID) bool {
				x, ok := ports[id][key]
				if ok {
					at = append(at, x)
					delete(ports[id], key)
				}
				return ok
			}
			if f.RackOf(src) != f.RackOf(dst) {
				crossed++
				for s := range f.Spines() {
					if take(f.LeafUp(f.RackOf(src), s)) && !take(f.LeafDown(f.RackOf(dst), s)) {
						t.Errorf("a packet from %s to %s is lost at %s", f.HostName(src), f.HostName(dst), topo.SpineName(s))
					}
				}
			}
			take(f.HostDown(dst))
			x, arrived := hosts[dst][key]
			at = append(at, x)
			if want := len(f.Path(src, dst, 0)) + 1; len(at) != want || !arrived {
				t.Fatalf("a packet of %d bytes from %s to %s is seen at %d places, want %d; arrived: %v", p.len, f.HostName(src), f.HostName(dst), len(at), want, arrived)
			}
			for i := range at[1:] {
				if at[i+1].stamp < at[i].stamp || at[i+1].len != p.len {
					t.Errorf("a packet from %s to %s is seen as %+v and then as %+v", f.HostName(src), f.HostName(dst), at[i], at[i+1])
				}
			}
		}
	}
	// 60 KB in segments of at most 1448 bytes, and the other packets of two connections.
	if crossed < 42+2*3 {
		t.Errorf("only %d packets between racks", crossed)
	}
	for id, left := range ports {
		for _, p := range left {
			t.Errorf("%s: a packet from %v to %v that no host sent", f.LinkName(topo.LinkID(id)), p.src, p.dst)
		}
	}
	for name, want := range map[string]int{"h0-00": 1, "leaf0": 1, "spine0": 1, "leaf1": 1, "h1-01": 1, "spine1": 0} {
		b, err := os.ReadFile(filepath.Join(r.captures, name+flows.Suffix))
		if err != nil {
			t.Fatal(err)
		}
		if got := bytes.Count(b, []byte("coflow 9, flow 1: 40KB, h0-00 → h1-01")); got != want {
			t.Errorf("%s: the flow's comment is there %d times, want %d", name, got, want)
		}
	}
	if b, err := os.ReadFile(filepath.Join(r.captures, "h0-00"+flows.Suffix)); err != nil || !bytes.Contains(b, []byte("coflow 9 arrives: 1 flow, 40KB")) {
		t.Errorf("no comment on the arrival of coflow 9 (%v)", err)
	}
}

// Only packets from a host to itself have unfinished checksums. Flags mark them, and the direction.
func TestFlagsOfPackets(t *testing.T) {
	r := newRig(t, 50*units.Mbps, nil)
	for i, dst := range []topo.HostID{0, 1} {
		x := workloads.Flow{ID: workloads.FlowID(i), Src: 0, Dst: dst, Size: 20 * units.KB}
		r.do(t, engine.Mark{Kind: engine.MarkCoflow, ID: i, Host: 0, Parts: 1, Size: x.Size}, engine.StartTransfer{Coflow: workloads.CoflowID(i), Flow: x, Ceiling: policies.NoLimit})
		r.until(t, engine.TransferFinished{Flow: x.ID})
	}
	r.finish(t)
	path := filepath.Join(r.captures, "h0-00"+flows.Suffix)
	c, err := pcap.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	got := map[string]int{}
	for {
		p, err := c.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		nic := c.Interfaces()[p.Interface].Name
		if want := nic == loopback; pcap.Unfinished(p.Data) != want {
			t.Errorf("%s: unfinished %v, want %v", nic, !want, want)
		}
		got[nic]++
	}
	// Readers pass over flags: they are counted in the file itself.
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	flagged := map[pcap.Flags]int{}
	for _, f := range []pcap.Flags{pcap.Outbound, pcap.Inbound, pcap.Inbound | pcap.ChecksumUnfinished} {
		flagged[f] = bytes.Count(b, []byte{2, 0, 4, 0, byte(f), byte(f >> 8), 0, 0})
	}
	eth, lo := got[plan.Uplink], got[loopback]
	if lo < 8 || eth < 14 || flagged[pcap.Inbound|pcap.ChecksumUnfinished] != lo || flagged[pcap.Inbound]+flagged[pcap.Outbound] != eth || flagged[pcap.Inbound] < 3 || flagged[pcap.Outbound] < 14 {
		t.Errorf("%d packets on eth0, %d on lo; flags %v", eth, lo, flagged)
	}
}

func TestSubjects(t *testing.T) {
	f, err := topo.LeafSpine{Leaves: 1, HostsPerLeaf: 2, HostLink: 10 * units.Mbps, Queue: topo.Queue{Bytes: 10_000}, MTU: 1500}.Build()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range subjects(f, []topo.LinkID{f.HostDown(0), f.HostDown(1)}, 160) {
		for _, i := range s.interfaces {
			got = append(got, fmt.Sprintf("%s %s %v %v %q", s.name, i.Name, s.ports, i.Speed, i.Description))
		}
	}
	want := []string{
		`h0-00 eth0 false 10Mbps "h0-00 eth0: links h0-00>leaf0 at 10Mbps and leaf0>h0-00 at 10Mbps"`,
		`h0-00 lo false 0bps "h0-00 lo: what the host sends to itself"`,
		`h0-01 eth0 false 10Mbps "h0-01 eth0: links h0-01>leaf0 at 10Mbps and leaf0>h0-01 at 10Mbps"`,
		`h0-01 lo false 0bps "h0-01 lo: what the host sends to itself"`,
		`leaf0 h0-00 true 10Mbps "leaf0>h0-00: 10Mbps, what leaves the port"`,
		`leaf0 h0-01 true 10Mbps "leaf0>h0-01: 10Mbps, what leaves the port"`,
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("subjects:\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
