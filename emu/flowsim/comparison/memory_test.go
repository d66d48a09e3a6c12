package comparison

import (
	"context"
	"errors"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strings"
	"syscall"
	"testing"
	"time"

	"testbed/emu/flowsim"
	"testbed/emu/longtest"
	"testbed/policies/catalog"
	"testbed/topo/units"
	"testbed/workloads"
)

// crossed returns a trace of n coflows that arrive together, with the given numbers of mappers and
// reducers.
func crossed(n, mappers, reducers, ports int) *workloads.Trace {
	t := &workloads.Trace{Name: "crossed", Ports: ports}
	for i := range n {
		c := workloads.TraceCoflow{ID: workloads.CoflowID(i + 1)}
		for j := range mappers {
			c.Mappers = append(c.Mappers, (i+j)%ports)
		}
		for j := range reducers {
			c.Reducers = append(c.Reducers, workloads.TraceReducer{Port: (i + j) % ports, Size: workloads.Megabytes(1_000_000 * (1 + j%7))})
		}
		t.Coflows = append(t.Coflows, c)
	}
	return t
}

// live returns the size of the heap after the last garbage collection.
func live() units.Bytes {
	m := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(m)
	return units.Bytes(m[0].Value.Uint64())
}

// The memory of a study is at most a quarter more than predicted, and at least a fifth of it, if
// all coflows arrive together.
func TestMemory(t *testing.T) {
	// The need is highest at the beginning: a simulation is stopped when it has used this time of the processors,
	// however busy they are.
	const enough = 700 * time.Millisecond
	longtest.Skip(t, "simulates large traces, 4 s")
	defer debug.SetGCPercent(debug.SetGCPercent(20))
	for _, policy := range []string{"fair", "fifo", "aalo", "sebf", "philae", "saath"} {
		for _, s := range []struct{ n, mappers, reducers, ports int }{
			{1, 300, 300, 300}, {5, 100, 100, 300}, {200, 10, 10, 300}, {1000, 3, 3, 300}, {2000, 1, 1, 300}, {400, 1, 1, 4000}, {20, 30, 30, 4000},
		} {
			trace := crossed(s.n, s.mappers, s.reducers, s.ports)
			p, err := ParsePolicy(catalog.RoleCoflow, policy)
			if err != nil {
				t.Fatal(err)
			}
			o := Options{Policies: []Policy{p}}
			needs, err := NeedsOf(trace, o)
			if err != nil {
				t.Fatal(err)
			}
			if needs.Least[0] != needs.Most[0] {
				t.Errorf("%s, %v: from %v to %v, though all arrive together", policy, s, needs.Least[0], needs.Most[0])
			}
			ctx, cancel := context.WithCancel(t.Context())
			runtime.GC()
			before, peak := live(), units.Bytes(0)
			watched := make(chan struct{})
			go func() {
				defer close(watched)
				begun := processorTime()
				for ctx.Err() == nil {
					peak = max(peak, live())
					time.Sleep(time.Millisecond)
					if processorTime()-begun > enough {
						cancel()
					}
				}
			}()
			_, err = Do(ctx, trace, o, func() time.Duration { return 0 }, nil)
			cancel()
			<-watched
			if err != nil && !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
			took, want := peak-before, needs.Shared+needs.Most[0]
			t.Logf("%-6s %v: %v of %v, %.2f", policy, s, took, want, float64(took)/float64(want))
			if 4*took > 5*want || 5*took < want {
				t.Errorf("%s, %d coflows of %d flows on %d ports: took %v, predicted %v", policy, s.n, s.mappers*s.reducers, s.ports, took, want)
			}
		}
	}
}

// processorTime returns the time of all processors that the test has used.
func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// A trace that needs more than allowed is refused before it is laid out, or as soon as the active
// coflows need more; one that fits runs, with fewer policies in parallel if necessary.
func TestMemoryIsBounded(t *testing.T) {
	longtest.Computes(t)
	policies := []Policy{{Name: "fair"}, {Name: "fifo"}}
	run := func(trace *workloads.Trace, memory units.Bytes) (*Outcome, error) {
		return Do(t.Context(), trace, Options{Policies: policies, Memory: memory}, func() time.Duration { return 0 }, nil)
	}
	refused := func(what string, err error, text string) {
		t.Helper()
		var e *flowsim.MemoryError
		if !errors.As(err, &e) || e.Need <= e.Allowed || !strings.Contains(err.Error(), text) || !strings.Contains(err.Error(), "--memory") {
			t.Errorf("%s: %v", what, err)
		}
	}
	wide := crossed(1, 10_000, 10_000, 10_000) // 10⁸ flows
	before := live()
	_, err := run(wide, 4*units.GB)
	refused("10⁸ flows", err, "1 coflows of 100000000 flows")
	if grown := live() - before; grown > 100*units.MB {
		t.Errorf("refusing 10⁸ flows took %v", grown)
	}
	_, err = run(crossed(1_000_000, 1, 1, 150), 4*units.GB)
	refused("10⁶ coflows at one moment", err, "1000000 coflows of 1000000 flows")

	small := crossed(20, 10, 10, 50)
	n, err := NeedsOf(small, Options{Policies: policies})
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range []struct {
		memory units.Bytes
		once   int
	}{{n.Shared + n.Most[0], 1}, {n.Shared + 2*n.Most[0], min(2, runtime.GOMAXPROCS(0))}} {
		o := Options{Policies: policies, Memory: at.memory}
		if _, once, err := o.divide(small, runtime.GOMAXPROCS(0)); err != nil || once != at.once {
			t.Errorf("%v: %d policies at once, %v, want %d", at.memory, once, err, at.once)
		}
		if _, err := run(small, at.memory); err != nil {
			t.Errorf("%v: %v", at.memory, err)
		}
	}
	// One after the other they fit; if they pile up, they do not.
	apart := crossed(50, 3, 3, 50)
	for i := range apart.Coflows {
		apart.Coflows[i].Arrival = time.Duration(i) * time.Minute
	}
	n, err = NeedsOf(apart, Options{Policies: policies})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := run(apart, n.Shared+2*n.Least[0]); err != nil {
		t.Errorf("apart: %v", err)
	}
	for i := range apart.Coflows {
		apart.Coflows[i].Arrival = time.Duration(i) * time.Millisecond
	}
	_, err = run(apart, n.Shared+2*n.Least[0])
	refused("piled up", err, "3 coflows at once")
}
