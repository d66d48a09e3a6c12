// Package rundirtest creates small run directories for tests, as far as possible with the
// code of results/report that writes those of real runs.
//
// It measures nothing: times are invented and always the same.
package rundirtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"testbed/hosts/wire"
	"testbed/results/breakdown"
	"testbed/results/flows"
	"testbed/results/flows/flowstest"
	"testbed/results/metrics"
	"testbed/results/report"
	"testbed/results/rundir"
	"testbed/results/samples"
	"testbed/results/schema"
	"testbed/results/summary"
	"testbed/results/verdict"
	"testbed/topo/units"
	"testbed/workloads"
)

// Spec describes a run directory.
type Spec struct {
	Run        string // its name; "made" for ""
	Arms       []Arm
	Repeats    int
	Coflows    int  // coflows per repeat, with two flows each
	Blocks     int  // blocks per repeat
	FluidModel bool // a simulation
	Timing     bool // with breakdown.csv, links.csv, drops.csv and progress.csv
	Tasks      bool // with jobs of tasks, and attempts.csv
	Jobs       bool // with requests.csv, jobs.csv and balance.csv: one job per block, every third with a coflow; coflow 1 is background
}

// Arm is an arm of an invented run.
type Arm struct {
	Name  string
	Level verdict.Level // verdict of its last repeat; the others pass
	Speed float64       // speed-up relative to 1
}

// Default has a baseline, a faster arm and a degraded one, with two repeats each.
func Default() Spec {
	return Spec{Repeats: 2, Coflows: 12, Blocks: 5, Timing: true, Arms: []Arm{
		{"fair+hdfs", verdict.Pass, 1}, {"sebf+hdfs", verdict.Pass, 1.5}, {"sebf+sinbad", verdict.Degraded, 1.8}}}
}

// Write creates a run directory in a temporary directory.
func Write(t testing.TB, s Spec) string {
	t.Helper()
	if s.Run == "" {
		s.Run = "made"
	}
	dir := filepath.Join(t.TempDir(), s.Run)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.MkdirAll(dir, 0o755))
	in := report.Input{RunID: s.Run, Scenario: "made", FluidModel: s.FluidModel}
	m := rundir.Manifest{Tool: "test", Go: "go1", Kernel: "6", CPUs: 2, Backend: rundir.Packets, Run: s.Run, Scenario: "made", Workload: "w", Seed: 7,
		Repeats: s.Repeats, Started: time.Unix(1767000000, 0).UTC(), Ended: time.Unix(1767000100, 0).UTC(), State: rundir.Complete, Notes: []string{"made for a test"}}
	if s.FluidModel {
		m.Backend = rundir.Fluid
	}
	for _, a := range s.Arms {
		m.Arms = append(m.Arms, a.Name)
		arm := report.Arm{Name: a.Name}
		for k := range s.Repeats {
			rep := summary.Repeat{Records: records(s, a, k)}
			if s.Tasks {
				c := Cluster(a)
				tasks(&rep, c, k)
			}
			if s.Jobs {
				asked(s).Join(&rep.Records)
				rep.Placement = &metrics.Placement{CrossRack: metrics.CrossRack{All: 2e6 * a.Speed, Writes: 1e6 * a.Speed},
					Balance: &metrics.Balance{Interval: time.Second, Links: 2, Samples: []metrics.BalanceSample{{From: 0, Cv: 0.5 / a.Speed}, {From: 2 * time.Second, Cv: 1}}}}
			}
			if !s.FluidModel {
				level := verdict.Pass
				if k == s.Repeats-1 {
					level = a.Level
				}
				rep.Verdict = verdict.Of(verdict.Check{Name: "made", Level: level, Value: "1", Pass: "1", Void: "2"})
				fluid := records(s, Arm{a.Name, a.Level, a.Speed * 1.25}, k)
				rep.Fluid, rep.Zero = &fluid, Begun.Add(BeforeArrival)
				if s.Timing {
					rep.Progress = progress(rep.Records)
				}
			}
			arm.Repeats = append(arm.Repeats, rep)
		}
		in.Arms = append(in.Arms, arm)
	}
	must(writeTrials(dir, s, in))
	r, err := report.New(in)
	must(err)
	_, err = r.Write(dir, NoFigures)
	must(err)
	if s.Timing {
		must(writeTiming(dir, s, in, r.Summary.Rows))
		b, err := os.Create(filepath.Join(dir, summary.SummaryFile))
		must(err)
		must(errors.Join(r.JSON(b), b.Close()))
	}
	must(m.Seal(dir, ""))
	must(m.Save(dir))
	return dir
}

