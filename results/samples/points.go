package samples

import (
	"iter"
	"time"

	"testbed/topo/units"
	"testbed/workloads"
)

// LinkPoint is what one reading showed of a link. Counts are since the first reading.
type LinkPoint struct {
	At   time.Duration // since the start of the trial
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

// LinkPoints returns the readings of links in the order in which they were made. Of a link that stayed idle, only the
// first and the last reading are among them.
func (r *Reader) LinkPoints() iter.Seq2[LinkPoint, error] {
	return func(yield func(LinkPoint, error) bool) {
		links := map[string]*linkState{}
		for _, l := range r.Links {
			links[l.Name] = &linkState{}
		}
		var before, look time.Duration // the last two rounds of readings of all links
		number := int64(OutsideOfLooks)
		for s, err := range r.All() {
			if err != nil {
				yield(LinkPoint{}, err)
				return
			}
			if s.Object == Links && s.Metric == Look {
				if number = s.Value; number == 0 {
					before, look = look, s.At
				}
				continue
			}
			x := links[s.Object]
			if x == nil {
				continue
			}
			last := QueueBytes // of a reading
			if r.RatesOnly {
				last = SentBytes
			}
			switch s.Metric {
			case SentBytes: // the first of a reading
				idle := look // the last time at which all links were read before this reading
				if number == 0 {
					idle = before
				}
				// A reading that is missing showed what the one before did: an empty queue, and nothing sent.
				if x.known && idle > x.at {
					if !yield(x.point(s.Object, idle, x.sent, 0, r.RatesOnly), nil) {
						return
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
			if s.Metric == last {
				if !yield(x.point(s.Object, s.At, x.next, s.Value, r.RatesOnly), nil) {
					return
				}
				x.known, x.at, x.sent = true, s.At, x.next
			}
		}
	}
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
	At            time.Duration // since the start of the trial
	Flow          workloads.FlowID
	RTT           time.Duration // smoothed
	Window        int           // packets
	Delivery      units.Rate
	Retransmitted int // packets
}

// FlowPoints returns the readings of flows at which a value changed, in the order in which they were made.
func (r *Reader) FlowPoints() iter.Seq2[FlowPoint, error] {
	return func(yield func(FlowPoint, error) bool) {
		flows := map[string]*FlowPoint{}
		var now *FlowPoint // whose reading is not complete
		for s, err := range r.All() {
			if err != nil {
				yield(FlowPoint{}, err)
				return
			}
			id, ok := flowOf(s.Object)
			if now != nil && (!ok || id != now.Flow || s.At != now.At) {
				if !yield(*now, nil) {
					return
				}
				now = nil
			}
			if !ok {
				continue
			}
			if now = flows[s.Object]; now == nil {
				now = &FlowPoint{Flow: id}
				flows[s.Object] = now
			}
			now.At = s.At
			switch s.Metric {
			case RTT:
				now.RTT = time.Duration(s.Value) * time.Microsecond
			case Window:
				now.Window = int(s.Value)
			case DeliveryRate:
				now.Delivery = units.Rate(s.Value)
			case Retransmitted:
				now.Retransmitted = int(s.Value)
			}
		}
		if now != nil {
			yield(*now, nil)
		}
	}
}
