package tasks

import (
	"testbed/policies"
	"testbed/policies/clone"
)

// blacklist are the hosts that are skipped, empty if it is off. A window without decisions counts with the one before.
type blacklist struct {
	window int64 // its number plus 1; 0 before the first decision
	hosts  []record
}

// record is what is known of a host: the attempts that were judged and those that straggled up to the start of the window,
// and whether the host is skipped in it.
type record struct {
	judged, straggled int
	skipped           bool
}

// update judges the hosts at the first decision of a window.
func (b *blacklist) update(p clone.Blacklist, v *policies.TaskView) {
	window := int64(v.Now/max(p.Window, 1)) + 1
	if p.Above <= 0 || window == b.window {
		return
	}
	b.window = window
	if b.hosts == nil {
		b.hosts = make([]record, len(v.Slots))
	}
	for h := range b.hosts {
		s, old := &v.Slots[h], &b.hosts[h]
		skipped := p.Skips(s.Straggled-old.straggled, s.Judged-old.judged, s.Straggled, s.Judged)
		*old = record{s.Judged, s.Straggled, skipped}
	}
}

// skips reports whether nothing may be launched on the host of the decision. If all hosts that are up are on the
// blacklist, none is skipped.
func (b *blacklist) skips(v *policies.TaskView) bool {
	if b.hosts == nil || !b.hosts[v.Host].skipped {
		return false
	}
	for h := range v.Slots {
		if !v.Slots[h].Lost && !b.hosts[h].skipped {
			return true
		}
	}
	return false
}
