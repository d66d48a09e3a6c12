package experiment

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"

	"testbed/results/metrics"
	"testbed/results/report"
	"testbed/workloads"
)

// atOnce simulates a repeat of all arms, as many at once as there are processors, and
// returns what waits for that of an arm. When it returns an error, or that of the last
// arm, nothing goes on any more.
func (r *run) atOnce(ctx context.Context, repeat int, w workloads.Workload) func(arm int) (report.Repeat, error) {
	ctx, stop := context.WithCancelCause(ctx)
	type result struct {
		report.Repeat
		err  error
		done chan struct{}
	}
	all := make([]result, len(r.arms))
	for i := range all {
		all[i].done = make(chan struct{})
	}
	turns := turns{tell: r.o.Progress, latest: make([]*Progress, len(all)), ended: make([]bool, len(all))}
	var simulating sync.WaitGroup
	var next atomic.Int32
	for range min(len(all), runtime.GOMAXPROCS(0)) {
		simulating.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(all) {
					return
				}
				if all[i].err = context.Cause(ctx); all[i].err == nil {
					all[i].Repeat, all[i].err = r.simulated(ctx, i, repeat, w, turns.of(r.progress(i, repeat, w), i))
				}
				turns.end(i)
				close(all[i].done)
			}
		})
	}
	return func(arm int) (report.Repeat, error) {
		<-all[arm].done
		err := all[arm].err
		if err != nil || arm == len(all)-1 {
			stop(err)
			simulating.Wait()
		}
		if err != nil { // those after it count as not begun
			for _, a := range r.arms[arm+1:] {
				err = errors.Join(err, os.RemoveAll(repeatDir(r.dir.path, a.Name, repeat)))
			}
		}
		return all[arm].Repeat, err
	}
}

// turns tells progress of arms that go on at once: that of the first that has not ended.
type turns struct {
	tell func(Progress)

	mu     sync.Mutex
	first  int
	latest []*Progress // by arm; nil for none yet
	ended  []bool      // by arm
}

// of makes the progress of an arm tell here.
func (t *turns) of(p *progress, arm int) *progress {
	if t.tell == nil {
		return p
	}
	p.tell = func(now Progress) {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.latest[arm] = &now
		if arm == t.first {
			t.tell(now)
		}
	}
	return p
}

func (t *turns) end(arm int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended[arm] = true
	for t.first < len(t.ended) && t.ended[t.first] {
		if t.first++; t.first < len(t.ended) && t.latest[t.first] != nil {
			t.tell(*t.latest[t.first])
		}
	}
}

// simulated runs one repeat of one arm on the fluid model.
func (r *run) simulated(ctx context.Context, arm, repeat int, w workloads.Workload, p *progress) (report.Repeat, error) {
	dir := repeatDir(r.dir.path, r.arms[arm].Name, repeat)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return report.Repeat{}, err
	}
	asked := r.asked(w)
	p.phase(PhaseSimulate)
	if err := writeJSON(filepath.Join(dir, report.AskedFile), asked); err != nil {
		return report.Repeat{}, err
	}
	var meter *metrics.Meter
	if len(asked.Writers) > 0 {
		meter = metrics.NewMeter(r.fabric, asked.Heartbeat)
	}
	rec, err := r.simulate(ctx, arm, repeat, w, filepath.Join(dir, "events.jsonl"), meter, p)
	if err != nil {
		return report.Repeat{}, err
	}
	asked.Join(&rec)
	failures, err := withReasons(dir, rec.Failed)
	if err != nil {
		return report.Repeat{}, err
	}
	c, err := readCoordinator(dir)
	out := report.Repeat{Records: rec, Failures: failures, Coordinator: c}
	if meter != nil {
		out.Placement = &metrics.Placement{CrossRack: metrics.Payload(rec), Disk: metrics.DiskImbalance(r.fabric, rec, asked.DiskSize),
			Balance: meter.Balance(), Bounds: metrics.BoundsOf(r.fabric, rec, asked.DiskRate)}
	}
	return out, err
}
