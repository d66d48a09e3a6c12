package external

import (
	"errors"
	"math/rand/v2"
	"strconv"
	"time"

	"testbed/policies"
	"testbed/topo"
	"testbed/workloads"
)

// Placer is a placement policy that a process implements.
type Placer struct {
	Policy
	decisions
	answer  []byte // the newest
	latency time.Duration
}

// Placement returns a placement policy before its conversation.
func Placement(s Settings) *Placer {
	p := &Placer{Policy: Policy{Settings: s, role: "placement"}}
	p.p = &p.Policy
	return p
}

// placed is a decision of a process: hosts, or the reason why there are none.
type placed struct {
	reply
	Hosts []topo.HostID `json:"hosts"`
	Error string        `json:"error"`
}

// Place implements policies.Placer. The process gets a seed from rng.
func (p *Placer) Place(v *policies.PlacementView, b workloads.Block, rng *rand.Rand) ([]topo.HostID, error) {
	var got placed
	var err error
	p.answer, p.latency, err = p.decide(
		func(line []byte) []byte { return append(p.appendPlace(line, v, b, rng), '}', '\n') },
		func(line []byte) (bool, error) { return p.parse(line, "placement", "place", &got, &got.reply) })
	if err != nil {
		return nil, policies.OutsideError{Err: err}
	}
	if got.Error != "" {
		return nil, errors.New(got.Error)
	}
	return got.Hosts, nil
}

// Answered implements policies.Answered.
func (p *Placer) Answered() ([]byte, time.Duration) { return p.answer, p.latency }

// appendPlace appends the message "place" but its last brace. Numbers that are 0 are left out.
func (p *Placer) appendPlace(b []byte, v *policies.PlacementView, block workloads.Block, rng *rand.Rand) []byte {
	const exact = 53 // bits of a number that every language has
	b = p.begin(b, "place", v.Cluster)
	b = strconv.AppendInt(append(b, `,"block":{"id":`...), int64(block.ID), 10)
	b = number(b, `,"client":`, int64(block.Client))
	b = number(b, `,"size":`, int64(block.Size))
	b = number(b, `,"replicas":`, int64(block.Replicas))
	b = append(b, '}')
	b = number(b, `,"largest_block":`, int64(v.LargestBlock))
	b = number(b, `,"seed":`, int64(rng.Uint64()>>(64-exact)))
	b = appendCluster(b, v.Cluster, p.Needs())
	if len(v.Placements) == 0 {
		return b
	}
	return list(b, `,"placements":[`, v.Placements, func(b []byte, x *policies.Placement) []byte {
		b = strconv.AppendInt(append(b, `{"at":`...), int64(x.At), 10)
		b = number(b, `,"client":`, int64(x.Client))
		b = number(b, `,"size":`, int64(x.Size))
		return append(numbers(b, `,"hosts":[`, x.Hosts), '}')
	})
}

// appendCluster appends what the master knows of hosts and racks, as columns. Those whose numbers are all 0 are left out.
func appendCluster(b []byte, c *policies.Cluster, needs policies.Facts) []byte {
	host := func(key string, of func(*policies.HostState) int64) { b = values(b, key, c.Hosts, of) }
	host(`,"lost":[`, func(h *policies.HostState) int64 { return flag(h.Lost) })
	host(`,"disk":[`, func(h *policies.HostState) int64 { return int64(h.Disk) })
	b = number(b, `,"disk_rate":`, int64(c.DiskRate))
	b = numbers(b, `,"zone":[`, c.Zone)
	if needs.Has(policies.DiskUse) {
		host(`,"used":[`, func(h *policies.HostState) int64 { return int64(h.Used) })
		host(`,"writing":[`, func(h *policies.HostState) int64 { return int64(h.Writing) })
	}
	if !needs.Has(policies.LinkLoad) {
		return b
	}
	host(`,"rx":[`, func(h *policies.HostState) int64 { return int64(h.Rx) })
	host(`,"tx":[`, func(h *policies.HostState) int64 { return int64(h.Tx) })
	host(`,"last_report":[`, func(h *policies.HostState) int64 { return int64(h.LastReport) })
	host(`,"next_report":[`, func(h *policies.HostState) int64 { return int64(h.NextReport) })
	rack := func(key string, of func(*policies.RackState) int64) { b = values(b, key, c.Racks, of) }
	rack(`,"rack_rx":[`, func(r *policies.RackState) int64 { return int64(r.Rx) })
	rack(`,"rack_tx":[`, func(r *policies.RackState) int64 { return int64(r.Tx) })
	rack(`,"rack_received":[`, func(r *policies.RackState) int64 { return int64(r.Received) })
	rack(`,"rack_sent":[`, func(r *policies.RackState) int64 { return int64(r.Sent) })
	return b
}

// values appends a key and a number of each element, unless all are 0.
func values[E any](b []byte, key string, of []E, number func(*E) int64) []byte {
	all := make([]int64, len(of))
	for i := range of {
		all[i] = number(&of[i])
	}
	return numbers(b, key, all)
}
