package hosts

import (
	"context"
	"errors"

	"testbed/topo"
	"testbed/workloads"
)

// What faults need of an agent, as thin as it compiles: it is replaced as a whole.

// Causes of transfers that faults end.
var (
	ErrStopped   = errors.New("stopped")
	ErrCrashed   = errors.New("the host has crashed")
	ErrNoReplica = errors.New("no replica is left")
)

// ReplicaLost tells that a block's pipeline goes on without a host.
type ReplicaLost struct {
	Block workloads.BlockID
	Host  topo.HostID
	Err   error
}

// Crash abandons the agent's work.
func (a *Agent) Crash() {}

// Return lets the agent listen again.
func (a *Agent) Return(context.Context) error { return nil }

// Stop ends sending or receiving a flow.
func (a *Agent) Stop(workloads.FlowID) {}

// SetCPU limits the agent's work to a share of the time.
func (a *Agent) SetCPU(float64) {}
