package jobs

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"testbed/topo/units"
)

func tasksIn(j *Job) (n int) {
	for _, s := range j.Stages {
		n += len(s.Tasks)
	}
	return n
}

// The report's shares: of jobs of at most 10 tasks, and of the tasks of the smallest 90 % of the jobs, which take about as
// long as each other.
func TestBinShares(t *testing.T) {
	for _, tt := range []struct {
		workload  string
		small     int
		resources float64
	}{{"facebook", 82, 0.06}, {"bing", 61, 0.11}} {
		g := DefaultBinJobs()
		g.Workload, g.Jobs = tt.workload, 4000
		list, err := g.Generate(1)
		if err != nil {
			t.Fatal(err)
		}
		counts := map[string]int{}
		var tasks []int
		total, below := 0, 0
		for i := range list {
			j := &list[i]
			n := tasksIn(j)
			tasks, total = append(tasks, n), total+n
			counts[j.Profile]++
			bin := slices.IndexFunc(binTasks[:], func(r [2]int) bool { return r[0] <= n && n <= r[1] })
			if j.Profile != fmt.Sprintf("bin%d", bin+1) {
				t.Errorf("a job of %d tasks has the profile %s", n, j.Profile)
			}
		}
		at := slices.Index(BinWorkloads(), tt.workload)
		if binWorkloads[at].shares[0] != tt.small {
			t.Errorf("%s: %d %% of jobs in the first bin, want %d", tt.workload, binWorkloads[at].shares[0], tt.small)
		}
		for i, share := range binWorkloads[at].shares {
			want := float64(g.Jobs*share) / 100
			if got := counts[fmt.Sprintf("bin%d", i+1)]; math.Abs(float64(got)-want) > 3.5*math.Sqrt(want) {
				t.Errorf("%s: bin %d has %d of %d jobs, want about %v", tt.workload, i+1, got, g.Jobs, want)
			}
		}
		slices.Sort(tasks)
		for _, n := range tasks[:g.Jobs*9/10] {
			below += n
		}
		if got := float64(below) / float64(total); math.Abs(got-tt.resources) > 0.015 {
			t.Errorf("%s: the smallest 90 %% of the jobs have %.3f of the tasks, want %v", tt.workload, got, tt.resources)
		}
	}
}

// Chains have all their tasks, later stages have at most as many as earlier ones, and the times of a job follow from the settings.
func TestBinChains(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := DefaultBinJobs()
		g.Jobs, g.Largest = 20, rapid.IntRange(1, 60).Draw(t, "largest")
		g.Smallest = rapid.IntRange(1, g.Largest).Draw(t, "smallest")
		g.Phases, g.Reduces, g.Shuffle = rapid.IntRange(1, 8).Draw(t, "phases"), rapid.Float64Range(0, 1).Draw(t, "reduces"), rapid.Float64Range(0.001, 0.9).Draw(t, "shuffle")
		if g.Pattern = rapid.SampledFrom([]Pattern{AllToAll, ManyToOne, OneToOne}).Draw(t, "pattern"); g.Pattern == AllToAll {
			g.PartitionSkew = rapid.SampledFrom([]float64{0, 1}).Draw(t, "skew")
		}
		list, err := g.Generate(rapid.Uint64().Draw(t, "seed"))
		if err != nil {
			t.Fatal(err)
		}
		for i := range list {
			j := &list[i]
			n := tasksIn(j)
			least := g.Smallest
			if g.Pattern == OneToOne {
				least -= len(j.Stages) - 1 // all stages have equally many, rounded down
			}
			if n < least || n > g.Largest || len(j.Stages) != min(g.Phases, max(n, g.Smallest)) {
				t.Fatalf("job %d has %d tasks in %d stages: want %d to %d in %d", j.ID, n, len(j.Stages), g.Smallest, g.Largest, min(g.Phases, n))
			}
			var took, fetching float64 // of one task of each stage
			for s := range j.Stages {
				is := &j.Stages[s]
				if s == 0 {
					took += is.Tasks[0].Rate.TimeToSend(is.Tasks[0].InputSize).Seconds()
					continue
				}
				if g.Pattern == OneToOne && len(is.Tasks) != len(j.Stages[0].Tasks) || is.Pattern != g.Pattern {
					t.Fatalf("job %d: stage %d: %d tasks %v, after %d", j.ID, s, len(is.Tasks), is.Pattern, len(j.Stages[0].Tasks))
				}
				if len(is.Tasks) > len(j.Stages[s-1].Tasks) || !slices.Equal(is.From, []int{s - 1}) || is.Kind != Reduce {
					t.Fatalf("job %d: stage %d: %d tasks of kind %d from %v, after %d", j.ID, s, len(is.Tasks), is.Kind, is.From, len(j.Stages[s-1].Tasks))
				}
				var all units.Bytes
				for _, b := range j.Fetched(s) {
					all += b
				}
				mean := all / units.Bytes(len(is.Tasks))
				fetching += g.NIC.TimeToSend(mean).Seconds()
				took += is.Tasks[0].Rate.TimeToSend(mean).Seconds()
			}
			if want := 6.4 * float64(len(j.Stages)); math.Abs(took-want) > 0.02*want {
				t.Fatalf("job %d computes for %v s, want %v", j.ID, took, want)
			}
			if got := fetching / (took + fetching); len(j.Stages) > 1 && math.Abs(got-g.Shuffle) > 0.01 {
				t.Fatalf("job %d fetches in %v of its time, want %v", j.ID, got, g.Shuffle)
			}
		}
	})
}

