package pcap

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"time"

	"testbed/topo"
	"testbed/topo/units"
)

// Meta describes the run, arm, repeat and host of a capture. It is stored as JSON in the
// comment of the file's section header, so that a report needs only the files of a run:
// they state the arms, their order, and the repeat and host of each file.
type Meta struct {
	Tool     string `json:"tool"`    // the program that wrote the file
	Version  string `json:"version"` // of Tool
	RunID    string `json:"run_id"`  // name of the run's directory
	Run      uint64 `json:"run,string"`
	Arm      string `json:"arm"`
	ArmIndex int    `json:"arm_index"` // index of the arm in its scenario, from 0
	Repeat   int    `json:"repeat"`
	Host     string `json:"host"` // as returned by topo.Fabric.HostName
	Scenario string `json:"scenario"`
	Workload string `json:"workload"` // fingerprint: equal for equal workloads
	// Seed of the repeat. With a flow's number it determines the path (workloads.FlowHash) if the
	// flow's header does not carry its hash.
	Seed uint64 `json:"seed,string,omitempty"`
	// Policies are the names of the arm's policies by role, such as "coflow": "sebf".
	Policies map[string]string `json:"policies,omitempty"`
	// Holds reports whether the arm's coflow policy sets rate caps: a flow that has
	// nothing in flight and sends nothing then waits for the policy, not for its host.
	Holds bool `json:"holds,omitempty"`
	// Cluster is nil in captures of older versions.
	Cluster *Cluster `json:"cluster,omitempty"`
	// Fabric is the fabric that connects the captured hosts; nil if not stated.
	Fabric *topo.LeafSpine `json:"fabric,omitempty"`
	// Buckets are the sizes of the links' token buckets by their rate; nil in captures of older versions.
	Buckets map[units.Rate]units.Bytes `json:"buckets,omitempty"`
}

// Cluster is what figures need to know about the hosts.
type Cluster struct {
	Heartbeat time.Duration `json:"heartbeat_ns"`
	DiskRate  units.Rate    `json:"disk_rate,omitempty"` // write rate of each of a host's disks; 0: disks are never the bottleneck
	DiskSize  units.Bytes   `json:"disk_size,omitempty"` // total size of a host's disks; 0: disks are never full
	// MapSlots and ReduceSlots are the slots of each host for attempts of tasks.
	MapSlots    int `json:"map_slots,omitempty"`
	ReduceSlots int `json:"reduce_slots,omitempty"`
}

// Equal reports whether m and o have the same content.
func (m Meta) Equal(o Meta) bool { return reflect.DeepEqual(m, o) }

// comment returns m as a section comment, whose length pcapng limits to 16 bits.
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

// Stats are the kernel's packet counts during the capture.
type Stats struct {
	Received uint64 // packets that passed the capture's filter
	Dropped  uint64 // packets of Received that were lost because the buffer was full
}
