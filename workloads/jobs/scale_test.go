package jobs

import (
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"testbed/topo/units"
	"testbed/workloads"
)

func factor(t *testing.T, s string) (f workloads.Factor) {
	t.Helper()
	if s == "" {
		return f
	}
	f, err := workloads.ParseFactor(s)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// Two of the factors give the third: time = size / rate.
func TestScaleComplete(t *testing.T) {
	for _, tt := range []struct{ rate, size, time, wantRate, wantSize, wantTime, err string }{
		{"", "", "", "1", "1", "1", ""},
		{"1/5", "", "", "1/5", "1", "5", ""},
		{"", "1/25", "", "1", "1/25", "1/25", ""},
		{"", "", "1/4", "1", "1/4", "1/4", ""},
		{"1/5", "1/20", "", "1/5", "1/20", "1/4", ""},
		{"1/5", "", "1/4", "1/5", "1/20", "1/4", ""},
		{"", "1/20", "1/4", "1/5", "1/20", "1/4", ""},
		{"1/5", "1/20", "1/4", "1/5", "1/20", "1/4", ""},
		{"1/5", "1/20", "1/2", "", "", "", "size 1/20 is not rate 1/5 times time 1/2"},
		{"1/4000000000000000001", "4000000000000000003", "", "", "", "", "out of range"},
	} {
		got, err := Scale{Rate: factor(t, tt.rate), Size: factor(t, tt.size), Time: factor(t, tt.time)}.Complete()
		if tt.err != "" {
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("Complete(%+v) = %v, want %q", tt, err, tt.err)
			}
			continue
		}
		if err != nil || got.Rate.String() != tt.wantRate || got.Size.String() != tt.wantSize || got.Time.String() != tt.wantTime || got.Gaps.String() != "1" {
			t.Errorf("Complete(%+v) = %v, %v", tt, got, err)
		}
	}
	if _, err := (Scale{Rate: workloads.Factor{Num: -1, Den: 1}}).Complete(); err == nil {
		t.Error("a negative factor has no error")
	}
}

func TestScaleApply(t *testing.T) {
	list, err := Read("t", strings.NewReader(byHand), Limits{})
	if err != nil {
		t.Fatal(err)
	}
	before, err := Read("t", strings.NewReader(byHand), Limits{})
	if err != nil {
		t.Fatal(err)
	}
	got, err := Scale{Rate: factor(t, "1/3"), Size: factor(t, "1/30"), Gaps: factor(t, "3")}.Apply(list)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(list, before) {
		t.Error("Apply changed its argument")
	}
	if err := Check(got, Limits{}); err != nil {
		t.Error(err)
	}
	a := got[0].Stages
	if at := got[1].Submit; at != 750*time.Millisecond {
		t.Errorf("submitted at %v, want 2.5 s / 10 × 3 = 750 ms", at)
	}
	if task := a[0].Tasks[0]; task.Rate != 21333333 || task.InputSize != 4266667 || task.Output[0] != 133334 {
		t.Errorf("task %+v", task)
	}
	if task := a[1].Tasks[0]; task.SortRate != 133333333 || task.Writes != 1 || a[0].Tasks[2].Rate != 0 || a[0].Tasks[2].Need != (Resources{0.5, 33333334}) {
		t.Errorf("task %+v, and needs %+v", task, a[0].Tasks[2])
	}
	if !shared(a[0].Tasks[0].Output, a[0].Tasks[1].Output) {
		t.Error("equal tasks no longer share their output")
	}
	for _, s := range []Scale{{Size: factor(t, "1000000000")}, {Rate: factor(t, "1000000000")}, {Gaps: factor(t, "100000000")}} {
		if _, err := s.Apply(list); err == nil || !strings.Contains(err.Error(), "must be at most") {
			t.Errorf("%+v: error %v", s, err)
		}
	}
}

// The time of a task on an unloaded slot scales by Size / Rate, to the rounding of sizes and rates.
func TestScaleKeepsTimes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := anyJobs(t)
		f := func(name string) workloads.Factor {
			return workloads.Factor{Num: rapid.Int64Range(1, 10).Draw(t, name), Den: rapid.Int64Range(1, 10).Draw(t, name)}
		}
		s, err := Scale{Rate: f("rate"), Size: f("size")}.Complete()
		if err != nil {
			t.Fatal(err)
		}
		scaled, err := s.Apply(list)
		if err != nil {
			t.Fatal(err)
		}
		if err := Check(scaled, Limits{}); err != nil {
			t.Fatal(err)
		}
		c := s.Time.Float()
		for i := range list {
			if got, want := scaled[i].Submit.Seconds(), list[i].Submit.Seconds()*c; math.Abs(got-want) > 1e-8 {
				t.Errorf("submitted at %v s, want %v", got, want)
			}
			for k := range list[i].Stages {
				for n, task := range list[i].Stages[k].Tasks {
					after := scaled[i].Stages[k].Tasks[n]
					if (task.Rate == 0) != (after.Rate == 0) || (task.InputSize == 0) != (after.InputSize == 0) {
						t.Errorf("task %+v became %+v", task, after)
					}
					if task.Rate < 100_000 || task.InputSize < units.MB {
						continue // rounding matters
					}
					got, want := after.Rate.TimeToSend(after.InputSize).Seconds(), task.Rate.TimeToSend(task.InputSize).Seconds()*c
					if math.Abs(got/want-1) > 1e-3 {
						t.Errorf("task of %v s, want %v", got, want)
					}
				}
			}
		}
	})
}
