package metrics

import (
	"cmp"
	"slices"
	"time"

	"testbed/hosts/wire"
	"testbed/results/flows"
	"testbed/topo/units"
	"testbed/workloads"
)

// Default limits of the recorded moments of transfers.
const (
	// DefaultProgressPoints is the most moments of one transfer.
	DefaultProgressPoints = 32
	// DefaultProgressMoments is the approximate total of a repeat: with more transfers than
	// fit at DefaultProgressPoints, each has fewer, but at least leastProgressPoints.
	DefaultProgressMoments = 50_000
	leastProgressPoints    = 4
)

// Progress is the received bytes of one transfer over time: a flow of a coflow, or one hop
// of a block's pipeline.
type Progress struct {
	Kind       wire.Kind // KindFlow or KindBlock
	Group      uint32    // coflow or block
	Member     uint32    // flow, or hop from 0
	Generation uint32    // pipeline of a block, from 0
	Src, Dst   string    // hosts
	Size       units.Bytes
	// Complete reports whether all of Size was received: the last moment has it.
	Complete bool
	// SentKnown reports whether the sender was captured too, so that Moment.Sent is valid.
	SentKnown bool
	Moments   []Moment // in order of time; at least one
}

// Moment is the time at which the first Bytes bytes of a transfer's payload had left the
// sender, each for the first time, and the time at which the receiver had all of them.
type Moment struct {
	Bytes    units.Bytes
	Sent, At time.Duration
}

// ProgressOf returns the progress of all transfers in receivers' captures: flows in order
// of coflow and flow, then hops in order of block, pipeline and hop. For a transfer that
// several connections carried, it is the connection with the record, else the one with the
// most bytes. Each transfer has at most points moments, including the first and the last; 0
// is the default. If the total would exceed about most, each transfer has fewer.
func ProgressOf(res *flows.Result, points, most int) []Progress {
	if points <= 0 {
		points = DefaultProgressPoints
	}
	if most <= 0 {
		most = DefaultProgressMoments
	}
	type key struct {
		kind                      wire.Kind
		group, generation, member uint32
	}
	ends := map[workloads.FlowID]time.Duration{}
	for _, f := range res.Flows {
		ends[f.Flow] = f.End
	}
	chosen := map[key]*flows.Trail{}
	for i := range res.Trails {
		t := &res.Trails[i]
		if len(t.Received) == 0 {
			continue
		}
		k := key{t.Kind, t.Group, t.Generation, t.Member}
		old := chosen[k]
		if old == nil {
			chosen[k] = t
			continue
		}
		end, recorded := ends[workloads.FlowID(t.Member)]
		has := func(t *flows.Trail) bool { return recorded && t.Kind == wire.KindFlow && t.Complete && t.End == end }
		reached := func(t *flows.Trail) units.Bytes { return t.Received[len(t.Received)-1].Bytes }
		if has(t) && !has(old) || has(t) == has(old) && reached(t) > reached(old) {
			chosen[k] = t
		}
	}
	points = min(points, max(leastProgressPoints, most/max(1, len(chosen))))
	out := make([]Progress, 0, len(chosen))
	for k, t := range chosen {
		p := Progress{Kind: k.kind, Group: k.group, Member: k.member, Generation: k.generation, Src: t.SrcName, Dst: t.DstName, Size: t.Size,
			Complete: t.Complete, SentKnown: len(t.Sent) == len(t.Received)}
		n, ahead := len(t.Received), units.Bytes(0)
		if n > 0 {
			ahead = t.Received[0].Bytes // the header
		}
		if t.Kind == wire.KindBlock {
			ahead += wire.TargetsSize
		}
		for i := range min(n, points) {
			at := i
			if n > points {
				at = i * (n - 1) / max(1, points-1)
			}
			m := Moment{Bytes: max(0, t.Received[at].Bytes-ahead), At: t.Received[at].At}
			if p.SentKnown {
				m.Sent = t.Sent[at].At
			}
			if k := len(p.Moments); k > 0 && p.Moments[k-1].Bytes == m.Bytes {
				p.Moments = p.Moments[:k-1] // a hop without payload
			}
			p.Moments = append(p.Moments, m)
		}
		for i := len(p.Moments) - 2; i >= 0; i-- { // timestamps may decrease if a clock was set
			p.Moments[i].At = min(p.Moments[i].At, p.Moments[i+1].At)
		}
		p.Moments = slices.Clip(p.Moments)
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b Progress) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Group, b.Group), cmp.Compare(a.Generation, b.Generation), cmp.Compare(a.Member, b.Member))
	})
	return out
}

// Goodput adds the bytes that a receiver got to the bins: those between two moments are
// assumed to arrive evenly. The bins begin at 0 and are bin long; bytes outside of them are
// ignored.
func Goodput(bins []float64, bin time.Duration, moments []Moment) {
	for i := range moments {
		if i == 0 {
			addBytes(bins, bin, moments[0].At, moments[0].At, float64(moments[0].Bytes))
			continue
		}
		addBytes(bins, bin, moments[i-1].At, moments[i].At, float64(moments[i].Bytes-moments[i-1].Bytes))
	}
}

// Within moves bytes that arrive faster than a link carries them to earlier bins, and to later ones where there are
// none: rows are the bins of transfers that share the link, and most is what it carries in a bin. Bytes behind a lost
// segment count when the gap is filled, but have arrived before.
func Within(rows [][]float64, most float64) {
	if len(rows) == 0 {
		return
	}
	bins := len(rows[0])
	pass := func(k, to int) {
		sum := 0.0
		for _, row := range rows {
			sum += row[k]
		}
		if sum <= most || to < 0 || to >= bins {
			return
		}
		for _, row := range rows {
			rest := row[k] * (1 - most/sum)
			row[k], row[to] = row[k]-rest, row[to]+rest
		}
	}
	for k := bins - 1; k >= 0; k-- {
		pass(k, k-1)
	}
	for k := range bins {
		pass(k, k+1)
	}
}

// addBytes distributes the bytes received between two moments over bins.
func addBytes(bins []float64, bin, from, to time.Duration, bytes float64) {
	if bytes <= 0 || to < from || to < 0 {
		return
	}
	if from == to {
		// The end of a bin belongs to it.
		if k := int(max(0, to-1) / bin); k < len(bins) {
			bins[k] += bytes
		}
		return
	}
	for k := int(max(0, from) / bin); k < len(bins) && time.Duration(k)*bin < to; k++ {
		part := min(to, time.Duration(k+1)*bin) - max(from, time.Duration(k)*bin)
		bins[k] += bytes * (float64(part) / float64(to-from))
	}
}
