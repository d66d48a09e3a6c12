package live

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"testbed/emu/fault"
	"testbed/emu/fidelity"
	"testbed/emu/kernel/processors"
	"testbed/hosts"
	"testbed/topo"
)

// Finish waits for the last packets to pass, stops everything and returns what
// the run showed of itself. Close must still be called.
func (b *Backend) Finish(ctx context.Context) (Measured, error) {
	after, err := b.settle(ctx)
	if err != nil {
		return Measured{}, err
	}
	cpu, err := processors.Read()
	if err != nil {
		return Measured{}, err
	}
	m := Measured{Zero: b.zero, Notes: append(b.notes, b.faults.said()...), Machine: machine(b.cpu, cpu), Exempt: b.faults.exempt(), Lossy: b.faults.lossyNames()}
	steps, err := b.clock.Steps()
	if err != nil {
		return Measured{}, err
	}
	for _, s := range steps {
		m.Clock = append(m.Clock, fidelity.ClockStep(s))
	}
	m.Notes = append(m.Notes, unreached(b.cfg.Faults, time.Since(b.zero))...)
	if m.Losses, err = b.sampler.losses(ctx, b.accounts, b.network.discards(), b.cfg.Settings.Quiet, b.cfg.Settings.Settle); err != nil {
		return Measured{}, err
	}
	if m.SwitchPackets, m.Crossings, err = b.sampler.switches(b.accounts); err != nil {
		return Measured{}, err
	}
	for h := range after {
		counted := after[h].rx - b.counted[h].rx + after[h].tx - b.counted[h].tx
		m.Counted = append(m.Counted, uint64(counted))
	}
	if m.Duplicates, err = b.sampler.duplicates(); err != nil {
		return Measured{}, err
	}
	sent, err := b.sampler.sent(b.cfg.Links)
	if err != nil {
		return Measured{}, err
	}
	if m.QueueDrops, err = b.sampler.drops(); err != nil {
		return Measured{}, err
	}
	total := uint64(0)
	var where []string
	for id := range m.QueueDrops {
		m.QueueDrops[id] -= b.dropped[id] // also where the counter wrapped
		if n := m.QueueDrops[id]; n > 0 {
			total += uint64(n)
			where = append(where, fmt.Sprintf("%s %d", b.cfg.Fabric.LinkName(topo.LinkID(id)), n))
		}
	}
	if total > 0 {
		m.Notes = append(m.Notes, fmt.Sprintf("full queues dropped %d packets: %s", total, strings.Join(where, ", ")))
	}
	if late := b.ahead.late(); late != "" {
		m.Notes = append(m.Notes, late)
	}
	b.stopDuring(errStopped)
	if err := stopAll(b.captures); err != nil { // which have no packets of the round trips, like the counters
		return Measured{}, err
	}
	if err := b.measureRoundTrips(ctx, func(p *probed) *time.Duration { return &p.After }); err != nil {
		return Measured{}, err
	}
	if err := b.stop(); err != nil {
		return Measured{}, err
	}
	for i, c := range b.captures {
		if s := b.subjects[i]; s.ports {
			m.Switches = append(m.Switches, fidelity.Capture{Host: s.name, Dropped: c.stats.Dropped})
		} else {
			m.Dropped = append(m.Dropped, c.stats.Dropped)
		}
	}
	for i, id := range b.cfg.Links {
		at := slices.IndexFunc(m.Switches, func(c fidelity.Capture) bool { return c.Host == b.sampler.ports[id].namespace })
		if at >= 0 { // there are none where nothing is captured
			m.Switches[at].Counted += uint64(sent[i] - b.sent[i])
		}
	}
	m.Disks = b.wrote()
	if cost := b.reports.cost(); cost != "" {
		m.Notes = append(m.Notes, cost)
	}
	m.RoundTrips = b.roundTrips()
	m.Opened = b.network.opened.has
	m.Connections, m.Limits = b.network.connections.found(), b.network.connections.limitsFound()
	m.Engine = b.engineLate
	return m, b.samples.Close(b.sampler.head(b.cfg.Settings))
}

