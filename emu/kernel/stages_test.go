package kernel

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"testbed/emu/deploy"
	"testbed/emu/kernel/netnstest"
	"testbed/emu/plan"
	"testbed/topo/units"
)

// staged records the start of each stage. All stages use the given number of workers.
type staged struct {
	*Executor
	workers int
	names   []string
	begun   []time.Time
}

func (s *staged) Workers(st plan.Stage) int {
	s.names, s.begun = append(s.names, st.Name), append(s.begun, time.Now())
	return s.workers
}

// BenchmarkStages shows which stages of a build benefit from a second thread: the milliseconds of
// each stage with one thread and with two, alternating. One thread always creates the links.
func BenchmarkStages(b *testing.B) {
	netnstest.Require(b)
	f, err := shape(10, 10, 1, 20*units.Mbps, 1500).Build()
	if err != nil {
		b.Fatal(err)
	}
	stageTimes := map[string][]time.Duration{}
	p := plan.Compile("stages", f, plan.Options{})
	for b.Loop() {
		for _, workers := range []int{1, 2, 4} {
			x := &staged{Executor: NewExecutor(b.TempDir()), workers: workers}
			runtime.GC()
			d, err := deploy.Apply(b.Context(), p, x)
			if err != nil {
				b.Fatal(err)
			}
			x.begun = append(x.begun, time.Now())
			if err := d.Destroy(context.Background()); err != nil {
				b.Fatal(err)
			}
			for i, name := range x.names {
				key := fmt.Sprintf("%s-%d-ms", strings.ReplaceAll(name, " ", "-"), workers)
				stageTimes[key] = append(stageTimes[key], x.begun[i+1].Sub(x.begun[i]))
			}
			time.Sleep(200 * time.Millisecond) // until the kernel has removed it
		}
	}
	for key, took := range stageTimes {
		var sum time.Duration
		for _, t := range took {
			sum += t
		}
		b.ReportMetric(sum.Seconds()*1000/float64(len(took)), key)
	}
	b.ReportMetric(0, "ns/op")
}
