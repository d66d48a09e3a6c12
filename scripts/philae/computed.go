package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"testbed/emu/study"
	"testbed/emu/tracesim"
	"testbed/results/coflows"
	"testbed/results/files"
	"testbed/results/metrics"
	"testbed/topo/units"
	"testbed/workloads"
)

// interval is the paper's δ.
const interval = 8 * time.Millisecond

// everyone are the policies of the table. The first is the one that the others are
// compared with. Those that reallocate at coflows alone are as CoflowSim, the simulator
// published with the trace, has them.
var everyone = []string{
	"philae", "philae:policy=A", "philae:policy=B", "philae:policy=C", "philae-sim",
	"aalo", "aalo:across=weighted", "aalo-oracle", "saath", "fair", "equal-share",
	"fifo", "fifo:allocation=madd,backfill=fair-share,reallocate=coflows", "scf", "ncf", "lcf", "srtf",
	"sebf", "sebf:allocation=greedy", "sebf:backfill=fair-share,key=initial,reallocate=coflows", "sincronia",
}

// rivals are the policies that Philae is compared with on derived traces, and learned
// those whose learning is looked at.
var (
	rivals  = []string{"aalo", "aalo-oracle", "sebf"}
	learned = []string{"philae", "aalo"}
)

// simulate runs policies on a trace, and keeps every coflow's times in a file.
func (s *philae) simulate(ctx context.Context, name string, t *workloads.Trace, delta time.Duration, texts ...string) (*study.Outcome, error) {
	o := study.Options{First: s.coflows, Interval: delta}
	for _, text := range texts {
		p, err := study.ParsePolicy(text)
		if err != nil {
			return nil, err
		}
		o.Policies = append(o.Policies, p)
	}
	began := time.Now()
	policy := ""
	out, err := study.Do(ctx, t, o, func() time.Duration { return time.Since(began) }, func(p study.Progress) {
		if p.Policy != policy {
			policy = p.Policy
			fmt.Fprintf(os.Stderr, "%s: policy %d/%d %s\n", name, p.Run, p.Runs, policy)
		}
	})
	if err != nil {
		return nil, err
	}
	return out, files.Write(filepath.Join(s.Dir, name+".csv"), out.CoflowsCSV)
}

// over is the speed-up of the first policy of an outcome over another.
func over(out *study.Outcome, policy string) (coflows.Speedup, error) {
	at := slices.IndexFunc(out.Runs, func(r study.Run) bool { return r.Policy == policy })
	if at < 0 {
		return coflows.Speedup{}, fmt.Errorf("policy %s was not run", policy)
	}
	return coflows.Faster(out.Runs[at].Times(), out.Runs[0].Times())
}

func times(f float64) string { return fmt.Sprintf("%.2f×", f) }

// table is every policy on the whole trace.
func (s *philae) table(ctx context.Context) error {
	out, err := s.simulate(ctx, "table", s.trace, interval, everyone...)
	if err != nil {
		return err
	}
	s.Say("%d coflows with %d flows of %s on one non-blocking switch; 1 MB takes 8 ms on a port, coflows arrive when the trace says, flows inside a port count. Percentiles are interpolated linearly.\n", out.Coflows, out.Flows, s.trace.Name)
	if err := out.Markdown(s); err != nil {
		return err
	}
	s.Say("\nSpeed-up of Philae (policy D) over each: the ratio of the averages, and the median and 90th percentile of the coflows' ratios; the paper's beside them.\n")
	var rows [][]string
	for _, r := range out.Runs[1:] {
		f, err := over(out, r.Policy)
		if err != nil {
			return err
		}
		p := s.paper.Speedups[r.Policy]
		rows = append(rows, []string{r.Policy, times(f.Averages), or(p.Avg), times(f.P50), or(p.P50), times(f.P90), or(p.P90)})
	}
	if err := s.Draw([]string{"over", "average", "paper", "median", "paper ", "P90", "paper  "}, rows); err != nil {
		return err
	}
	s.Reasons(s.paper.Reasons, everyone...)
	if err := s.overAalo(out); err != nil {
		return err
	}
	if err := s.sizes(out); err != nil {
		return err
	}
	return s.jobs(out)
}

