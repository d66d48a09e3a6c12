package metrics

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"testbed/results/flows"
)

func TestQueuesCount(t *testing.T) {
	links := func() []flows.LinkSeries {
		return []flows.LinkSeries{{Name: "h0-00>leaf0", Drops: 3}, {Name: "leaf0>h0-00"}}
	}
	good := Queues{[]QueueDrops{{"h0-00>leaf0", 7}, {"leaf0>h0-00", 0}}}
	got := links()
	if err := good.Count(got); err != nil {
		t.Fatal(err)
	}
	want := []flows.LinkSeries{{Name: "h0-00>leaf0", Drops: 7, Counted: true}, {Name: "leaf0>h0-00", Counted: true}}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if err := good.Count(nil); err != nil {
		t.Errorf("of captures that state no fabric: %v", err)
	}
	for _, tt := range []struct {
		name string
		q    Queues
		want string
	}{
		{"too few", Queues{good.Links[:1]}, "counts of 1 links, but the fabric has 2"},
		{"too many", Queues{append(good.Links[:2:2], QueueDrops{"x", 1})}, "counts of 3 links"},
		{"another link", Queues{[]QueueDrops{good.Links[0], {"leaf0>h0-01", 1}}}, `links[1]: "leaf0>h0-01": must be "leaf0>h0-00"`},
		{"below zero", Queues{[]QueueDrops{good.Links[0], {"leaf0>h0-00", -1}}}, "dropped_packets -1"},
	} {
		got := links()
		if err := tt.q.Count(got); err == nil || !strings.Contains(err.Error(), tt.want) || !cmp.Equal(got, links()) {
			t.Errorf("%s: %v, %+v, want %q and nothing changed", tt.name, err, got, tt.want)
		}
	}
}
