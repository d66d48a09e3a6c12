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

	"testbed/emu/flowsim"
	"testbed/emu/flowsim/comparison"
	"testbed/results/metrics"
	"testbed/results/safefile"
	"testbed/results/tracestats"
	"testbed/topo/units"
	"testbed/workloads"
)

// interval is δ, the paper's interval between decisions.
const interval = 8 * time.Millisecond

// tablePolicies lists the policies of the table. The others are compared with the first.
// Policies with reallocate=coflows behave as in CoflowSim, the simulator published with the
// trace.
var tablePolicies = []string{
	"philae", "philae:policy=A", "philae:policy=B", "philae:policy=C", "philae-sim",
	"aalo", "aalo:across=weighted", "aalo-oracle", "saath", "fair", "equal-share",
	"fifo", "fifo:allocation=madd,backfill=fair-share,reallocate=coflows", "scf", "ncf", "lcf", "lcf:allocation=greedy",
	"sebf", "sebf:allocation=greedy", "sebf:backfill=fair-share,key=initial,reallocate=coflows", "sincronia",
}

// derivedBaselines are the policies that Philae is compared with on derived traces.
// learningPolicies are the policies of the part learning.
var (
	derivedBaselines = []string{"aalo", "aalo-oracle", "sebf"}
	learningPolicies = []string{"philae", "aalo"}
)

// simulate runs policies on a trace, and writes every coflow's times to a CSV file.
func (s *philae) simulate(ctx context.Context, name string, t *workloads.Trace, delta time.Duration, texts ...string) (*comparison.Outcome, error) {
	o := comparison.Options{First: s.coflows, Interval: delta}
	for _, text := range texts {
		p, err := comparison.ParsePolicy(text)
		if err != nil {
			return nil, err
		}
		o.Policies = append(o.Policies, p)
	}
	began := time.Now()
	policy := ""
	out, err := comparison.Do(ctx, t, o, func() time.Duration { return time.Since(began) }, func(p comparison.Progress) {
		if p.Policy != policy {
			policy = p.Policy
			fmt.Fprintf(os.Stderr, "%s: policy %d/%d %s\n", name, p.Run, p.Runs, policy)
		}
	})
	if err != nil {
		return nil, err
	}
	return out, safefile.Write(filepath.Join(s.Dir, name+".csv"), out.CoflowsCSV)
}

// over returns the speed-up of the first policy of an outcome relative to another policy.
func over(out *comparison.Outcome, policy string) (tracestats.Speedup, error) {
	at := slices.IndexFunc(out.Runs, func(r comparison.Run) bool { return r.Policy == policy })
	if at < 0 {
		return tracestats.Speedup{}, fmt.Errorf("policy %s was not run", policy)
	}
	return tracestats.Faster(out.Runs[at].Times(), out.Runs[0].Times())
}

func times(f float64) string { return fmt.Sprintf("%.2f×", f) }

// figures records speed-ups as those of the claims id/average, id/median and id/p90, and returns
// each next to the paper's.
func (s *philae) figures(id string, f tracestats.Speedup) []string {
	var cells []string
	for _, x := range []struct {
		name  string
		value float64
	}{{"average", f.Averages}, {"median", f.P50}, {"p90", f.P90}} {
		s.claims.Exact(id+"/"+x.name, x.value)
		cells = append(cells, times(x.value), s.claims.Figure(id+"/"+x.name))
	}
	return cells
}

// table compares all policies on the whole trace.
func (s *philae) table(ctx context.Context) error {
	out, err := s.simulate(ctx, "table", s.trace, interval, tablePolicies...)
	if err != nil {
		return err
	}
	s.Say("%d coflows with %d flows of %s on one non-blocking switch; 1 MB takes 8 ms on a port, coflows arrive as in the trace, and flows from a port to itself count. Percentiles are interpolated linearly.\n", out.Coflows, out.Flows, s.trace.Name)
	if err := out.Markdown(s); err != nil {
		return err
	}
	s.Say("\nSpeed-up of Philae (policy D) relative to each: ratio of averages, and median and P90 of the coflows' ratios, each next to the paper's.\n")
	var rows [][]string
	for _, r := range out.Runs[1:] {
		f, err := over(out, r.Policy)
		if err != nil {
			return err
		}
		rows = append(rows, append([]string{r.Policy}, s.figures("table/"+r.Policy, f)...))
	}
	if err := s.Draw([]string{"relative to", "average", "paper", "median", "paper ", "P90", "paper  "}, rows); err != nil {
		return err
	}
	if err := s.overAalo(out); err != nil {
		return err
	}
	if err := s.sizes(out); err != nil {
		return err
	}
	return s.jobs(out)
}

