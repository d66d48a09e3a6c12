package runner

import (
	"context"

	"testbed/results/metrics"
	"testbed/results/report"
)

// simulated runs a trial on the fluid model.
func (t *trial) simulated(ctx context.Context, p *progress) (report.Repeat, error) {
	meta := t.workloadMeta()
	p.phase(PhaseSimulate)
	if err := writeJSON(t.file(report.AskedFile), meta); err != nil {
		return report.Repeat{}, err
	}
	var meter *metrics.Meter
	if len(meta.Writers) > 0 {
		meter = metrics.NewMeter(t.fabric, meta.Heartbeat)
	}
	rec, err := t.simulate(ctx, t.file(eventsFile), meter, nil, p)
	if err != nil {
		return report.Repeat{}, err
	}
	meta.Join(&rec)
	files := repeatFiles{dir: t.path()}
	failures, err := withReasons(files, rec.Failed)
	if err != nil {
		return report.Repeat{}, err
	}
	c, err := readCoordinator(files)
	out := report.Repeat{Records: rec, Failures: failures, Coordinator: c, Slots: meta.Slots}
	if meter != nil {
		out.Placement = &metrics.Placement{CrossRack: metrics.Payload(rec), Disk: metrics.DiskImbalance(t.fabric, rec, meta.DiskSize),
			Balance: meter.Balance(), Bounds: metrics.BoundsOf(t.fabric, rec, meta.DiskRate)}
	}
	return out, err
}
