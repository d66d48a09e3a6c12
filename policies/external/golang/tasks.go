package main

import (
	"cmp"
	"slices"

	"testbed/policies/external/messages"
)

func init() { tasks = &OldestFirst{} }

// OldestFirst launches the tasks of the job with the highest priority first, then of the oldest: the same decisions as the
// policy {name: fifo, heartbeat_reduces: 0, heartbeat_off_rack: 0, load_factor: false} of testbed.
type OldestFirst struct{}

// Start returns what the policy needs to know.
func (*OldestFirst) Start(*messages.Hello) []string { return []string{} }

// Assign fills the free slots of the host, each with the task whose input is closest.
func (*OldestFirst) Assign(v *messages.TaskView, a *messages.Assignment) {
	order := []int{}
	for i := range v.Jobs {
		order = append(order, i)
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(v.Jobs[b].Priority, v.Jobs[a].Priority) })
	own := v.Own()
	for _, kind := range []int{messages.Map, messages.Reduce} {
		for _, i := range order {
			for stage, locality := closest(&v.Jobs[i], kind, own); stage >= 0; stage, locality = closest(&v.Jobs[i], kind, own) {
				st := &v.Jobs[i].Stages[stage]
				st.Pending[locality]--
				own.Take(st)
				a.Launch = append(a.Launch, messages.Launch{Job: i, Stage: stage, Locality: locality})
			}
		}
	}
}

// closest returns the stage of a kind that has a pending task that fits, with the closest input; -1 if there is none.
func closest(j *messages.Job, kind int, own *messages.Slots) (stage, locality int) {
	stage, locality = -1, messages.OffRack+1
	for i := range j.Stages {
		st := &j.Stages[i]
		at := slices.IndexFunc(st.Pending[:], func(n int) bool { return n > 0 })
		if st.Kind == kind && at >= 0 && at < locality && own.Fits(st) {
			stage, locality = i, at
		}
	}
	return stage, locality
}
