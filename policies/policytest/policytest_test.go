package policytest

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"testbed/policies"
	"testbed/topo"
	"testbed/workloads"
)

// allocator is a coflow policy made of a function.
type allocator struct {
	needs policies.Knowledge
	f     func(*policies.View) []policies.Grant
}

func (a *allocator) Needs() policies.Knowledge                  { return a.needs }
func (a *allocator) Allocate(v *policies.View) []policies.Grant { return a.f(v) }

// placer is a placement policy made of a function.
type placer struct {
	needs policies.Knowledge
	f     func(*policies.View, workloads.Block, *rand.Rand) ([]topo.HostID, error)
}

func (p *placer) Needs() policies.Knowledge { return p.needs }
func (p *placer) Place(v *policies.View, b workloads.Block, rng *rand.Rand) ([]topo.HostID, error) {
	return p.f(v, b, rng)
}

// each calls do with every flow of the View, in order.
func each(v *policies.View, do func(*policies.CoflowState, *policies.FlowState)) {
	for i := range v.Coflows {
		for j := range v.Coflows[i].Flows {
			do(&v.Coflows[i], &v.Coflows[i].Flows[j])
		}
	}
}

// grantAll grants every flow what ceiling says.
func grantAll(ceiling func(*policies.View, *policies.FlowState) policies.Grant) func(*policies.View) []policies.Grant {
	return func(v *policies.View) (out []policies.Grant) {
		each(v, func(_ *policies.CoflowState, f *policies.FlowState) { out = append(out, ceiling(v, f)) })
		return out
	}
}

func free(_ *policies.View, f *policies.FlowState) policies.Grant {
	return policies.Grant{Flow: f.ID, Ceiling: policies.NoLimit}
}

func TestGoodAllocatorPasses(t *testing.T) {
	Allocator(t, &allocator{f: grantAll(free)})
	Allocator(t, &allocator{f: func(*policies.View) []policies.Grant { return nil }})
}

