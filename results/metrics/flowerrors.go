package metrics

import (
	"slices"
	"time"

	"testbed/results/flows"
	"testbed/topo"
	"testbed/topo/units"
)

// Hop is a link of a path that a token bucket shapes.
type Hop struct {
	Rate   units.Rate
	Bucket units.Bytes // its size
}

// Framing is how payload is divided into frames.
type Framing struct {
	Payload units.Bytes // the most of one frame
	Headers units.Bytes // of each frame
}

// Wire returns the bytes of all frames that carry size bytes of payload.
func (f Framing) Wire(size units.Bytes) units.Bytes {
	return size + (size+f.Payload-1)/f.Payload*f.Headers
}

// StoreAndForward returns the time from the first bit of a flow of size bytes, which has
// the path to itself and never waits for an acknowledgement, until its last bit arrives over
// links that receive each frame whole before they forward it. Propagation is not included.
func (f Framing) StoreAndForward(size units.Bytes, path []Hop) time.Duration {
	if size <= 0 {
		return 0
	}
	frames := (size + f.Payload - 1) / f.Payload
	last := size - (frames-1)*f.Payload + f.Headers
	var before, slowest, at time.Duration // of the frames before the last: the first on each link, and the gap between two
	for _, h := range path {
		if frames > 1 {
			full := h.Rate.TimeToSend(f.Payload + f.Headers)
			before, slowest = before+full, max(slowest, full)
			at = max(at, before+time.Duration(frames-2)*slowest)
		}
		at += h.Rate.TimeToSend(last)
	}
	return at
}

// FullBuckets returns the same time over token buckets that are full when the flow starts:
// each lets a bucket pass at once, so a path lets min(bucket + rate x time) pass.
func (f Framing) FullBuckets(size units.Bytes, path []Hop) (t time.Duration) {
	wire := f.Wire(size)
	for _, h := range path {
		t = max(t, h.Rate.TimeToSend(max(0, wire-h.Bucket)))
	}
	return t
}

// FlowErrors computes by how much flows end earlier than on links that store and forward
// every frame, because token buckets are full after an idle period. It is the error of a flow
// that has its path to itself, and the most of any other: buckets of busy links are empty.
type FlowErrors struct {
	fabric  *topo.Fabric
	framing Framing
	bucket  func(units.Rate) units.Bytes
	hosts   map[string]topo.HostID
}

// NewFlowErrors returns the errors of flows on a fabric. bucket is the size of the token bucket of a link
// by its rate.
func NewFlowErrors(f *topo.Fabric, framing Framing, bucket func(units.Rate) units.Bytes) *FlowErrors {
	e := &FlowErrors{f, framing, bucket, make(map[string]topo.HostID, f.Hosts())}
	for h := range topo.HostID(f.Hosts()) {
		e.hosts[f.HostName(h)] = h
	}
	return e
}

// Early returns the time by which a flow of size bytes ends early, and the time that it
// would take. The path is that of hash 0: paths between two hosts have the same rates unless a fault
// changes them.
func (e *FlowErrors) Early(size units.Bytes, src, dst topo.HostID) (early, whole time.Duration) {
	var path []Hop
	for _, id := range e.fabric.Path(src, dst, 0) {
		r := e.fabric.Link(id).Rate
		path = append(path, Hop{r, e.bucket(r)})
	}
	whole = e.framing.StoreAndForward(size, path)
	return whole - e.framing.FullBuckets(size, path), whole + e.fabric.PathDelay(src, dst, 0)
}

// FlowErrorSizes are the sizes whose errors reports and calibrations state.
var FlowErrorSizes = []units.Bytes{1500, 10 * units.KB, 50 * units.KB, 250 * units.KB}

// SizeError is the error of the completion time of flows of one size.
type SizeError struct {
	Size units.Bytes `json:"size"`
	// Rack and Racks are the errors between two hosts of a rack and of two racks, relative to
	// the time over links that store and forward: -0.1 is 10 % early. Nil without such hosts.
	Rack  *float64 `json:"rack,omitempty"`
	Racks *float64 `json:"racks,omitempty"`
}

// Sizes returns the errors of FlowErrorSizes between the first host and the next of its rack, and of
// the second rack.
func (e *FlowErrors) Sizes() (out []SizeError) {
	of := func(size units.Bytes, to topo.HostID) *float64 {
		early, whole := e.Early(size, 0, to)
		x := Round6(-float64(early) / float64(whole))
		return &x
	}
	for _, size := range FlowErrorSizes {
		s := SizeError{Size: size}
		if e.fabric.Shape().HostsPerLeaf > 1 {
			s.Rack = of(size, e.fabric.HostIn(0, 1))
		}
		if e.fabric.Racks() > 1 {
			s.Racks = of(size, e.fabric.HostIn(1, 0))
		}
		out = append(out, s)
	}
	return out
}

// Beyond reports whether a flow alone on its path ends early by more than a share of its time.
func (e *FlowErrors) Beyond(r flows.Records, share float64) bool {
	return slices.ContainsFunc(r.Flows, func(f flows.FlowRecord) bool {
		src, ok := e.hosts[f.Src]
		dst, also := e.hosts[f.Dst]
		if !ok || !also {
			return false
		}
		early, whole := e.Early(f.Size, src, dst)
		return float64(early) > share*float64(whole)
	})
}

// Later returns FCTs as they would be at most, had no bucket been full: each later by Early.
func (e *FlowErrors) Later(repeat int, r flows.Records) []Item {
	return flowItems(repeat, r, func(f flows.FlowRecord) time.Duration {
		src, ok := e.hosts[f.Src]
		dst, also := e.hosts[f.Dst]
		if !ok || !also {
			return f.FCT()
		}
		early, _ := e.Early(f.Size, src, dst)
		return f.FCT() + early
	})
}