// sizes writes average CCTs by size and width.
func (s *philae) sizes(out *comparison.Outcome) error {
	bins := tracestats.DefaultSizeBins(comparison.MB(s.trace, flowsim.Ports{}))
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
	s.Say("Average CCT by the bins of the paper's figure 5: small coflows have at most 100 MB, thin ones at most %d flows.\n", workloads.ThinCoflow)
	return s.Draw(head, rows)
}

// overAalo writes the speed-ups of Philae's four policies relative to Aalo.
func (s *philae) overAalo(out *comparison.Outcome) error {
	aalo := out.Runs[slices.IndexFunc(out.Runs, func(r comparison.Run) bool { return r.Policy == "aalo" })].Times()
	s.Say("Speed-ups relative to Aalo: Philae's four policies, and philae-sim, which behaves as its public simulator.\n")
	var rows [][]string
	for _, r := range out.Runs {
		if !strings.HasPrefix(r.Policy, "philae") {
			continue
		}
		f, err := tracestats.Faster(aalo, r.Times())
		if err != nil {
			return err
		}
		id := "table/over-aalo/" + r.Policy
		if r.Policy == "philae" {
			id = "table/aalo"
		}
		rows = append(rows, append([]string{r.Policy}, s.figures(id, f)...))
	}
	return s.Draw([]string{"policy", "average", "paper", "median", "paper ", "P90", "paper  "}, rows)
}

// jobs writes the speed-up of job completion times under Philae, relative to Aalo.
func (s *philae) jobs(out *comparison.Outcome) error {
	items := func(policy string) []metrics.Item {
		at := slices.IndexFunc(out.Runs, func(r comparison.Run) bool { return r.Policy == policy })
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
	p50, p90 := metrics.Quantile(0.5, ratios), metrics.Quantile(0.9, ratios)
	s.claims.Exact("table/jobs/median", p50)
	s.claims.Exact("table/jobs/p90", p90)
	s.Say("Job completion times, Philae relative to Aalo, with the shuffle's fraction of the job from Aalo's evaluation (below a quarter in 61 %% of the jobs): median %.2f× (paper %s), P90 %.2f× (paper %s).\n",
		p50, s.claims.Figure("table/jobs/median"), p90, s.claims.Figure("table/jobs/p90"))
	return nil
}

// replicas is the size of the paper's largest cluster relative to the trace's, and mostSkew the
// largest skew of the paper's traces without low skew.
const (
	replicas = 6
	mostSkew = 5
)

// derived compares policies on traces that are derived from the trace.
func (s *philae) derived(ctx context.Context) error {
	type derivation struct {
		name   string
		make   func() (*workloads.Trace, error)
		delta  time.Duration
		others []string
	}
	var all []derivation
	for k := range int64(mostSkew) {
		all = append(all, derivation{fmt.Sprintf("low-skew-%d", k+1), func() (*workloads.Trace, error) {
			return workloads.LowSkewFiltered(s.trace, workloads.Factor{Num: k + 1, Den: 1})
		}, interval, []string{"aalo"}})
	}
	all = append(all,
		derivation{"mantri", func() (*workloads.Trace, error) {
			return workloads.MantriLike(s.trace, workloads.MantriSkew, units.MB, s.seed)
		}, interval, derivedBaselines},
		derivation{"wide", func() (*workloads.Trace, error) { return workloads.WideOnly(s.trace, workloads.ThinCoflow) },
			interval, derivedBaselines},
		derivation{fmt.Sprintf("replicated-%d", replicas), func() (*workloads.Trace, error) { return workloads.Replicate(s.trace, replicas) },
			replicas * interval, []string{"aalo"}})
	var rows [][]string
	var large *comparison.Outcome
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
			id := "derived/" + d.name + "/"
			s.claims.Exact(id+"coflows", float64(out.Coflows))
			rows = append(rows, append([]string{d.name, fmt.Sprint(out.Coflows), s.claims.Figure(id + "coflows"), fmt.Sprint(t.Ports), o}, s.figures(id+d.others[i], f)...))
		}
	}
	s.Say("Speed-up of Philae (policy D). Aalo's δ is %v, and %v on the replicated trace.\n", interval, replicas*interval)
	if err := s.Draw([]string{"trace", "coflows", "paper", "ports", "relative to", "average", "paper ", "median", "paper  ", "P90", "paper   "}, rows); err != nil {
		return err
	}
	if large != nil {
		s.Say("Load of the coordinator at %d ports, in intervals of %v.\n", replicas*s.trace.Ports, replicas*interval)
		return large.Markdown(s)
	}
	return nil
}

