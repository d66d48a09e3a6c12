package flows

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"testbed/hosts/wire"
)

// groupKey identifies the coflow or block of a mark.
type groupKey struct {
	kind  wire.Kind
	group uint32
}

// settleMarks determines the arrival of each coflow and block write, and the zero of time.
func (a *assembly) settleMarks() {
	first := true
	for _, c := range a.captures {
		for _, m := range c.marks {
			key := groupKey{m.Kind, m.Group}
			if m.Kind == wire.KindFlowFailed || m.Kind == wire.KindBlockFailed || m.Kind == wire.KindReplicaLost {
				a.noteFailure(m)
				continue
			}
			if m.Kind != wire.KindCoflowMark && m.Kind != wire.KindWriteMark {
				a.problemf("%s: a mark of kind %v is not used", m.host, m.Kind)
				continue
			}
			if old, twice := a.marks[key]; twice {
				a.problemf("%s: marked by %s and by %s: the earlier on the wire counts", groupName(key), old.host, m.host)
				if old.at <= m.at {
					continue
				}
			}
			a.marks[key] = m
		}
	}
	for _, key := range a.groups() {
		m := a.marks[key]
		at := m.Sent.UnixNano()
		wait := time.Duration(m.at - at)
		if wait < 0 || wait > a.opt.MarkBound {
			a.problemf("%s: its mark was on the wire of %s %v after the time it states, which is not within 0s and %v: the time on the wire counts", groupName(key), m.host, wait, a.opt.MarkBound)
			at = m.at
		} else if wait > a.MarkWait {
			a.MarkWait, a.MarkWaitHost = wait, m.host
		}
		a.arrival[key] = at
		if first || at < a.zero {
			a.zero, first = at, false
		}
	}
	if first {
		a.problemf("no capture has a mark of an arrival: times count from the first payload")
		for _, t := range a.transfers {
			if t.standing == ours && t.begun() != 0 {
				a.zero = t.begun()
				break
			}
		}
	}
	a.Zero = time.Unix(0, a.zero)
}

// groups returns the keys of the marks, sorted.
func (a *assembly) groups() []groupKey {
	return slices.SortedFunc(maps.Keys(a.marks), func(x, y groupKey) int {
		return cmp.Or(cmp.Compare(x.kind, y.kind), cmp.Compare(x.group, y.group))
	})
}

func groupName(k groupKey) string {
	if k.kind == wire.KindWriteMark || k.kind == wire.KindBlock {
		return fmt.Sprintf("block %d", k.group)
	}
	return fmt.Sprintf("coflow %d", k.group)
}
