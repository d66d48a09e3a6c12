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

// failureKey identifies a failed flow, block or replica.
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

// failedFlows returns the failure marks of a coflow's flows.
func (a *assembly) failedFlows(coflow uint32) []mark {
	return a.failuresOf(wire.KindFlowFailed, coflow)
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

func (a *assembly) flowFailed(t *transfer) bool {
	_, failed := a.failures[failureKey{wire.KindFlowFailed, t.header.Group, t.header.Member}]
	return failed
}

// lostHost returns the host named by the mark of a lost replica.
func (a *assembly) lostHost(m mark) string {
	if _, _, ok := topo.ParseHostName(m.name); ok {
		return m.name
	}
	a.problemf("block %d: the mark of a lost replica names %q, which is no host", m.Group, strings.ToValidUTF8(m.name, "?"))
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
		f := Failure{Host: m.host, At: a.since(at)}
		arrival := groupKey{wire.KindWriteMark, m.Group}
		switch m.Kind {
		case wire.KindFlowFailed:
			f.Kind, f.Coflow, f.Flow = FailedFlow, workloads.CoflowID(m.Group), workloads.FlowID(m.Member)
			arrival.kind = wire.KindCoflowMark
		case wire.KindBlockFailed:
			f.Kind, f.Block = FailedBlock, workloads.BlockID(m.Group)
		default:
			f.Kind, f.Block, f.Host = FailedReplica, workloads.BlockID(m.Group), a.lostHost(m)
		}
		// A failed writer's remaining blocks fail before they arrive.
		if _, marked := a.marks[arrival]; !marked && m.Kind != wire.KindBlockFailed {
			a.problemf("%s: marked as failed, and no mark of its arrival", groupName(arrival))
		}
		a.Failed = append(a.Failed, f)
	}
}
