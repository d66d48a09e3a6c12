package ports

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"testbed/policies"
	"testbed/policies/coflow/coflowtest"
	"testbed/topo"
)

// contentions64, contentionsAny and a comparison of all pairs agree.
func TestContentions(t *testing.T) {
	const hosts = 6
	f := coflowtest.EightMillis(t, hosts)
	rapid.Check(t, func(t *rapid.T) {
		var coflows [][]coflowtest.Flow
		var group []int
		for range rapid.IntRange(1, 64).Draw(t, "coflows") {
			var flows []coflowtest.Flow
			for range rapid.IntRange(1, 4).Draw(t, "flows") {
				src := rapid.IntRange(0, hosts-1).Draw(t, "src")
				flows = append(flows, coflowtest.Flow{topo.HostID(src), topo.HostID((src + rapid.IntRange(1, hosts-1).Draw(t, "to")) % hosts), 1})
			}
			coflows, group = append(coflows, flows), append(group, rapid.IntRange(-1, 2).Draw(t, "group"))
		}
		v := coflowtest.View(f, coflows...)
		want := make([]int, len(group))
		for i, a := range coflows {
			for j, b := range coflows {
				if i != j && group[i] >= 0 && group[i] == group[j] && meet(a, b) {
					want[i]++
				}
			}
		}
		var s policies.Schedule
		for name, count := range map[string]func(*policies.CoflowView, *policies.Schedule, []int) []int{"few": contentions64, "many": contentionsAny} {
			if d := cmp.Diff(want, count(v, &s, group)); d != "" {
				t.Errorf("%s (-want +got):\n%s", name, d)
			}
		}
	})
}

// meet reports whether two coflows share a port.
func meet(a, b []coflowtest.Flow) bool {
	for _, x := range a {
		for _, y := range b {
			if x.Src == y.Src || x.Dst == y.Dst {
				return true
			}
		}
	}
	return false
}
