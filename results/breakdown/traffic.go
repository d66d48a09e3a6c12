package breakdown

import (
	"time"

	"testbed/hosts/wire"
	"testbed/results/metrics"
	"testbed/topo"
	"testbed/topo/units"
)

func (r *run) traffic() Traffic {
	t := Traffic{CrossRack: map[string]units.Bytes{}}
	for _, c := range Classes() {
		t.CrossRack[c] = 0
	}
	var carried units.Bytes // bytes of flows and hops on links that leave racks
	for i := range r.res.Trails {
		tr := &r.res.Trails[i]
		if r.fabric.RackOf(tr.Src) == r.fabric.RackOf(tr.Dst) {
			continue
		}
		class := Shuffle
		switch {
		case tr.Kind == wire.KindBlock:
			class = Write
		case tr.Read:
			class = MapRead
		}
		t.CrossRack[class] += tr.Wire
		carried += (&trail{Trail: tr}).useful()
	}
	var out units.Bytes
	for _, s := range r.res.Links {
		if r.fabric.Link(s.Link).Kind == topo.LeafUp {
			for _, b := range s.Bytes {
				out += b
			}
		}
	}
	t.CrossRack[Control] = max(0, out-carried)
	stored := map[string]float64{}
	for _, b := range r.res.Blocks {
		for _, h := range b.Hosts {
			stored[h] += float64(b.Size)
		}
	}
	each := make([]float64, r.fabric.Hosts())
	for h := range each {
		each[h] = stored[r.fabric.HostName(topo.HostID(h))]
	}
	t.DiskImbalance = metrics.Cv(each)
	t.Makespan = r.makespan()
	return t
}

func (r *run) makespan() time.Duration {
	var first, last time.Duration
	any := false
	span := func(from, to time.Duration) {
		if !any || from < first {
			first = from
		}
		last, any = max(last, to), true
	}
	for _, c := range r.res.Coflows {
		span(c.Arrival, c.End)
	}
	for _, b := range r.res.Blocks {
		span(b.Requested, b.End)
	}
	return last - first
}