func TestBadAllocatorsAreCaught(t *testing.T) {
	calls := 0
	var kept []policies.Grant
	var last *topo.Fabric
	for _, tt := range []struct {
		name   string
		policy *allocator
		want   string // in the error; empty where luck decides which check it meets
	}{
		{"writes a capacity", &allocator{f: func(v *policies.View) []policies.Grant {
			v.Capacity[0]--
			return grantAll(free)(v)
		}}, "wrote to the View"},
		{"sorts the coflows in place", &allocator{f: func(v *policies.View) []policies.Grant {
			for i, j := 0, len(v.Coflows)-1; i < j; i, j = i+1, j-1 {
				v.Coflows[i], v.Coflows[j] = v.Coflows[j], v.Coflows[i]
			}
			return nil
		}}, "wrote to the View"},
		{"overfills", &allocator{f: grantAll(func(v *policies.View, f *policies.FlowState) policies.Grant {
			return policies.Grant{Flow: f.ID, Ceiling: v.Capacity[f.Path[0]]}
		})}, "overfill link"},
		{"wraps the sum", &allocator{f: grantAll(func(v *policies.View, f *policies.FlowState) policies.Grant {
			return policies.Grant{Flow: f.ID, Ceiling: policies.NoLimit - 1}
		})}, "overfill link"},
		{"negative", &allocator{f: grantAll(func(v *policies.View, f *policies.FlowState) policies.Grant {
			return policies.Grant{Flow: f.ID, Ceiling: -1}
		})}, "want 0 or more"},
		{"counts its calls", &allocator{f: func(v *policies.View) []policies.Grant {
			if calls++; calls%2 == 0 {
				return nil
			}
			return grantAll(free)(v)
		}}, "asked twice"},
		{"keeps its answer", &allocator{f: func(v *policies.View) []policies.Grant {
			if kept == nil || last != v.Fabric {
				kept, last = grantAll(free)(v), v.Fabric
			}
			return kept
		}}, "asked twice"},
		{"remembers the View before", func() *allocator {
			var before, now *topo.Fabric
			return &allocator{f: func(v *policies.View) []policies.Grant {
				if v.Fabric != now {
					before, now = now, v.Fabric
				}
				if before != nil && before.Hosts() > v.Fabric.Hosts() {
					return nil
				}
				return grantAll(free)(v)
			}}
		}(), "remembers another View"},
		{"draws from a global source", &allocator{f: func(v *policies.View) []policies.Grant {
			if rand.IntN(2) == 0 {
				return nil
			}
			return grantAll(free)(v)
		}}, ""},
		{"clairvoyant in secret", &allocator{f: func(v *policies.View) (out []policies.Grant) {
			each(v, func(_ *policies.CoflowState, f *policies.FlowState) {
				if f.Remaining < 1000 {
					out = append(out, policies.Grant{Flow: f.ID, Ceiling: policies.NoLimit})
				}
			})
			return out
		}}, "does not declare"},
		{"unknown flow", &allocator{f: func(*policies.View) []policies.Grant { return []policies.Grant{{Flow: 99999}} }}, "unknown or finished"},
		{"two grants", &allocator{f: func(v *policies.View) []policies.Grant {
			return append(grantAll(free)(v), grantAll(free)(v)...)
		}}, "two grants"},
		{"reads meaning into IDs", &allocator{f: func(v *policies.View) (out []policies.Grant) {
			each(v, func(_ *policies.CoflowState, f *policies.FlowState) {
				if f.ID%4 == 0 {
					out = append(out, policies.Grant{Flow: f.ID, Ceiling: policies.NoLimit})
				}
			})
			return out
		}}, "what the IDs are"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for seed := range 300 {
				err := CheckAllocator(tt.policy, allocatorView().Example(seed), allocatorView().Example(seed+1000))
				if err != nil {
					if !strings.Contains(err.Error(), tt.want) {
						t.Errorf("caught for %q, want %q", err, tt.want)
					}
					return
				}
			}
			t.Error("not caught")
		})
	}
}

// anyHosts places from the client on, over the hosts in order.
func anyHosts(v *policies.View, b workloads.Block, _ *rand.Rand) (out []topo.HostID, err error) {
	for i := range b.Replicas {
		out = append(out, topo.HostID((int(b.Client)+i)%len(v.Hosts)))
	}
	return out, nil
}

// roomy places on the first host that has room, the first of another rack, and
// then the first others.
func roomy(v *policies.View, b workloads.Block, _ *rand.Rand) (out []topo.HostID, err error) {
	for _, spread := range []bool{true, false} {
		for h := range topo.HostID(len(v.Hosts)) {
			s := v.Hosts[h]
			switch {
			case s.Lost || s.Disk != 0 && s.Disk-s.Used < b.Size || slices.Contains(out, h) || len(out) == b.Replicas:
			case spread && (len(out) > 1 || len(out) == 1 && v.Fabric.RackOf(h) == v.Fabric.RackOf(out[0])):
			default:
				out = append(out, h)
			}
		}
	}
	if len(out) < b.Replicas {
		return nil, errors.New("no room")
	}
	return out, nil
}

func TestGoodPlacerPasses(t *testing.T) {
	Placer(t, &placer{policies.DiskUse, roomy})
}