// NoFigures draws nothing: the figures of a page (results/plot) are tested with runs of this package.
func NoFigures(*rundir.Run, string, string) (string, []string, error) { return "", nil, nil }

// Begun is the start of each trial on packets, whose first arrival is BeforeArrival later.
var Begun = time.Unix(1767000000, 0).UTC()

// BeforeArrival is the time between two samples.
const BeforeArrival = 200 * time.Millisecond

// Machine is the ID of the machine of trials on packets.
const Machine = "0123456789ab"

func writeTrials(dir string, s Spec, in report.Input) error {
	var errs []error
	for i, a := range in.Arms {
		for k, rep := range a.Repeats {
			t := rundir.Trial{Key: fmt.Sprintf("key%d%d", i, k), Arm: a.Name, Repeat: k, Seed: 7 + uint64(k), Tool: "test"}
			if !s.FluidModel {
				t.Verdict, t.Run, t.Machine, t.Kernel, t.CPUs = &rep.Verdict.Level, s.Run, Machine, "6", 2
				t.Began, t.Ended = Begun, Begun.Add(10*time.Second)
			}
			at := filepath.Join(dir, fmt.Sprint("arm", i), fmt.Sprint(k))
			b, err := json.Marshal(t)
			errs = append(errs, err, os.MkdirAll(at, 0o755), os.WriteFile(filepath.Join(at, rundir.TrialFile), b, 0o644))
			if s.Timing {
				errs = append(errs, writeSamples(filepath.Join(at, samples.File), i))
			}
		}
	}
	return errors.Join(errs...)
}

// writeSamples writes samples of a link and two flows: the queue of the n-th arm is n KB longer.
func writeSamples(path string, n int) error {
	w := samples.Create(path, 1<<20)
	for k := range int64(20) {
		at := time.Duration(k) * BeforeArrival
		add := func(object, metric string, value int64) {
			w.Add(samples.Sample{At: at, Object: object, Metric: metric, Value: value})
		}
		add(samples.Links, samples.Look, 0)
		for _, link := range []string{"leaf0>spine0", "spine0>leaf0"} {
			add(link, samples.SentBytes, 500_000*k)
			add(link, samples.Dropped, 3+k*int64(n))
			add(link, samples.QueuePackets, k)
			add(link, samples.QueueBytes, 1000*int64(n)+1514*k)
		}
		for f := range workloads.FlowID(2) {
			o := samples.FlowObject(f)
			add(o, samples.RTT, 1000+100*k)
			add(o, samples.Window, 10+k)
			add(o, samples.DeliveryRate, (1+int64(f))*(1_000_000+k))
			add(o, samples.Retransmitted, k/5)
		}
	}
	return w.Close(samples.Head{Zero: Begun, Sample: BeforeArrival, Links: []samples.Link{{Name: "leaf0>spine0"}, {Name: "spine0>leaf0"}, {Name: "leaf2>h2-00"}}})
}

// Seal replaces the sums in the manifest of a run directory by those of its files, so that a test can read
// files that it changed.
func Seal(t testing.TB, dir string) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, rundir.ManifestFile))
	if err != nil {
		t.Fatal(err)
	}
	var m rundir.Manifest
	if json.Unmarshal(b, &m) != nil {
		return // a test of a manifest that cannot be read
	}
	m.Files = nil
	if err := errors.Join(m.Seal(dir, ""), m.Save(dir)); err != nil {
		t.Fatal(err)
	}
}

