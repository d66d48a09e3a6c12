package jobs

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"testbed/topo/units"
)

func TestDescribe(t *testing.T) {
	list, err := Read("t", strings.NewReader(`testbed-jobs: 1
jobs:
- user: a
  stages:
  - {kind: map, tasks: 3, input: 8MB, rate: 2MB/s, output: 4MB}
  - {kind: reduce, from: [0], tasks: 2, rate: 1MB/s, sort_rate: 6MB/s, writes: 1MB}
- {submit: 2s, user: b, profile: scan, stages: [{kind: map, tasks: 1, input: 6MB, rate: 1MB/s, writes: 2MB}]}
- {submit: 10s, user: a, profile: scan, stages: [{kind: map, tasks: 5, input: 2MB}]}
`), Limits{})
	if err != nil {
		t.Fatal(err)
	}
	s := Describe(list, []int{1, 3})
	total := Total{Maps: 9, Reduces: 2, Input: 40_000_000, Shuffled: 12_000_000, Written: 4_000_000, MapSeconds: 18, ReduceSeconds: 14}
	if s.Jobs != 3 || s.MapOnly != 2 || s.Reads != 9 || s.First != 0 || s.Last != 10 || s.MeanGap != 5 || s.MapSlots != 1.8 || s.ReduceSlots != 1.4 || s.Total != total {
		t.Errorf("Describe = %+v, want %+v", s, total)
	}
	one, two, three := Total{Maps: 3, Reduces: 2, Input: 24_000_000, Shuffled: 12_000_000, Written: 2_000_000, MapSeconds: 12, ReduceSeconds: 14},
		Total{Maps: 1, Input: 6_000_000, Written: 2_000_000, MapSeconds: 6}, Total{Maps: 5, Input: 10_000_000}
	both := func(a, b Total) Total { a.add(b); return a }
	for _, tt := range []struct {
		name      string
		got, want []Group
	}{
		{"bins", s.Bins, []Group{{"1", 1, 1. / 3, two, 0.15}, {"2–3", 1, 1. / 3, one, 0.6}, {"4 or more", 1, 1. / 3, three, 0.25}}},
		{"users", s.Users, []Group{{"a", 2, 2. / 3, both(one, three), 0.85}, {"b", 1, 1. / 3, two, 0.15}}},
		{"profiles", s.Profiles, []Group{{"scan", 2, 2. / 3, both(two, three), 0.4}, {"", 1, 1. / 3, one, 0.6}}},
	} {
		if !reflect.DeepEqual(tt.got, tt.want) {
			t.Errorf("%s: %+v, want %+v", tt.name, tt.got, tt.want)
		}
	}
	if q := s.Quantiles[0]; q.Name != "maps" || q.Min != 1 || q.P50 != 3 || q.Max != 5 || q.Mean != 3 {
		t.Errorf("quantiles of maps %+v", q)
	}
	if q := s.Quantiles[len(s.Quantiles)-1]; q.Name != "gap" || q.Min != 2 || q.P50 != 5 || q.Max != 8 {
		t.Errorf("quantiles of gaps %+v", q)
	}
	if one := Describe(list[:1], nil); one.MeanGap != 0 || one.MapSlots != 0 || len(one.Quantiles) != 7 || one.Bins[0].Name != "1 or more" {
		t.Errorf("Describe of one job = %+v", one)
	}
}

// Fetched is the sum of the outputs for each task, in a slow way: every output goes to the next
// task of the stages that fetch.
func TestFetched(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		for _, j := range anyJobs(t) {
			want := make([][]units.Bytes, len(j.Stages))
			for s := range j.Stages {
				want[s] = make([]units.Bytes, len(j.Stages[s].Tasks))
			}
			for from := range j.Stages {
				for _, task := range j.Stages[from].Tasks {
					at := 0
					for s := range j.Stages {
						for k := range j.Stages[s].Tasks {
							if slices.Contains(j.Stages[s].From, from) {
								want[s][k] += task.Output[at]
								at++
							}
						}
					}
				}
			}
			for s := range j.Stages {
				if got := j.Fetched(s); !slices.Equal(got, want[s]) {
					t.Errorf("stage %d fetches %v, want %v", s, got, want[s])
				}
			}
		}
	})
}

func TestCheckBins(t *testing.T) {
	for _, tt := range []struct {
		bounds []int
		ok     bool
	}{{nil, true}, {DefaultBins(), true}, {[]int{0}, false}, {[]int{3, 3}, false}, {[]int{3, 2}, false}} {
		if err := CheckBins(tt.bounds); (err == nil) != tt.ok {
			t.Errorf("CheckBins(%v) = %v", tt.bounds, err)
		}
	}
}
