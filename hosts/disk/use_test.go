package disk

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"testbed/topo/units"
	"testbed/workloads"
)

// Use reports each begun replica once, and on every call the replicas being written, except wiped
// ones.
func TestUse(t *testing.T) {
	d := open(t, Options{Rate: units.Gbps})
	ids := func(ids ...workloads.BlockID) []workloads.BlockID { return ids }
	want := func(when string, want Use) {
		t.Helper()
		if diff := cmp.Diff(want, d.Use()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
	}
	want("empty", Use{})
	a, b := create(t, d, 5, 1000), create(t, d, 2, 500)
	want("two begun", Use{Used: 1500, Writing: ids(2, 5), Begun: ids(5, 2)})
	c := create(t, d, 9, 10)
	if err := write(t.Context(), c, make([]byte, 10), 10); err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{c.Commit(), b.Abort()} {
		if err != nil {
			t.Fatal(err)
		}
	}
	want("one stored between, one dropped", Use{Used: 1010, Writing: ids(5), Begun: ids(9)})
	create(t, d, 2, 500)
	if err := d.Wipe(); err != nil {
		t.Fatal(err)
	}
	want("wiped", Use{Begun: ids(2)})
	if err := a.Abort(); err != nil {
		t.Fatal(err)
	}
	want("wiped, and its writer knows", Use{})
}