// sizes are averages by size and width.
func (s *philae) sizes(out *study.Outcome) error {
	bins := coflows.DefaultSizeBins(study.MB(s.trace, tracesim.Ports{}))
	head := []string{"policy"}
	var rows [][]string
	for i, r := range out.Runs {
		row := []string{r.Policy}
		for _, b := range bins.Split(r.Times()) {
			if i == 0 {
				head = append(head, fmt.Sprintf("%s (%d)", b.Name, b.Coflows))
			}
			cell := "–"
			if b.Coflows > 0 {
				cell = fmt.Sprintf("%.4g s", b.Average.Seconds())
			}
			row = append(row, cell)
		}
		rows = append(rows, row)
	}
	s.Say("Average CCT by the bins of the paper's figure 5: small is at most 100 MB, thin at most %d flows.\n", workloads.ThinCoflow)
	return s.Draw(head, rows)
}

// overAalo are Philae's four policies over Aalo.
func (s *philae) overAalo(out *study.Outcome) error {
	aalo := out.Runs[slices.IndexFunc(out.Runs, func(r study.Run) bool { return r.Policy == "aalo" })].Times()
	s.Say("The four policies of Philae, and its public simulator's way, over Aalo.\n")
	var rows [][]string
	for _, r := range out.Runs {
		if !strings.HasPrefix(r.Policy, "philae") {
			continue
		}
		f, err := coflows.Faster(aalo, r.Times())
		if err != nil {
			return err
		}
		p := s.paper.OverAalo[r.Policy]
		rows = append(rows, []string{r.Policy, times(f.Averages), or(p.Avg), times(f.P50), or(p.P50)})
	}
	return s.Draw([]string{"policy", "average", "paper", "median", "paper "}, rows)
}

// jobs are job completion times: Philae over Aalo.
func (s *philae) jobs(out *study.Outcome) error {
	items := func(policy string) []metrics.Item {
		at := slices.IndexFunc(out.Runs, func(r study.Run) bool { return r.Policy == policy })
		var is []metrics.Item
		for _, c := range out.Runs[at].Coflows {
			is = append(is, metrics.Item{ID: int(c.ID), Cluster: int(c.ID), Time: c.CCT()})
		}
		return is
	}
	base, arm, _, err := metrics.AaloJobs().Jobs(s.seed, items("aalo"), items("philae"))
	if err != nil {
		return err
	}
	ratios := make([]float64, len(arm))
	for i := range arm {
		ratios[i] = float64(base[i].Time) / float64(arm[i].Time)
	}
	slices.Sort(ratios)
	s.Say("Job completion times, Philae over Aalo, where the shuffle is the part of the job that Aalo's evaluation states (in 61 %% of the jobs below a quarter): median %.2f× (paper %s), P90 %.2f× (paper %s).\n",
		metrics.Quantile(0.5, ratios), or(s.paper.JCT.P50), metrics.Quantile(0.9, ratios), or(s.paper.JCT.P90))
	return nil
}

// replicas is by how much the paper's largest cluster is larger than the trace's.
const replicas = 6

