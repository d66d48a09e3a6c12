package policytest

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"pgregory.net/rapid"

	"testbed/emu/engine"
	"testbed/policies"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// Cluster is a small cluster with the engine. Its coflows arrive, send and end without a network: events do not depend
// on the schedules.
type Cluster struct {
	config  engine.Config
	now     time.Duration
	coming  []workloads.Coflow // not arrived, in order of arrival
	arrive  int                // number of these that arrive next
	rounds  int                // number of moments after the next one
	faulty  bool
	random  *rand.Rand
	lost    []bool // by host
	running []*transfer
}

// transfer is a flow that has started and not ended.
type transfer struct {
	workloads.Flow
	sent units.Bytes
}

// Clusters generates random clusters: small leaf-spine fabrics, some with links that are down and hosts that are lost
// and come back, and up to six coflows, whose IDs have gaps and are not in order of arrival.
func Clusters() *rapid.Generator[*Cluster] {
	return rapid.Custom(func(t *rapid.T) *Cluster {
		v := baseCluster(t)
		c := &Cluster{
			now: v.Now, rounds: rapid.IntRange(0, 3).Draw(t, "rounds"), lost: make([]bool, v.Fabric.Hosts()),
			faulty: slices.Contains(v.Capacity, 0) || rapid.IntRange(0, 3).Draw(t, "hosts lost") == 0,
			random: rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "random"), 1)),
		}
		c.config = engine.Config{
			Fabric: v.Fabric, Capacity: v.Capacity, DiskRate: v.DiskRate, DiskSize: disk,
			Heartbeat: time.Second, Alpha: 0.2, Seed: c.random.Uint64(),
		}
		ids := rapid.Permutation([]int{0, 1, 2, 3, 4, 5, 6}).Draw(t, "IDs")
		for i := range rapid.IntRange(1, 6).Draw(t, "coflows") {
			c.coming = append(c.coming, drawCoflow(t, v.Fabric, ids[i]))
		}
		c.arrive = rapid.IntRange(1, len(c.coming)).Draw(t, "at first")
		return c
	})
}

const disk = 1000 * units.GB // of a host

func drawCoflow(t *rapid.T, f *topo.Fabric, id int) workloads.Coflow {
	c := workloads.Coflow{ID: workloads.CoflowID(id)}
	for j := range rapid.IntRange(1, 11).Draw(t, "flows") {
		src := topo.HostID(rapid.IntRange(0, f.Hosts()-1).Draw(t, "src"))
		dst := topo.HostID(rapid.IntRange(0, f.Hosts()-2).Draw(t, "dst"))
		if dst >= src {
			dst++
		}
		c.Flows = append(c.Flows, workloads.Flow{ID: workloads.FlowID(100*id + 2*j), Src: src, Dst: dst, Size: sizes().Draw(t, "size")})
	}
	return c
}

// coflowPolicy is a policy whose instance calls a function.
type coflowPolicy struct {
	needs     policies.Facts
	triggers  policies.Triggers
	unlimited bool
	decide    func(*policies.CoflowView, *policies.Schedule)
}

func (p coflowPolicy) Needs() policies.Facts                                 { return p.needs }
func (p coflowPolicy) Triggers() policies.Triggers                           { return p.triggers }
func (p coflowPolicy) Unlimited() bool                                       { return p.unlimited }
func (p coflowPolicy) New() policies.CoflowInstance                          { return p }
func (p coflowPolicy) Decide(v *policies.CoflowView, out *policies.Schedule) { p.decide(v, out) }

