package runner

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"testbed/emu/parallel"
	"testbed/results/metrics"
	"testbed/results/report"
	"testbed/results/safefile"
)

// atOnce simulates a repeat of all arms, on as many goroutines as there are processors. It
// returns a function that waits for the result of an arm. After an error, or after the result of
// the last arm, no simulation is running.
func (r *run) atOnce(ctx context.Context, repeat int, w work) func(arm int) (report.Repeat, error) {
	all := make([]report.Repeat, len(r.arms))
	wait := parallel.Start(ctx, len(all), r.o.Progress, func(ctx context.Context, arm int, progressed func(Progress)) (err error) {
		p := r.progress(arm, repeat, w)
		if p.report != nil {
			p.report = progressed
		}
		all[arm], err = r.simulated(ctx, arm, repeat, w, p)
		return err
	})
	return func(arm int) (report.Repeat, error) {
		err := wait(arm)
		if err != nil { // the arms after it count as not started
			for _, a := range r.arms[arm+1:] {
				err = errors.Join(err, os.RemoveAll(repeatDir(r.dir.path, a.Name, repeat)))
			}
		}
		return all[arm], err
	}
}

// simulated runs one repeat of one arm on the fluid model.
func (r *run) simulated(ctx context.Context, arm, repeat int, w work, p *progress) (report.Repeat, error) {
	dir := repeatDir(r.dir.path, r.arms[arm].Name, repeat)
	if err := safefile.MkdirAll(dir); err != nil {
		return report.Repeat{}, err
	}
	meta := r.workloadMeta(w)
	p.phase(PhaseSimulate)
	if err := writeJSON(filepath.Join(dir, report.AskedFile), meta); err != nil {
		return report.Repeat{}, err
	}
	var meter *metrics.Meter
	if len(meta.Writers) > 0 {
		meter = metrics.NewMeter(r.fabric, meta.Heartbeat)
	}
	rec, err := r.simulate(ctx, arm, repeat, w, filepath.Join(dir, "events.jsonl"), meter, nil, p)
	if err != nil {
		return report.Repeat{}, err
	}
	meta.Join(&rec)
	failures, err := withReasons(repeatFiles{dir: dir}, rec.Failed)
	if err != nil {
		return report.Repeat{}, err
	}
	c, err := readCoordinator(repeatFiles{dir: dir})
	out := report.Repeat{Records: rec, Failures: failures, Coordinator: c, Slots: meta.Slots}
	if meter != nil {
		out.Placement = &metrics.Placement{CrossRack: metrics.Payload(rec), Disk: metrics.DiskImbalance(r.fabric, rec, meta.DiskSize),
			Balance: meter.Balance(), Bounds: metrics.BoundsOf(r.fabric, rec, meta.DiskRate)}
	}
	return out, err
}
