package tracker

import (
	"slices"

	"testbed/policies"
	"testbed/topo"
)

// place lists the stages that have pending tasks whose input a host or rack stores, in no
// particular order: nothing that is decided depends on it.
type place struct{ local []entry }

// entry is a bucket of a stage, by host or by rack.
type entry struct {
	st   *stage
	rack bool
	n    int32
}

// bucket is the tasks of a stage whose input a host or rack stores.
type bucket struct {
	of      int32   // HostID or RackID
	tasks   []int32 // ascending
	first   int32   // index into tasks: no earlier one is pending
	pending int32   // number of pending tasks
	at      int32   // index into place.local, if one is pending
}

// live reports whether attempts can read the input blocks of a host.
func (t *Tracker) live(h topo.HostID) bool { return !t.hosts[h].lost && !t.hosts[h].wiped }

func (t *Tracker) rackOf(h topo.HostID) int32 { return int32(t.cfg.Fabric.RackOf(h)) }

// index builds the buckets of a stage that reads blocks, from the hosts that are live. It must
// follow each change of these.
func (t *Tracker) index(st *stage) {
	if st.fetches() {
		return
	}
	t.unindex(st)
	var hosts, racks []uint64 // place and task
	for i, replicas := range st.replicas {
		for _, h := range replicas {
			if t.live(h) {
				hosts = append(hosts, uint64(h)<<32|uint64(i))
				racks = append(racks, uint64(t.rackOf(h))<<32|uint64(i))
			}
		}
	}
	st.byHost, st.byRack = buckets(hosts), buckets(racks)
	st.buckets(func(rack bool, n int32, b *bucket) {
		for _, i := range b.tasks {
			if st.tasks[i].status == pending {
				b.pending++
			}
		}
		if b.pending > 0 {
			t.enter(st, rack, n)
		}
	})
}

// buckets calls f for each bucket.
func (st *stage) buckets(f func(rack bool, n int32, b *bucket)) {
	for n := range st.byHost {
		f(false, int32(n), &st.byHost[n])
	}
	for n := range st.byRack {
		f(true, int32(n), &st.byRack[n])
	}
}

// buckets groups pairs of a place and a task by place.
func buckets(pairs []uint64) []bucket {
	slices.Sort(pairs)
	pairs = slices.Compact(pairs)
	tasks := make([]int32, len(pairs))
	places := 0
	for i, p := range pairs {
		tasks[i] = int32(p)
		if i == 0 || p>>32 != pairs[i-1]>>32 {
			places++
		}
	}
	out := make([]bucket, 0, places)
	begin := 0
	for i, p := range pairs {
		if i+1 == len(pairs) || p>>32 != pairs[i+1]>>32 {
			out = append(out, bucket{of: int32(p >> 32), tasks: tasks[begin : i+1 : i+1]})
			begin = i + 1
		}
	}
	return out
}

// unindex removes the buckets of a stage.
func (t *Tracker) unindex(st *stage) {
	st.buckets(func(rack bool, n int32, b *bucket) {
		if b.pending > 0 {
			t.leave(st, rack, n)
		}
	})
	st.byHost, st.byRack = nil, nil
}

func (st *stage) bucket(rack bool, n int32) *bucket {
	if rack {
		return &st.byRack[n]
	}
	return &st.byHost[n]
}

func (t *Tracker) placeOf(rack bool, of int32) *place {
	if rack {
		return &t.racks[of]
	}
	return &t.hosts[of].near
}

// enter lists a bucket at its place.
func (t *Tracker) enter(st *stage, rack bool, n int32) {
	b := st.bucket(rack, n)
	p := t.placeOf(rack, b.of)
	b.at = int32(len(p.local))
	p.local = append(p.local, entry{st, rack, n})
}

// leave removes a bucket from its place.
func (t *Tracker) leave(st *stage, rack bool, n int32) {
	b := st.bucket(rack, n)
	p := t.placeOf(rack, b.of)
	last := p.local[len(p.local)-1]
	p.local[b.at] = last
	last.st.bucket(last.rack, last.n).at = b.at
	p.local[len(p.local)-1] = entry{}
	p.local = p.local[:len(p.local)-1]
}

// find returns the index of the bucket of a place, -1 if there is none.
func find(list []bucket, of int32) int32 {
	n, ok := slices.BinarySearchFunc(list, of, func(b bucket, of int32) int { return int(b.of) - int(of) })
	if !ok {
		return -1
	}
	return int32(n)
}

