package tracker

import (
	"testing"
	"time"

	"testbed/policies/tasks"
	"testbed/workloads/jobs"
)

// POLICIES.md, 4.13, vector 9, with the schedulers of policies/tasks: see TestBatchOfTwoJobs.
func TestBatchUnderSchedulers(t *testing.T) {
	fair := tasks.DefaultFair()
	fair.PerHeartbeat = tasks.PerHeartbeat{}
	for _, test := range []struct {
		name string
		s    tasks.Scheduler
		want time.Duration
	}{{"fifo", tasks.Scheduler{Order: tasks.FIFO{}}, 300 * time.Second}, {"fair", fair, 400 * time.Second}} {
		f := fabric(1, 1)
		c := config(f, test.s)
		c.Slots = [2]int{2, 2}
		c.OutOfBand = true
		c.Blocks = blocksOn(f, 4)
		s := newSim(t, c, time.Second)
		s.mapTime, s.redTime = 100*time.Second, 100*time.Second
		for i := range 2 {
			j := mapReduce(jobs.JobID(i+1), 0, 0, 2, 2, 0)
			j.User = string(rune('a' + i))
			s.submit(j)
		}
		s.run(time.Hour)
		if got := max(s.endedAt[1], s.endedAt[2]); got != test.want {
			t.Errorf("%s: the batch took %v, want %v", test.name, got, test.want)
		}
	}
}

// The simulation of the FAIR report (§5.3) on 10 hosts with one slot of each kind: slowdowns, which
// are response times divided by those of the same job alone, fall from FIFO to FAIR, and from FAIR
// to FAIR with killing or with copy-compute splitting. FIFO ends the batch first. Jobs come every
// minute on average, about as fast as they can be served.
func TestSlowdownUnderSchedulers(t *testing.T) {
	fair := tasks.DefaultFair()
	killing, splitting := fair, fair
	killing.Order = tasks.Fair{Starvation: tasks.Starvation{MinTimeout: 15 * time.Second, FairTimeout: 15 * time.Second, Fraction: 1, Kill: true, Every: 5 * time.Second}}
	splitting.Splitting.Factor = 6
	schedulers := []tasks.Scheduler{tasks.DefaultFIFO(), fair, killing, splitting}
	f := fabric(2, 5)
	run := func(s tasks.Scheduler, list []jobs.Job) (ended map[jobs.JobID]time.Duration, batch time.Duration) {
		c := config(f, s)
		c.Slots, c.OutOfBand = [2]int{1, 1}, true
		blocks := 0
		for _, j := range list {
			blocks = max(blocks, int(j.Stages[0].Tasks[len(j.Stages[0].Tasks)-1].Input)+1)
		}
		c.Blocks = blocksOn(f, blocks)
		sim := newSim(t, c, time.Second)
		sim.mapTime, sim.redTime = 10*time.Second, 20*time.Second
		for i := range list {
			sim.submit(&list[i])
		}
		sim.run(24 * time.Hour)
		for j, how := range sim.ended {
			if how != "done" {
				t.Fatalf("job %d: %s", j, how)
			}
			batch = max(batch, sim.endedAt[j])
		}
		return sim.endedAt, batch
	}
	const draws = 3
	mean, most, batch := make([]float64, len(schedulers)), make([]float64, len(schedulers)), make([]time.Duration, len(schedulers))
	for seed := range uint64(draws) {
		g := jobs.DefaultSimulation()
		g.Gap = 60 * time.Second
		list, err := g.Generate(seed)
		if err != nil {
			t.Fatal(err)
		}
		alone := map[jobs.JobID]time.Duration{}
		for i := range list {
			list[i].User = string(rune('a' + i))
			one := list[i : i+1 : i+1]
			ended, _ := run(fair, one)
			alone[list[i].ID] = ended[list[i].ID] - list[i].Submit
		}
		for k, s := range schedulers {
			ended, b := run(s, list)
			batch[k] += b / draws
			worst := 0.
			for i := range list {
				slow := float64(ended[list[i].ID]-list[i].Submit) / float64(alone[list[i].ID])
				worst = max(worst, slow)
				mean[k] += slow / float64(len(list)) / draws
			}
			most[k] += worst / draws
		}
	}
	for k, name := range []string{"FIFO", "FAIR", "FAIR with killing", "FAIR with splitting"} {
		t.Logf("%s: slowdown %.1f on average, %.1f at most, batch %v", name, mean[k], most[k], batch[k])
	}
	if mean[0] < 1.2*mean[1] || mean[1] < 1.2*mean[2] || mean[1] < 1.2*mean[3] {
		t.Error("slowdowns do not fall as in the report")
	}
	for k := range schedulers {
		if batch[0] > batch[k] {
			t.Errorf("FIFO ends the batch later than scheduler %d", k)
		}
	}
}
