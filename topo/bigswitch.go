package topo

import (
	"fmt"
	"time"

	"testbed/topo/units"
)

// MaxBigSwitch is the maximum number of hosts of a BigSwitch.
const MaxBigSwitch = 1_000_000

// BigSwitch returns a non-blocking switch with any number of hosts, all with links of the
// same rate: the network model of the coflow literature. It is for simulation only: with
// more hosts than MaxHostsPerLeaf its hosts have no addresses, and its shape builds no
// fabric.
func BigSwitch(hosts int, link units.Rate) (*Fabric, error) {
	if hosts < 1 || hosts > MaxBigSwitch {
		return nil, fmt.Errorf("big switch: %d hosts: must be 1 to %d", hosts, MaxBigSwitch)
	}
	if link <= 0 {
		return nil, fmt.Errorf("big switch: link rate %v: must be positive", link)
	}
	return LeafSpine{Leaves: 1, HostsPerLeaf: hosts, HostLink: link, Queue: Queue{Time: time.Millisecond}, MTU: 1500}.build()
}
