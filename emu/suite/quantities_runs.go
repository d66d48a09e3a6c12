package suite

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"testbed/results/flows"
	"testbed/results/metrics"
	"testbed/results/rundir"
	"testbed/results/schema"
	"testbed/topo/units"
	"testbed/workloads"
)

// chooses reports whether the filters of a figure choose a job; maps returns its number of maps.
func (f *figure) chooses(j *schema.Job, maps func(schema.Key, workloads.JobID) int) bool {
	return (len(f.profiles) == 0 || slices.Contains(f.profiles, profileOf(j))) &&
		(f.leastTasks == 0 || j.Tasks != nil && *j.Tasks >= f.leastTasks) &&
		(f.mostTasks == 0 || j.Tasks != nil && *j.Tasks <= f.mostTasks) &&
		(f.mostMaps == 0 || maps(j.Key, j.Job) <= f.mostMaps)
}

// profileOf returns the profile of a job; bin1, bin2 and so on for a job without tasks that has a bin.
func profileOf(j *schema.Job) string {
	if j.Tasks == nil && j.Bin != nil {
		return fmt.Sprint("bin", *j.Bin)
	}
	return j.Profile
}

// chosen identifies jobs of a run.
type chosen map[schema.Key]map[workloads.JobID]bool

// jobsOf returns the jobs of an arm that the filters choose.
func (f *figure) jobsOf(run *rundir.Run, arm string) (list []*schema.Job, is chosen) {
	maps := chosenMaps(run, f.mostMaps > 0)
	is = chosen{}
	for i := range run.Jobs {
		if j := &run.Jobs[i]; j.Arm == arm && f.chooses(j, maps) {
			list = append(list, j)
			if is[j.Key] == nil {
				is[j.Key] = map[workloads.JobID]bool{}
			}
			is[j.Key][j.Job] = true
		}
	}
	return list, is
}

// chosenMaps returns a function that returns the number of maps of a job.
func chosenMaps(run *rundir.Run, needed bool) func(schema.Key, workloads.JobID) int {
	type id struct {
		schema.Key
		job workloads.JobID
	}
	n := map[id]int{}
	for i := range run.Attempts {
		if a := &run.Attempts[i]; needed && a.Kind == flows.MapTask && a.Outcome == flows.Committed {
			n[id{a.Key, a.Job}]++
		}
	}
	return func(k schema.Key, job workloads.JobID) int { return n[id{k, job}] }
}

// apart is more than the jobs of a run.
const apart = 1 << 20

// item is the value of a job; its time is the same in seconds.
type item struct {
	metrics.Item
	value float64
}

// items returns the values of the chosen jobs of an arm. Jobs of different runs and repeats are different jobs.
func (q *quantity) items(runs []*rundir.Run, arm string, f *figure) (items []item, err error) {
	for i, run := range runs {
		list, _ := f.jobsOf(run, arm)
		for _, j := range list {
			id := i*apart + int(j.Job)
			v, ok := q.job(j)
			if !ok {
				return nil, fmt.Errorf("%s: jobs without %s: raise limits.alone of the scenario", run.Dir, q.name)
			}
			took := j.JobTime
			if q.name != "job_time" {
				took = time.Duration(v * float64(time.Second))
			}
			cluster := j.Repeat*len(runs)*apart + id
			items = append(items, item{metrics.Item{Repeat: j.Repeat, ID: id, Time: took, Cluster: cluster}, v})
		}
	}
	return items, nil
}

func makespans(runs []*rundir.Run, arm string, f *figure) series {
	spans := map[int][2]time.Duration{} // first and last
	for _, run := range runs {
		list, _ := f.jobsOf(run, arm)
		for _, j := range list {
			span, ok := spans[j.Repeat]
			if !ok || j.Arrival < span[0] {
				span[0] = j.Arrival
			}
			span[1] = max(span[1], j.End)
			spans[j.Repeat] = span
		}
	}
	out := series{}
	for repeat, span := range spans {
		out[repeat] = float64(span[1] - span[0])
	}
	return out
}

