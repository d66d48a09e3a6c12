package flowsim_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"testbed/emu/flowsim"
	"testbed/policies"
	"testbed/topo/units"
	"testbed/workloads"
)

// forgetful is a policy with one more step, which serves nothing. No step of its schedules is kept from
// one decision to the next: its rule is not one of those.
type forgetful struct{ policies.CoflowScheduler }

func (p forgetful) New() policies.CoflowInstance {
	return observed{p.CoflowScheduler.New(), func(_ *policies.CoflowView, s *policies.Schedule) {
		s.Steps = append(s.Steps, policies.Step{Rule: policies.MaxMin})
	}}
}

// What is kept from one decision to the next does not change a result: narrow coflows on overlapping
// ports, whose flows end one by one.
func TestSameWithoutMemory(t *testing.T) {
	const ports = 12
	trace := &workloads.Trace{Name: "crossed", Ports: ports}
	for i := range 40 {
		c := workloads.TraceCoflow{ID: workloads.CoflowID(i + 1)}
		for j := range 3 {
			size := workloads.Megabytes(1_000_000 * (1 + j))
			c.Mappers = append(c.Mappers, (i+j)%ports)
			c.Reducers = append(c.Reducers, workloads.TraceReducer{Port: (i + j) % ports, Size: size})
		}
		trace.Coflows = append(trace.Coflows, c)
	}
	f, coflows, err := flowsim.Ports{Rate: units.Gbps}.Coflows(trace)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"philae", "philae-sim", "fifo", "saath", "aalo", "aalo-oracle"} {
		for _, quantum := range []time.Duration{0, 8 * time.Millisecond} {
			cfg := flowsim.Config{Fabric: f, Scheduler: policy(t, name, nil), Quantum: quantum, Interval: 20 * time.Millisecond}
			got, err := flowsim.Run(t.Context(), cfg, coflows, nil)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			cfg.Scheduler = forgetful{cfg.Scheduler}
			want, err := flowsim.Run(t.Context(), cfg, coflows, nil)
			if err != nil {
				t.Fatalf("%s without memory: %v", name, err)
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("%s, quantum %v (-without memory +with):\n%s", name, quantum, d)
			}
		}
	}
}
