package metrics

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"testbed/results/flows"
	"testbed/topo/units"
	"testbed/workloads"
)

func TestSizeBins(t *testing.T) {
	r := flows.Records{Coflows: []flows.CoflowRecord{
		{Coflow: 1, Width: 7, Size: 100 * units.MiB}, {Coflow: 2, Width: 7, Size: 100*units.MiB + 1},
		{Coflow: 3, Width: 8, Size: 100 * units.MiB}, {Coflow: 4, Width: 8, Size: 100*units.MiB + 1},
	}}
	want := map[workloads.CoflowID]SizeBin{1: SmallThin, 2: LargeThin, 3: SmallWide, 4: LargeWide}
	if diff := cmp.Diff(want, DefaultSizeBins().Of(r)); diff != "" {
		t.Errorf("bins (-want +got):\n%s", diff)
	}
	if got := LargeWide.String() + ", " + SmallThin.String(); got != "large wide, small thin" {
		t.Errorf("names %q", got)
	}
}
