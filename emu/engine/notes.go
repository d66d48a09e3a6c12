package engine

import (
	"testbed/emu/engine/tracker"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// note is what a sub-machine reports to the others. It holds values, not pointers into the
// state of the machine. Step delivers the notes of an event before the next event, in the
// order in which they were sent. The set of notes is closed.
type note interface{ note() }

// coflowBegan reports a new coflow with the sending hosts of its flows.
type coflowBegan struct{ from []topo.HostID }

// flowEnded reports that a flow has finished or failed.
type flowEnded struct {
	coflow    workloads.CoflowID
	id        workloads.FlowID
	src, dst  topo.HostID
	size      units.Bytes
	fetch     tracker.FetchID // that it carried out; 0 for none
	failed    bool
	why       string // reason of a failure
	lastPilot bool   // no pilot flow of its coflow is left
	free      bool   // the policy does not limit its coflow
}

// coflowEnded reports that each flow of a coflow has ended. It follows the last flowEnded.
type coflowEnded struct {
	id   workloads.CoflowID
	free bool // the policy does not limit it
}

// blockEnded reports that a block is durable on hosts, or has failed.
type blockEnded struct {
	id     workloads.BlockID
	failed bool
	size   units.Bytes
	hosts  []topo.HostID
}

// hostEnded reports that everything that a host was doing is lost.
type hostEnded struct {
	host topo.HostID
	why  string
}

// diskWiped reports that the disks of a host are empty.
type diskWiped struct{ host topo.HostID }

// disrupted reports a change of a link, a route or a host, or a failed flow. The coflow
// policy is called in the same step, without regard to its interval.
type disrupted struct{}

// checkStuck requests that the step looks for flows without progress.
type checkStuck struct{}

func (coflowBegan) note() {}
func (flowEnded) note()   {}
func (coflowEnded) note() {}
func (blockEnded) note()  {}
func (hostEnded) note()   {}
func (diskWiped) note()   {}
func (disrupted) note()   {}
func (checkStuck) note()  {}

// deliver passes each note to the machines that depend on it, including the notes that they
// send in turn.
func (e *Engine) deliver() {
	for len(e.notes) > 0 {
		n := e.notes[0]
		e.notes = e.notes[1:]
		switch n := n.(type) {
		case coflowBegan:
			e.coflowBegan(n)
		case flowEnded:
			e.flowEnded(n)
			e.writers.flowEnded(n)
			e.reads.flowEnded(n)
			e.tasks.flowEnded(n)
		case coflowEnded:
			if !n.free {
				e.control.CoflowChanged(e.now)
			}
			e.writers.coflowEnded(n)
		case blockEnded:
			e.reads.blockEnded(n)
			e.tasks.blockEnded(n)
		case hostEnded:
			// What one machine gives up, the next one already knows.
			for _, end := range []func(hostEnded){e.tasks.hostEnded, e.writers.hostEnded, e.reads.hostEnded, e.coflows.hostEnded, e.blocks.hostEnded} {
				end(n)
				e.deliver()
			}
		case diskWiped:
			e.reads.diskWiped(n)
		case disrupted:
			e.control.urgent, e.coflows.look = true, true
		case checkStuck:
			e.coflows.look = true
		}
	}
}
