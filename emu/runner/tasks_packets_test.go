package runner

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"testbed/emu/longtest"
	"testbed/results/flows"
	"testbed/topo/units"
	"testbed/workloads"
)

// taskFaults crash a host while tasks of many jobs run, and slow down a disk, a processor and a link.
const taskFaults = `
faults:
  - {at: 1500ms, kind: slow-disk, host: h0-01, rate: 1MB/s, for: 3s}
  - {at: 1500ms, kind: slow-cpu, host: h2-02, share: 0.25, for: 3s}
  - {at: 2s, kind: link-rate, link: "leaf0>spine0", rate: 20Mbps, for: 2s}
  - {at: 3s, kind: host-crash, host: h1-01}
`

// A host that crashes costs attempts, and no job of tasks: their blocks have other replicas, and maps
// whose output it had run again. Captures alone have the same jobs and attempts as the run directory and
// the engine.
func TestTasksUnderFaults(t *testing.T) {
	t.Parallel()
	longtest.Skip(t, "runs jobs of tasks on packets, 15 s")
	const host = "h1-01"
	text := strings.Replace(manyTasks, "input: {replicas: 1}", "input: {replicas: 2}", 1)
	dir, _, whole, seen := runOneArm(t, strings.Replace(text, "heartbeat: {interval: 100ms}", "heartbeat: {interval: 100ms, lost_after: 5}", 1)+taskFaults)
	sameFromCaptures(t, dir, whole)
	sameAttempts(t, seen.Attempts, whole.Records.Attempts)
	tasks, lost := 0, 0
	for _, j := range whole.Records.Jobs {
		if j.Tasks > 0 {
			tasks++
		}
	}
	const crash = 3 * time.Second
	committed := map[[3]int]bool{}
	for _, a := range whole.Records.Attempts {
		if a.Host == host && a.Outcome == flows.Failed {
			lost++
		}
		if a.Host == host && (a.Start > crash+time.Second || a.Outcome == flows.Committed && a.End > crash+time.Second) {
			t.Errorf("attempt %+v is on a host that crashed at %v", a, crash)
		}
		if id := [3]int{int(a.Job), a.Stage, a.Task}; a.Outcome == flows.Committed {
			if committed[id] && a.Kind != flows.MapTask { // a map runs again if its output is lost
				t.Errorf("task %v commits twice", id)
			}
			committed[id] = true
		}
	}
	if tasks != 10 || lost == 0 {
		t.Errorf("%d jobs of tasks have ended, %d attempts failed on %s: want 10 jobs, and some attempts", tasks, lost, host)
	}
	for _, f := range whole.Failures {
		if !strings.Contains(f.Fault, host) {
			t.Errorf("failure %+v: want those by the crash of %s alone", f, host)
		}
	}
}

// Workers have one job at a time on packets, and captures alone have the times at which they submit.
func TestWorkersOnPackets(t *testing.T) {
	t.Parallel()
	longtest.Skip(t, "runs jobs of tasks on packets, 15 s")
	text := strings.Replace(manyTasks, "jobs: 10, gap: 300ms, block: 1MB, users: 3", "jobs: 6, gap: 300ms, block: 1MB, workers: 2", 1)
	dir, _, whole, seen := runOneArm(t, text)
	sameFromCaptures(t, dir, whole)
	sameAttempts(t, seen.Attempts, whole.Records.Attempts)
	count, ends := map[string]int{}, map[string]time.Duration{}
	all := slices.SortedFunc(slices.Values(whole.Records.Jobs), func(a, b flows.JobRecord) int { return int(a.Arrival - b.Arrival) })
	for _, j := range all {
		if j.Tasks == 0 {
			continue
		}
		if end := ends[j.User]; j.Arrival < end {
			t.Errorf("%s submits job %d at %v, before the end of its job at %v", j.User, j.Job, j.Arrival, end)
		}
		count[j.User]++
		ends[j.User] = j.End
	}
	if d := cmp.Diff(map[string]int{"u1": 3, "u2": 3}, count); d != "" {
		t.Errorf("jobs of workers (-want +got):\n%s", d)
	}
}

// sameAttempts checks that attempts of packets are those of the engine; times differ by what a mark takes.
func sameAttempts(t *testing.T, engine, packets []flows.AttemptRecord) {
	t.Helper()
	type attempt struct {
		job               workloads.JobID
		stage, task, n    int
		host, kind, place string
		input             units.Bytes
		outcome, why      string
	}
	identity := func(all []flows.AttemptRecord) (out []attempt) {
		for _, a := range all {
			out = append(out, attempt{a.Job, a.Stage, a.Task, a.Attempt, a.Host, a.Kind, a.Locality, a.Input, a.Outcome, a.Why})
		}
		return out
	}
	if d := cmp.Diff(identity(engine), identity(packets), cmp.AllowUnexported(attempt{})); d != "" {
		t.Errorf("attempts (-engine +captures):\n%s", d)
	}
}
