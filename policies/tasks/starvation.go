package tasks

import (
	"cmp"
	"math"
	"slices"
	"time"

	"testbed/policies"
	"testbed/workloads/jobs"
)

// Starvation is when a pool starves, and whether tasks are then killed for it. The jobs of a
// pool that starves for maps ignore delay scheduling.
type Starvation struct {
	// MinTimeout is T_min: a pool starves that has been below its minimum share, or below its
	// demand if that is less, for longer.
	MinTimeout time.Duration
	// FairTimeout is T_fair: a pool starves that has been below Fraction of its fair share for
	// longer.
	FairTimeout time.Duration
	Fraction    float64 // of the fair share, in (0, 1]

	// Kill kills tasks of pools above their shares, most recently launched first, until each
	// pool that starves can have its share.
	Kill  bool
	Every time.Duration // time between rounds of kills
	Most  int           // most kills a round; 0 for no limit
}

// DefaultStarvation returns Hadoop's fraction and interval, and timeouts of 60 s and 600 s, for
// which the report has no values. Killing is off.
func DefaultStarvation() Starvation {
	return Starvation{MinTimeout: 60 * time.Second, FairTimeout: 600 * time.Second, Fraction: 0.5, Every: 15 * time.Second}
}

// shortages are what Fair remembers: the time before which it does not kill again, and since when pools are below their
// shares.
type shortages struct {
	quiet       time.Duration
	since, next map[poolKind]shortage // next is for the next decision
}

type poolKind struct {
	pool string
	kind jobs.TaskKind
}

// shortage is since when a pool is below its minimum share, and below the fraction of its fair share; never if it is not.
type shortage struct{ least, share time.Duration }

const never = math.MinInt64

// carry returns the start of a time that goes on if it had begun before.
func carry(is bool, old, now time.Duration) time.Duration {
	switch {
	case !is:
		return never
	case old != never:
		return old
	}
	return now
}

// starved are the pools that starve at one decision.
type starved struct {
	on    bool
	pools []starvingPool
	share [jobs.TaskKinds][]float64 // by pool
	maps  []int                     // by pool: 1 if it starves for maps
}

// starvingPool is a pool that is below its minimum share or its fair share for longer than the timeout.
type starvingPool struct {
	pool         int
	kind         jobs.TaskKind
	least, share bool
}

// track finds the pools below their shares, and since when.
func (s *starved) track(q *fair) {
	s.on, s.maps = true, q.d.a.Ints(len(q.pools))
	x, now := &q.d.shortages, q.d.v.Now
	if x.since == nil {
		x.since, x.next = map[poolKind]shortage{}, map[poolKind]shortage{}
	}
	clear(x.next)
	for k := range jobs.TaskKind(jobs.TaskKinds) {
		s.share[k] = q.shares(k)
		for i := range q.pools {
			p, share := &q.pools[i], s.share[k][i]
			running := float64(p.running[k])
			low := running < math.Floor(p.least[k])
			unfair := running < min(float64(q.Fraction*share), math.Floor(share))
			if !low && !unfair {
				continue
			}
			id := poolKind{p.Name, k}
			b, known := x.since[id]
			if !known {
				b = shortage{never, never}
			}
			b = shortage{carry(low, b.least, now), carry(unfair, b.share, now)}
			x.next[id] = b
			r := starvingPool{i, k, low && now-b.least > q.MinTimeout, unfair && now-b.share > q.FairTimeout}
			if !r.least && !r.share {
				continue
			}
			s.pools = append(s.pools, r)
			if k == jobs.Map {
				s.maps[i] = 1
			}
		}
	}
	x.since, x.next = x.next, x.since
}

// starving reports whether the pool of a job starves for maps.
func (q *fair) starving(job int) bool { return q.starved.on && q.starved.maps[q.of(job)] != 0 }

// finish kills tasks if a pool starves and the latest round of kills is long enough ago.
func (q *fair) finish() {
	x, now := &q.d.shortages, q.d.v.Now
	if q.Kill && len(q.starved.pools) > 0 && now >= x.quiet {
		x.quiet = now + q.Every
		q.kill()
	}
}

// kill chooses the attempts to kill.
func (q *fair) kill() {
	var need [jobs.TaskKinds]int
	for _, r := range q.starved.pools {
		target := 0.0
		if r.least {
			target = q.pools[r.pool].least[r.kind]
		}
		if r.share {
			target = max(target, q.starved.share[r.kind][r.pool])
		}
		need[r.kind] += max(int(target)-q.pools[r.pool].running[r.kind], 0)
	}
	left := math.MaxInt
	if q.Most > 0 {
		left = q.Most
	}
	for k := range jobs.TaskKinds {
		left -= q.killKind(jobs.TaskKind(k), need[k], left)
	}
}

// killKind kills attempts of a kind until need will have ended with those that are being killed.
// It returns the number of kills, at most most.
func (q *fair) killKind(k jobs.TaskKind, need, most int) (kills int) {
	type victim struct {
		*policies.AttemptState
		job int
	}
	var victims []victim
	pools, byJob := q.d.a.Ints(len(q.pools)), q.d.a.Ints(len(q.d.v.Jobs))
	for i := range q.d.v.Jobs {
		n := q.d.launched(k, i)
		pools[q.of(i)] += n
		byJob[i] += n
		for j := range q.d.v.Jobs[i].Running {
			switch x := &q.d.v.Jobs[i].Running[j]; {
			case x.Kind != k:
			case q.d.killing(x):
				need--
			default:
				victims = append(victims, victim{x, i})
				pools[q.of(i)]++
				byJob[i]++
			}
		}
	}
	if need = min(need, most); need <= 0 {
		return 0
	}
	inside := q.insideShares(k)
	slices.SortFunc(victims, func(a, b victim) int {
		return cmp.Or(cmp.Compare(b.Start, a.Start), b.ID.Compare(a.ID))
	})
	killed := make([]bool, len(victims))
	for n := 0; n < len(victims) && kills < need; {
		x := victims[n]
		p := q.of(x.job)
		keep := max(q.starved.share[k][p], q.pools[p].least[k])
		if killed[n] || float64(pools[p]-1) < keep || float64(byJob[x.job]-1) < inside[x.job] {
			n++
			continue
		}
		chosen := n
		if k == jobs.Reduce && x.Phase == policies.Computing {
			// It is spared while the job has a reduce that does not compute yet.
			for i, y := range victims {
				if y.job == x.job && y.Phase != policies.Computing && !killed[i] {
					chosen = i
					break
				}
			}
		}
		killed[chosen] = true
		q.d.a.Kill = append(q.d.a.Kill, victims[chosen].ID)
		kills++
		pools[p]--
		byJob[x.job]--
	}
	return kills
}

// insideShares returns the whole slots below which no job is taken by a kill: its share of its
// pool's share, rounded down.
func (q *fair) insideShares(k jobs.TaskKind) []float64 {
	out := q.d.a.Floats(len(q.d.v.Jobs))
	for p := range q.pools {
		left := q.starved.share[k][p]
		list := q.users.jobs(p)
		if q.Inside == InOrder {
			for _, i := range list {
				out[i] = math.Floor(min(left, float64(q.d.pending(k, i)+q.d.running(k, i))))
				left -= out[i]
			}
			continue
		}
		claims := make([]Claim, len(list))
		for n, i := range list {
			claims[n] = Claim{Demand: float64(q.d.pending(k, i) + q.d.running(k, i)), Weight: 1}
		}
		for n, x := range Shares(left, claims) {
			out[list[n]] = math.Floor(x)
		}
	}
	return out
}
