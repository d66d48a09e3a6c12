package flowsim_test

import (
	"runtime"
	"testing"
	"time"

	"testbed/emu/flowsim"
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
	trace := &workloads.Trace{Name: "made up", Ports: 150}
	if _, ok := oracletest.Find(b, oracletest.Facebook); ok {
		trace = oracletest.Trace(b, oracletest.Facebook)
	} else {
		for i := range 200 {
			c := workloads.TraceCoflow{ID: workloads.CoflowID(i + 1), Arrival: time.Duration(i) * 5 * time.Second}
			width := []int{1, 2, 10, 60}[i%4]
			for p := range width {
				c.Mappers = append(c.Mappers, (7*i+p)%trace.Ports)
				c.Reducers = append(c.Reducers, workloads.TraceReducer{Port: (11*i + p) % trace.Ports, Size: workloads.Megabytes(width * (1 + i%13) * 1_000_000)})
			}
			trace.Coflows = append(trace.Coflows, c)
		}
	}
	f, coflows, err := flowsim.Ports{Rate: units.Gbps}.Coflows(trace)
	if err != nil {
		b.Fatal(err)
	}
	return f, coflows
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
