package coflow

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"testbed/policies"
	"testbed/topo"
)

// Contention is the same counted for at most 64 coflows, for any number, and pair by
// pair.
func TestContentions(t *testing.T) {
	const hosts = 6
	f := eightMillis(t, hosts)
	rapid.Check(t, func(t *rapid.T) {
		var coflows [][]demandOf
		var group []int
		for range rapid.IntRange(1, 64).Draw(t, "coflows") {
			var flows []demandOf
			for range rapid.IntRange(1, 4).Draw(t, "flows") {
				src := rapid.IntRange(0, hosts-1).Draw(t, "src")
				flows = append(flows, demandOf{topo.HostID(src), topo.HostID((src + rapid.IntRange(1, hosts-1).Draw(t, "to")) % hosts), 1})
			}
			coflows, group = append(coflows, flows), append(group, rapid.IntRange(-1, 2).Draw(t, "group"))
		}
		v := view(f, coflows...)
		want := make([]int, len(group))
		for i, a := range coflows {
			for j, b := range coflows {
				if i != j && group[i] >= 0 && group[i] == group[j] && meet(a, b) {
					want[i]++
				}
			}
		}
		var s policies.Schedule
		for name, count := range map[string]func(*policies.View, *policies.Schedule, []int) []int{"few": fewContentions, "many": manyContentions} {
			if d := cmp.Diff(want, count(v, &s, group)); d != "" {
				t.Errorf("%s (-want +got):\n%s", name, d)
			}
		}
	})
}

// meet tells whether two coflows have a port in common.
func meet(a, b []demandOf) bool {
	for _, x := range a {
		for _, y := range b {
			if x.src == y.src || x.dst == y.dst {
				return true
			}
		}
	}
	return false
}
