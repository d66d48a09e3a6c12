// Package archivetest makes small run directories for tests, by the code that writes
// those of real runs as far as it is results/report's.
//
// It measures nothing: the times are made up, and the same each time.
package archivetest

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"testbed/hosts/wire"
	"testbed/results/archive"
	"testbed/results/flows"
	"testbed/results/metrics"
	"testbed/results/report"
	"testbed/results/timing"
	"testbed/results/verdict"
	"testbed/topo/units"
	"testbed/workloads"
)

// Spec says what a run directory is to hold.
type Spec struct {
	Run        string // its name; "made" for ""
	Arms       []Arm
	Repeats    int
	Coflows    int  // a repeat; each of two flows
	Blocks     int  // a repeat
	FluidModel bool // a simulation
	Timing     bool // with breakdown.csv, links.csv and progress.csv
	Jobs       bool // with requests.csv, jobs.csv and balance.csv: a job a block; of every third a coflow, and coflow 1 is background
}

// Arm is an arm of a made run.
type Arm struct {
	Name  string
	Level verdict.Level // of its last repeat; the others pass
	Speed float64       // how many times as fast as it would be at 1
}

// Default has a baseline, a faster arm and a degraded one, two repeats each.
func Default() Spec {
	return Spec{Repeats: 2, Coflows: 12, Blocks: 5, Timing: true, Arms: []Arm{
		{"fair+hdfs", verdict.Pass, 1}, {"sebf+hdfs", verdict.Pass, 1.5}, {"sebf+sinbad", verdict.Degraded, 1.8}}}
}

// Write makes a run directory in a place of its own.
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
	m := archive.Manifest{Tool: "test", Go: "go1", Kernel: "6", CPUs: 2, Backend: archive.Packets, Run: s.Run, Scenario: "made", Workload: "w", Seed: 7,
		Repeats: s.Repeats, Started: time.Unix(1767000000, 0).UTC(), Ended: time.Unix(1767000100, 0).UTC(), State: archive.Complete, Notes: []string{"made for a test"}}
	if s.FluidModel {
		m.Backend = archive.Fluid
	}
	for _, a := range s.Arms {
		m.Arms = append(m.Arms, a.Name)
		arm := report.Arm{Name: a.Name}
		for k := range s.Repeats {
			rep := report.Repeat{Records: records(s, a, k)}
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
				rep.Fluid = &fluid
				if s.Timing {
					rep.Progress = progress(rep.Records)
				}
			}
			arm.Repeats = append(arm.Repeats, rep)
		}
		in.Arms = append(in.Arms, arm)
	}
	r, err := report.New(in)
	must(err)
	_, err = r.Write(dir)
	must(err)
	b, err := json.MarshalIndent(m, "", "  ")
	must(err)
	must(os.WriteFile(filepath.Join(dir, archive.ManifestFile), b, 0o644))
	if s.Timing {
		must(writeTiming(dir, s, in))
	}
	return dir
}

// asked has a job of each block, in two bins, and of every third a coflow too.
func asked(s Spec) *metrics.Asked {
	a := &metrics.Asked{Heartbeat: time.Second, Background: []workloads.CoflowID{1}}
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

// progress is that of flows, which stop for a while after a third, and of two hops of
// each block.
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

// writeTiming adds what is made of the packets of a run.
func writeTiming(dir string, s Spec, in report.Input) error {
	us := func(d time.Duration) string { return fmt.Sprintf("%d.%03d", d/1000, d%1000) }
	shares := [][]string{{"arm", "repeat", "verdict", "coflow", "cause", "link", "time_us"}}
	loads := [][]string{{"arm", "repeat", "verdict", "link", "rate_bps", "from_us", "interval_us", "bytes", "utilisation", "queue_bytes"}}
	for _, a := range in.Arms {
		for k, rep := range a.Repeats {
			if rep.Verdict.Level == verdict.Void {
				continue
			}
			begin := []string{a.Name, strconv.Itoa(k), rep.Verdict.Level.String()}
			for _, c := range rep.Records.Coflows {
				left := c.CCT()
				for i, cause := range []timing.Cause{timing.Held, timing.Serialisation, timing.Queueing, timing.Host} {
					part, link := left/3, ""
					switch cause {
					case timing.Host:
						part = left
					case timing.Queueing:
						link = "leaf0>spine0"
					}
					left -= part
					if i == 0 && k == 0 {
						continue // nothing was held there
					}
					shares = append(shares, append(begin[:3:3], strconv.Itoa(int(c.Coflow)), string(cause), link, us(part)))
				}
			}
			for l, name := range []string{"leaf0>spine0", "spine0>leaf0", "h0-00>leaf0", "h1-00>leaf1"} {
				for i := range 20 {
					bytes := (l + 1) * i % 7 * 20_000
					queue := strconv.Itoa(bytes / 10)
					if l == 3 {
						queue = "" // unknown
					}
					loads = append(loads, append(begin[:3:3], name, "10000000", us(time.Duration(i)*100*time.Millisecond), us(100*time.Millisecond),
						strconv.Itoa(bytes), strconv.FormatFloat(float64(bytes*8)/1e6, 'f', 6, 64), queue))
				}
			}
		}
	}
	for name, rows := range map[string][][]string{report.BreakdownFile: shares, report.LinksFile: loads} {
		f, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		if err := csv.NewWriter(f).WriteAll(rows); err != nil {
			return err
		}
		if err := f.Close(); err != nil {
			return err
		}
	}
	return nil
}
