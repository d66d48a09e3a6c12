package runner

import (
	"cmp"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"testbed/emu/engine"
	"testbed/emu/longtest"
	"testbed/results/flows"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
	"testbed/workloads/drawntest"
	"testbed/workloads/jobs"
)

// fastNetwork is a cluster in which maps take as long as they compute. Its workload is replaced.
const fastNetwork = `
name: phases
fabric: {leaves: 5, spines: 1, hosts_per_leaf: 4, host_link: 10Gbps, oversubscription: "1:1"}
disk: {write: 1GB/s, size: 100GB}
heartbeat: {interval: 1s}
tasks: {map_slots: 2, reduce_slots: 1}
workload: [{kind: tasks, generator: mix, jobs: 1}]
arms: [{name: fifo, coflow: fair, placement: hdfs, tasks: fifo}]
`

const mapRate = units.Rate(8_000_000) // 1 MB/s

// drawnMaps returns jobs of maps whose input is on two random hosts. No map ends close to a heartbeat of its host.
func drawnMaps(r *run, rng *rand.Rand) (w work) {
	submit := time.Duration(0)
	for id := jobs.JobID(1); id <= 25; id++ {
		submit += time.Duration(rng.Int64N(int64(4 * time.Second)))
		st := jobs.Stage{Kind: jobs.Map}
		for range 1 + rng.IntN(16) {
			size := units.Bytes(rng.IntN(9))*units.MB + units.Bytes(200+rng.IntN(600))*units.KB
			block := workloads.BlockID(len(w.stored))
			hosts := rng.Perm(r.fabric.Hosts())[:2]
			w.stored = append(w.stored, engine.StoredBlock{Block: block, Size: size, Hosts: []topo.HostID{topo.HostID(hosts[0]), topo.HostID(hosts[1])}})
			st.Tasks = append(st.Tasks, jobs.Task{Input: block, InputSize: size, Rate: mapRate})
		}
		w.tasks = append(w.tasks, jobs.Job{ID: id, User: "u", Submit: submit, Stages: []jobs.Stage{st}})
	}
	return w
}

// launched is an attempt in both simulators.
type launched struct {
	Job, Task int
	Host      string
	Locality  string
	Start     time.Duration
	End       time.Duration // in ms
}

// simulateFIFO is an independent simulator of slots, heartbeats and Hadoop's FIFO scheduler for jobs of maps: the first
// job that has a map left gets the slot, the closest map first. A heartbeat fills as many slots as its host's share of
// the tasks, and launches at most one map whose input is in another rack.
func simulateFIFO(r *run, w work, first []time.Duration) (out []launched) {
	const slots, interval = 2, time.Second
	hosts := make([]int, len(first)) // in order of heartbeats
	for h := range hosts {
		hosts[h] = h
	}
	slices.SortStableFunc(hosts, func(a, b int) int { return cmp.Compare(first[a], first[b]) })
	rack := func(h int) int { return h / 4 }
	ends := make([][]time.Duration, len(first)) // of attempts, by host
	left := make([][]int, len(w.tasks))         // maps to launch, by job
	total := 0
	for j := range w.tasks {
		for i := range w.tasks[j].Stages[0].Tasks {
			left[j], total = append(left[j], i), total+1
		}
	}
	distance := func(j, i, h int) int {
		near := 2
		for _, at := range w.stored[w.tasks[j].Stages[0].Tasks[i].Input].Hosts {
			switch {
			case int(at) == h:
				return 0
			case rack(int(at)) == rack(h):
				near = 1
			}
		}
		return near
	}
	for round := time.Duration(0); len(out) < total; round += interval {
		for _, h := range hosts {
			now := first[h] + round
			busy, tasks := make([]int, len(first)), 0
			for o := range ends {
				for _, end := range ends[o] {
					if end > now {
						busy[o]++
						tasks++
					}
				}
			}
			for j := range left {
				if w.tasks[j].Submit <= now {
					tasks += len(left[j])
				}
			}
			free := slots - busy[h]
			if all := slots * len(first); tasks < all {
				free = min(free, (tasks*slots+all-1)/all-busy[h])
			}
			for j := 0; j < len(left) && free > 0; {
				if w.tasks[j].Submit > now || len(left[j]) == 0 {
					j++
					continue
				}
				best := slices.MinFunc(left[j], func(a, b int) int { return cmp.Compare(distance(j, a, h), distance(j, b, h)) })
				near := distance(j, best, h)
				end := now + mapRate.TimeToSend(w.tasks[j].Stages[0].Tasks[best].InputSize)
				ends[h] = append(ends[h], end)
				out = append(out, launched{int(w.tasks[j].ID), best, r.fabric.HostName(topo.HostID(h)), []string{"node", "rack", "off-rack"}[near], now, end.Round(time.Millisecond)})
				left[j] = slices.DeleteFunc(left[j], func(i int) bool { return i == best })
				if free--; near == 2 {
					break
				}
			}
		}
	}
	return out
}

