package summary

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"testbed/results/flows"
)

// The slowdowns of the flows of all repeats are a table by size.
func TestFlowSlowdowns(t *testing.T) {
	small := flows.FlowRecord{Size: 1000, End: 3 * time.Millisecond}
	large := flows.FlowRecord{Size: 20_000_000, End: 9 * time.Millisecond}
	repeat := Repeat{
		Records: flows.Records{Flows: []flows.FlowRecord{small, large, small}},
		Ideals:  []time.Duration{time.Millisecond, time.Millisecond, 0},
	}
	a := Declared{FlowSlowdowns: flowSlowdownsOf([]Repeat{repeat, repeat})}
	tables := Tables("fct_slowdown", true)
	if len(tables) != 1 {
		t.Fatalf("tables %+v", tables)
	}
	want := [][]string{{"up to 10KB", "2", "3.00×", "3.00×", "3.00×"}, {"above 10MB", "2", "9.00×", "9.00×", "9.00×"}}
	if d := cmp.Diff(want, tables[0].Rows(&a)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if a.FlowSlowdowns[1].Above != 10_000_000 || a.FlowSlowdowns[1].UpTo != 0 {
		t.Errorf("range %+v", a.FlowSlowdowns[1])
	}
}
