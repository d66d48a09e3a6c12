package disk

import (
	"errors"
	"math/rand/v2"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"testbed/topo/units"
)

// A disk whose rate changes has written the amount that its rates allowed, and a write that waits
// at the old rate continues at the new one.
func TestSetRate(t *testing.T) {
	type step struct {
		at   time.Duration
		rate units.Rate
	}
	for _, tt := range []struct {
		name  string
		steps []step
		want  time.Duration // for 1 MB; 1 s at the initial 8 Mbps
	}{
		{"unchanged", nil, time.Second},
		{"slower", []step{{500 * time.Millisecond, 800 * units.Kbps}}, 5500 * time.Millisecond},
		{"faster", []step{{500 * time.Millisecond, 80 * units.Mbps}}, 550 * time.Millisecond},
		{"stops and goes on", []step{{500 * time.Millisecond, 0}, {10 * time.Second, 8 * units.Mbps}}, 10500 * time.Millisecond},
		{"to and fro", []step{{200 * time.Millisecond, 16 * units.Mbps}, {300 * time.Millisecond, 4 * units.Mbps}, {500 * time.Millisecond, 8 * units.Mbps}}, time.Second},
		{"before the first", []step{{0, 4 * units.Mbps}}, 2 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := open(t, Options{Rate: 8 * units.Mbps})
				for _, s := range tt.steps {
					time.AfterFunc(s.at, func() { d.SetRate(s.rate) })
				}
				synctest.Wait()
				began := time.Now()
				r := create(t, d, 1, 1_000_000)
				if err := write(t.Context(), r, make([]byte, 1_000_000), 10_000); err != nil {
					t.Fatal(err)
				}
				took := time.Since(began)
				if (took - tt.want).Abs() > 20*time.Millisecond {
					t.Errorf("took %v, want %v", took, tt.want)
				}
				s := d.Stats()
				if ratio := float64(s.Written) / float64(s.Allowed); ratio < 0.999 || ratio > 1.0001 {
					t.Errorf("wrote %d of the %d bytes allowed while busy: %+v", s.Written, s.Allowed, s)
				}
				if (s.Busy - took).Abs() > 20*time.Millisecond {
					t.Errorf("busy for %v of %v", s.Busy, took)
				}
				if ratio := float64(s.Achieved()) / float64(s.Configured()); ratio < 0.999 || ratio > 1.001 {
					t.Errorf("achieved %v of %v", s.Achieved(), s.Configured())
				}
			})
		})
	}
}

// For any sequence of writes, device delays and rate changes, a disk writes no more than the rates
// allow, a disk without delays writes all that they allow, and times do not overflow.
func TestThrottleWithChangingRate(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	rates := []units.Rate{1, units.Kbps, units.Mbps, 8 * units.Mbps, 100 * units.Mbps, units.MaxRate}
	for run := range 300 {
		th := throttle{rate: 8 * units.Mbps, burst: 2 * time.Millisecond, catchUp: 10 * time.Millisecond}
		if run%2 == 0 {
			th.bucket, th.burst = 2000, th.rate.TimeToSend(2000)
		}
		now, changes := time.Second, 0
		for range 200 {
			if rng.IntN(3) == 0 {
				now += time.Duration(rng.IntN(int(20 * time.Millisecond)))
			}
			n := units.Bytes(1 + rng.IntN(20_000))
			th.admit(now, n)
			before := now
			now += time.Duration(rng.IntN(int(time.Millisecond)))
			for range rng.IntN(3) {
				th.setRate(now, rates[rng.IntN(len(rates))])
				changes++
				now += time.Duration(rng.IntN(int(5 * time.Millisecond)))
			}
			if th.due > now+time.Hour { // repair the disk
				th.setRate(now, 8*units.Mbps)
			}
			if now < th.due && rng.IntN(2) == 0 {
				now = th.due
			}
			th.finish(now, n, now-before)
			if rng.IntN(4) == 0 {
				th.setRate(now, rates[rng.IntN(len(rates))])
			}
			s := th.account()
			// Each change may round off a byte or two.
			if s.Written > s.Allowed+units.Bytes(4*(changes+s.Writes)) || s.Busy < 0 || th.busyRate < 0 || s.Allowed < 0 {
				t.Fatalf("run %d: %+v: more than allowed, or negative; state %+v", run, s, th)
			}
		}
	}
}

func TestWipe(t *testing.T) {
	d := open(t, Options{Capacity: 10_000})
	whole, part := create(t, d, 1, 4000), create(t, d, 2, 6000)
	if err := write(t.Context(), whole, make([]byte, 4000), 1000); err != nil {
		t.Fatal(err)
	}
	if err := part.Write(t.Context(), make([]byte, 1000)); err != nil {
		t.Fatal(err)
	}
	if err := d.Wipe(); err != nil {
		t.Fatal(err)
	}
	if entries, err := os.ReadDir(d.dir); err != nil || len(entries) > 0 || d.Used() != 0 {
		t.Errorf("wiped, and holds %v, %v, used %v", entries, err, d.Used())
	}
	if err := part.Write(t.Context(), make([]byte, 1000)); !errors.Is(err, ErrWiped) {
		t.Errorf("Write of a wiped replica = %v, want %v", err, ErrWiped)
	}
	again := create(t, d, 2, 10_000) // the space is free, and the name
	if err := part.Commit(); !errors.Is(err, ErrWiped) {
		t.Errorf("Commit of a wiped replica = %v, want %v", err, ErrWiped)
	}
	for range 2 {
		if err := part.Abort(); err != nil {
			t.Error(err)
		}
	}
	if err := write(t.Context(), again, make([]byte, 10_000), 1000); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(d.Path(2)); err != nil || len(got) != 10_000 || d.Used() != 10_000 {
		t.Errorf("the block that came after has %d bytes, %v, used %v", len(got), err, d.Used())
	}
}
