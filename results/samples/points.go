package samples

import (
	"iter"
	"time"

	"testbed/topo/units"
	"testbed/workloads"
)

// LinkPoint is what one reading showed of a link. Counts are since the first reading.
type LinkPoint struct {
	At   time.Duration // since the start of the trial, or the moment of CountFrom
	Link string        // directed, as from>to
	// Queue and Packets are what waits ahead of the link; nil where there are no packets.
	Queue   *units.Bytes
	Packets *int
	// Rate is the throughput in frames' bytes since the reading before; nil at the first.
	Rate            *units.Rate
	Dropped, Marked *int
}

// linkState is what is known of a link while points are read.
type linkState struct {
	known           bool
	at              time.Duration
	sent, next      int64 // by the newest reading, and by one that is not complete
	packets         int64
	dropped, marked counter
}

// counter is a counter since its first value.
type counter struct {
	known      bool
	first, now int64
}

func (c *counter) set(value int64) {
	if c.now = value; !c.known {
		c.known, c.first = true, value
	}
}

func (c *counter) since() int { return int(c.now - c.first) }

// Points reads all samples once, and calls link and flow with the points that LinkPoints and FlowPoints have.
func (r *Reader) Points(link func(LinkPoint), flow func(FlowPoint)) error {
	links, flows := r.linkStates(), flowStates{shift: r.shift}
	onLink := func(p LinkPoint) bool { link(p); return true }
	onFlow := func(p FlowPoint) bool { flow(p); return true }
	for s, err := range r.All() {
		if err != nil {
			return err
		}
		links.add(s, onLink)
		flows.add(s, onFlow)
	}
	flows.end(onFlow)
	return nil
}

// LinkPoints returns the readings of links in the order in which they were made. Of a link that stayed idle, only the
// first and the last reading are among them.
func (r *Reader) LinkPoints() iter.Seq2[LinkPoint, error] {
	return func(yield func(LinkPoint, error) bool) {
		links := r.linkStates()
		for s, err := range r.All() {
			if err != nil {
				yield(LinkPoint{}, err)
				return
			}
			if !links.add(s, func(p LinkPoint) bool { return yield(p, nil) }) {
				return
			}
		}
	}
}

// linkStates turns samples into points of links.
type linkStates struct {
	of           map[string]*linkState
	before, look time.Duration // the last two rounds of readings of all links
	number       int64         // of the round
	ratesOnly    bool
	shift        time.Duration
}

func (r *Reader) linkStates() *linkStates {
	x := &linkStates{of: map[string]*linkState{}, number: OutsideOfLooks, ratesOnly: r.RatesOnly, shift: r.shift}
	for _, l := range r.Links {
		x.of[l.Name] = &linkState{}
	}
	return x
}

// add calls do with the points that are known from a sample on, until do returns false, and returns what it returned.
func (l *linkStates) add(s Sample, do func(LinkPoint) bool) bool {
	if s.Object == Links && s.Metric == Look {
		if l.number = s.Value; l.number == 0 {
			l.before, l.look = l.look, s.At
		}
		return true
	}
	x := l.of[s.Object]
	if x == nil {
		return true
	}
	show := func(p LinkPoint) bool {
		p.At += l.shift
		return do(p)
	}
	last := QueueBytes // of a reading
	if l.ratesOnly {
		last = SentBytes
	}
	switch s.Metric {
	case SentBytes: // the first of a reading
		idle := l.look // the last time at which all links were read before this reading
		if l.number == 0 {
			idle = l.before
		}
		// A reading that is missing showed what the one before did: an empty queue, and nothing sent.
		if x.known && idle > x.at {
			if !show(x.point(s.Object, idle, x.sent, 0, l.ratesOnly)) {
				return false
			}
			x.at = idle
		}
		x.next = s.Value
	case QueuePackets:
		x.packets = s.Value
	case Dropped:
		x.dropped.set(s.Value)
	case Marked:
		x.marked.set(s.Value)
	}
	if s.Metric != last {
		return true
	}
	goes := show(x.point(s.Object, s.At, x.next, s.Value, l.ratesOnly))
	x.known, x.at, x.sent = true, s.At, x.next
	return goes
}

// point returns a reading after the one that x has.
func (x *linkState) point(link string, at time.Duration, sent, queue int64, ratesOnly bool) LinkPoint {
	bytes, packets := units.Bytes(queue), int(x.packets)
	dropped, marked := x.dropped.since(), x.marked.since()
	p := LinkPoint{At: at, Link: link, Queue: &bytes, Packets: &packets, Dropped: &dropped, Marked: &marked}
	if ratesOnly {
		p = LinkPoint{At: at, Link: link}
	}
	if x.known && at > x.at && sent >= x.sent {
		rate := units.RateOf(units.Bytes(sent-x.sent), at-x.at)
		p.Rate = &rate
	}
	return p
}

// FlowPoint is what one reading showed of the connection of a flow.
type FlowPoint struct {
	At            time.Duration // as of a link
	Flow          workloads.FlowID
	RTT           time.Duration // smoothed
	Window        int           // packets
	Delivery      units.Rate
	Retransmitted int // packets
}

// FlowPoints returns the readings of flows at which a value changed, in the order in which they were made.
func (r *Reader) FlowPoints() iter.Seq2[FlowPoint, error] {
	return func(yield func(FlowPoint, error) bool) {
		flows, do := flowStates{shift: r.shift}, func(p FlowPoint) bool { return yield(p, nil) }
		for s, err := range r.All() {
			if err != nil {
				yield(FlowPoint{}, err)
				return
			}
			if !flows.add(s, do) {
				return
			}
		}
		flows.end(do)
	}
}

// flowStates turns samples into points of flows.
type flowStates struct {
	of  map[string]*FlowPoint
	now *FlowPoint // whose reading is not complete

	shift time.Duration
}

// add calls do with the point that ends with a sample, if any, and returns what it returned.
func (f *flowStates) add(s Sample, do func(FlowPoint) bool) bool {
	id, ok := flowOf(s.Object)
	if f.now != nil && (!ok || id != f.now.Flow || s.At != f.now.At) && !f.end(do) {
		return false
	}
	if !ok {
		return true
	}
	if f.now = f.of[s.Object]; f.now == nil {
		f.now = &FlowPoint{Flow: id}
		if f.of == nil {
			f.of = map[string]*FlowPoint{}
		}
		f.of[s.Object] = f.now
	}
	f.now.At = s.At
	switch s.Metric {
	case RTT:
		f.now.RTT = time.Duration(s.Value) * time.Microsecond
	case Window:
		f.now.Window = int(s.Value)
	case DeliveryRate:
		f.now.Delivery = units.Rate(s.Value)
	case Retransmitted:
		f.now.Retransmitted = int(s.Value)
	}
	return true
}

// end calls do with the point whose reading is complete.
func (f *flowStates) end(do func(FlowPoint) bool) bool {
	if f.now == nil {
		return true
	}
	p := *f.now
	f.now = nil
	p.At += f.shift
	return do(p)
}
