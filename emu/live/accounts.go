package live

import (
	"context"
	"slices"
	"time"

	"testbed/emu/fidelity"
	"testbed/emu/kernel"
	"testbed/emu/kernel/processors"
	"testbed/topo"
	"testbed/topo/units"
)

// account is what the devices, queues and IP of one namespace counted.
type account struct {
	received, sent uint64 // by all devices, lo included
	dropped        uint64 // by full queues
	waiting        units.Bytes
	// toSpines and fromSpines are the packets that a leaf's ports toward spines sent and received,
	// and lostUp and lostDown those that full queues of its ports toward spines and hosts dropped.
	toSpines, fromSpines uint64
	lostUp, lostDown     uint64
	ip                   kernel.IPStats
}

// account reads a namespace's counters. They are taken one after another, so they
// agree only while nothing moves.
func (s *sampler) account(namespace string) (account, error) {
	r, err := s.read(namespace)
	if err != nil {
		return account{}, err
	}
	var a account
	for _, l := range r.links {
		a.received += l.Rx.Packets
		a.sent += l.Tx.Packets
		a.dropped += uint64(l.Qdisc.Dropped)
		a.waiting += l.Qdisc.Backlog
		if topo.IsSpine(l.Device) {
			a.toSpines += l.Tx.Packets
			a.fromSpines += l.Rx.Packets
			a.lostUp += uint64(l.Qdisc.Dropped)
		} else {
			a.lostDown += uint64(l.Qdisc.Dropped)
		}
	}
	a.ip, err = s.ns[namespace].IP()
	return a, err
}

// accounts reads all namespaces, by name.
func (s *sampler) accounts() (map[string]account, error) {
	all := make(map[string]account, len(s.ns))
	for name := range s.ns {
		a, err := s.account(name)
		if err != nil {
			return nil, err
		}
		all[name] = a
	}
	return all, nil
}

// loss is what a namespace lost from one account to the next, of which it was to
// discard some packets: marks, at a leaf. A negative balance is no loss: counters
// that are read while packets move, or offloads that count several as one, make it.
func (a account) loss(namespace string, was account, discards uint64) fidelity.Loss {
	short := func(in, out uint64) uint64 {
		if in < out {
			return 0
		}
		return in - out
	}
	received, taken := a.received-was.received, a.ip.Received-was.ip.Received
	ended := a.ip.Delivered - was.ip.Delivered + a.ip.Forwarded - was.ip.Forwarded
	made := a.ip.Sent - was.ip.Sent
	// Queues count drops in 32 bits, which a run does not fill.
	left := a.sent - was.sent + a.dropped - was.dropped
	l := fidelity.Loss{Namespace: namespace, Packets: received + made - (a.ip.Forwarded - was.ip.Forwarded),
		Before: short(received, taken), Inside: short(taken, ended+discards), After: short(made, left)}
	if a.waiting > 0 {
		l.After = 0 // not all has left
	}
	return l
}

// losses compares all namespaces with what they counted before, until nothing is
// missing or Settings.Settle is over: what is on its way when counters are read
// looks lost. discards are the marks that each leaf was sent.
func (s *sampler) losses(ctx context.Context, before map[string]account, discards map[string]uint64, quiet, settle time.Duration) ([]fidelity.Loss, error) {
	deadline := time.Now().Add(settle)
	var was []fidelity.Loss
	for {
		now, err := s.accounts()
		if err != nil {
			return nil, err
		}
		var all []fidelity.Loss
		missing := false
		for name := range s.names() {
			l := now[name].loss(name, before[name], discards[name])
			missing = missing || l.Before+l.Inside+l.After > 0
			all = append(all, l)
		}
		if !missing || slices.Equal(all, was) || time.Now().After(deadline) {
			return all, nil
		}
		was = all
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(quiet):
		}
	}
}

// ownPackets is what a switch created and received for itself from one account to the next.
func (a account) ownPackets(name string, was account) fidelity.SwitchPackets {
	forwarded := a.ip.Forwarded - was.ip.Forwarded
	return fidelity.SwitchPackets{Switch: name, Created: a.ip.Sent - was.ip.Sent - forwarded, Delivered: a.ip.Delivered - was.ip.Delivered, Forwarded: forwarded}
}

// switches compares all leaves and spines with what they counted before.
func (s *sampler) switches(before map[string]account) (own []fidelity.SwitchPackets, crossings []fidelity.Crossing, err error) {
	for name := range s.names() {
		if !topo.IsSwitch(name) {
			continue
		}
		now, err := s.account(name)
		if err != nil {
			return nil, nil, err
		}
		was := before[name]
		own = append(own, now.ownPackets(name, was))
		if topo.IsSpine(name) || s.fabric.Spines() == 0 {
			continue
		}
		crossings = append(crossings,
			fidelity.Crossing{Leaf: name, Up: true, Counted: now.toSpines - was.toSpines, Dropped: now.lostUp - was.lostUp},
			fidelity.Crossing{Leaf: name, Counted: now.fromSpines - was.fromSpines, Dropped: now.lostDown - was.lostDown})
	}
	return own, crossings, nil
}

// duplicates sums up those of all hosts.
func (s *sampler) duplicates() (sum uint64, _ error) {
	for h := range topo.HostID(s.fabric.Hosts()) {
		n, err := s.ns[s.fabric.HostName(h)].Duplicates()
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}

// names are the namespaces of the fabric: hosts, then leaves, then spines.
func (s *sampler) names() func(yield func(string) bool) {
	f := s.fabric
	return func(yield func(string) bool) {
		for h := range topo.HostID(f.Hosts()) {
			if !yield(f.HostName(h)) {
				return
			}
		}
		for r := range topo.RackID(f.Racks()) {
			if !yield(topo.LeafName(r)) {
				return
			}
		}
		for i := range f.Spines() {
			if !yield(topo.SpineName(i)) {
				return
			}
		}
	}
}

// machine is what the processors did between two readings.
func machine(was, is processors.Reading) fidelity.Machine {
	l, ok := is.Since(was)
	return fidelity.Machine{Known: ok, Others: l.Others, Own: l.Own, Softirq: l.Softirq, Stolen: l.Stolen, Waiting: l.Waiting}
}
