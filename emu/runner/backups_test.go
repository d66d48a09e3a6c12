package runner

import (
	"strings"
	"testing"
	"time"

	"testbed/emu/longtest"
	"testbed/results/flows"
	"testbed/results/metrics"
	"testbed/workloads"
)

// backupsOf counts the attempts that lost a race, and fails t if a task without output for others commits twice.
func backupsOf(t *testing.T, all []flows.AttemptRecord) (lost int) {
	t.Helper()
	committed := map[[3]int]bool{}
	for _, a := range all {
		id := [3]int{int(a.Job), a.Stage, a.Task}
		switch a.Outcome {
		case flows.Committed:
			if committed[id] {
				t.Errorf("task %v commits twice", id)
			}
			committed[id] = true
		case flows.Killed:
			if a.Why == "another attempt has committed" {
				lost++
			}
		}
	}
	return lost
}

// slowHost is a job whose maps on the first of six hosts take 10 times as long. That host reports first, so that it
// has tasks.
const slowHost = `
name: backups
fabric: {leaves: 2, spines: 1, hosts_per_leaf: 3, host_link: 100Mbps, oversubscription: "1:1"}
disk: {write: 20MB/s, size: 256MB}
heartbeat: {interval: 100ms, phase: together}
workload:
  - {kind: tasks, generator: mix, jobs: 1, block: 1MB, map_rate: 1MB/s, reduce_rate: 2MB/s, profiles: [{name: sort, maps: 12, reduces: 0.25, keep_map: 0.5, keep_reduce: 0.5}]}
tasks: {map_slots: 2, reduce_slots: 1, output: {packet: 16KB}}
faults: [{at: 1ms, kind: slow-cpu, host: h0-00, share: 0.1}]
arms:
  - {name: none, coflow: fair, placement: hdfs, tasks: fifo}
  - {name: other, coflow: fair, placement: hdfs, tasks: {name: fifo, with: [{speculation: {after: 1500ms, slow_host: 0}}]}}
`

// Jobs do not wait for the tasks of a slow host with LATE, nor small ones with Dolly, on the fluid model.
func TestBackupsOnTheFluidModel(t *testing.T) {
	for name, text := range map[string]string{
		"late": slowHost,
		"dolly": strings.NewReplacer("maps: 12", "maps: 4", "speculation: {after: 1500ms, slow_host: 0}",
			"cloning: {budget: 1, utilization: 1}").Replace(slowHost),
	} {
		r, w := workOf(t, text, 0)
		all := simulateTasks(t, r, w)
		none, other := all[0], all[1]
		lost := backupsOf(t, other.Attempts)
		if n := backupsOf(t, none.Attempts); n != 0 || lost == 0 {
			t.Errorf("%s: %d attempts lost a race, %d without: want some, and none", name, lost, n)
		}
		a, b := none.Jobs[0].JobTime(), other.Jobs[0].JobTime()
		if b > a/2 {
			t.Errorf("%s: the job takes %v, %v without: want half at most", name, b, a)
		}
		t.Logf("%s: the job takes %v, %v without; %d attempts lost a race", name, b, a, lost)
	}
}

// On packets, losers of races are stopped, also in the middle of their transfers. Captures alone have the same jobs
// and attempts as the run directory and the engine.
func TestBackupsOnPackets(t *testing.T) {
	t.Parallel()
	longtest.Skip(t, "runs jobs of tasks on packets, 15 s")
	text := strings.Replace(manyTasks, "tasks: {name: fair, kill: true, fair_timeout: 200ms, kill_interval: 200ms}",
		"tasks: {name: fair, with: [{speculation: {after: 200ms, cap: 1, slow_task: 1, slow_host: 0}}]}", 1)
	dir, _, whole, seen := runOneArm(t, text+"faults: [{at: 1s, kind: slow-cpu, host: h2-02, share: 0.25, for: 3s}]\n")
	sameFromCaptures(t, dir, whole)
	sameAttempts(t, seen.Attempts, whole.Records.Attempts)
	lost := backupsOf(t, whole.Records.Attempts)
	ended := map[[4]int]time.Duration{}
	for _, a := range whole.Records.Attempts {
		ended[[4]int{int(a.Job), a.Stage, a.Task, a.Attempt}] = a.End
	}
	// What is in queues still arrives.
	const drain = 200 * time.Millisecond
	for _, f := range whole.Records.Flows {
		if x := f.Task; x != nil && f.End > ended[[4]int{int(x.Job), x.Stage, x.Task, x.Attempt}]+drain {
			t.Errorf("flow %d of attempt %+v goes on until %v", f.Flow, *x, f.End)
		}
	}
	writers := map[flows.AttemptKey]*flows.AttemptRecord{}
	for i := range whole.Records.Attempts {
		writers[whole.Records.Attempts[i].Key()] = &whole.Records.Attempts[i]
	}
	engine := map[workloads.BlockID]flows.AttemptKey{}
	for _, b := range seen.Blocks {
		engine[b.Block] = b.Attempt
	}
	others := 0 // blocks of writers
	for _, w := range whole.Records.Writes {
		others += w.Blocks
	}
	for _, b := range whole.Records.Blocks {
		if b.Attempt == (flows.AttemptKey{}) && engine[b.Block] == b.Attempt {
			others--
			continue
		}
		if a := writers[b.Attempt]; a == nil || a.Host != b.Client || b.Requested < a.Start || b.Requested > a.End || engine[b.Block] != b.Attempt {
			t.Errorf("block %d of %s, requested at %v: written by %+v, %+v, by the engine %+v", b.Block, b.Client, b.Requested, b.Attempt, a, engine[b.Block])
		}
	}
	if others != 0 {
		t.Errorf("blocks of writers and blocks of no attempt differ by %d", others)
	}
	for _, w := range whole.Records.StoppedWrites {
		if a := writers[w.Attempt]; a == nil || a.Host != w.Client || a.Outcome != flows.Killed {
			t.Errorf("stopped block %d of %s: written by %+v, %+v", w.Block, w.Client, w.Attempt, a)
		}
	}
	c := metrics.ClonesOf(&whole.Records)
	t.Logf("%d of %d attempts lost a race; %d flows and %d writes stopped; %+v", lost, len(ended), len(whole.Records.Stopped), len(whole.Records.StoppedWrites), c)
	if c == nil || c.Bytes.Read+c.Bytes.Fetched == 0 {
		t.Errorf("no bytes of attempts that lost: %+v", c)
	}
	if lost == 0 {
		t.Error("no attempt lost a race")
	}
}