// each calls f with each bucket that has a task.
func (t *Tracker) each(st *stage, i int32, f func(rack bool, n int32)) {
	if st.fetches() {
		return
	}
	replicas := st.replicas[i]
	for r, h := range replicas {
		if !t.live(h) || slices.Contains(replicas[:r], h) {
			continue
		}
		f(false, find(st.byHost, int32(h)))
		rack := t.rackOf(h)
		if !slices.ContainsFunc(replicas[:r], func(o topo.HostID) bool { return t.live(o) && t.rackOf(o) == rack }) {
			f(true, find(st.byRack, rack))
		}
	}
}

// pend adds a task that is pending again.
func (t *Tracker) pend(st *stage, i int32) {
	st.first = min(st.first, i)
	t.each(st, i, func(rack bool, n int32) {
		b := st.bucket(rack, n)
		at, _ := slices.BinarySearch(b.tasks, i)
		b.first = min(b.first, int32(at))
		if b.pending++; b.pending == 1 {
			t.enter(st, rack, n)
		}
	})
}

// unpend removes a task that is no longer pending.
func (t *Tracker) unpend(st *stage, i int32) {
	t.each(st, i, func(rack bool, n int32) {
		b := st.bucket(rack, n)
		if b.pending--; b.pending == 0 {
			t.leave(st, rack, n)
		}
	})
}

// show adds the distances of pending tasks from a host to what the scheduler sees.
func (t *Tracker) show(h topo.HostID) {
	for _, e := range t.racks[t.rackOf(h)].local {
		if e.st.shown > 0 {
			n := int(e.st.byRack[e.n].pending)
			e.st.state.Pending[policies.RackLocal] = n
			e.st.state.Pending[policies.OffRack] -= n
		}
	}
	for _, e := range t.hosts[h].near.local {
		if e.st.shown > 0 {
			n := int(e.st.byHost[e.n].pending)
			e.st.state.Pending[policies.NodeLocal] = n
			e.st.state.Pending[policies.RackLocal] -= n
		}
	}
}

// pending returns what show adds to a stage of a job.
func (t *Tracker) pending(j, s int) (n [policies.Localities]int) {
	st := t.order[j].stages[s]
	n[policies.OffRack] = st.shown
	if st.shown == 0 {
		return n
	}
	if b := find(st.byRack, t.rackOf(t.view.Host)); b >= 0 {
		n[policies.RackLocal] = int(st.byRack[b].pending)
		n[policies.OffRack] -= n[policies.RackLocal]
	}
	if b := find(st.byHost, int32(t.view.Host)); b >= 0 {
		n[policies.NodeLocal] = int(st.byHost[b].pending)
		n[policies.RackLocal] -= n[policies.NodeLocal]
	}
	return n
}

// hide removes what show has added.
func (t *Tracker) hide(h topo.HostID) {
	for _, e := range t.racks[t.rackOf(h)].local {
		e.st.state.Pending = [policies.Localities]int{policies.OffRack: e.st.shown}
	}
}

// nearest returns the pending task of a stage with the lowest index at a distance from a host, -1 if
// there is none.
func (t *Tracker) nearest(st *stage, h topo.HostID, l policies.Locality) int32 {
	rack := t.rackOf(h)
	inRack := func(i int32) bool {
		return !st.fetches() && slices.ContainsFunc(st.replicas[i], func(o topo.HostID) bool { return t.live(o) && t.rackOf(o) == rack })
	}
	switch l {
	case policies.NodeLocal:
		if n := find(st.byHost, int32(h)); n >= 0 {
			return st.byHost[n].next(st, func(int32) bool { return true })
		}
	case policies.RackLocal:
		if n := find(st.byRack, rack); n >= 0 {
			return st.byRack[n].next(st, func(i int32) bool { return !t.live(h) || !slices.Contains(st.replicas[i], h) })
		}
	case policies.OffRack:
		for int(st.first) < len(st.tasks) && st.tasks[st.first].status != pending {
			st.first++
		}
		for i := st.first; int(i) < len(st.tasks); i++ {
			if st.tasks[i].status == pending && !inRack(i) {
				return i
			}
		}
	}
	return -1
}

// next returns the first pending task of a bucket that fits.
func (b *bucket) next(st *stage, fits func(int32) bool) int32 {
	for int(b.first) < len(b.tasks) && st.tasks[b.tasks[b.first]].status != pending {
		b.first++
	}
	for _, i := range b.tasks[b.first:] {
		if st.tasks[i].status == pending && fits(i) {
			return i
		}
	}
	return -1
}
