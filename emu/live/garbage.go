package live

import (
	"math"
	"runtime"
	"runtime/debug"
	"runtime/metrics"

	"testbed/topo/units"
)

// garbage holds back the collection of garbage during a run, as far as there is
// memory.
type garbage struct {
	percent int
	limit   int64
}

// holdGarbage collects what there is and then nothing until the process has taken
// most more than now. A limit that was set already (GOMEMLIMIT) stays where it is
// the lower one.
func holdGarbage(most units.Bytes) *garbage {
	runtime.GC()
	g := &garbage{limit: debug.SetMemoryLimit(-1)} // negative only asks
	if used := taken(); used < math.MaxInt64-int64(most) {
		debug.SetMemoryLimit(min(g.limit, used+int64(most)))
	}
	g.percent = debug.SetGCPercent(-1)
	return g
}

// taken is the memory that a limit counts.
func taken() int64 {
	m := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(m)
	return int64(m[0].Value.Uint64() - m[1].Value.Uint64())
}

// collect lets garbage be collected again, as before.
func (g *garbage) collect() {
	if g == nil {
		return
	}
	debug.SetGCPercent(g.percent)
	debug.SetMemoryLimit(g.limit)
}
