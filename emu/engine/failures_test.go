package engine

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"testbed/policies"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// onHosts places the replicas of every block on the first hosts of a list that are not lost
// and have room, or fails.
func onHosts(list ...topo.HostID) placeFunc {
	return func(v *policies.PlacementView, b workloads.Block, _ *rand.Rand) (out []topo.HostID, err error) {
		for _, h := range list {
			if s := v.Hosts[h]; !s.Lost && (s.Disk == 0 || s.Disk-s.Used >= b.Size) && len(out) < b.Replicas {
				out = append(out, h)
			}
		}
		if len(out) < b.Replicas {
			return nil, errors.New("too few hosts")
		}
		return out, nil
	}
}

func block(id workloads.BlockID, client topo.HostID, replicas int) workloads.Block {
	return workloads.Block{ID: id, Client: client, Size: 1000, Replicas: replicas, Packet: 100, Window: 2}
}

func writerOf(blocks ...workloads.Block) WriterArrived {
	return WriterArrived{workloads.Writer{ID: workloads.WriterID(blocks[0].ID), Client: blocks[0].Client, Blocks: blocks}}
}

// Policies see the current capacities of links and the current paths of flows.
func TestLinkAndPathChanges(t *testing.T) {
	f := must(topo.LeafSpine{Leaves: 2, Spines: 2, HostsPerLeaf: 2, HostLink: 10 * units.Mbps, Oversubscription: units.Ratio{Num: 1, Den: 1},
		Queue: topo.Queue{Time: time.Millisecond}, MTU: 1500}.Build())
	type view struct {
		capacity []units.Rate
		path     []topo.LinkID // of flow 0
	}
	var views []view
	c := Config{Fabric: f, Heartbeat: time.Second, Alpha: 0.2, Stuck: time.Second,
		Coflow: scheduler{needs: visible | policies.Flows, triggers: policies.Triggers{Coflows: true}, f: func(v *policies.CoflowView, s *policies.Schedule) {
			views = append(views, view{slices.Clone(v.Capacity), slices.Clone(v.Coflows[0].Flows[0].Path)})
			free(v, s)
		}}}
	e := newEngine(t, c)
	step(t, e, 0, coflowOf(1, workloads.Flow{ID: 0, Src: 0, Dst: 2, Size: 100}, workloads.Flow{ID: 1, Src: 0, Dst: 1, Size: 100}))
	path := slices.Clone(views[0].path)
	cut := path[1]
	other := 1 - f.Link(cut).Spine
	step(t, e, 1, LinkChanged{cut, 0})
	step(t, e, 2, PathChanged{Flow: 0, Spine: other})
	if views[0].capacity[cut] == 0 || views[1].capacity[cut] != 0 {
		t.Errorf("capacities %v and %v of the link that was cut", views[0].capacity[cut], views[1].capacity[cut])
	}
	want := []topo.LinkID{f.HostUp(0), f.LeafUp(0, other), f.LeafDown(1, other), f.HostDown(2)}
	if d := cmp.Diff(want, views[2].path); d != "" {
		t.Errorf("new path (-want +got):\n%s", d)
	}
	if d := cmp.Diff(path, views[1].path); d != "" {
		t.Errorf("the path of an older view changed (-was +is):\n%s", d)
	}
	// It has a path, so it does not fail.
	if got := step(t, e, 5*time.Second, Heartbeat{Host: 1}); len(got) != 0 {
		t.Errorf("commands %v", got)
	}
	for _, tt := range []struct {
		ev   Event
		want string
	}{
		{PathChanged{0, 2}, "a spine of the fabric"}, {PathChanged{0, -1}, "a spine of the fabric"}, {PathChanged{1, 0}, "between racks"},
		{LinkChanged{-1, 0}, "a link of the fabric"}, {LinkChanged{topo.LinkID(len(f.Links())), 0}, "a link of the fabric"}, {LinkChanged{0, -1}, "0 or more"},
		{HostLost{-1}, "unknown host"}, {HostLost{4}, "unknown host"}, {HostBack{Host: 4}, "unknown host"}, {BlockFailed{3, ""}, "not being written"},
	} {
		bad := newEngine(t, c)
		step(t, bad, 0, coflowOf(1, workloads.Flow{ID: 0, Src: 0, Dst: 2, Size: 100}, workloads.Flow{ID: 1, Src: 0, Dst: 1, Size: 100}))
		if _, err := bad.Step(1, tt.ev); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: error %v, want one that contains %q", tt.ev, err, tt.want)
		}
	}
	if got := step(t, e, 6*time.Second, PathChanged{99, 0}); len(got) != 0 {
		t.Errorf("a path of a flow that has ended: %v", got)
	}
}

// A replica that a full host rejects is a failure with this reason.
func TestFullHostIsAFailure(t *testing.T) {
	e := newEngine(t, testConfig(t, always(free), onHosts(0, 1, 2, 3)))
	step(t, e, 0, writerOf(block(1, 0, 2)))
	full := ReplicaLost{Block: 1, Host: 1, Full: true}
	if got := Failures(1, []Event{full}, step(t, e, 1, full)); len(got) != 1 || got[0].Kind != ReplicaFailure || got[0].Why != WhyFull {
		t.Errorf("failures %+v", got)
	}
}
