package pcap

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"

	"testbed/topo"
)

// Meta tells what a capture is a capture of. It travels in the comment of the
// file's section header, as JSON, so that the files of a run are enough to
// report on it: which arms there were, in which order, and which repeat and
// host each file belongs to.
type Meta struct {
	Tool     string `json:"tool"`    // the program that wrote the file
	Version  string `json:"version"` // of Tool
	RunID    string `json:"run_id"`  // name of the run's directory
	Run      uint64 `json:"run,string"`
	Arm      string `json:"arm"`
	ArmIndex int    `json:"arm_index"` // place of the arm in its scenario, from 0
	Repeat   int    `json:"repeat"`
	Host     string `json:"host"` // as topo.Fabric.HostName has it
	Scenario string `json:"scenario"`
	Workload string `json:"workload"` // fingerprint: equal where the same was asked of the cluster
	// Seed of the repeat, which with a flow's number tells its path (workloads.FlowHash).
	Seed uint64 `json:"seed,string,omitempty"`
	// Policies are the arm's, by role, such as "coflow": "sebf".
	Policies map[string]string `json:"policies,omitempty"`
	// Holds tells that the arm's coflow policy sets ceilings: a flow that sends
	// nothing while nothing of it is under way waits for the policy, and not for
	// its host.
	Holds bool `json:"holds,omitempty"`
	// Fabric is what the captured hosts are joined by; nil where it is not stated.
	Fabric *topo.LeafSpine `json:"fabric,omitempty"`
}

// Equal tells whether m and o say the same.
func (m Meta) Equal(o Meta) bool { return reflect.DeepEqual(m, o) }

// comment is m as a section comment, whose length pcapng counts in 16 bits.
func (m Meta) comment() (string, error) {
	b, err := json.Marshal(m)
	if err != nil {
		return "", fmt.Errorf("pcapng: encode what the capture is of: %w", err)
	}
	if len(b) > math.MaxUint16 {
		return "", fmt.Errorf("pcapng: what the capture is of takes %d bytes: at most %d fit into a section comment; shorten the names of arm and scenario", len(b), math.MaxUint16)
	}
	return string(b), nil
}

// Stats is what the kernel counted while it captured.
type Stats struct {
	Received uint64 // packets that passed the capture's filter
	Dropped  uint64 // of them, those lost for want of buffer
}
