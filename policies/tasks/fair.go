package tasks

import (
	"cmp"
	"iter"
	"math"
	"slices"

	"testbed/policies"
	"testbed/workloads/jobs"
)

// Fair shares the slots among pools, one for each user (FAIR report; Hadoop's fair scheduler).
// The next slot of a kind goes to a pool below its minimum share, the one furthest below first;
// else to the pool with the fewest running tasks relative to its weight. Ties go to the pool
// whose first job was submitted earlier.
type Fair struct {
	// Pools are settings of pools by user. Other pools have the weight 1 and no minimum share.
	Pools []Pool
	// Inside is the order of the jobs of a pool.
	Inside Inside
	Starvation
}

// Pool is the settings of the pool of a user.
type Pool struct {
	Name   string
	Weight float64             // at most 0 means 1
	Min    [jobs.TaskKinds]int // minimum shares, in slots of the cluster, by jobs.TaskKind
}

// Inside is an order of the jobs of a pool.
type Inside uint8

// The orders.
const (
	FewestFirst Inside = iota // FAIR: fewest running tasks of the kind, ties by submission
	InOrder                   // as FIFO
)

// pool is the state of a pool during one decision, by kind.
type pool struct {
	Pool
	running, demand [jobs.TaskKinds]int
	least           [jobs.TaskKinds]float64 // minimum share or demand, scaled if all exceed the slots
}

// fair is Fair during one decision.
type fair struct {
	Fair
	users
	d        *decision
	pools    []pool // by user
	order    []int  // of pools
	kind     jobs.TaskKind
	lists    []int // the jobs of the pools with pending tasks of kind, in order; see users.byUser
	sorted   []int // by pool: 1 + the length of its list, or 0 if that is not in order
	counts   [64]int
	starved  starved
	anyLeast bool
}

func (p Fair) start(d *decision) queue {
	q := &fair{Fair: p, d: d, kind: -1}
	d.scan(&q.users)
	if p.Inside == InOrder {
		q.sort(d, byPriority(d.v, d.a.Ints(len(d.v.Jobs))))
	} else {
		q.sort(d, nil)
	}
	n := len(q.all)
	q.pools, q.order, q.sorted, q.lists = make([]pool, n), d.a.Ints(n), d.a.Ints(n), d.a.Ints(len(d.v.Jobs))
	for i := range q.pools {
		x, u := &q.pools[i], &q.all[i]
		q.order[i] = i
		x.Name, x.Weight, x.running, x.demand = u.name, 1, u.running, u.running
		for k, n := range u.pending {
			x.demand[k] += n
		}
	}
	for _, c := range p.Pools {
		for i := range q.pools {
			if q.pools[i].Name == c.Name {
				q.pools[i].Pool = c
				if !(c.Weight > 0) {
					q.pools[i].Weight = 1
				}
				q.anyLeast = q.anyLeast || c.Min != [jobs.TaskKinds]int{}
			}
		}
	}
	if q.anyLeast {
		for k, slots := range d.slots() {
			scale := minimumScale(float64(slots), q.claims(jobs.TaskKind(k)))
			for i := range q.pools {
				x := &q.pools[i]
				x.least[k] = min(float64(float64(x.Min[k])*scale), float64(x.demand[k]))
			}
		}
	}
	if p.Kill || d.delay.Waiting != NoWait {
		q.starved.track(q)
	}
	return q
}

// claims returns the claims of all pools with demand for slots of a kind; of others, none.
func (q *fair) claims(k jobs.TaskKind) []Claim {
	out := make([]Claim, len(q.pools))
	for i := range q.pools {
		x := &q.pools[i]
		out[i] = Claim{Demand: float64(x.demand[k]), Min: float64(x.Min[k]), Weight: x.Weight}
		if x.demand[k] == 0 {
			out[i].Min = 0
		}
	}
	return out
}

// shares returns the fair shares of the pools in slots of a kind.
func (q *fair) shares(k jobs.TaskKind) []float64 {
	out := q.d.a.Floats(len(q.pools))
	if !slices.ContainsFunc(q.pools, func(x pool) bool { return x.demand[k] > 0 }) {
		return out // without a look at the slots of all hosts
	}
	pour(float64(q.d.slots()[k]), q.claims(k), out, q.d.a.Floats(2*len(q.pools)))
	return out
}

func (*fair) kinds() [][]jobs.TaskKind { return mapsFirst }

// compare orders pools by their claim to the next slot of a kind. Ratios are compared by
// multiplication, which is exact for minimum shares and weights that are whole numbers.
func (q *fair) compare(k jobs.TaskKind) func(a, b int) int {
	return func(a, b int) int {
		x, y := &q.pools[a], &q.pools[b]
		xr, yr := float64(x.running[k]), float64(y.running[k])
		xBelow, yBelow := xr < x.least[k], yr < y.least[k]
		switch {
		case xBelow && yBelow:
			return cmp.Or(cmp.Compare(xr*y.least[k], yr*x.least[k]), cmp.Compare(q.all[a].first, q.all[b].first))
		case xBelow:
			return -1
		case yBelow:
			return 1
		default:
			return cmp.Or(cmp.Compare(xr*y.Weight, yr*x.Weight), cmp.Compare(q.all[a].first, q.all[b].first))
		}
	}
}

func (q *fair) jobs(kinds []jobs.TaskKind) iter.Seq[int] {
	k := kinds[0]
	if k != q.kind {
		q.kind = k
		clear(q.sorted)
	}
	slices.SortFunc(q.order, q.compare(k))
	return func(yield func(int) bool) {
		for _, p := range q.order {
			if q.pools[p].demand[k] == q.pools[p].running[k] {
				continue // nothing is pending
			}
			for _, i := range q.inOrder(p, k) {
				if !yield(i) {
					return
				}
			}
		}
	}
}

// inOrder returns the jobs of a pool in the order in which they get its next slot of a kind. Jobs
// without pending tasks are left out.
func (q *fair) inOrder(p int, k jobs.TaskKind) []int {
	list := q.users.jobs(p)
	if q.Inside == InOrder {
		return list
	}
	start := q.all[p].end - q.all[p].jobs
	if q.sorted[p] != 0 {
		return q.lists[start : start+q.sorted[p]-1]
	}
	// list is by submission, and few jobs run many tasks: a counting sort, which is stable.
	least, most, n := math.MaxInt, 0, 0
	for _, i := range list {
		if q.d.pending(k, i) > 0 {
			least, most = min(least, q.d.running(k, i)), max(most, q.d.running(k, i))
			n++
		}
	}
	out := q.lists[start : start+n]
	q.sorted[p] = n + 1
	if most-least >= len(q.counts) {
		out = out[:0]
		for _, i := range list {
			if q.d.pending(k, i) > 0 {
				out = append(out, i)
			}
		}
		slices.SortStableFunc(out, func(a, b int) int { return cmp.Compare(q.d.running(k, a), q.d.running(k, b)) })
		return out
	}
	counts := q.counts[:max(most-least, 0)+1]
	clear(counts)
	for _, i := range list {
		if q.d.pending(k, i) > 0 {
			counts[q.d.running(k, i)-least]++
		}
	}
	at := 0
	for r, n := range counts {
		counts[r] = at
		at += n
	}
	for _, i := range list {
		if q.d.pending(k, i) > 0 {
			c := &counts[q.d.running(k, i)-least]
			out[*c] = i
			*c++
		}
	}
	return out
}

func (q *fair) launched(job int, st *policies.StageState) {
	p := q.of(job)
	q.pools[p].running[st.Kind]++
	q.sorted[p] = 0
}
