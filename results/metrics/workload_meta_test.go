package metrics

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"testbed/results/flows"
	"testbed/results/pcap"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
	"testbed/workloads/jobs"
)

// Two jobs, one with a shuffle, and a writer without a job.
func askedWorkload() workloads.Workload {
	blocks := func(ids ...int) (out []workloads.Block) {
		for _, id := range ids {
			out = append(out, workloads.Block{ID: workloads.BlockID(id)})
		}
		return out
	}
	return workloads.Workload{
		Coflows: []workloads.Coflow{{ID: 9, Background: true}, {ID: 3, Job: 1}, {ID: 4}},
		Writers: []workloads.Writer{{ID: 5, Job: 1, Blocks: blocks(1, 2)}, {ID: 2, Job: 1, Blocks: blocks(3)}, {ID: 7, Job: 2, Blocks: blocks(4, 5)}, {ID: 8, Blocks: blocks(6)}},
		Jobs:    []workloads.Job{{ID: 1, Bin: 3}, {ID: 2, Bin: 5}},
	}
}

func askedJobs() []jobs.Job {
	tasks := []jobs.Task{{Input: 1, InputSize: 10, Output: []units.Bytes{4}}, {Input: 2, InputSize: 20, Output: []units.Bytes{4}}}
	return []jobs.Job{{ID: 1, User: "ann", Profile: "sort", Stages: []jobs.Stage{{Tasks: tasks}, {Kind: jobs.Reduce, From: []int{0}, Tasks: []jobs.Task{{}}}}},
		{ID: 2, Stages: []jobs.Stage{{Tasks: []jobs.Task{{InputSize: 7}}}}}}
}

func askedRecords() flows.Records {
	at := func(n int) time.Duration { return time.Duration(n) * time.Second }
	block := func(id, requested, waited, end int) flows.BlockRecord {
		return flows.BlockRecord{Block: workloads.BlockID(id), Client: "h0-00", Size: 10, Requested: at(requested), Waited: at(waited), End: at(end)}
	}
	return flows.Records{
		Coflows: []flows.CoflowRecord{{Coflow: 3, Arrival: at(1), End: at(4)}, {Coflow: 4, End: at(1)}, {Coflow: 9, End: at(50)}},
		Flows:   []flows.FlowRecord{{Coflow: 3, Flow: 1, Arrival: at(1), End: at(4)}, {Coflow: 9, Flow: 2, End: at(50)}},
		Blocks:  []flows.BlockRecord{block(1, 4, 0, 6), block(2, 8, 2, 9), block(3, 4, 0, 12), block(4, 10, 3, 11), block(5, 11, 0, 15), block(6, 2, 1, 3)},
	}
}