// throughput returns the chosen jobs by time, up to the time at which the first user has no job left.
func throughput(runs []*rundir.Run, arm string, f *figure) series {
	type user struct {
		repeat, run   int
		name, profile string
	}
	type at struct{ repeat, run int }
	last := map[user]time.Duration{} // end of each user's last job
	for i, run := range runs {
		for _, j := range run.Jobs {
			if j.Arm == arm {
				u := user{j.Repeat, i, j.User, j.Profile}
				last[u] = max(last[u], j.End)
			}
		}
	}
	until := map[at]time.Duration{}
	for u, end := range last {
		if first, ok := until[at{u.repeat, u.run}]; !ok || end < first {
			until[at{u.repeat, u.run}] = end
		}
	}
	out := series{}
	for i, run := range runs {
		list, _ := f.jobsOf(run, arm)
		for _, j := range list {
			if end := until[at{j.Repeat, i}]; j.End <= end {
				out[j.Repeat] += 1 / end.Hours()
			}
		}
	}
	return out
}

// space returns a function of the figures of the stored outputs of all jobs of a repeat.
func space(get func(*metrics.ShuffleFigures) metrics.Average) func([]*rundir.Run, string, *figure) series {
	return func(runs []*rundir.Run, arm string, _ *figure) series {
		sums := map[int]metrics.Average{}
		for _, run := range runs {
			of := map[int]*flows.Records{}
			for _, j := range run.Jobs {
				if j.Arm != arm || j.Tasks == nil {
					continue
				}
				if of[j.Repeat] == nil {
					of[j.Repeat] = &flows.Records{}
				}
				r := of[j.Repeat]
				r.Jobs = append(r.Jobs, flows.JobRecord{Job: j.Job, Tasks: *j.Tasks, Arrival: j.Arrival, End: j.End})
			}
			for i := range run.Attempts {
				if a := &run.Attempts[i]; a.Arm == arm && of[a.Repeat] != nil {
					of[a.Repeat].Attempts = append(of[a.Repeat].Attempts, a.Record())
				}
			}
			for repeat, r := range of {
				if s := metrics.ShuffleOf(r); s != nil {
					sum := sums[repeat]
					sum.Add(get(s))
					sums[repeat] = sum
				}
			}
		}
		out := series{}
		for repeat, sum := range sums {
			if v, ok := sum.Value(); ok {
				out[repeat] = v
			}
		}
		return out
	}
}

func nodeLocal(runs []*rundir.Run, arm string, f *figure) series {
	local, all := series{}, series{}
	for _, run := range runs {
		_, of := f.jobsOf(run, arm)
		spans := map[schema.Key][2]time.Duration{} // in which all jobs run, from the last arrival to the first end
		for _, j := range run.Jobs {
			span, ok := spans[j.Key]
			if !ok {
				span[1] = j.End
			}
			spans[j.Key] = [2]time.Duration{max(span[0], j.Arrival), min(span[1], j.End)}
		}
		for i := range run.Attempts {
			a := &run.Attempts[i]
			if a.Arm != arm || a.Locality == "" || a.Outcome != flows.Committed || !of[a.Key][a.Job] {
				continue
			}
			if span := spans[a.Key]; f.allRun && (a.Start < span[0] || span[1] <= a.Start) {
				continue
			}
			if all[a.Repeat]++; a.Locality == flows.NodeLocal {
				local[a.Repeat]++
			}
		}
	}
	out := series{}
	for repeat, n := range all {
		out[repeat] = 100 * local[repeat] / n
	}
	return out
}

// stageTimes returns the times of the tasks of the chosen jobs in seconds, ascending, by repeat and stage. A task that
// was rescued by a backup counts from its first launch, not from that of the backup.
func stageTimes(runs []*rundir.Run, arm string, f *figure) map[int][][]float64 {
	type task struct {
		launched, ended time.Duration
		committed       bool
	}
	type stage struct{ run, job, stage int }
	tasks := map[int]map[stage]map[int]*task{} // by repeat, stage and index
	for i, run := range runs {
		_, of := f.jobsOf(run, arm)
		for k := range run.Attempts {
			a := &run.Attempts[k]
			if !of[a.Key][a.Job] {
				continue
			}
			at := stage{i, int(a.Job), a.Stage}
			if tasks[a.Repeat] == nil {
				tasks[a.Repeat] = map[stage]map[int]*task{}
			}
			if tasks[a.Repeat][at] == nil {
				tasks[a.Repeat][at] = map[int]*task{}
			}
			t := tasks[a.Repeat][at][a.Task]
			if t == nil {
				t = &task{launched: a.Start}
				tasks[a.Repeat][at][a.Task] = t
			}
			t.launched = min(t.launched, a.Start)
			if a.Outcome == flows.Committed {
				t.ended, t.committed = a.End, true
			}
		}
	}
	out := map[int][][]float64{}
	for repeat, stages := range tasks {
		for _, at := range slices.SortedFunc(maps.Keys(stages), func(a, b stage) int {
			return slices.Compare([]int{a.run, a.job, a.stage}, []int{b.run, b.job, b.stage})
		}) {
			var took []float64
			for _, t := range stages[at] {
				if t.committed {
					took = append(took, (t.ended - t.launched).Seconds())
				}
			}
			if len(took) > 0 {
				slices.Sort(took)
				out[repeat] = append(out[repeat], took)
			}
		}
	}
	return out
}

