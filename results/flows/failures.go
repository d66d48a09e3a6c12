package flows

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"testbed/hosts/wire"
	"testbed/topo"
	"testbed/workloads"
)

// failureKey identifies a failed or stopped flow or block, or a lost replica.
type failureKey struct {
	kind          wire.Kind
	group, member uint32
}

// noteFailure records a failure mark. Both ends of a flow may send one; the first counts.
func (a *assembly) noteFailure(m mark) {
	k := failureKey{m.Kind, m.Group, m.Member}
	if old, twice := a.failures[k]; !twice || m.Sent.Before(old.Sent) {
		a.failures[k] = m
	}
}

// cutFlows returns the marks of a coflow's flows that failed or were stopped, one of each flow.
func (a *assembly) cutFlows(coflow uint32) []mark {
	marks := a.failuresOf(wire.KindFlowFailed, coflow)
	for _, m := range a.failuresOf(wire.KindFlowStopped, coflow) {
		if _, failed := a.failures[failureKey{wire.KindFlowFailed, m.Group, m.Member}]; !failed {
			marks = append(slices.Clip(marks), m)
		}
	}
	return marks
}

// lostReplicas returns the marks of a block's lost replicas, in order of loss.
func (a *assembly) lostReplicas(block uint32) []mark {
	return a.failuresOf(wire.KindReplicaLost, block)
}

// failuresOf returns the failures of one kind of one coflow or block, in order of time.
// noteFailure must not be called after it.
func (a *assembly) failuresOf(kind wire.Kind, group uint32) []mark {
	if a.byGroup == nil {
		a.byGroup = map[groupKey][]mark{}
		for k, m := range a.failures {
			key := groupKey{k.kind, k.group}
			a.byGroup[key] = append(a.byGroup[key], m)
		}
		for _, marks := range a.byGroup {
			slices.SortFunc(marks, compareFailures)
		}
	}
	return a.byGroup[groupKey{kind, group}]
}

func compareFailures(x, y mark) int {
	return cmp.Or(x.Sent.Compare(y.Sent), cmp.Compare(x.Kind, y.Kind), cmp.Compare(x.Group, y.Group), cmp.Compare(x.Member, y.Member))
}

// flowCut reports whether a flow failed or was stopped.
func (a *assembly) flowCut(t *transfer) bool {
	_, failed := a.failures[failureKey{wire.KindFlowFailed, t.header.Group, t.header.Member}]
	_, stopped := a.failures[failureKey{wire.KindFlowStopped, t.header.Group, t.header.Member}]
	return failed || stopped
}

// blockCut reports whether a block write failed or was stopped.
func (a *assembly) blockCut(block uint32) bool {
	_, failed := a.failures[failureKey{wire.KindBlockFailed, block, 0}]
	_, stopped := a.failures[failureKey{wire.KindBlockStopped, block, 0}]
	return failed || stopped
}

// lostHost returns the host named by the mark of a lost replica.
func (a *assembly) lostHost(m mark) string {
	if _, _, ok := topo.ParseHostName(m.note.Host); ok {
		return m.note.Host
	}
	a.problemf("block %d: the mark of a lost replica names %q, which is no host", m.Group, strings.ToValidUTF8(m.note.Host, "?"))
	return ""
}

// settleFailures builds the records of failures.
func (a *assembly) settleFailures() {
	all := make([]mark, 0, len(a.failures))
	for _, m := range a.failures {
		all = append(all, m)
	}
	slices.SortFunc(all, compareFailures)
	for _, m := range all {
		at := m.Sent.UnixNano()
		if wait := time.Duration(m.at - at); wait < 0 || wait > a.opt.MarkBound {
			at = m.at // as in settleMarks
		}
		f := Failure{Host: m.host, At: a.since(at), Why: m.note.Why}
		arrival := groupKey{wire.KindWriteMark, m.Group}
		switch m.Kind {
		case wire.KindFlowStopped:
			arrival.kind = wire.KindCoflowMark
		case wire.KindBlockStopped:
		case wire.KindFlowFailed:
			f.Kind, f.Coflow, f.Flow = FailedFlow, workloads.CoflowID(m.Group), workloads.FlowID(m.Member)
			arrival.kind = wire.KindCoflowMark
		case wire.KindBlockFailed:
			f.Kind, f.Block = FailedBlock, workloads.BlockID(m.Group)
		default:
			f.Kind, f.Block, f.Host = FailedReplica, workloads.BlockID(m.Group), a.lostHost(m)
		}
		// A failed writer's remaining blocks fail before they arrive.
		_, marked := a.marks[arrival]
		stopped := m.Kind == wire.KindFlowStopped || m.Kind == wire.KindBlockStopped
		switch {
		case marked || m.Kind == wire.KindBlockFailed:
		case stopped:
			a.problemf("%s: marked as stopped, and no mark of its arrival", groupName(arrival))
		default:
			a.problemf("%s: marked as failed, and no mark of its arrival", groupName(arrival))
		}
		if !stopped {
			a.Failed = append(a.Failed, f)
		}
	}
}