// Run lets a new instance of a policy decide at every moment of the cluster, which it uses up. It passes each decision
// to watch: the View, the same View with other facts, both as engines show them, and the schedule.
func (c *Cluster) Run(s policies.CoflowScheduler, facts policies.Facts, watch func(v, other *policies.CoflowView, s *policies.Schedule) error) error {
	var seen, other *policies.CoflowView
	var taken *policies.Schedule
	x := s.New()
	decides := coflowPolicy{s.Needs(), s.Triggers(), policies.IsUnlimited(s), func(v *policies.CoflowView, out *policies.Schedule) {
		seen = clone(v)
		x.Decide(v, out)
		taken = out
	}}
	sees := coflowPolicy{facts, decides.triggers, false, func(v *policies.CoflowView, out *policies.Schedule) {
		other = clone(v)
		out.Queues, out.Pilots = append(out.Queues, taken.Queues...), append(out.Pilots, taken.Pilots...)
	}}
	both := []coflowPolicy{decides, sees}
	if facts == decides.needs {
		both = both[:1]
	}
	var engines []*engine.Engine
	for _, p := range both {
		c.config.Coflow = p
		e, err := engine.New(c.config)
		if err != nil {
			return err
		}
		engines = append(engines, e)
	}
	for decision := 1; ; c.rounds-- {
		evs := c.events()
		seen = nil
		cmds, err := engines[0].Step(c.now, evs...)
		if err == nil && len(engines) > 1 {
			_, err = engines[1].Step(c.now, evs...)
		}
		if err == nil && seen != nil {
			err = watch(seen, cmp.Or(other, seen), taken)
			decision++
		}
		if err != nil {
			return fmt.Errorf("decision %d: %w", decision, err)
		}
		if c.rounds == 0 {
			return nil
		}
		c.do(cmds)
		c.now += time.Duration(c.random.Int64N(3e9))
		c.arrive = c.random.IntN(len(c.coming) + 1)
	}
}

// events returns what has happened up to the current moment: hosts have reported, flows have sent and some have ended,
// coflows have arrived, hosts are lost or back. A link has changed, so that every policy decides.
func (c *Cluster) events() (evs []engine.Event) {
	f, bytes := c.config.Fabric, func(most units.Bytes) units.Bytes { return units.Bytes(c.random.Int64N(int64(most) + 1)) }
	for h := range c.lost {
		if c.random.IntN(2) == 0 {
			evs = append(evs, engine.Heartbeat{
				Host: topo.HostID(h), Rx: bytes(units.GB), Tx: bytes(units.GB), Disk: &engine.DiskReport{Used: bytes(disk)},
			})
		}
	}
	if h := c.random.IntN(len(c.lost)); c.faulty && len(c.running) > 0 && c.random.IntN(2) == 0 {
		if c.lost[h] {
			evs = append(evs, engine.HostBack{Host: topo.HostID(h)})
		} else {
			evs = append(evs, engine.HostLost{Host: topo.HostID(h)})
		}
		c.lost[h] = !c.lost[h]
	}
	c.running = slices.DeleteFunc(c.running, func(x *transfer) bool {
		ends := c.random.IntN(4)
		switch ends {
		case 0:
			evs = append(evs, engine.TransferFinished{Flow: x.ID})
		case 1:
			x.sent += bytes(x.Size - x.sent) // possibly all, before its end is known
			evs = append(evs, engine.TransferProgressed{Flows: []workloads.FlowID{x.ID}, Received: []units.Bytes{x.sent}})
		}
		return ends == 0
	})
	for _, x := range c.coming[:c.arrive] {
		evs = append(evs, engine.CoflowArrived{Coflow: x})
	}
	c.coming = c.coming[c.arrive:]
	l := topo.LinkID(c.random.IntN(len(f.Links())))
	rate := f.Link(l).Rate
	if rate -= rate / units.Rate(2+c.random.IntN(15)); c.faulty && c.random.IntN(6) == 0 {
		rate = 0
	}
	return append(evs, engine.LinkChanged{Link: l, Rate: rate})
}

// do starts and stops flows.
func (c *Cluster) do(cmds []engine.Command) {
	for _, cmd := range cmds {
		switch cmd := cmd.(type) {
		case engine.StartTransfer:
			c.running = append(c.running, &transfer{Flow: cmd.Flow})
		case engine.StopTransfer:
			c.running = slices.DeleteFunc(c.running, func(x *transfer) bool { return x.ID == cmd.Flow })
		}
	}
}