// derived are the traces made of the trace.
func (s *philae) derived(ctx context.Context) error {
	type derivation struct {
		name   string
		make   func() (*workloads.Trace, error)
		delta  time.Duration
		others []string
		paper  map[string]figure
		want   int // coflows, as the paper counts them; 0 where it does not say
	}
	var all []derivation
	for _, f := range s.paper.LowSkew {
		all = append(all, derivation{fmt.Sprintf("low-skew-%d", f.K), func() (*workloads.Trace, error) {
			return workloads.LowSkewFiltered(s.trace, workloads.Factor{Num: int64(f.K), Den: 1})
		}, interval, []string{"aalo"}, map[string]figure{"aalo": f}, f.Coflows})
	}
	all = append(all,
		derivation{"mantri", func() (*workloads.Trace, error) {
			return workloads.MantriLike(s.trace, workloads.MantriSkew, units.MB, s.seed)
		}, interval, rivals, s.paper.Mantri, 0},
		derivation{"wide", func() (*workloads.Trace, error) { return workloads.WideOnly(s.trace, workloads.ThinCoflow) },
			interval, rivals, s.paper.Wide, 0},
		derivation{fmt.Sprintf("replicated-%d", replicas), func() (*workloads.Trace, error) { return workloads.Replicate(s.trace, replicas) },
			replicas * interval, []string{"aalo"}, nil, 0})
	var rows [][]string
	var large *study.Outcome
	for _, d := range all {
		t, err := d.make()
		if err != nil {
			return fmt.Errorf("%s: %w", d.name, err)
		}
		texts := []string{"philae"}
		for _, o := range d.others {
			if d.delta != interval {
				o += ":interval=" + d.delta.String()
			}
			texts = append(texts, o)
		}
		out, err := s.simulate(ctx, d.name, t, d.delta, texts...)
		if err != nil {
			return fmt.Errorf("%s: %w", d.name, err)
		}
		if d.delta != interval {
			large = out
		}
		for i, o := range texts[1:] {
			f, err := over(out, o)
			if err != nil {
				return err
			}
			p := d.paper[d.others[i]]
			counted := "–"
			if d.want > 0 {
				counted = fmt.Sprint(d.want)
			}
			rows = append(rows, []string{d.name, fmt.Sprint(out.Coflows), counted, fmt.Sprint(t.Ports), o, times(f.Averages), or(p.Avg), times(f.P50), or(p.P50), times(f.P90)})
		}
	}
	s.Say("Speed-up of Philae (policy D). δ of Aalo is %v, %v on the replicated trace.\n", interval, replicas*interval)
	if err := s.Draw([]string{"trace", "coflows", "paper", "ports", "over", "average", "paper ", "median", "paper  ", "P90"}, rows); err != nil {
		return err
	}
	if large != nil {
		s.Say("The coordinator at %d ports, in intervals of %v.\n", replicas*s.trace.Ports, replicas*interval)
		return large.Markdown(s)
	}
	return nil
}

// sensitivity is Philae over Aalo as its parameters change, one at a time.
func (s *philae) sensitivity(ctx context.Context) error {
	texts := []string{"aalo", "philae"}
	for _, p := range []struct {
		name   string
		values []string
	}{
		{"thin", []string{"0", "3", "15", "31"}},
		{"first_queue", []string{"1MiB", "100MiB", "1000MiB"}},
		{"growth", []string{"2", "5", "32"}},
		{"fraction", []string{"0.01", "0.1", "0.2", "0.5"}},
		{"choose", []string{"random"}},
	} {
		for _, v := range p.values {
			texts = append(texts, "philae:"+p.name+"="+v)
		}
	}
	for _, n := range []string{"1", "2", "10"} {
		texts = append(texts, "philae:pilots=number,number="+n)
	}
	out, err := s.simulate(ctx, "sensitivity", s.trace, 0, texts...)
	if err != nil {
		return err
	}
	s.Say("One parameter at a time; the others have their defaults, T = 7, Q0 = 10 MiB, E = 10 and a pilot for every 20 senders. Speed-ups are over Aalo.\n")
	var rows [][]string
	for _, r := range out.Runs[1:] {
		rows = append(rows, []string{r.Policy, fmt.Sprintf("%.2f s", r.Summary.Average.Seconds()), times(r.Speedup.Averages), times(r.Speedup.P50), times(r.Speedup.P90)})
	}
	return s.Draw([]string{"policy", "average", "speed-up", "median", "P90"}, rows)
}

