package topo

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"testbed/topo/units"
	"testbed/topo/words"
)

// checkUplinks checks that the rate of uplinks is specified exactly once.
func (s LeafSpine) checkUplinks() error {
	var given []string
	var errs []error
	if s.Oversubscription != (units.Ratio{}) {
		given = append(given, "oversubscription")
		if s.Oversubscription.Num <= 0 || s.Oversubscription.Den <= 0 {
			errs = append(errs, fmt.Errorf("oversubscription: %v: expected two positive whole numbers, such as \"5:1\"", s.Oversubscription))
		}
	}
	for _, r := range []struct {
		name string
		rate units.Rate
	}{{"uplink", s.Uplink}, {"cross_rack", s.CrossRack}} {
		if r.rate != 0 {
			given = append(given, r.name)
		}
		if r.rate < 0 {
			errs = append(errs, fmt.Errorf("%s: %v: must be positive", r.name, r.rate))
		}
	}
	switch {
	case len(given) > 1:
		errs = append(errs, fmt.Errorf("%s: mutually exclusive: specify only one", strings.Join(given, ", ")))
	case len(given) == 0 && s.Spines != 0:
		errs = append(errs, errors.New("oversubscription: missing: specify it, or the rate of an uplink, or the cross-rack rate of a rack"))
	}
	return errors.Join(errs...)
}

// build lays out the links of a shape whose values are valid, each by itself.
func (s LeafSpine) build() (*Fabric, error) {
	f := &Fabric{shape: s.clone()}
	var errs []error
	rates := make([]units.Rate, f.Hosts())
	for h := range rates {
		rates[h] = s.HostLink
	}
	for i, hl := range s.HostLinks {
		hosts, err := f.FindHosts(hl.Hosts)
		if err == nil && hl.Rate <= 0 {
			err = fmt.Errorf("rate %v: must be positive", hl.Rate)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("host_links[%d]: %w", i, err))
			continue
		}
		for _, h := range hosts {
			rates[h] = hl.Rate
		}
	}
	add := func(l Link) {
		l.ID = LinkID(len(f.links))
		l.Delay = s.Delay
		if l.Kind != HostUp {
			l.RED = f.shape.RED
		}
		f.links = append(f.links, l)
	}
	for h, rate := range rates {
		add(Link{Kind: HostUp, Host: HostID(h), Rack: f.RackOf(HostID(h)), Rate: rate})
		add(Link{Kind: HostDown, Host: HostID(h), Rack: f.RackOf(HostID(h)), Rate: rate})
	}
	for r := range RackID(s.Leaves) {
		up := s.uplink(rates[f.HostIn(r, 0):f.HostIn(r, s.HostsPerLeaf)])
		if s.Spines > 0 && up <= 0 {
			errs = append(errs, fmt.Errorf("oversubscription: %v leaves an uplink of %s no capacity", s.Oversubscription, LeafName(r)))
		}
		for sp := range s.Spines {
			add(Link{Kind: LeafUp, Rack: r, Spine: sp, Rate: up})
			add(Link{Kind: LeafDown, Rack: r, Spine: sp, Rate: up})
		}
	}
	queues := make([]Queue, len(f.links))
	for id := range queues {
		queues[id] = s.Queue
	}
	var names []string
	if len(s.Links) > 0 {
		names = f.linkNames()
	}
	for i, c := range s.Links {
		ids, err := f.findLinks(c.Link, names)
		if err = errors.Join(err, c.check()); err != nil {
			errs = append(errs, fmt.Errorf("links[%d]: %w", i, err))
			continue
		}
		for _, id := range ids {
			if c.Rate > 0 {
				f.links[id].Rate = c.Rate
			}
			if c.Queue != (Queue{}) {
				queues[id] = c.Queue
			}
			if c.Delay != nil {
				f.links[id].Delay = *c.Delay
			}
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	for id := range f.links {
		l := &f.links[id]
		if l.Queue = queues[id].On(l.Rate); l.RED != nil && l.RED.Max > l.Queue {
			return nil, fmt.Errorf("red: max %v is more than the queue of %s, %v: use a smaller max or a longer queue", l.RED.Max, f.LinkName(l.ID), l.Queue)
		}
	}
	return f, nil
}

func (c LinkChange) check() error {
	switch {
	case c.Rate < 0:
		return fmt.Errorf("rate %v: must be positive", c.Rate)
	case c.Queue.Bytes < 0 || c.Queue.Time < 0 || c.Queue.Bytes > 0 && c.Queue.Time > 0:
		return fmt.Errorf("queue %v: must be a positive size or time", c.Queue)
	case c.Delay != nil && (*c.Delay < 0 || *c.Delay > MaxDelay):
		return fmt.Errorf("delay %v: must be 0s to %v", *c.Delay, MaxDelay)
	}
	return nil
}

// clone returns a deep copy, so that changes by the caller do not change a fabric.
func (s LeafSpine) clone() LeafSpine {
	s.HostLinks, s.Links = slices.Clone(s.HostLinks), slices.Clone(s.Links)
	for i, c := range s.Links {
		if c.Delay != nil {
			d := *c.Delay
			s.Links[i].Delay = &d
		}
	}
	if s.RED != nil {
		red := *s.RED
		s.RED = &red
	}
	return s
}

// uplink returns the rate of a link between leaf and spine of a rack whose hosts have
// the given rates.
func (s LeafSpine) uplink(hosts []units.Rate) units.Rate {
	switch {
	case s.Uplink > 0:
		return s.Uplink
	case s.CrossRack > 0:
		return s.CrossRack / units.Rate(max(s.Spines, 1))
	case s.Spines == 0:
		return 0
	}
	rack := 0.0
	for _, r := range hosts {
		rack += float64(r)
	}
	return units.Rate(rack / s.Oversubscription.Float() / float64(s.Spines))
}

// String returns a description of the shape on one line, such as "4 leaves x 5 hosts, 2 spines,
// host link 50Mbps, oversubscription 5:1, queue 20ms, MTU 1500".
func (s LeafSpine) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s x %s, %s, host link %v", words.Plural(s.Leaves, "leaf", "leaves"), words.Plural(s.HostsPerLeaf, "host", "hosts"),
		words.Plural(s.Spines, "spine", "spines"), s.HostLink)
	switch {
	case s.Uplink > 0:
		fmt.Fprintf(&b, ", uplink %v", s.Uplink)
	case s.CrossRack > 0:
		fmt.Fprintf(&b, ", cross-rack %v", s.CrossRack)
	case s.Oversubscription != (units.Ratio{}):
		fmt.Fprintf(&b, ", oversubscription %v", s.Oversubscription)
	}
	fmt.Fprintf(&b, ", queue %v", s.Queue)
	if s.Delay > 0 {
		fmt.Fprintf(&b, ", delay %v", s.Delay)
	}
	if s.StoreAndForward {
		b.WriteString(", store and forward")
	}
	if s.RED != nil {
		fmt.Fprintf(&b, ", RED from %v to %v", s.RED.Min, s.RED.Max)
		if s.RED.ECN {
			b.WriteString(" with ECN")
		}
	}
	if len(s.HostLinks)+len(s.Links) > 0 {
		b.WriteString(", some links otherwise")
	}
	fmt.Fprintf(&b, ", MTU %d", int64(s.MTU))
	return b.String()
}