// Cluster is the cluster of an arm with jobs of tasks. A faster arm reads more blocks from its own hosts.
func Cluster(a Arm) flowstest.Cluster {
	c := flowstest.Default()
	c.Pace, c.Node = a.Speed, 1-0.5/a.Speed
	return c
}

// tasks adds the records of jobs of tasks.
func tasks(rep *summary.Repeat, c flowstest.Cluster, repeat int) {
	made := c.Records(uint64(repeat))
	var flow, coflow = workloads.FlowID(len(rep.Records.Flows)), workloads.CoflowID(len(rep.Records.Coflows))
	for _, f := range made.Flows {
		f.Coflow, f.Flow = f.Coflow+coflow, f.Flow+flow
		rep.Records.Flows = append(rep.Records.Flows, f)
	}
	for _, x := range made.Coflows {
		x.Coflow += coflow
		rep.Records.Coflows = append(rep.Records.Coflows, x)
	}
	rep.Records.Jobs = append(rep.Records.Jobs, made.Jobs...)
	rep.Records.Attempts = made.Attempts
	rep.Slots = &metrics.TaskSlots{Hosts: c.Hosts(), Map: c.MapSlots, Reduce: c.ReduceSlots}
}

// asked returns a job for each block, in two bins, every third with a coflow.
func asked(s Spec) *metrics.WorkloadMeta {
	a := &metrics.WorkloadMeta{Heartbeat: time.Second, Background: []workloads.CoflowID{1}}
	for b := range s.Blocks {
		job := metrics.AskedJob{Job: workloads.JobID(b + 1), Bin: 1 + b%2}
		if c := workloads.CoflowID(b); b%3 == 0 && b < s.Coflows {
			job.Coflow = &c
		}
		a.Jobs = append(a.Jobs, job)
		a.Writers = append(a.Writers, metrics.AskedWriter{Writer: workloads.WriterID(b), Job: job.Job, Blocks: []workloads.BlockID{workloads.BlockID(b)}})
	}
	return a
}

func records(s Spec, a Arm, repeat int) flows.Records {
	rng := rand.New(rand.NewPCG(uint64(repeat), 1)) // the same work for each arm
	var r flows.Records
	host := func(i int) string { return fmt.Sprintf("h%d-%02d", i%2, i%5) }
	last := time.Duration(0)
	for c := range s.Coflows {
		co := flows.CoflowRecord{Coflow: workloads.CoflowID(c), Width: 2, Arrival: time.Duration(c) * 100 * time.Millisecond}
		for k := range 2 {
			size := units.Bytes(1000 + rng.IntN(5_000_000))
			time := time.Duration(float64(size)*(100+rng.Float64()*900)/a.Speed) + 1
			f := flows.FlowRecord{Coflow: co.Coflow, Flow: workloads.FlowID(2*c + k), Src: host(c), Dst: host(c + 1 + k), Size: size,
				Arrival: co.Arrival, Start: co.Arrival + 1000, End: co.Arrival + time, Packets: int(size/1448) + 1, Resent: c % 3, Wire: size + size/20}
			co.Size += size
			co.End = max(co.End, f.End)
			r.Flows = append(r.Flows, f)
		}
		last = max(last, co.End)
		r.Coflows = append(r.Coflows, co)
	}
	for b := range s.Blocks {
		start := time.Duration(b) * 50 * time.Millisecond
		r.Blocks = append(r.Blocks, flows.BlockRecord{Block: workloads.BlockID(b), Client: host(b), Hosts: []string{host(b), host(b + 1), host(b + 2)}, Pipelines: 1,
			Size: 4_000_000, Requested: start, End: start + time.Duration(float64(400+rng.IntN(300))/a.Speed*float64(time.Millisecond))})
	}
	return r
}