func TestWorkloadMetaOfTasks(t *testing.T) {
	want := []AskedTaskJob{{Job: 1, User: "ann", Profile: "sort", Maps: 2, Reduces: 1, Input: 30}, {Job: 2, Maps: 1, Input: 7}}
	if d := cmp.Diff(want, WorkloadMetaOf(askedWorkload(), askedJobs()).TaskJobs); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// Marks of arrivals give the writers, jobs and background coflows back. A writer that has requested only
// some of its blocks, or none, has no record, and neither has its job.
func TestWorkloadMetaOfCaptures(t *testing.T) {
	w := askedWorkload()
	want := WorkloadMetaOf(w, nil)
	want.Heartbeat, want.DiskRate, want.DiskSize, want.Slots = time.Second, units.Mbps, units.GB, &TaskSlots{Hosts: 6, Map: 2, Reduce: 1}
	res := flows.Result{Groups: NotesOf(w), Meta: pcap.Meta{Fabric: &topo.LeafSpine{Leaves: 2, HostsPerLeaf: 3},
		Cluster: &pcap.Cluster{Heartbeat: time.Second, DiskRate: units.Mbps, DiskSize: units.GB, MapSlots: 2, ReduceSlots: 1}}}
	if d := cmp.Diff(&want, WorkloadMetaOfCaptures(&res)); d != "" {
		t.Errorf("(-workload +captures):\n%s", d)
	}
	for _, missing := range [][]uint32{{2}, {3}, {1, 2}, {1, 2, 3}} {
		res.Groups = NotesOf(w)
		r := askedRecords()
		for _, id := range missing {
			delete(res.Groups.Blocks, id)
			r.Blocks = slices.DeleteFunc(r.Blocks, func(b flows.BlockRecord) bool { return b.Block == workloads.BlockID(id) })
		}
		full := r
		want.Join(&full)
		WorkloadMetaOfCaptures(&res).Join(&r)
		if d := cmp.Diff(full, r); d != "" || len(r.Jobs) != 1 {
			t.Errorf("without blocks %v (-workload +captures):\n%s", missing, d)
		}
	}
	res.Meta.Cluster = nil
	if got := WorkloadMetaOfCaptures(&res); got != nil {
		t.Errorf("%+v of captures of an older version", got)
	}
}

func TestWorkloadMetaJoins(t *testing.T) {
	a := WorkloadMetaOf(askedWorkload(), askedJobs())
	a.Heartbeat = time.Second
	if err := a.Check(); err != nil {
		t.Fatal(err)
	}
	r := askedRecords()
	a.Join(&r)
	sec := time.Second
	three := workloads.CoflowID(3)
	wantWrites := []flows.WriteRecord{
		{Writer: 2, Job: 1, Client: "h0-00", Blocks: 1, Size: 10, Requested: 4 * sec, End: 12 * sec},
		{Writer: 5, Job: 1, Client: "h0-00", Blocks: 2, Size: 20, Requested: 4 * sec, End: 9 * sec},
		{Writer: 7, Job: 2, Client: "h0-00", Blocks: 2, Size: 20, Requested: 7 * sec, End: 15 * sec},
		{Writer: 8, Client: "h0-00", Blocks: 1, Size: 10, Requested: sec, End: 3 * sec},
	}
	// The job with a shuffle starts at its arrival, the other at its first request, before
	// its wait.
	wantJobs := []flows.JobRecord{{Job: 1, Bin: 3, Coflow: &three, Blocks: 3, Size: 30, Arrival: sec, End: 12 * sec}, {Job: 2, Bin: 5, Blocks: 2, Size: 20, Arrival: 7 * sec, End: 15 * sec}}
	if d := cmp.Diff(wantWrites, r.Writes) + cmp.Diff(wantJobs, r.Jobs); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	first := r
	a.Join(&r)
	if d := cmp.Diff(first, r); d != "" {
		t.Errorf("joined twice (-once +twice):\n%s", d)
	}
	if d := cmp.Diff([]Item{{0, 3, 3 * sec, 3}, {0, 4, sec, 4}}, CCTs(0, r)); d != "" {
		t.Errorf("background coflows are left out (-want +got):\n%s", d)
	}
	if d := cmp.Diff([]Item{{0, 1, 3 * sec, 3}}, FCTs(0, r)); d != "" {
		t.Errorf("background flows are left out (-want +got):\n%s", d)
	}
	if d := cmp.Diff([]Item{{1, 2, 8 * sec, -1}, {1, 5, 5 * sec, -1}, {1, 7, 8 * sec, -2}, {1, 8, 2 * sec, 8}}, RequestTimes(1, r)); d != "" {
		t.Errorf("request times (-want +got):\n%s", d)
	}
	if d := cmp.Diff([]Item{{1, 1, 11 * sec, 1}, {1, 2, 8 * sec, 2}}, JobTimes(1, r)); d != "" {
		t.Errorf("job times (-want +got):\n%s", d)
	}
	if got := JobTimesIn(5)(0, r); len(got) != 1 || got[0].ID != 2 {
		t.Errorf("jobs of bin 5: %v, want job 2", got)
	}
	if got := WriteTimes(0, r); got[1].Time != sec {
		t.Errorf("write time of block 2: %v, want 1s: the wait for placement is excluded", got[1].Time)
	}
}

// A request or job with a missing or failed part has no time.
func TestWorkloadMetaPartsMissing(t *testing.T) {
	a := WorkloadMetaOf(askedWorkload(), askedJobs())
	for _, tt := range []struct {
		name   string
		change func(*flows.Records)
		writes []workloads.WriterID
		jobs   []workloads.JobID
	}{
		{"nothing", func(*flows.Records) {}, []workloads.WriterID{2, 5, 7, 8}, []workloads.JobID{1, 2}},
		{"a block is not there", func(r *flows.Records) { r.Blocks = r.Blocks[1:] }, []workloads.WriterID{2, 7, 8}, []workloads.JobID{2}},
		{"a block failed but ended later", func(r *flows.Records) { r.Failed = []flows.Failure{{Kind: flows.FailedBlock, Block: 4}} }, []workloads.WriterID{2, 5, 8}, []workloads.JobID{1}},
		{"a flow of the shuffle failed", func(r *flows.Records) { r.Failed = []flows.Failure{{Kind: flows.FailedFlow, Coflow: 3, Flow: 1}} }, []workloads.WriterID{2, 5, 7, 8}, []workloads.JobID{2}},
		{"a replica was lost", func(r *flows.Records) { r.Failed = []flows.Failure{{Kind: flows.FailedReplica, Block: 4}} }, []workloads.WriterID{2, 5, 7, 8}, []workloads.JobID{1, 2}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := askedRecords()
			tt.change(&r)
			a.Join(&r)
			var writes []workloads.WriterID
			var jobs []workloads.JobID
			for _, w := range r.Writes {
				writes = append(writes, w.Writer)
			}
			for _, j := range r.Jobs {
				jobs = append(jobs, j.Job)
			}
			if d := cmp.Diff(tt.writes, writes) + cmp.Diff(tt.jobs, jobs); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

func TestWorkloadMetaCheck(t *testing.T) {
	three := workloads.CoflowID(3)
	for _, tt := range []struct {
		name   string
		change func(*WorkloadMeta)
		err    string
	}{
		{"no heartbeat", func(a *WorkloadMeta) { a.Heartbeat = 0 }, "heartbeat_ns 0"},
		{"a job twice", func(a *WorkloadMeta) { a.Jobs[1].Job = 1 }, "job 1 in bin 5"},
		{"a coflow of two jobs", func(a *WorkloadMeta) { a.Jobs[1].Coflow = &three }, "coflow 3 belongs to job 1 and job 2"},
		{"a writer twice", func(a *WorkloadMeta) { a.Writers[1].Writer = a.Writers[0].Writer }, "writers must be unique"},
		{"a block of two writers", func(a *WorkloadMeta) { a.Writers[1].Blocks[0] = a.Writers[0].Blocks[0] }, "block 3 belongs to writer 2 and writer 5"},
		{"a job that is not there", func(a *WorkloadMeta) { a.Writers[0].Job = 6 }, "writer 2 belongs to job 6"},
		{"a job without work", func(a *WorkloadMeta) { a.Writers = a.Writers[:2] }, "job 2 has neither"},
		{"a job of tasks twice", func(a *WorkloadMeta) { a.TaskJobs[1].Job = 1 }, "job 1 of 1 maps and 0 reduces"},
		{"a job without tasks", func(a *WorkloadMeta) { a.TaskJobs[1].Maps = 0 }, "job 2 of 0 maps and 0 reduces"},
		{"a negative disk", func(a *WorkloadMeta) { a.DiskSize = -1 }, "must be 0 or more"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := WorkloadMetaOf(askedWorkload(), askedJobs())
			a.Heartbeat = time.Second
			tt.change(&a)
			if err := a.Check(); err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%v: want %q", err, tt.err)
			}
		})
	}
}

// fabricOf returns a fabric with racks of two 80 Mbps hosts and uplinks of the given rate.
func fabricOf(t *testing.T, racks, spines int, uplink string) *topo.Fabric {
	t.Helper()
	s := topo.LeafSpine{Leaves: racks, Spines: spines, HostsPerLeaf: 2, HostLink: 80_000_000, Queue: topo.Queue{Time: time.Millisecond}, MTU: 1500}
	if spines > 0 {
		if err := s.Uplink.UnmarshalText([]byte(uplink)); err != nil {
			t.Fatal(err)
		}
	}
	f, err := s.Build()
	if err != nil {
		t.Fatal(err)
	}
	return f
}
