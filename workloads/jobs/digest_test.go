package jobs

import (
	"testing"

	"testbed/topo/units"
)

// Jobs have equal digests if their tasks do the same work, and any change of the work changes it.
func TestDigest(t *testing.T) {
	job := func(change func(*Job)) [32]byte {
		out := []units.Bytes{3, 4}
		j := Job{ID: 1, User: "a", Stages: []Stage{
			{Kind: Map, Tasks: []Task{{Input: 1, InputSize: 9, Rate: 8, Output: out}, {Input: 2, InputSize: 9, Rate: 8, Output: out}}},
			{Kind: Reduce, From: []int{0}, Tasks: []Task{{SortRate: 7, Writes: 5}, {SortRate: 7, Writes: 5, Need: Resources{CPU: 1, Memory: 2}}}},
		}}
		change(&j)
		return j.Digest()
	}
	want := job(func(*Job) {})
	for name, change := range map[string]func(*Job){
		"identity": func(j *Job) { j.ID, j.User, j.Priority, j.Profile, j.Submit = 2, "b", 3, "p", 4 },
		"inputs":   func(j *Job) { j.Stages[0].Tasks[0].Input = 7 },
		"copies":   func(j *Job) { j.Stages[0].Tasks[1].Output = []units.Bytes{3, 4} },
	} {
		if job(change) != want {
			t.Errorf("%s: another digest of the same work", name)
		}
	}
	seen := map[[32]byte]string{want: "unchanged"}
	for name, change := range map[string]func(*Job){
		"kind":   func(j *Job) { j.Stages[1].Kind = Map },
		"from":   func(j *Job) { j.Stages[1].From = nil },
		"task":   func(j *Job) { j.Stages[0].Tasks = j.Stages[0].Tasks[:1] },
		"stage":  func(j *Job) { j.Stages = j.Stages[:1] },
		"input":  func(j *Job) { j.Stages[0].Tasks[1].InputSize = 8 },
		"rate":   func(j *Job) { j.Stages[0].Tasks[1].Rate = 7 },
		"sort":   func(j *Job) { j.Stages[1].Tasks[0].SortRate = 8 },
		"output": func(j *Job) { j.Stages[0].Tasks[1].Output = []units.Bytes{3, 5} },
		"all":    func(j *Job) { j.Stages[0].Tasks[0].Output[1] = 5 },
		"none":   func(j *Job) { j.Stages[0].Tasks[1].Output = nil },
		"writes": func(j *Job) { j.Stages[1].Tasks[0].Writes = 6 },
		"cpu":    func(j *Job) { j.Stages[1].Tasks[1].Need.CPU = 2 },
		"memory": func(j *Job) { j.Stages[1].Tasks[1].Need.Memory = 3 },
	} {
		got := job(change)
		if other, twice := seen[got]; twice {
			t.Errorf("%s and %s: the same digest", name, other)
		}
		seen[got] = name
	}
}