// attemptsOf returns the attempts of a run on the fluid model.
func attemptsOf(all []flows.AttemptRecord) (out []launched) {
	for _, a := range all {
		out = append(out, launched{int(a.Job), a.Task, a.Host, a.Locality, a.Start, a.End.Round(time.Millisecond)})
	}
	return out
}

// racksOf returns the mean number of racks in which the attempts of a job ran.
func racksOf(r *run, all []launched) float64 {
	racks := map[[2]int]bool{}
	ids := map[int]bool{}
	for _, a := range all {
		h, err := r.fabric.FindHost(a.Host)
		if err != nil {
			return 0
		}
		racks[[2]int{a.Job, int(r.fabric.RackOf(h))}], ids[a.Job] = true, true
	}
	return float64(len(racks)) / float64(len(ids))
}

// phased returns the cluster with a phase of heartbeats.
func phased(t *testing.T, phase string) *run {
	r, _ := workOf(t, strings.Replace(fastNetwork, "interval: 1s", "interval: 1s, phase: "+phase, 1), 0)
	return r
}

// The fluid model launches each attempt at the time, on the host and at the distance of an independent simulator, with
// synchronised and with random heartbeats. With random ones, jobs use more racks: hosts that report one after the other are
// not in the same rack.
func TestAttemptsEqualThoseOfASmallSimulator(t *testing.T) {
	t.Parallel()
	longtest.Computes(t)
	const draws = 24
	together, random := phased(t, "together"), phased(t, "random")
	more := 0
	var racks [2]float64
	for n := range draws {
		w := drawnMaps(together, rand.New(rand.NewPCG(uint64(n), 1)))
		random.arms[0].s.Spec.Seed = uint64(n)
		var used [2]float64
		for i, r := range []*run{together, random} {
			first := slices.Repeat([]time.Duration{time.Second}, r.fabric.Hosts())
			if p := phasesOf(r, 0); p != nil {
				first = p.Hosts
			}
			got, want := attemptsOf(simulateTasks(t, r, w)[0].Attempts), simulateFIFO(r, w, first)
			byTask := func(a, b launched) int { return cmp.Or(cmp.Compare(a.Job, b.Job), cmp.Compare(a.Task, b.Task)) }
			slices.SortFunc(got, byTask)
			slices.SortFunc(want, byTask)
			if d := gocmp.Diff(want, got); d != "" {
				t.Fatalf("draw %d, %s (-small simulator +fluid model):\n%s", n, r.s.Spec.Heartbeat.Phase, d)
			}
			used[i] = racksOf(r, got)
			racks[i] += used[i] / draws
		}
		if used[1] > used[0] {
			more++
		}
	}
	t.Logf("a job uses %.2f racks with random phases and %.2f together; more in %d of %d draws", racks[1], racks[0], more, draws)
	// 400 of 400 draws have more. The bound is 19 of 24: if phases had no effect, and half of the draws had more, the test
	// would fail in 99.7 % of all choices of seeds.
	drawntest.AtLeast(t, "jobs use more racks with random phases", more, draws, 0.99)
}

func phasesOf(r *run, repeat int) *engine.Phases { return r.arms[0].trial(repeat, work{}).phases() }

// Arms and backends have one source of phases. Repeats and seeds have other ones.
func TestPhasesOfRepeats(t *testing.T) {
	r := phased(t, "random")
	a, b := phasesOf(r, 0), phasesOf(r, 1)
	if d := gocmp.Diff(a, phasesOf(r, 0)); d != "" {
		t.Errorf("phases of one repeat differ:\n%s", d)
	}
	if slices.Equal(a.Hosts, b.Hosts) || slices.Equal(a.Leaves, b.Leaves) {
		t.Errorf("two repeats have the phases %v", a)
	}
	if p := phasesOf(phased(t, "together"), 0); p != nil {
		t.Errorf("together: phases %v, want none", p)
	}
}

// A job alone starts at the same point of the phases of all hosts as in its run.
func TestAloneWithRandomPhases(t *testing.T) {
	r := phased(t, "random")
	w := drawnMaps(r, rand.New(rand.NewPCG(1, 2)))
	for i := range w.tasks { // far apart: each finds the cluster idle
		w.tasks[i].Submit += time.Duration(i) * 100 * time.Second
	}
	lone, unknown, err := r.alone(t.Context(), 0, w)
	if err != nil || unknown != "" {
		t.Fatal(unknown, err)
	}
	for _, j := range simulateTasks(t, r, w)[0].Jobs {
		if alone := lone[jobs.JobID(j.Job)]; alone != j.JobTime() {
			t.Errorf("job %d takes %v on the idle cluster, %v alone", j.Job, j.JobTime(), alone)
		}
	}
	if times := slices.Collect(maps.Values(lone)); len(times) != len(w.tasks) {
		t.Errorf("%d times of %d jobs", len(times), len(w.tasks))
	}
}
