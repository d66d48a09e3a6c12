package external

import (
	"encoding/binary"
	"slices"
	"strconv"

	"testbed/policies"
	"testbed/topo/units"
)

// Binary is the form of views as 64-bit integers; JSON is the other one.
const (
	JSON   = "json"
	Binary = "binary"
)

// Views are the forms in which a policy can ask for the message "decide".
var Views = []string{JSON, Binary}

// binaryViews encodes views as integers, little-endian. They are, in order:
//
//	n, now, number of links or 0 if all capacities are as before, capacity of each, number of coflows, and for each coflow
//	id, arrival, width, senders, receivers, left, sent, most_sent, queue, since, finished, median, pilots, pilots_left,
//	pilot_sent, size, largest, remaining, bound, number of links, number of idle links, number of flows,
//	its links and their flows as two columns of 32 bits, each filled up to 64, their remaining bytes,
//	unless pilots_left is 0 their pilot flows, its idle links, and for each flow
//	id, src, dst, pilot, sent, size, remaining, number of links, links
type binaryViews struct {
	capacity []units.Rate // as last sent
}

// append appends the message "decide": the line that announces the integers, with spaces at its end, and the integers.
func (x *binaryViews) append(b []byte, n int, v *policies.CoflowView, shown policies.Facts) []byte {
	const room = 64 // of the line
	line := len(b)
	for range room - 1 {
		b = append(b, ' ')
	}
	b = integers(append(b, '\n'), int64(n), int64(v.Now))
	if slices.Equal(x.capacity, v.Capacity) {
		b = integers(b, 0)
	} else {
		x.capacity = append(x.capacity[:0], v.Capacity...)
		b = integers(b, int64(len(v.Capacity)))
		for _, r := range v.Capacity {
			b = integers(b, int64(r))
		}
	}
	b = integers(b, int64(len(v.Coflows)))
	for i := range v.Coflows {
		b = binaryCoflow(b, &v.Coflows[i], shown.Has(policies.Progress))
	}
	head := append(b[:line], `{"type":"decide","n":`...)
	head = append(strconv.AppendInt(head, int64(n), 10), `,"bytes":`...)
	_ = append(strconv.AppendInt(head, int64(len(b)-line-room), 10), '}')
	return b
}

func integers(b []byte, numbers ...int64) []byte {
	for _, n := range numbers {
		b = binary.LittleEndian.AppendUint64(b, uint64(n))
	}
	return b
}

func binaryCoflow(b []byte, c *policies.CoflowState, progress bool) []byte {
	of := numbersOfCoflow(c)
	b = integers(integers(b, of[:]...), int64(len(c.Links)), 0, int64(len(c.Flows)))
	idleAt, idle := len(b)-16, int64(0)
	n := len(c.Links)
	half := (n + 1) / 2 * 8
	at := len(b)
	b = slices.Grow(b, 2*half+8*n)[:at+2*half+8*n]
	links, flows, remaining := b[at:at+half], b[at+half:at+2*half], b[at+2*half:]
	if n%2 > 0 {
		binary.LittleEndian.PutUint64(links[half-8:], 0)
		binary.LittleEndian.PutUint64(flows[half-8:], 0)
	}
	for i := range c.Links {
		l := &c.Links[i]
		if progress && !l.Begun {
			idle++
		}
		binary.LittleEndian.PutUint32(links[4*i:], uint32(l.Link))
		binary.LittleEndian.PutUint32(flows[4*i:], uint32(l.Flows))
		binary.LittleEndian.PutUint64(remaining[8*i:], uint64(l.Remaining))
	}
	binary.LittleEndian.PutUint64(b[idleAt:], uint64(idle))
	for i := 0; c.PilotsLeft > 0 && i < n; i++ {
		b = integers(b, int64(c.Links[i].Pilots))
	}
	for i := 0; idle > 0 && i < n; i++ {
		if l := &c.Links[i]; !l.Begun {
			b = integers(b, int64(l.Link))
		}
	}
	for i := range c.Flows {
		f := &c.Flows[i]
		b = integers(b, int64(f.ID), int64(f.Src), int64(f.Dst), flag(f.Pilot), int64(f.Sent), int64(f.Size),
			int64(f.Remaining), int64(len(f.Path)))
		for _, l := range f.Path {
			b = integers(b, int64(l))
		}
	}
	return b
}