// Oversubscription returns the capacity of a rack's hosts toward their leaf divided by the
// capacity of the leaf toward the spines, from the actual rates of the links. It is 0
// without spines.
func (f *Fabric) Oversubscription(r RackID) float64 {
	hosts, up := 0.0, 0.0
	for i := range f.shape.HostsPerLeaf {
		hosts += float64(f.links[f.HostUp(f.HostIn(r, i))].Rate)
	}
	for s := range f.Spines() {
		up += float64(f.links[f.LeafUp(r, s)].Rate)
	}
	if up == 0 {
		return 0
	}
	return hosts / up
}

// PathDelay returns the one-way propagation delay from src to dst for a flow with the
// given hash.
func (f *Fabric) PathDelay(src, dst HostID, hash uint32) time.Duration {
	var d time.Duration
	for _, l := range f.Path(src, dst, hash) {
		d += f.links[l].Delay
	}
	return d
}

// FindHosts returns the hosts that match a pattern of path.Match, in order of ID. A
// pattern without a match is an error.
func (f *Fabric) FindHosts(pattern string) ([]HostID, error) {
	if _, err := path.Match(pattern, ""); err != nil {
		return nil, fmt.Errorf("hosts %q: %w", pattern, err)
	}
	var found []HostID
	for h := range HostID(f.Hosts()) {
		if ok, _ := path.Match(pattern, f.HostName(h)); ok { // the pattern is valid, as checked above
			found = append(found, h)
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("hosts %q: the fabric has no such host: hosts are %s to %s", pattern, f.HostName(0), f.HostName(HostID(f.Hosts()-1)))
	}
	return found, nil
}

func (f *Fabric) linkNames() []string {
	names := make([]string, len(f.links))
	for id := range names {
		names[id] = f.LinkName(LinkID(id))
	}
	return names
}
