package coflow

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"testbed/policies"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// demandOf is one flow of a test's coflow: bytes from host src to host dst.
type demandOf struct {
	src, dst topo.HostID
	bytes    units.Bytes
}

// viewOf is a View of coflows that have just arrived in the order given, with IDs
// from 1. Nothing is hidden.
func viewOf(f *topo.Fabric, coflows ...[]demandOf) *policies.View {
	v := &policies.View{Fabric: f}
	for _, l := range f.Links() {
		v.Capacity = append(v.Capacity, l.Rate)
	}
	for i, flows := range coflows {
		c := policies.CoflowState{ID: workloads.CoflowID(i + 1), Width: len(flows), Left: len(flows)}
		senders, receivers := map[topo.HostID]bool{}, map[topo.HostID]bool{}
		links := make([]policies.LinkState, len(v.Capacity))
		for j, d := range flows {
			senders[d.src], receivers[d.dst] = true, true
			c.Size, c.Largest = c.Size+d.bytes, max(c.Largest, d.bytes)
			for _, l := range f.Path(d.src, d.dst, uint32(j)) {
				links[l].Link = l
				links[l].Flows++
				links[l].Remaining += d.bytes
			}
		}
		c.Links = slices.DeleteFunc(links, func(l policies.LinkState) bool { return l.Flows == 0 })
		c.Senders, c.Receivers, c.Remaining = len(senders), len(receivers), c.Size
		for _, l := range c.Links {
			c.Bound = max(c.Bound, v.Capacity[l.Link].TimeToSend(l.Remaining))
		}
		v.Coflows = append(v.Coflows, c)
	}
	return v
}

func fabric(t testing.TB, s topo.LeafSpine) *topo.Fabric {
	t.Helper()
	s.Queue, s.MTU = topo.Queue{Time: time.Millisecond}, 1500
	if s.Oversubscription.Num == 0 {
		s.Oversubscription = units.Ratio{Num: 1, Den: 1}
	}
	f, err := s.Build()
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// orderOf is the order of the first step, by ID.
func orderOf(v *policies.View, p policies.Scheduler) []workloads.CoflowID {
	var s policies.Schedule
	p.Schedule(v, &s)
	out := []workloads.CoflowID{}
	if len(s.Steps) > 0 {
		for _, i := range s.Steps[0].Coflows {
			out = append(out, v.Coflows[i].ID)
		}
	}
	return out
}

func TestSEBFOrder(t *testing.T) {
	ports := fabric(t, topo.LeafSpine{Leaves: 1, HostsPerLeaf: 8, HostLink: units.Gbps})
	narrow := fabric(t, topo.LeafSpine{Leaves: 3, Spines: 1, HostsPerLeaf: 2, HostLink: units.Gbps, Oversubscription: units.Ratio{Num: 4, Den: 1}})
	const mb = units.MB
	for _, tt := range []struct {
		name    string
		fabric  *topo.Fabric
		coflows [][]demandOf
		want    []workloads.CoflowID
	}{
		{"nothing", ports, nil, []workloads.CoflowID{}},
		{"shared sender", ports, [][]demandOf{{{0, 5, 8 * mb}}, {{0, 6, 4 * mb}}}, []workloads.CoflowID{2, 1}},
		{"tie by ID", ports, [][]demandOf{{{0, 4, 8 * mb}}, {{0, 5, 8 * mb}}}, []workloads.CoflowID{1, 2}},
		{"one byte", ports, [][]demandOf{{{0, 4, 8*mb + 1}}, {{0, 5, 8 * mb}}}, []workloads.CoflowID{2, 1}},
		{"bytes of a port add up", ports, [][]demandOf{{{0, 4, 3 * mb}, {0, 5, 3 * mb}}, {{1, 6, 5 * mb}}}, []workloads.CoflowID{2, 1}},
		// On host links alone coflow 1 (8 ms) would go before coflow 2 (12 ms);
		// over the 500 Mbps uplink both of its flows share it needs 32 ms.
		{"an uplink is the bottleneck", narrow, [][]demandOf{{{0, 2, mb}, {1, 3, mb}}, {{4, 5, 1500 * units.KB}}}, []workloads.CoflowID{2, 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if d := cmp.Diff(tt.want, orderOf(viewOf(tt.fabric, tt.coflows...), SEBF{})); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}
