package flows

import (
	"context"
	"strings"

	"testbed/results/pcap"
	"testbed/topo"
)

// SwitchCapture summarizes the capture of a switch's ports. Its problems are notes in
// the result, because records come from the captures of hosts. A capture that lacks
// packets is not used for the load of links.
type SwitchCapture struct {
	Switch string
	Ports  []Port
	// Stats are the kernel's counts of the capture. HasStats reports whether the file has them.
	Stats    pcap.Stats
	HasStats bool
	Whole    bool // the file was closed properly and could be read to its end
	Captured int  // packets in the file
}

// Port is the sending end of a link at a switch.
type Port struct {
	Link string // name of the link; "" if the capture does not state it
	Sent Counts
}

// switchCapture is the reduced capture of one switch.
type switchCapture struct {
	SwitchCapture
	load    []series // by port
	data    []*tally // sent packets with payload to the emulated services, by port
	skipped []pcap.Skip
	problem string
	stamps
}

// addSwitch reads the capture of a switch's ports.
func (r *Reducer) addSwitch(ctx context.Context, name string, p *pcap.Reader, read *reading) error {
	c := &switchCapture{SwitchCapture: SwitchCapture{Switch: name}, stamps: noStamps}
	var f frame
	end, err := readAll(ctx, name, p, read, func(list []pcap.Packet, interfaces []pcap.Interface) {
		if interfaces != nil {
			r.describePorts(c, interfaces)
		}
		for i := range list {
			pkt := &list[i]
			c.see(pkt.Stamp)
			c.Ports[pkt.Interface].Sent.add(pkt.Len)
			c.load[pkt.Interface].add(pkt.Stamp, pkt.Len)
			if f.parse(pkt.Data, pkt.Len) == frameWhole && f.proto == protoTCP && f.length > 0 && service(f.dstPort) {
				c.data[pkt.Interface].add(endpoints{f.src, f.dst, f.srcPort, f.dstPort})
			}
		}
		c.Captured += len(list)
	})
	if err != nil {
		return err
	}
	c.Stats, c.HasStats, c.Whole, c.skipped, c.problem = end.stats, end.hasStats, end.whole, end.skipped, end.problem
	r.describePorts(c, p.Interfaces())
	r.mu.Lock()
	defer r.mu.Unlock()
	r.switches = append(r.switches, c)
	return nil
}

// describePorts adds the ports that the file has described since the last call.
func (r *Reducer) describePorts(c *switchCapture, interfaces []pcap.Interface) {
	for _, i := range interfaces[len(c.Ports):] {
		link, _ := pcap.LinkOf(i)
		c.Ports = append(c.Ports, Port{Link: link})
		c.load = append(c.load, newSeries(r.opt.Intervals))
		c.data = append(c.data, newTally())
	}
}

// seenAt counts, for each link whose port was captured, the data packets of each
// connection that entered the link.
type seenAt map[topo.LinkID]*tally

// observedLinks replaces the inferred loads of links whose ports were captured by the
// observed ones.
func (a *assembly) observedLinks(all [][]*series, observed []bool) seenAt {
	seen := seenAt{}
	if len(a.switches) == 0 {
		return seen
	}
	ids := map[string]topo.LinkID{}
	for i := range a.fabric.Links() {
		ids[a.fabric.LinkName(topo.LinkID(i))] = topo.LinkID(i)
	}
	for _, c := range a.switches {
		for i, p := range c.Ports {
			id, ok := ids[p.Link]
			from, _, _ := strings.Cut(p.Link, ">")
			if !ok || from != c.Switch {
				a.notef("%s: port %d of its capture is of link %q, which does not start at the switch: its packets are not used", c.Switch, i, p.Link)
				continue
			}
			if !c.Whole || c.Stats.Dropped > 0 {
				continue // the capture lacks packets; assemble reports it
			}
			all[id], observed[id] = []*series{&c.load[i]}, true
			seen[id] = c.data[i]
		}
	}
	return seen
}
