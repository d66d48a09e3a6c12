package runner

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"time"

	"testbed/emu/calibration"
	"testbed/results/metrics"
	"testbed/results/rundir"
	"testbed/results/samples"
	"testbed/results/summary"
)

// notModelled are keys that change nothing on the fluid model, each with all keys below it.
var notModelled = []string{
	"fabric.congestion_control", "fabric.queue", "fabric.red", "fabric.link_model", "fabric.short_flow",
	"setup", "disk.throttle", "disk.dir", "capture", "limits", "tries",
}

// unmodelled returns the keys in which a simulated arm differs from the baseline, if the fluid model knows none of
// them.
func (a *arm) unmodelled() (keys []string) {
	base := a.of.arms[0]
	if a.of.backend != rundir.Fluid || !reflect.DeepEqual(a.Policies, base.Policies) {
		return nil
	}
	for _, key := range a.of.s.SetKeys() {
		if a.of.s.ArmValue(a.place, key) == a.of.s.ArmValue(0, key) {
			continue
		}
		if !slices.ContainsFunc(notModelled, func(k string) bool { return key == k || strings.HasPrefix(key, k+".") }) {
			return nil
		}
		keys = append(keys, key)
	}
	return keys
}

// simulated runs a trial on the fluid model.
func (t *trial) simulated(ctx context.Context, p *progress) (_ summary.Repeat, err error) {
	meta := t.workloadMeta()
	p.phase(PhaseSimulate)
	if err := writeJSON(t.file(summary.AskedFile), meta); err != nil {
		return summary.Repeat{}, err
	}
	var meter *metrics.Meter
	if len(meta.Writers) > 0 {
		meter = metrics.NewMeter(t.fabric, meta.Heartbeat)
	}
	var series *modelSamples
	var sent func(time.Duration, []float64)
	if !t.jobsOnly() {
		series = newModelSamples(t.file(samples.File), t.fabric, t.s.Spec.Limits.Samples)
		defer func() { err = errors.Join(err, series.Discard()) }()
		sent = series.sent
	}
	rec, err := t.simulate(ctx, t.file(eventsFile), meter, sent, p)
	if err == nil && series != nil {
		err = series.Close(series.head)
	}
	if err != nil {
		return summary.Repeat{}, err
	}
	meta.Join(&rec)
	files := repeatFiles{dir: t.path()}
	failures, err := withReasons(files, rec.Failed)
	if err != nil {
		return summary.Repeat{}, err
	}
	c, err := readCoordinator(files)
	framing := calibration.Framing(t.fabric.Shape().MTU)
	out := summary.Repeat{Records: rec, Ideals: metrics.Ideals(t.fabric, framing, rec.Flows), Failures: failures, Coordinator: c, Slots: meta.Slots}
	if meter != nil {
		out.Placement = &metrics.Placement{CrossRack: metrics.Payload(rec), Disk: metrics.DiskImbalance(t.fabric, rec, meta.DiskSize),
			Balance: meter.Balance(), Bounds: metrics.BoundsOf(t.fabric, rec, meta.DiskRate)}
	}
	return out, err
}
