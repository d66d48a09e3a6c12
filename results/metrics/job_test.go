package metrics

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"testbed/workloads"
)

// A class with a single fraction makes the numbers exact: if the shuffle is a quarter of
// the job, the computation takes three times as long.
func TestJobs(t *testing.T) {
	quarter := JobMix{{1, 0.25, math.Nextafter(0.25, 1)}}
	base := []Item{{0, 1, 10 * time.Second, 1}, {0, 2, 4 * time.Second, 2}, {1, 1, 20 * time.Second, 1}, {0, 3, time.Second, 3}, {0, 5, 0, 5}}
	arm := []Item{{0, 2, 8 * time.Second, 2}, {0, 1, 5 * time.Second, 1}, {1, 1, 20 * time.Second, 1}, {0, 4, time.Second, 4}, {0, 5, time.Second, 5}}
	b, a, unpaired, err := quarter.Jobs(1, base, arm)
	if err != nil {
		t.Fatal(err)
	}
	// 4 s of shuffle are 12 s of computation, 10 s are 30 s, 20 s are 60 s.
	wantBase := []Item{{0, 2, 16 * time.Second, 2}, {0, 1, 40 * time.Second, 1}, {1, 1, 80 * time.Second, 1}}
	wantArm := []Item{{0, 2, 20 * time.Second, 2}, {0, 1, 35 * time.Second, 1}, {1, 1, 80 * time.Second, 1}}
	if diff := cmp.Diff(wantBase, b); diff != "" {
		t.Errorf("baseline's jobs (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(wantArm, a); diff != "" {
		t.Errorf("arm's jobs (-want +got):\n%s", diff)
	}
	if unpaired != 3 { // 3 and 4 are in one arm only, 5 took no time
		t.Errorf("%d unpaired, want 3", unpaired)
	}
	if p := Pair(b, a, 1, nil); math.Abs(p.MeanRatio-136.0/135) > 1e-12 || math.Abs(p.Median-1) > 1e-12 {
		t.Errorf("speed-up %v of the averages and %v median, want 136/135 and 1", p.MeanRatio, p.Median)
	}
}

// With 20,000 draws the standard deviation of a share is below 0.0035.
func TestAaloJobs(t *testing.T) {
	const n = 20_000
	var quarters [4]float64
	for c := range workloads.CoflowID(n) {
		f := AaloJobs().draw(7, c)
		if again := AaloJobs().draw(7, c); f != again || f < leastShuffle || f >= 1 {
			t.Fatalf("coflow %d: fraction %v, then %v", c, f, again)
		}
		quarters[int(f*4)] += 1.0 / n
	}
	for i, want := range [4]float64{0.61, 0.13, 0.14, 0.12} {
		if math.Abs(quarters[i]-want) > 0.014 {
			t.Errorf("quarter %d has %.3f of the jobs, want %v", i, quarters[i], want)
		}
	}
	if AaloJobs().draw(7, 1) == AaloJobs().draw(8, 1) {
		t.Error("another seed draws the same fraction")
	}
}

// A job gains or loses no more than its coflow.
func TestJobsGainLessThanCoflows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seconds := rapid.Float64Range(0.001, 10_000)
		base := []Item{{0, rapid.IntRange(0, 1000).Draw(t, "id"), time.Duration(seconds.Draw(t, "base") * 1e9), 1}}
		arm := []Item{base[0]}
		arm[0].Time = time.Duration(seconds.Draw(t, "arm") * 1e9)
		b, a, unpaired, err := AaloJobs().Jobs(rapid.Uint64().Draw(t, "seed"), base, arm)
		if err != nil || unpaired != 0 || len(b) != 1 || len(a) != 1 {
			t.Fatalf("%v, %v, %d unpaired, %v", b, a, unpaired, err)
		}
		coflow := float64(base[0].Time) / float64(arm[0].Time)
		job := float64(b[0].Time) / float64(a[0].Time)
		if low, high := min(coflow, 1), max(coflow, 1); job < low-1e-9 || job > high+1e-9 {
			t.Fatalf("the coflow is %v times faster, its job %v times", coflow, job)
		}
		if b[0].Time-base[0].Time != a[0].Time-arm[0].Time {
			t.Fatalf("computation takes %v under one policy and %v under the other", b[0].Time-base[0].Time, a[0].Time-arm[0].Time)
		}
	})
}

func TestJobsErrors(t *testing.T) {
	long := []Item{{0, 1, math.MaxInt64, 1}}
	for _, tt := range []struct {
		name string
		mix  JobMix
		want string
	}{
		{"none", nil, "no class"},
		{"no share", JobMix{{0, 0.1, 0.2}}, "no class"},
		{"negative", JobMix{{-1, 0.1, 0.2}}, "share must be"},
		{"no shuffle", JobMix{{1, 0, 0.2}}, "share must be"},
		{"backwards", JobMix{{1, 0.5, 0.5}}, "share must be"},
		{"more than all", JobMix{{1, 0.5, 1.5}}, "share must be"},
		{"not a number", JobMix{{1, math.NaN(), 1}}, "share must be"},
		{"too long", JobMix{{1, 0.01, 0.02}}, "does not fit"},
	} {
		if _, _, _, err := tt.mix.Jobs(1, long, long); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v, want %q", tt.name, err, tt.want)
		}
	}
}