// unreached are notes on faults whose time came after the end of the repeat, so that
// they changed nothing.
func unreached(steps fault.Timeline, end time.Duration) (notes []string) {
	begun := map[string]bool{}
	for _, s := range steps { // in order of time
		if s.At <= end {
			begun[s.Why] = true
		} else if !begun[s.Why] {
			begun[s.Why] = true
			notes = append(notes, fmt.Sprintf("fault %s: did not happen: the repeat ended after %v", s.Why, end.Round(time.Millisecond)))
		}
	}
	return notes
}

// settle waits until no counter of a host moves any more.
func (b *Backend) settle(ctx context.Context) ([]hostCounters, error) {
	sent := make(chan struct{})
	go func() {
		b.transfer.Wait() // senders wait for their receivers to close
		close(sent)
	}()
	var cutOff <-chan time.Time
	if b.faults.met() {
		cutOff = time.After(b.cfg.Settings.Settle) // a receiver beyond a cut never closes
	}
	late := time.After(b.cfg.Settings.Stop)
	for waiting := true; waiting; {
		select {
		case <-cutOff:
			b.stopSend(hosts.ErrStopped)
			late = time.After(b.cfg.Settings.Stop)
		case <-sent:
			waiting = false
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-late:
			return nil, fmt.Errorf("senders did not end within %v", b.cfg.Settings.Stop)
		}
	}
	deadline := time.Now().Add(b.cfg.Settings.Settle)
	was, err := b.sampler.allHosts()
	for err == nil {
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(b.cfg.Settings.Quiet):
		}
		var is []hostCounters
		if is, err = b.sampler.allHosts(); err != nil {
			break
		}
		if slices.Equal(is, was) && b.network.waitingMarks() == 0 {
			return is, nil
		}
		if time.Now().After(deadline) {
			b.notes = append(b.notes, fmt.Sprintf("packets still moved %v after the last completion", b.cfg.Settings.Settle))
			return is, nil
		}
		was = is
	}
	return nil, err
}

// stop ends agents, sampling and captures, within Settings.Stop.
func (b *Backend) stop() error {
	if b.closed {
		return nil
	}
	b.closed = true
	b.stopWork(errStopped)
	var clock error
	if b.clock != nil {
		clock = b.clock.Close()
	}
	done := make(chan error, 1)
	go func() {
		b.transfer.Wait()
		b.ahead.close()
		if b.writers != nil {
			b.writers.close()
		}
		errs := []error{clock, stopAll(b.captures)}
		for _, a := range b.agents {
			errs = append(errs, a.Close())
		}
		errs = append(errs, b.work.Wait())
		b.deletions.Wait()
		done <- errors.Join(errs...)
	}()
	select {
	case err := <-done:
		return err
	case <-time.After(b.cfg.Settings.Stop):
		return fmt.Errorf("agents and captures did not stop within %v", b.cfg.Settings.Stop)
	}
}

// closeAtOnce is the number of disks that are closed at a time: each may wait for some tens of
// milliseconds in the kernel (io_destroy(2)).
const closeAtOnce = 64

func (b *Backend) closeDisks() error {
	errs := make([]error, len(b.disks))
	var all errgroup.Group
	all.SetLimit(closeAtOnce)
	for i, d := range b.disks {
		all.Go(func() error {
			errs[i] = d.Close()
			return nil
		})
	}
	return errors.Join(append(errs, all.Wait())...)
}

// Close stops everything, frees the hosts' disk space and closes what was
// opened. It may be called at any time, also after Finish and twice.
func (b *Backend) Close() error {
	errs := []error{b.stop(), b.closeDisks()}
	if b.samples != nil {
		errs = append(errs, b.samples.Discard())
	}
	for h := range b.volumes {
		if b.cfg.Kernel == nil { // else what holds them goes
			errs = append(errs, os.RemoveAll(filepath.Join(b.cfg.Disks, b.cfg.Fabric.HostName(topo.HostID(h)))))
		}
	}
	for _, n := range b.ns {
		errs = append(errs, n.Close())
	}
	b.disks, b.volumes, b.ns = nil, nil, nil
	if b.lower != nil {
		errs = append(errs, b.lower())
		b.lower = nil
	}
	b.garbage.collect()
	b.garbage = nil
	if b.procs > 0 {
		runtime.GOMAXPROCS(b.procs)
		b.procs = 0
	}
	return errors.Join(errs...)
}