// progress returns the progress of flows, which pause after a third, and of two hops of each
// block.
func progress(r flows.Records) (out []metrics.Progress) {
	for _, f := range r.Flows {
		long := f.End - f.Start
		p := metrics.Progress{Kind: wire.KindFlow, Group: uint32(f.Coflow), Member: uint32(f.Flow), Src: f.Src, Dst: f.Dst, Size: f.Size, Complete: true, SentKnown: f.Flow%5 != 4}
		for _, m := range []struct {
			bytes units.Bytes
			at    time.Duration
		}{{0, 0}, {f.Size / 6, long / 12}, {f.Size / 3, long / 6}, {f.Size/3 + 1, long / 2}, {f.Size * 2 / 3, long * 3 / 4}, {f.Size, long}} {
			p.Moments = append(p.Moments, metrics.Moment{Bytes: m.bytes, Sent: f.Start + m.at - 100, At: f.Start + m.at})
		}
		out = append(out, p)
	}
	for _, b := range r.Blocks {
		for hop := range 2 {
			out = append(out, metrics.Progress{Kind: wire.KindBlock, Group: uint32(b.Block), Member: uint32(hop), Src: b.Hosts[hop], Dst: b.Hosts[hop+1], Size: b.Size, Complete: true, SentKnown: true,
				Moments: []metrics.Moment{{Bytes: 0, Sent: b.Requested, At: b.Requested + 1000}, {Bytes: b.Size, Sent: b.End - 2000, At: b.End - 1000}}})
		}
	}
	return out
}

// writeTiming adds the parts of a report that need packets.
func writeTiming(dir string, s Spec, in report.Input, rows map[string]int) error {
	var shares []schema.Share
	var loads []schema.Load
	var drops []schema.Drop
	for _, a := range in.Arms {
		for k, rep := range a.Repeats {
			if rep.Verdict.Level == verdict.Void {
				continue
			}
			key := schema.Key{Arm: a.Name, Repeat: k, Verdict: rep.Verdict.Level.String()}
			for _, c := range rep.Records.Coflows {
				left := c.CCT()
				for i, cause := range []breakdown.Cause{breakdown.Held, breakdown.Serialisation, breakdown.Queueing, breakdown.Host} {
					part, link := left/3, ""
					switch cause {
					case breakdown.Host:
						part = left
					case breakdown.Queueing:
						link = "leaf0>spine0"
					}
					left -= part
					if i == 0 && k == 0 {
						continue // nothing was held
					}
					shares = append(shares, schema.Share{Key: key, Coflow: c.Coflow, Cause: cause, Link: link, Time: part})
				}
			}
			for l, name := range []string{"leaf0>spine0", "spine0>leaf0", "h0-00>leaf0", "leaf1>h1-00"} {
				drops = append(drops, schema.Drop{Key: key, Link: name, Rate: 10 * units.Mbps, Dropped: 100 * l * (k + 1),
					Source: summary.DropsKernel})
				for i := range 20 {
					load := schema.Load{Key: key, Link: name, Rate: 10 * units.Mbps, From: time.Duration(i) * 100 * time.Millisecond, Interval: 100 * time.Millisecond,
						Bytes: units.Bytes((l + 1) * i % 7 * 20_000)}
					load.Utilisation = float64(load.Bytes*8) / 1e6
					if payload := load.Bytes * 9 / 10; l == 3 {
						load.Payload = &payload
					}
					if queue := load.Bytes / 10; l != 3 { // else unknown
						load.Queue = &queue
					}
					loads = append(loads, load)
				}
			}
		}
	}
	rows[summary.BreakdownFile], rows[summary.LinksFile], rows[summary.DropsFile] = len(shares), len(loads), len(drops)
	return errors.Join(write(dir, summary.BreakdownFile, shares), write(dir, summary.LinksFile, loads), write(dir, summary.DropsFile, drops))
}

func write[T any](dir, name string, rows []T) error {
	f, err := os.Create(filepath.Join(dir, name))
	if err != nil {
		return err
	}
	err = schema.Write(f, func(yield func(*T) bool) {
		for i := range rows {
			if !yield(&rows[i]) {
				return
			}
		}
	})
	return errors.Join(err, f.Close())
}
