package flowsim_test

import (
	"runtime"
	"testing"
	"time"

	"testbed/emu/flowsim"
	"testbed/emu/longtest"
	"testbed/policies/catalog"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
	"testbed/workloads/oracletest"
)

// BenchmarkTrace runs the public trace if it is available, and otherwise one generated from
// wide and narrow coflows on the same number of ports.
func BenchmarkTrace(b *testing.B) {
	f, coflows := benchmarkTrace(b)
	flows := 0
	for _, c := range coflows {
		flows += len(c.Flows)
	}
	for _, name := range catalog.All().Names(catalog.RoleCoflow) {
		b.Run("policy="+name, func(b *testing.B) {
			cfg := flowsim.Config{Fabric: f, Scheduler: policy(b, name, nil)}
			if name == "philae-sim" {
				cfg.Quantum = 8 * time.Millisecond
			}
			var r *flowsim.Result
			var peak uint64
			for b.Loop() {
				var err error
				r, err = flowsim.Run(b.Context(), cfg, coflows, func(flowsim.Progress) {
					var m runtime.MemStats
					runtime.ReadMemStats(&m)
					peak = max(peak, m.HeapAlloc)
				})
				if err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(b.Elapsed().Seconds()/float64(b.N), "s/run")
			b.ReportMetric(float64(r.Events), "events")
			b.ReportMetric(float64(r.Decisions), "decisions")
			b.ReportMetric(float64(flows), "flows")
			b.ReportMetric(float64(peak)/1e6, "peak-MB")
		})
	}
}

func benchmarkTrace(b testing.TB) (*topo.Fabric, []workloads.Coflow) {
	b.Helper()
	trace := madeUp(200)
	if _, ok := oracletest.Find(b, oracletest.Facebook); ok {
		trace = oracletest.Trace(b, oracletest.Facebook)
	}
	f, coflows, err := flowsim.Ports{Rate: units.Gbps}.Coflows(trace)
	if err != nil {
		b.Fatal(err)
	}
	return f, coflows
}

// madeUp returns a trace of wide and narrow coflows on 150 ports.
func madeUp(coflows int) *workloads.Trace {
	trace := &workloads.Trace{Name: "made up", Ports: 150}
	for i := range coflows {
		c := workloads.TraceCoflow{ID: workloads.CoflowID(i + 1), Arrival: time.Duration(i) * 5 * time.Second}
		width := []int{1, 2, 10, 60}[i%4]
		for p := range width {
			c.Mappers = append(c.Mappers, (7*i+p)%trace.Ports)
			c.Reducers = append(c.Reducers, workloads.TraceReducer{
				Port: (11*i + p) % trace.Ports,
				Size: workloads.Megabytes(width * (1 + (i+5*p)%13) * 1_000_000),
			})
		}
		trace.Coflows = append(trace.Coflows, c)
	}
	return trace
}

// The work of a simulation of 14,820 flows stays near the stored numbers, which do not depend on the speed of
// the machine. An event allocates nothing; the path of a flow does.
func TestWorkOfSimulation(t *testing.T) {
	longtest.Computes(t) // and allocates more under the race detector
	f, coflows, err := flowsim.Ports{Rate: units.Gbps}.Coflows(madeUp(16))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		policy                     string
		events, decisions, mallocs int
	}{
		{"fair", 125, 20, 30000},
		{"fifo", 3200, 3200, 15000},
		{"aalo", 165, 150, 15000},
		{"sebf", 14000, 14000, 15000},
		{"saath", 3850, 180, 15000},
		{"philae", 3200, 3200, 15200},
	} {
		var r *flowsim.Result
		mallocs := int(testing.AllocsPerRun(1, func() {
			r, err = flowsim.Run(t.Context(), flowsim.Config{Fabric: f, Scheduler: policy(t, tt.policy, nil)}, coflows, nil)
		}))
		if err != nil {
			t.Fatal(err)
		}
		if int(r.Events) > tt.events || int(r.Decisions) > tt.decisions || mallocs > tt.mallocs {
			t.Errorf("%s: %d events, %d decisions, %d allocations; want at most %d, %d, %d",
				tt.policy, r.Events, r.Decisions, mallocs, tt.events, tt.decisions, tt.mallocs)
		}
	}
}

// BenchmarkFairShare runs the first coflows of the trace with CoflowSim's backfill, under
// which every event changes most rates.
func BenchmarkFairShare(b *testing.B) {
	const first = 190
	f, coflows := benchmarkTrace(b)
	coflows = coflows[:min(first, len(coflows))]
	for _, order := range []string{"fifo", "sebf"} {
		b.Run("policy="+order, func(b *testing.B) {
			cfg := flowsim.Config{Fabric: f, Scheduler: policy(b, order, map[string]any{"allocation": "madd", "backfill": "fair-share"})}
			var r *flowsim.Result
			for b.Loop() {
				var err error
				if r, err = flowsim.Run(b.Context(), cfg, coflows, nil); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(b.Elapsed().Seconds()/float64(b.N), "s/run")
			b.ReportMetric(float64(r.Decisions), "decisions")
		})
	}
}
