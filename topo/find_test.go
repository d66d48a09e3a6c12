package topo

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"testbed/topo/units"
)

func TestFindLinks(t *testing.T) {
	f, err := LeafSpine{Leaves: 2, Spines: 2, HostsPerLeaf: 2, HostLink: units.Mbps, Oversubscription: units.Ratio{Num: 1, Den: 1}, Queue: Queue{Time: time.Second}, MTU: 1500}.Build()
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		pattern string
		want    string // links, or a part of the error after "!"
	}{
		{"h0-00>leaf0", "h0-00>leaf0"},
		{"leaf0>h0-00", "leaf0>h0-00"},
		{"h0-00<>leaf0", "h0-00>leaf0 leaf0>h0-00"},
		{"leaf0<>h0-00", "h0-00>leaf0 leaf0>h0-00"},
		{"leaf*>spine1", "leaf0>spine1 leaf1>spine1"},
		{"*<>spine1", "leaf0>spine1 spine1>leaf0 leaf1>spine1 spine1>leaf1"},
		{"h1-0?>leaf1", "h1-00>leaf1 h1-01>leaf1"},
		{"leaf0>leaf1", "!no such link"},
		{"leaf0-spine1", "!expected \"h0-00>leaf0\""},
		{">spine1", "!expected"},
		{"leaf0><spine1", "!expected"},
		{"leaf[>spine1", "!syntax error"},
	}
	for _, tt := range tests {
		t.Run(tt.pattern, func(t *testing.T) {
			ids, err := f.FindLinks(tt.pattern)
			if part, bad := strings.CutPrefix(tt.want, "!"); bad {
				if err == nil || !strings.Contains(err.Error(), part) {
					t.Fatalf("FindLinks(%q) = %v, %v, want an error with %q", tt.pattern, ids, err, part)
				}
				return
			}
			var names []string
			for _, id := range ids {
				names = append(names, f.LinkName(id))
			}
			if diff := cmp.Diff(tt.want, strings.Join(names, " ")); diff != "" || err != nil {
				t.Errorf("FindLinks(%q): %v (-want +got)\n%s", tt.pattern, err, diff)
			}
		})
	}
}
