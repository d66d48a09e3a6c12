package experiment

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"testbed/emu/abreast"
	"testbed/results/metrics"
	"testbed/results/report"
	"testbed/workloads"
)

// atOnce simulates a repeat of all arms, as many at once as there are processors, and
// returns what waits for that of an arm. When it returns an error, or that of the last
// arm, nothing goes on any more.
func (r *run) atOnce(ctx context.Context, repeat int, w workloads.Workload) func(arm int) (report.Repeat, error) {
	all := make([]report.Repeat, len(r.arms))
	wait := abreast.Start(ctx, len(all), r.o.Progress, func(ctx context.Context, arm int, tell func(Progress)) (err error) {
		p := r.progress(arm, repeat, w)
		if p.tell != nil {
			p.tell = tell
		}
		all[arm], err = r.simulated(ctx, arm, repeat, w, p)
		return err
	})
	return func(arm int) (report.Repeat, error) {
		err := wait(arm)
		if err != nil { // those after it count as not begun
			for _, a := range r.arms[arm+1:] {
				err = errors.Join(err, os.RemoveAll(repeatDir(r.dir.path, a.Name, repeat)))
			}
		}
		return all[arm], err
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