// sensitivity compares Philae with Aalo, changing one parameter of Philae at a time.
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
	s.Say("One parameter at a time; the others have their defaults, T = 7, Q0 = 10 MiB, E = 10 and a pilot flow for every 20 senders. Speed-ups are relative to Aalo.\n")
	var rows [][]string
	for _, r := range out.Runs[1:] {
		rows = append(rows, []string{r.Policy, fmt.Sprintf("%.2f s", r.Summary.Average.Seconds()), times(r.Speedup.Averages), times(r.Speedup.P50), times(r.Speedup.P90)})
	}
	return s.Draw([]string{"policy", "average", "speed-up", "median", "P90"}, rows)
}

// learning writes the error of sizes estimated from pilot flows, and the time until each
// coflow is in its final queue.
func (s *philae) learning(ctx context.Context) error {
	out, err := s.simulate(ctx, "learning", s.trace, 0, learningPolicies...)
	if err != nil {
		return err
	}
	e := estimates(out.Runs[0].Coflows)
	s.claims.Exact("learning/error", e.mean)
	s.claims.Exact("learning/deviation", e.deviation)
	s.Say("Error of estimated sizes relative to true sizes, over %d sampled coflows: mean absolute error %.3f, standard deviation of the error %.3f (paper %s and %s); median absolute error %.3f, P90 %.3f.\n",
		e.n, e.mean, e.deviation, s.claims.Figure("learning/error"), s.claims.Figure("learning/deviation"), e.p50, e.p90)
	var rows [][]string
	for _, r := range out.Runs {
		c := costs(r.Coflows, r.Policy == "philae")
		s.claims.Exact("learning/"+r.Policy, 100*c.all)
		rows = append(rows, []string{r.Policy, units.Percent(c.all, 0), s.claims.Figure("learning/" + r.Policy),
			units.Percent(c.soon, 0), units.Percent(c.p50, 0), units.Percent(c.p90, 0), units.Percent(c.bytes, 1)})
	}
	s.Say("Learning: the fraction of its CCT after which a coflow is in its last queue (under Philae: after which its pilot flows have ended; thin coflows have nothing to learn), and the fraction of its bytes sent by then. Wide coflows have more than %d flows.\n", workloads.ThinCoflow)
	return s.Draw([]string{"policy", "learned within 1 % of CCT", "paper", "of wide coflows", "their median", "their P90", "their bytes, average"}, rows)
}

// estimate describes the relative errors of sizes: deviation is of the signed error, the
// other figures are of the absolute error.
type estimate struct {
	n                         int
	mean, deviation, p50, p90 float64
}

// estimates compares the sizes estimated from pilot flows with the true sizes.
func estimates(all []flowsim.Coflow) estimate {
	var errs, abs []float64
	for _, c := range all {
		if c.Pilots == 0 {
			continue
		}
		estimated := float64(c.PilotSent) / float64(c.Pilots) * float64(c.Width)
		errs = append(errs, estimated/float64(c.Size)-1)
		abs = append(abs, math.Abs(estimated/float64(c.Size)-1))
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

// cost describes learning, in fractions from 0 to 1. all is the fraction of coflows that
// learn within 1 % of their CCT. The other fields are of wide coflows: soon is the same
// fraction, p50 and p90 are percentiles of the fraction of the CCT that learning takes, and
// bytes is the average fraction of bytes sent by then.
type cost struct{ all, soon, p50, p90, bytes float64 }

// costs returns the cost of learning until coflows are in their last queue or, if sampled
// is true, until their pilot flows have ended. Coflows without pilot flows learn at once.
func costs(all []flowsim.Coflow, sampled bool) cost {
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