// slowestTask returns a statistic over stages of at least two tasks.
func slowestTask(runs []*rundir.Run, arm string, f *figure) series {
	out := series{}
	for repeat, stages := range stageTimes(runs, arm, f) {
		var ratios []float64
		for _, took := range stages {
			if len(took) > 1 {
				ratios = append(ratios, took[len(took)-1]/metrics.Median(took))
			}
		}
		if len(ratios) > 0 {
			out[repeat] = f.statisticOf(ratios)
		}
	}
	return out
}

// stragglerTime returns the time that stages take beyond the median of their tasks, in the time of the jobs.
func stragglerTime(runs []*rundir.Run, arm string, f *figure) series {
	jobTime := series{}
	for _, run := range runs {
		list, _ := f.jobsOf(run, arm)
		for _, j := range list {
			jobTime[j.Repeat] += j.JobTime.Seconds()
		}
	}
	out := series{}
	for repeat, stages := range stageTimes(runs, arm, f) {
		for _, took := range stages {
			out[repeat] += 100 * (took[len(took)-1] - metrics.Median(took)) / jobTime[repeat]
		}
	}
	return out
}

// fetchTime returns a statistic over the committed attempts that fetched.
func fetchTime(runs []*rundir.Run, arm string, f *figure) series {
	times := map[int][]float64{}
	for _, run := range runs {
		_, of := f.jobsOf(run, arm)
		for i := range run.Attempts {
			a := &run.Attempts[i]
			if of[a.Key][a.Job] && a.Outcome == flows.Committed && a.Stage > 0 && a.Locality == "" && a.InputEnd != nil {
				times[a.Repeat] = append(times[a.Repeat], (*a.InputEnd - a.Start).Seconds())
			}
		}
	}
	out := series{}
	for repeat, list := range times {
		out[repeat] = f.statisticOf(list)
	}
	return out
}

// taskBytes returns the payload of the flows of tasks.
func taskBytes(runs []*rundir.Run, arm string, _ *figure) series {
	out := series{}
	for _, run := range runs {
		for _, j := range run.Jobs { // a repeat without such flows has none of these bytes
			if j.Arm == arm {
				out[j.Repeat] += 0
			}
		}
		for i := range run.Flows {
			if f := &run.Flows[i]; f.Arm == arm && f.Job != nil && !f.Failed {
				out[f.Repeat] += float64(f.Size)
			}
		}
	}
	return out
}

// crossRack returns what jobs state of bytes between racks, which exists without a record of each flow too.
func crossRack(runs []*rundir.Run, arm string, f *figure) series {
	return sumOfJobs(runs, arm, f, func(j *schema.Job) *units.Bytes { return j.CrossRack })
}

// sumOfJobs returns the sum of what jobs state, by repeat.
func sumOfJobs(runs []*rundir.Run, arm string, f *figure, of func(*schema.Job) *units.Bytes) series {
	out := series{}
	for _, run := range runs {
		list, _ := f.jobsOf(run, arm)
		for i := range list {
			if n := of(list[i]); n != nil {
				out[list[i].Repeat] += float64(*n)
			}
		}
	}
	return out
}

func perInput(runs []*rundir.Run, arm string, f *figure) series {
	input := sumOfJobs(runs, arm, f, func(j *schema.Job) *units.Bytes { return j.Input })
	out := crossRack(runs, arm, f)
	for repeat := range out {
		out[repeat] /= input[repeat]
	}
	return out
}
