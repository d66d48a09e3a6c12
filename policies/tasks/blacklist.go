package tasks

import (
	"testbed/policies/clone"
)

// blacklisting are the hosts that are skipped during one decision.
//
// Its memory is its own length, the number of the window plus 1, then for each host the attempts that were judged and those
// that straggled up to the start of the window, and 1 if the host is skipped in it. A window without decisions counts with the
// one before.
type blacklisting struct {
	clone.Blacklist
	d    *decision
	head []int64
}

// blacklistSize returns the number of elements of a memory that belong to the blacklist.
func blacklistSize(p clone.Blacklist, memory []int64) int {
	if p.Above <= 0 {
		return 0
	}
	return sizeOf(memory)
}

// beginBlacklist returns the blacklist for one decision; nil if it is off.
func beginBlacklist(p clone.Blacklist, d *decision, memory []int64) *blacklisting {
	if p.Above <= 0 {
		return nil
	}
	b := &blacklisting{p, d, d.a.Counts(2 + 3*len(d.v.Slots))}
	if len(memory) == len(b.head) {
		copy(b.head, memory)
	}
	b.head[0] = int64(len(b.head))
	window := int64(d.v.Now/max(p.Window, 1)) + 1
	if window == b.head[1] {
		return b
	}
	for h := range d.v.Slots {
		s, old := &d.v.Slots[h], b.host(h)
		skips := p.Skips(s.Straggled-int(old[1]), s.Judged-int(old[0]), s.Straggled, s.Judged)
		old[0], old[1], old[2] = int64(s.Judged), int64(s.Straggled), 0
		if skips {
			old[2] = 1
		}
	}
	b.head[1] = window
	return b
}

// host returns what is remembered of a host.
func (b *blacklisting) host(h int) []int64 { return b.head[2+3*h : 5+3*h] }

// skips reports whether nothing may be launched on the host of the decision. If all hosts that are up are on the
// blacklist, none is skipped.
func (b *blacklisting) skips() bool {
	if b == nil || b.host(int(b.d.v.Host))[2] == 0 {
		return false
	}
	for h := range b.d.v.Slots {
		if !b.d.v.Slots[h].Lost && b.host(h)[2] == 0 {
			return true
		}
	}
	return false
}

func (b *blacklisting) memory() []int64 {
	if b == nil {
		return nil
	}
	return b.head
}
