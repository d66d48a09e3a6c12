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

// Cluster is a small cluster with the engine. Its coflows arrive, send and end without a network, and its blocks are
// written: events do not depend on the schedules.
type Cluster struct {
	config  engine.Config
	now     time.Duration
	coming  []workloads.Coflow // not arrived, in order of arrival
	arrive  int                // number of these that arrive next
	writers []workloads.Writer // not arrived, in order of arrival; ignored without a placement policy
	rounds  int                // number of moments after the next one
	faulty  bool

	random  *rand.Rand
	load    []units.Rate // of each link all the time
	lost    []bool       // by host
	running []*transfer
	writing []engine.StartChain
}

// transfer is a flow that has started and not ended.
type transfer struct {
	workloads.Flow
	sent units.Bytes
}

// Clusters generates random clusters: small leaf-spine fabrics, some with links that are down and hosts that are lost
// and come back, with zones, or with disks on which a block may fit nowhere. They have up to six coflows, whose IDs
// have gaps and are not in order of arrival, and up to eight writers of blocks.
func Clusters() *rapid.Generator[*Cluster] {
	return rapid.Custom(func(t *rapid.T) *Cluster {
		v := baseCluster(t)
		c := &Cluster{
			now: v.Now, rounds: rapid.IntRange(1, 3).Draw(t, "rounds"),
			faulty: slices.Contains(v.Capacity, 0) || rapid.IntRange(0, 3).Draw(t, "hosts lost") == 0,
		}
		c.config = engine.Config{
			Fabric: v.Fabric, Capacity: v.Capacity, DiskRate: v.DiskRate,
			DiskSize:  rapid.SampledFrom([]units.Bytes{0, 1000 * units.GB, 1000 * units.GB, 3 * units.GB}).Draw(t, "disk"),
			Heartbeat: time.Second, Alpha: 0.2, Seed: rapid.Uint64().Draw(t, "random"),
		}
		if zones := rapid.IntRange(0, 3).Draw(t, "zones"); zones > 0 {
			c.config.Zone = rapid.SliceOfN(rapid.IntRange(0, zones-1), v.Fabric.Racks(), v.Fabric.Racks()).Draw(t, "zone")
		}
		ids := rapid.Permutation([]int{0, 1, 2, 3, 4, 5, 6}).Draw(t, "IDs")
		for i := range rapid.IntRange(1, 6).Draw(t, "coflows") {
			c.coming = append(c.coming, drawCoflow(t, v.Fabric, ids[i]))
		}
		c.arrive = rapid.IntRange(1, len(c.coming)).Draw(t, "at first")
		for i := range rapid.IntRange(1, 8).Draw(t, "writers") {
			c.writers = append(c.writers, drawWriter(t, v.Fabric, i))
		}
		return c
	})
}

func drawWriter(t *rapid.T, f *topo.Fabric, id int) workloads.Writer {
	w := workloads.Writer{ID: workloads.WriterID(id)}
	client := topo.HostID(rapid.IntRange(0, f.Hosts()-1).Draw(t, "client"))
	for i := range rapid.IntRange(1, 4).Draw(t, "blocks") {
		w.Blocks = append(w.Blocks, workloads.Block{
			ID: workloads.BlockID(10*id + i), Writer: w.ID, Client: client, Packet: 64 * units.KB, Window: 80,
			Size:     rapid.SampledFrom([]units.Bytes{1, units.MB, 100 * units.MB, units.GB}).Draw(t, "block size"),
			Replicas: rapid.IntRange(1, min(4, f.Hosts())).Draw(t, "replicas"),
		})
	}
	return w
}

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

// Run lets a new instance of a policy decide at every moment of the cluster. It passes each decision to watch: the
// View, the same View with other facts, both as engines show them, and the schedule.
func (c Cluster) Run(s policies.CoflowScheduler, facts policies.Facts,
	watch func(v, other *policies.CoflowView, s *policies.Schedule) error) error {
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
	c.random, c.lost = rand.New(rand.NewPCG(c.config.Seed, 1)), make([]bool, c.config.Fabric.Hosts())
	for _, r := range c.config.Capacity {
		c.load = append(c.load, units.Rate(c.random.Int64N(int64(r)+1)))
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
		if wake := engines[0].NextWake(); c.rounds == 1 && wake < engine.NextNever { // blocks that wait are placed at last
			c.now = max(c.now, wake)
		}
	}
}

// events returns what has happened up to the current moment: hosts and leaves have reported, hosts are lost or back,
// blocks are durable, flows have sent and some have ended, writers and coflows have arrived. A link has changed, so
// that every policy decides.
func (c *Cluster) events() (evs []engine.Event) {
	f, bytes := c.config.Fabric, func(most units.Bytes) units.Bytes { return units.Bytes(c.random.Int64N(int64(most) + 1)) }
	sent := func(l topo.LinkID) units.Bytes { return c.load[l].BytesIn(c.now) }
	evs = append(evs, engine.LinkLoads{Rates: c.load})
	for r := range topo.RackID(f.Racks()) {
		if engine.LeavesReport(f) && c.random.IntN(2) == 0 {
			evs = append(evs, engine.RackReport{Rack: r, Rx: sent(f.LeafDown(r, 0)), Tx: sent(f.LeafUp(r, 0))})
		}
	}
	for h := range topo.HostID(len(c.lost)) {
		if c.random.IntN(2) == 0 {
			report := &engine.DiskReport{Used: bytes(c.config.DiskSize)}
			for _, w := range c.writing {
				if slices.Contains(w.Targets, h) {
					report.Writing = append(report.Writing, w.Block.ID)
				}
			}
			evs = append(evs, engine.Heartbeat{Host: h, Rx: sent(f.HostDown(h)), Tx: sent(f.HostUp(h)), Disk: report})
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
	for len(c.writing) > 0 && c.random.IntN(3) > 0 {
		evs = append(evs, engine.BlockDurable{Block: c.writing[0].Block.ID})
		c.writing = c.writing[1:]
	}
	for c.config.Placement != nil && len(c.writers) > 0 && c.random.IntN(3) > 0 {
		evs = append(evs, engine.WriterArrived{Writer: c.writers[0]})
		c.writers = c.writers[1:]
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

// do starts and stops flows and writes of blocks.
func (c *Cluster) do(cmds []engine.Command) {
	for _, cmd := range cmds {
		switch cmd := cmd.(type) {
		case engine.StartTransfer:
			c.running = append(c.running, &transfer{Flow: cmd.Flow})
		case engine.StopTransfer:
			c.running = slices.DeleteFunc(c.running, func(x *transfer) bool { return x.ID == cmd.Flow })
		case engine.StartChain:
			c.writing = append(c.writing, cmd)
		case engine.StopChain:
			c.writing = slices.DeleteFunc(c.writing, func(w engine.StartChain) bool { return w.Block.ID == cmd.Block })
		}
	}
}