// Jobs keep the slots busy that are given; a setting changes only what it describes.
func TestBinArrivals(t *testing.T) {
	g := DefaultBinJobs()
	g.Busy, g.Largest = 300, 500
	list, err := g.Generate(1)
	if err != nil {
		t.Fatal(err)
	}
	var slots float64
	for i := range list {
		for s := range list[i].Stages {
			took := 6.4
			if s > 0 {
				took += g.NIC.TimeToSend(list[i].Fetched(s)[0]).Seconds()
			}
			slots += took * float64(len(list[i].Stages[s].Tasks))
		}
	}
	if got := slots / list[len(list)-1].Submit.Seconds(); math.Abs(got-g.Busy) > 0.15*g.Busy { // gaps of 1000 jobs: ± 3 %
		t.Errorf("%v busy slots, want %v", got, g.Busy)
	}
	again, err := g.Generate(1)
	if err != nil || !reflect.DeepEqual(list, again) {
		t.Errorf("the same seed gives other jobs (%v)", err)
	}
	g.Busy, g.Gap = 0, time.Second
	other, err := g.Generate(1)
	if err != nil {
		t.Fatal(err)
	}
	for i := range other {
		if other[i].Submit == list[i].Submit {
			t.Fatalf("job %d: submitted at %v with either gap", i+1, list[i].Submit)
		}
		other[i].Submit = list[i].Submit
	}
	if !reflect.DeepEqual(list, other) {
		t.Error("the gap changes more than submissions")
	}
}

func TestBinErrors(t *testing.T) {
	for want, change := range map[string]func(*Bins){
		`workload "yahoo": must be facebook or bing`:      func(g *Bins) { g.Workload = "yahoo" },
		"0 jobs: must be 1 to 1000000":                    func(g *Bins) { g.Jobs = 0 },
		"1 to 10001 tasks: must be 1 to 10000, ascending": func(g *Bins) { g.Largest = 10_001 },
		"9 to 8 tasks: must be 1 to 10000, ascending":     func(g *Bins) { g.Smallest, g.Largest = 9, 8 },
		"101 phases: must be 1 to 100":                    func(g *Bins) { g.Phases = 101 },
		"reduces, relative to maps, 1.5 to 1.5: must":     func(g *Bins) { g.Reduces = 1.5 },
		"pattern 3: must be 0 to 2":                       func(g *Bins) { g.Pattern = 3 },
		"skew of partitions 1: must be 0 with another":    func(g *Bins) { g.Pattern, g.PartitionSkew = OneToOne, 1 },
		"shuffle 0.95 to 0.95: must be 0 to 0.9":          func(g *Bins) { g.Shuffle = 0.95 },
		"-1 busy slots: must be 0":                        func(g *Bins) { g.Busy = -1 },
		"map rate 0bps: must be 1bps":                     func(g *Bins) { g.MapRate = 0 },
		"NIC 0bps: must be 1bps":                          func(g *Bins) { g.NIC = 0 },
		"spread 1: must be 0 to 0.9":                      func(g *Bins) { g.Spread = 1 },
		"block 0B: must be":                               func(g *Bins) { g.Block = 0 },
		"1e-09 busy slots: mean gap":                      func(g *Bins) { g.Busy = 1e-9 },
		"job 1: more than 1 tasks":                        func(g *Bins) { g.Limits.Tasks = 1 },
	} {
		g := DefaultBinJobs()
		change(&g)
		if _, err := g.Generate(1); err == nil || !strings.HasPrefix(err.Error(), "bins: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: want %s", err, want)
		}
	}
}
