package live

import (
	"runtime/debug"
	"runtime/metrics"
	"testing"

	"testbed/topo/units"
)

func collections() uint64 {
	m := []metrics.Sample{{Name: "/gc/cycles/automatic:gc-cycles"}}
	metrics.Read(m)
	return m[0].Value.Uint64()
}

var kept []byte // escapes

// litter allocates memory and keeps none of it.
func litter(n units.Bytes) {
	for ; n > 0; n -= units.MiB {
		kept = make([]byte, units.MiB)
	}
	kept = nil
}

// Garbage is collected before the limit is reached only where it is not held back,
// beyond it also where it is, and as before once it is over.
func TestGarbageIsHeldBack(t *testing.T) {
	was, limit := debug.SetGCPercent(50), debug.SetMemoryLimit(-1)
	defer func() { debug.SetGCPercent(was); debug.SetMemoryLimit(limit) }()
	g := holdGarbage(256 * units.MiB)
	before := collections()
	litter(128 * units.MiB)
	if n := collections() - before; n != 0 {
		t.Errorf("%d collections in half of what may be taken, want none", n)
	}
	litter(512 * units.MiB)
	held := collections() - before
	if held == 0 {
		t.Error("no collection beyond twice of what may be taken")
	}
	g.collect()
	before = collections()
	litter(128 * units.MiB)
	if n := collections() - before; n == 0 {
		t.Error("no collection once it is over")
	}
	if percent := debug.SetGCPercent(50); percent != 50 {
		t.Errorf("GOGC is %d afterwards, want the 50 it was", percent)
	}
	if now := debug.SetMemoryLimit(-1); now != limit {
		t.Errorf("the memory limit is %d afterwards, want the %d it was", now, limit)
	}
}

// A lower limit that the user has set stays.
func TestGarbageKeepsALowerLimit(t *testing.T) {
	limit := debug.SetMemoryLimit(512 << 20)
	defer debug.SetMemoryLimit(limit)
	g := holdGarbage(units.Bytes(1) << 40)
	defer g.collect()
	if now := debug.SetMemoryLimit(-1); now != 512<<20 {
		t.Errorf("the memory limit is %d, want the %d that was set", now, 512<<20)
	}
}
