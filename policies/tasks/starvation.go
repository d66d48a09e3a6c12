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
	Every time.Duration // minimum time between two rounds of kills
	Most  int           // maximum number of kills a round; 0 for no limit
}

// DefaultStarvation returns Hadoop's fraction and interval, and timeouts of 60 s and 600 s, for
// which the report has no values. Killing is off.
func DefaultStarvation() Starvation {
	return Starvation{MinTimeout: 60 * time.Second, FairTimeout: 600 * time.Second, Fraction: 0.5, Every: 15 * time.Second}
}

// starved is what Fair remembers. Its part of TaskView.Memory is the time of the latest round of
// kills, then a record for each pool and kind below a share: the hash of the name, the kind, and
// the times since which the pool is below its minimum share and below the fraction of its fair
// share, or never. Records are sorted by name and kind; equal hashes are in order of their names.
type starved struct {
	on      bool
	round   int64
	records []record
	share   [jobs.TaskKinds][]float64 // by pool
	maps    []int                     // by pool: 1 if it starves for maps
}

type record struct {
	pool  int
	kind  jobs.TaskKind
	hash  uint64
	since [2]int64 // below the minimum share, below the fraction of the fair share
	// These report that the timeouts have expired: the pool starves.
	timeForMin, timeForShare bool
}

const (
	never        = math.MinInt64
	recordLength = 4
)

// track finds the pools below their shares, and since when.
func (s *starved) track(q *fair) {
	s.on, s.round, s.maps = true, never, q.d.a.Ints(len(q.pools))
	old := q.d.remembered
	if len(old) > 0 {
		s.round, old = old[0], old[1:]
	}
	for k := range jobs.TaskKinds {
		s.share[k] = q.shares(jobs.TaskKind(k))
		for i := range q.pools {
			x, running := &q.pools[i], float64(q.pools[i].running[k])
			r := record{pool: i, kind: jobs.TaskKind(k), since: [2]int64{never, never}}
			below := false
			if running < math.Floor(x.least[k]) {
				r.since[0], below = int64(q.d.v.Now), true
			}
			if share := s.share[k][i]; running < min(float64(q.Fraction*share), math.Floor(share)) {
				r.since[1], below = int64(q.d.v.Now), true
			}
			if below {
				r.hash = hash(q.pools[i].Name)
				s.records = append(s.records, r)
			}
		}
	}
	slices.SortFunc(s.records, func(a, b record) int {
		return cmp.Or(cmp.Compare(a.hash, b.hash), cmp.Compare(q.pools[a.pool].Name, q.pools[b.pool].Name), cmp.Compare(a.kind, b.kind))
	})
	for i := range s.records {
		r := &s.records[i]
		for ; len(old) >= recordLength; old = old[recordLength:] {
			order := cmp.Or(cmp.Compare(uint64(old[0]), r.hash), cmp.Compare(jobs.TaskKind(old[1]), r.kind))
			if order > 0 {
				break
			}
			if order == 0 {
				for n := range r.since {
					if r.since[n] != never && old[2+n] != never {
						r.since[n] = old[2+n]
					}
				}
				old = old[recordLength:]
				break
			}
		}
		now := int64(q.d.v.Now)
		r.timeForMin = r.since[0] != never && time.Duration(now-r.since[0]) > q.MinTimeout
		r.timeForShare = r.since[1] != never && time.Duration(now-r.since[1]) > q.FairTimeout
		if r.kind == jobs.Map && (r.timeForMin || r.timeForShare) {
			s.maps[r.pool] = 1
		}
	}
}

// starving reports whether the pool of a job starves for maps.
func (q *fair) starving(job int) bool { return q.starved.on && q.starved.maps[q.of(job)] != 0 }

// finish kills tasks, and returns what Fair remembers.
func (q *fair) finish() []int64 {
	s := &q.starved
	if !s.on {
		return nil
	}
	now := int64(q.d.v.Now)
	recent := s.round != never && now-s.round < int64(q.Every)
	if q.Kill && !recent && q.kill() {
		s.round, recent = now, true
	}
	if len(s.records) == 0 && !recent {
		return nil
	}
	out := q.d.a.Counts(1 + recordLength*len(s.records))
	out[0] = s.round
	for i, r := range s.records {
		copy(out[1+recordLength*i:], []int64{int64(r.hash), int64(r.kind), r.since[0], r.since[1]})
	}
	return out
}

// kill chooses the attempts to kill. It reports whether a pool starves.
func (q *fair) kill() bool {
	var need [jobs.TaskKinds]int
	starves := false
	for _, r := range q.starved.records {
		target := 0.0
		if r.timeForMin {
			target = q.pools[r.pool].least[r.kind]
		}
		if r.timeForShare {
			target = max(target, q.starved.share[r.kind][r.pool])
		}
		if r.timeForMin || r.timeForShare {
			starves = true
			need[r.kind] += max(int(target)-q.pools[r.pool].running[r.kind], 0)
		}
	}
	if !starves {
		return false
	}
	left := math.MaxInt
	if q.Most > 0 {
		left = q.Most
	}
	for k := range jobs.TaskKinds {
		left -= q.killKind(jobs.TaskKind(k), need[k], left)
	}
	return true
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
	for _, x := range q.d.a.Launch {
		if q.d.v.Jobs[x.Job].Stages[x.Stage].Kind == k {
			pools[q.of(x.Job)]++
			byJob[x.Job]++
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
