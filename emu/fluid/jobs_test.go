package fluid_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"testbed/emu/fault"
	"testbed/topo/units"
	"testbed/workloads"
)

// The writers of a job start their Start after its last flow has ended. 125 MB take 1 s
// at 1 Gbps, as a flow or as a block.
func TestJobs(t *testing.T) {
	f := faulty(t)
	const size = 125 * units.MB
	writer := func(id int, start time.Duration) workloads.Writer {
		return workloads.Writer{ID: workloads.WriterID(id), Client: 2, Start: start, Job: 1,
			Blocks: []workloads.Block{{ID: workloads.BlockID(id), Writer: workloads.WriterID(id), Client: 2, Size: size, Replicas: 2, Packet: 64000, Window: 8}}}
	}
	w := one(workloads.Flow{ID: 0, Src: 0, Dst: 2, Size: size}, workloads.Flow{ID: 1, Src: 4, Dst: 5, Size: size / 2})
	w.Coflows[0].Job = 1
	w.Coflows[0].Arrival = time.Second
	w.Writers = []workloads.Writer{writer(0, 0), writer(1, 3*time.Second)}
	w.Jobs = []workloads.Job{{ID: 1, Arrival: time.Second}}
	got := runFaults(t, f, w, chosen{2, 4}, 0)
	for what, want := range map[string]time.Duration{"flow 0": 2 * time.Second, "block 0": 3 * time.Second, "block 1": 6 * time.Second} {
		if d := got.ends[what] - want; d < -ms || d > ms {
			t.Errorf("%s ended at %v, want %v", what, got.ends[what], want)
		}
	}
	// Without a spine, the flow to the reducer is given up, and so are the reducer's blocks.
	got = runFaults(t, f, w, chosen{2, 3}, 0, fault.Fault{Name: "a", Kind: fault.SpineDown, At: 1500 * ms, Spine: 0}, fault.Fault{Name: "b", Kind: fault.SpineDown, At: 1500 * ms, Spine: 1})
	if len(got.ends) != 1 || len(got.failures) != 3 {
		t.Errorf("ends %v, failures %v", got.ends, got.failures)
	}
	want := []string{"block 0: its shuffle failed: no path for 3s", "block 1: its shuffle failed: no path for 3s"}
	var blocks []string
	for _, text := range got.failures {
		for i := range text {
			if text[i] == ' ' && len(text) > i+6 && text[i+1:i+6] == "block" {
				blocks = append(blocks, text[i+1:])
			}
		}
	}
	if d := cmp.Diff(want, blocks); d != "" {
		t.Errorf("failed blocks (-want +got):\n%s", d)
	}
}
