package placement

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"testbed/topo/units"
)

func TestUncongestedBound(t *testing.T) {
	for _, tt := range []struct {
		disk  units.Rate
		links []units.Rate
		want  time.Duration
	}{
		{mbs(50), []units.Rate{mbs(100), mbs(80)}, 5120 * time.Millisecond},
		{mbs(50), []units.Rate{mbs(100), mbs(25)}, 10240 * time.Millisecond},
		{0, []units.Rate{mbs(100)}, 2560 * time.Millisecond},
		{0, []units.Rate{mbs(100), 0}, math.MaxInt64},
	} {
		if got := UncongestedBound(256*units.MB, tt.disk, tt.links...); got != tt.want {
			t.Errorf("disk %v, links %v: %v, want %v", tt.disk, tt.links, got, tt.want)
		}
	}
}

// Vector 9: four blocks of 8 MB, disks at 6.9, 16 MB/s left: 1.16, 1.16, 1.5 and 2 s.
func TestVector9FluidBound(t *testing.T) {
	const mb = units.MB
	for _, tt := range []struct {
		name           string
		sizes          []units.Bytes
		crossings      int
		disk, residual units.Rate
		want           time.Duration
	}{
		{"vector", []units.Bytes{8 * mb, 8 * mb, 8 * mb, 8 * mb}, 1, mbs(69) / 10, mbs(16), 1454710144 * time.Nanosecond},
		{"no disks", []units.Bytes{8 * mb, 8 * mb, 8 * mb, 8 * mb}, 1, 0, mbs(16), 1250 * time.Millisecond},
		{"twice", []units.Bytes{8 * mb, 8 * mb, 8 * mb, 8 * mb}, 2, 0, mbs(16), 2500 * time.Millisecond},
		{"smallest first", []units.Bytes{24 * mb, 8 * mb}, 1, 0, mbs(8), 2500 * time.Millisecond},
		{"by disks", []units.Bytes{8 * mb, 24 * mb}, 0, mbs(8), mbs(8), 2 * time.Second},
		{"nothing left", []units.Bytes{8 * mb}, 1, mbs(8), 0, math.MaxInt64},
		{"no blocks", nil, 1, mbs(8), mbs(8), 0},
	} {
		if got := FluidBound(tt.sizes, tt.crossings, tt.disk, tt.residual); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

// No order of serving the blocks one after another beats the bound, nor does sharing.
func TestFluidBoundIsOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		disk, residual := mbs(rapid.Int64Range(1, 100).Draw(t, "disk")), mbs(rapid.Int64Range(1, 100).Draw(t, "residual"))
		var sizes []units.Bytes
		for range rapid.IntRange(1, 8).Draw(t, "blocks") {
			sizes = append(sizes, units.Bytes(rapid.Int64Range(1, 1e9).Draw(t, "size")))
		}
		bound := FluidBound(sizes, 1, disk, residual)
		var at, sum, all time.Duration
		largest := units.Bytes(0)
		for _, size := range sizes {
			at += min(disk, residual).TimeToSend(size)
			sum += at
			all += residual.TimeToSend(size)
			largest = max(largest, size)
		}
		if mean := sum / time.Duration(len(sizes)); mean < bound-time.Duration(len(sizes)) {
			t.Errorf("one by one %v, bound %v", mean, bound)
		}
		if bound > max(all, disk.TimeToSend(largest)) {
			t.Errorf("bound %v is more than the last block takes", bound)
		}
	})
}