// learning is how well pilots tell a coflow's size, and how long it takes until a
// coflow is where it belongs.
func (s *philae) learning(ctx context.Context) error {
	out, err := s.simulate(ctx, "learning", s.trace, 0, learned...)
	if err != nil {
		return err
	}
	e := estimates(out.Runs[0].Coflows)
	s.Say("Size after the pilots against the real one, over %d sampled coflows: absolute error of %.3f on average, standard deviation of the error %.3f (paper %.2f and %.2f); median %.3f, P90 %.3f of the absolute.\n",
		e.n, e.mean, e.deviation, s.paper.Estimate.Error, s.paper.Estimate.Deviation, e.p50, e.p90)
	var rows [][]string
	for _, r := range out.Runs {
		c := costs(r.Coflows, r.Policy == "philae")
		rows = append(rows, []string{r.Policy, fmt.Sprintf("%.0f %%", 100*c.all), fmt.Sprintf("%.0f %%", 100*s.paper.Learning[r.Policy]),
			fmt.Sprintf("%.0f %%", 100*c.soon), fmt.Sprintf("%.0f %%", 100*c.p50), fmt.Sprintf("%.0f %%", 100*c.p90), fmt.Sprintf("%.1f %%", 100*c.bytes)})
	}
	s.Say("Learning: the part of its CCT after which a coflow is in its last queue (under Philae: after which its pilots have ended; thin coflows have nothing to learn), and what part of its bytes it has sent by then. Wide coflows have more than %d flows.\n", workloads.ThinCoflow)
	return s.Draw([]string{"policy", "learned within 1 % of CCT", "paper", "of wide coflows", "their median", "their P90", "their bytes, average"}, rows)
}

// estimate is the relative error of sizes: deviation of the error with its sign, the
// rest of its amount.
type estimate struct {
	n                         int
	mean, deviation, p50, p90 float64
}

// estimates compares the sizes that pilots tell with those that coflows have.
func estimates(all []tracesim.Coflow) estimate {
	var errs, abs []float64
	for _, c := range all {
		if c.Pilots == 0 {
			continue
		}
		told := float64(c.PilotSent) / float64(c.Pilots) * float64(c.Width)
		errs = append(errs, told/float64(c.Size)-1)
		abs = append(abs, math.Abs(told/float64(c.Size)-1))
	}
	e := estimate{n: len(errs)}
	if e.n == 0 {
		return e
	}
	for _, x := range errs {
		e.mean += math.Abs(x) / float64(e.n)
	}
	var mean float64
	for _, x := range errs {
		mean += x / float64(e.n)
	}
	for _, x := range errs {
		e.deviation += (x - mean) * (x - mean) / float64(e.n)
	}
	e.deviation = math.Sqrt(e.deviation)
	slices.Sort(abs)
	e.p50, e.p90 = metrics.Quantile(0.5, abs), metrics.Quantile(0.9, abs)
	return e
}

// cost is of coflows, 0 to 1: the part of all that is soon where it belongs; and of
// those that are not thin the same, percentiles of the part of its CCT that this takes
// one, and the part of its bytes, on average.
type cost struct{ all, soon, p50, p90, bytes float64 }

// costs is how soon coflows are where they belong: in their last queue, or sampled.
// What is not sampled has nothing to learn, and is where it belongs at once.
func costs(all []tracesim.Coflow, sampled bool) cost {
	var parts []float64
	var c cost
	for _, f := range all {
		at, sent := f.Queued, f.QueuedSent
		if sampled {
			at, sent = f.Arrival, 0
			if f.Pilots > 0 && f.Width > workloads.ThinCoflow {
				at, sent = f.Sampled, f.SampledSent
			}
		}
		part := float64(at-f.Arrival) / float64(f.CCT())
		soon := part < 0.01
		if soon {
			c.all += 1 / float64(len(all))
		}
		if f.Width <= workloads.ThinCoflow {
			continue
		}
		parts = append(parts, part)
		c.bytes += float64(sent) / float64(f.Size)
		if soon {
			c.soon++
		}
	}
	if len(parts) == 0 {
		return c
	}
	n := float64(len(parts))
	slices.Sort(parts)
	return cost{c.all, c.soon / n, metrics.Quantile(0.5, parts), metrics.Quantile(0.9, parts), c.bytes / n}
}
