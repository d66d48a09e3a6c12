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

// settleMarks determines the arrival of each coflow and block write, the ends of open coflows, the
// moments of tasks, and the zero of time.
func (a *assembly) settleMarks() {
	first := true
	begins := func(at int64) {
		if first || at < a.zero {
			a.zero, first = at, false
		}
	}
	for _, c := range a.captures {
		for _, m := range c.marks {
			key := groupKey{m.Kind, m.Group}
			switch m.Kind {
			case wire.KindFlowFailed, wire.KindBlockFailed, wire.KindReplicaLost, wire.KindFlowStopped, wire.KindBlockStopped:
				a.noteFailure(m)
				continue
			case wire.KindTaskMark:
				at := a.markTime(m, taskName(m.Task))
				a.moments = append(a.moments, moment{m, at})
				begins(at)
				continue
			case wire.KindConsumed:
				a.consumed = append(a.consumed, moment{m, a.markTime(m, "the input of "+taskName(m.Task))})
				continue
			case wire.KindCoflowMark, wire.KindWriteMark, wire.KindCoflowClosed:
			default:
				a.problemf("%s: a mark of kind %v is not used", m.host, m.Kind)
				continue
			}
			if old, twice := a.marks[key]; twice {
				a.problemf("%s: %s by %s and by %s: the earlier on the wire counts", groupName(key), markVerb(m.Kind), old.host, m.host)
				if old.at <= m.at {
					continue
				}
			}
			a.marks[key] = m
		}
	}
	for _, key := range a.groups() {
		if key.kind == wire.KindCoflowClosed {
			continue // the end of a coflow is that of its last flow
		}
		m := a.marks[key]
		at := a.markTime(m, groupName(key))
		a.arrival[key] = at
		if of := a.Groups.Coflows; m.note != (wire.Note{}) {
			if key.kind == wire.KindWriteMark {
				of = a.Groups.Blocks
			}
			of[key.group] = m.note
		}
		begins(at)
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

// markTime returns the time that a mark states, or that of its capture if the two do not agree. name is
// that of its subject.
func (a *assembly) markTime(m mark, name string) int64 {
	at := m.Sent.UnixNano()
	wait := time.Duration(m.at - at)
	if wait < 0 || wait > a.opt.MarkBound {
		a.problemf("%s: its mark was on the wire of %s %v after the time it states, which is not within 0s and %v: the time on the wire counts", name, m.host, wait, a.opt.MarkBound)
		return m.at
	}
	if wait > a.MarkWait {
		a.MarkWait, a.MarkWaitHost = wait, m.host
	}
	return at
}

func markVerb(k wire.Kind) string {
	if k == wire.KindCoflowClosed {
		return "closed"
	}
	return "marked"
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
