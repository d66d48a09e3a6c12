package report

import (
	"strconv"

	"testbed/results/metrics"
	"testbed/results/summary"
	"testbed/workloads/jobs"
)

// sizeKey is the key of the job times by the number of tasks in summary.json.
const sizeKey = "job_time_by_tasks"

// sizeMetrics returns the metrics of job times by the number of tasks; none unless jobs of tasks are of two classes or
// more.
func (in Input) sizeMetrics() (out []metric) {
	var seen [jobs.SizeClasses]bool
	for _, a := range in.Arms {
		for _, r := range a.Repeats {
			for _, j := range r.Records.Jobs {
				if j.Tasks > 0 {
					seen[jobs.SizeClass(j.Tasks)] = true
				}
			}
		}
	}
	for class, any := range seen {
		if !any {
			continue
		}
		key := strconv.Itoa(summary.SizeRangeOf(class).LeastTasks)
		out = append(out, metric{
			Time: metrics.Time{Key: sizeKey + "." + key, Title: "Job time, " + jobs.SizeName(class), Noun: "job",
				Items: metrics.JobTimesOfSize(class)},
			get: func(a *summary.Arm) *summary.Metric { return a.JobSizes[key] },
			set: func(a *summary.Arm, m *summary.Metric) { put(&a.JobSizes, key, m) }})
	}
	if len(out) < 2 {
		return nil
	}
	return out
}

// put stores a metric unless it is nil.
func put(all *map[string]*summary.Metric, key string, m *summary.Metric) {
	if m == nil {
		return
	}
	if *all == nil {
		*all = map[string]*summary.Metric{}
	}
	(*all)[key] = m
}