func TestBadPlacersAreCaught(t *testing.T) {
	calls := 0
	for _, tt := range []struct {
		name   string
		policy *placer
		want   string // in the error; empty where luck decides which check it meets
	}{
		{"writes to the hosts", &placer{policies.DiskUse, func(v *policies.View, b workloads.Block, rng *rand.Rand) ([]topo.HostID, error) {
			v.Hosts[0].Writing++
			return roomy(v, b, rng)
		}}, "wrote to the View"},
		{"writes to a placement", &placer{policies.DiskUse | policies.LinkLoad, func(v *policies.View, b workloads.Block, rng *rand.Rand) ([]topo.HostID, error) {
			for _, p := range v.Placements {
				p.Hosts[0] = 99
			}
			return roomy(v, b, rng)
		}}, "wrote to the View"},
		{"full disks", &placer{policies.DiskUse, func(v *policies.View, b workloads.Block, rng *rand.Rand) ([]topo.HostID, error) {
			empty := clone(v)
			for h := range empty.Hosts {
				empty.Hosts[h].Used = 0
			}
			return roomy(empty, b, rng)
		}}, "no room"},
		{"lost hosts", &placer{policies.DiskUse, func(v *policies.View, b workloads.Block, rng *rand.Rand) ([]topo.HostID, error) {
			there := clone(v)
			for h := range there.Hosts {
				there.Hosts[h].Lost = false
			}
			return roomy(there, b, rng)
		}}, "is lost"},
		{"one rack", &placer{0, anyHosts}, "in one rack"},
		{"same host twice", &placer{0, func(v *policies.View, b workloads.Block, rng *rand.Rand) ([]topo.HostID, error) {
			return make([]topo.HostID, b.Replicas), nil
		}}, "two replicas on host 0"},
		{"a stranger", &placer{0, func(v *policies.View, b workloads.Block, rng *rand.Rand) ([]topo.HostID, error) {
			hosts, err := roomy(v, b, rng)
			hosts[0] = topo.HostID(len(v.Hosts))
			return hosts, err
		}}, "want 0 to"},
		{"too few", &placer{0, func(v *policies.View, b workloads.Block, rng *rand.Rand) ([]topo.HostID, error) {
			return []topo.HostID{b.Client}, nil
		}}, "1 hosts"},
		{"gives up", &placer{policies.DiskUse, func(v *policies.View, b workloads.Block, rng *rand.Rand) ([]topo.HostID, error) {
			return nil, errors.New("tired")
		}}, "tired"},
		{"keeps count", &placer{0, func(v *policies.View, b workloads.Block, rng *rand.Rand) ([]topo.HostID, error) {
			hosts, err := roomy(v, b, rng)
			if calls++; calls%2 == 0 && len(hosts) > 1 {
				hosts[0], hosts[1] = hosts[1], hosts[0]
			}
			return hosts, err
		}}, "asked twice"},
		{"luck of its own", &placer{0, func(v *policies.View, b workloads.Block, rng *rand.Rand) ([]topo.HostID, error) {
			hosts, err := roomy(v, b, rng)
			rand.Shuffle(len(hosts), func(i, j int) { hosts[i], hosts[j] = hosts[j], hosts[i] })
			return hosts, err
		}}, ""},
		{"looks at loads in secret", &placer{policies.DiskUse, func(v *policies.View, b workloads.Block, rng *rand.Rand) ([]topo.HostID, error) {
			hosts, err := roomy(v, b, rng)
			if len(hosts) > 1 && v.Hosts[hosts[0]].Rx > v.Hosts[hosts[1]].Rx {
				hosts[0], hosts[1] = hosts[1], hosts[0]
			}
			return hosts, err
		}}, "does not declare"},
		{"reads meaning into the block's ID", &placer{policies.DiskUse, func(v *policies.View, b workloads.Block, rng *rand.Rand) ([]topo.HostID, error) {
			hosts, err := roomy(v, b, rng)
			if b.ID > 100 && len(hosts) > 1 {
				hosts[0], hosts[1] = hosts[1], hosts[0]
			}
			return hosts, err
		}}, "ID of the block"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for seed := range 300 {
				v := placerView().Example(seed)
				err := CheckPlacer(tt.policy, v, placerView().Example(seed+1000), blockFor(v).Example(seed), uint64(seed))
				if err != nil {
					if !strings.Contains(err.Error(), tt.want) {
						t.Errorf("caught for %q, want %q", err, tt.want)
					}
					return
				}
			}
			t.Error("not caught")
		})
	}
}
