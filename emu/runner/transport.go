package runner

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"testbed/emu/fidelity"
	"testbed/emu/live"
	"testbed/emu/plan"
	"testbed/hosts/wire"
	"testbed/results/flows"
	"testbed/topo"
	"testbed/topo/units"
)

// ackFrame is the size of the frame of an acknowledgement without payload.
const ackFrame = plan.EthernetHeader + plan.TCPHeaders

// tcpOf returns what TCP did in the transfers between hosts.
func tcpOf(f *topo.Fabric, res flows.Result, m live.Measured) fidelity.TCP {
	out := fidelity.TCP{Limits: m.Limits, Duplicates: int(m.Duplicates)}
	for _, n := range m.QueueDrops {
		out.Dropped += int(n)
	}
	nodes := map[string]*fidelity.Nearest{}
	for _, t := range res.Trails {
		if t.SrcName == t.DstName {
			continue
		}
		out.Packets += t.Packets
		out.Resent += t.Resent
		if t.Task != (wire.Task{}) {
			out.Resent -= t.Repeated // small buffers drop inputs that an attempt has not consumed yet
		} else {
			out.Repeated += t.Repeated
		}
		if t.Complete {
			out.Note(fidelity.Segmented{From: t.SrcName, To: t.DstName, Packets: t.Packets - t.Resent, Needed: needed(f, t)})
		}
		nearest(f, t, m.Exempt, nodes)
	}
	for _, n := range nodes {
		out.Nearest = append(out.Nearest, *n)
	}
	slices.SortFunc(out.Nearest, func(a, b fidelity.Nearest) int { return cmp.Compare(a.Node, b.Node) })
	return out
}

// needed returns the number of segments that hold the bytes of a transfer.
func needed(f *topo.Fabric, t flows.Trail) int {
	payload := f.Shape().MTU - plan.TCPHeaders
	segments := func(size units.Bytes) int { return int((size + payload - 1) / payload) }
	if t.PacketSize == 0 {
		return segments(t.Size)
	}
	return int(t.Size/t.PacketSize)*segments(t.PacketSize) + segments(t.Size%t.PacketSize)
}

// nearest adds the least round trip of a transfer to the switches on its path. Paths of a host may all have a queue for as long
// as it sends; a switch has others.
func nearest(f *topo.Fabric, t flows.Trail, exempt map[string]string, nodes map[string]*fidelity.Nearest) {
	var links []string
	planned, over := time.Duration(0), map[string]bool{}
	for _, id := range t.Path {
		l := f.Link(id)
		links = append(links, f.LinkName(id))
		planned += 2 * l.Delay // a link back has the same rate and delay
		if f.Shape().StoreAndForward {
			planned += l.Rate.TimeToSend(f.Shape().MTU+plan.EthernetHeader) + l.Rate.TimeToSend(ackFrame)
		}
		from, _, _ := strings.Cut(f.LinkName(id), ">")
		over[from] = topo.IsSwitch(from)
	}
	if t.RTTMin == 0 || len(links) == 0 || fidelity.ExemptLinks(exempt, links) {
		return
	}
	for name, is := range over {
		if !is {
			continue
		}
		n := nodes[name]
		if n == nil {
			n = &fidelity.Nearest{Node: name, Excess: t.RTTMin - planned}
			nodes[name] = n
		}
		n.Transfers++
		n.Excess = min(n.Excess, t.RTTMin-planned)
	}
}
