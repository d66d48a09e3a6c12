package suite

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"testbed/emu/runner"
	"testbed/emu/scenario"
	"testbed/policies/catalog"
	"testbed/policies/tasks"
	"testbed/results/verdict"
	"testbed/workloads"
	"testbed/workloads/oracletest"
)

// shipped reads a suite of the project.
func shipped(t *testing.T, name string) *Suite {
	t.Helper()
	s, err := Read("../../scripts/" + name + "/claims.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// quick runs parts of a suite of the project on the fluid model, and returns its claims by ID and its report.
func quick(t *testing.T, name string, o Options) (map[string]Claim, string) {
	t.Helper()
	o.Fluid, o.Dir = true, filepath.Join(t.TempDir(), "out")
	p, err := shipped(t, name).Prepare(o)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := p.Run(t.Context(), &out, runner.Options{}, nil); err != nil && !errors.Is(err, ErrClaims) {
		t.Fatal(err)
	}
	claims := map[string]Claim{}
	for _, c := range p.Claims.Claims {
		claims[c.ID] = c
	}
	return claims, out.String()
}

// All suites of the project can run: their scenarios load, and have the arms that are compared. Each part has a claim,
// except sensitivities.
func TestShippedSuites(t *testing.T) {
	paths, err := filepath.Glob("../../scripts/*/claims.yaml")
	if err != nil || len(paths) < 5 {
		t.Fatalf("%v, %v: want five files or more", paths, err)
	}
	job := filepath.Join(t.TempDir(), "jobs.yaml")
	if err := os.WriteFile(job, []byte("testbed-jobs: 1\njobs:\n- stages:\n  - {kind: map, tasks: 1, input: 1MB}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		s, err := Read(path)
		if err != nil {
			t.Error(err)
			continue
		}
		o := Options{Repeat: 2, Set: map[string]string{}}
		if s.input("jobs") != nil {
			o.Set["jobs"] = job
		}
		if _, err := s.Prepare(o); err != nil {
			t.Error(err)
		}
		for _, p := range s.parts {
			if p.name != "sensitivity" && !slices.ContainsFunc(s.Claims.Claims, func(x Claim) bool { return x.part() == p.name }) {
				t.Errorf("%s: part %s has no claim", path, p.name)
			}
		}
		var list bytes.Buffer
		if err := s.WriteList(&list); err != nil || strings.Count(list.String(), "\n") < len(s.parts) {
			t.Errorf("%v\n%s", err, &list)
		}
	}
}

// The claims have the papers' figures.
func TestPapersFigures(t *testing.T) {
	want := map[string]map[string]string{
		"philae": {
			"table/aalo/average": "1.51×", "table/aalo/median": "1.78×", "table/aalo/p90": "9.58×", "table/over-aalo/philae:policy=A/average": "1.4×",
			"derived/low-skew-5/aalo/average": "1.38×", "derived/low-skew-5/coflows": "43", "derived/replicated-6/aalo/p90": "9.78×", "packets/missed/switch/aalo": "16 %", "table/jobs/median": "1.16×",
			"learning/error": "0.06", "learning/aalo": "22 %", "packets/facebook/switch/average": "1.5×", "packets/testbed-150/p90": "8×",
		},
		"fair": {"slowdown/fifo-max": "90×", "slowdown/fair": "2×", "slowdown/kill": "2×", "slowdown/splitting": "2×", "batch/gain": "19 %"},
		"sinbad": {
			"rack/write_time": "1.58×", "rack/request_time": "1.29×", "rack/cv_drop": "0.33", "rack/imbalance": "0.57 %", "rack/bound": "1.89×",
			"diskless/write_time": "1.6×", "edge/write_time": "1.3×", "hundred/write_time": "1.58×", "hundred/cv_drop": "0.33", "quiet/bound": "1.89×",
			"large/write_time": "1.58×", "large/bound": "1.89×", "large/cv_drop": "0.33", "large/imbalance": "0.57 %",
		},
	}
	for name, figures := range want {
		s := shipped(t, name)
		for id, figure := range figures {
			if c := s.Claims.find(id); c == nil || c.Paper == nil || c.Paper.text(c.Unit) != figure {
				t.Errorf("%s: %s: %+v, want the paper's %s", name, id, c, figure)
			}
		}
	}
}

// On the fluid model, the gain of FIFO for the batch is significant, and docs/fair.md states it.
func TestFairBatch(t *testing.T) {
	claims, _ := quick(t, "fair", Options{Only: []string{"batch"}, Repeat: 5})
	m := claims["batch/gain"].Measured
	if m == nil || !(m.CI.Low > 0) || m.On != onFluid {
		t.Fatalf("gain of FIFO %+v: not significant", m)
	}
	doc, err := os.ReadFile("../../docs/fair.md")
	if err != nil {
		t.Fatal(err)
	}
	row := fmt.Sprintf("| `batch/gain` | throughput of a batch, FIFO relative to FAIR | 19 %% | %.1f %% [%.1f, %.1f] | reproduced |\n", m.Value, m.CI.Low, m.CI.High)
	if !strings.Contains(string(doc), row) {
		t.Errorf("docs/fair.md has no row %q", row)
	}
}

// Without its input, a variant says why it does not run, and so do its claims.
func TestWithoutInput(t *testing.T) {
	claims, text := quick(t, "fair", Options{Only: []string{"swim"}, Repeat: 1})
	const why = "needs the jobs of SWIM-FB-2009-0.tsv (testbed workload jobs derive): --set jobs=FILE"
	if c := claims["swim/fair"]; c.NotRun != why || c.Outcome != NotRun {
		t.Errorf("not run: %q, want %q", c.NotRun, why)
	}
	if !strings.Contains(text, "not run: "+why) {
		t.Errorf("report %q: want %q in it", text, why)
	}
}

// On the fluid model, Dolly saves time of small jobs over LATE. What needs packets is not run.
func TestDollySavesTime(t *testing.T) {
	claims, _ := quick(t, "dolly", Options{Only: []string{"small"}, Repeat: 1})
	if m := claims["small/late-small"].Measured; m == nil || m.CI.Low < 3 {
		t.Errorf("saved %+v %% of the time of small jobs, want 3 or more", m)
	}
	if c := claims["small/late-wire"]; c.NotRun != "needs packets" {
		t.Errorf("bytes relative to the fluid model without packets: %+v", c)
	}
}

// The baselines of Dolly's suite have blacklists of hosts, as those of the paper; what has no speculation has none, except in the
// part that compares blacklists.
func TestBaselinesHaveBlacklists(t *testing.T) {
	s := shipped(t, "dolly")
	p, err := s.Prepare(Options{Repeat: 1, Fluid: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range s.parts {
		for _, v := range x.variants {
			set, err := p.assignments(v)
			if err != nil {
				t.Fatal(err)
			}
			loaded, err := p.load(v, set)
			if err != nil {
				t.Fatal(err)
			}
			for _, a := range loaded.ArmList() {
				p, err := catalog.Task(a.Policies["tasks"].Name, a.Policies["tasks"].Params)
				if err != nil {
					t.Fatal(err)
				}
				of := p.(tasks.Scheduler)
				if speculates := of.Speculation.By != tasks.NoSpeculation; x.name != "blacklist" && speculates != (of.Blacklist.Above > 0) {
					t.Errorf("%s/%s, arm %s: speculation %v, blacklist %v", x.name, v.name, a.Name, of.Speculation, of.Blacklist)
				}
			}
		}
	}
}

// On the fluid model, tasks are where SAMP and SARP have them. The worst of the variants in which all racks matter.
func TestPlacement(t *testing.T) {
	s := shipped(t, "shufflewatcher")
	ideal := s.Claims.find("placement/ideal").target
	for _, name := range []string{"10-0.55-1-prefix", "10-0.55-4-prefix", "10-0.55-16-prefix"} {
		p, err := s.Prepare(Options{Only: []string{"placement/" + name}, Repeat: 1})
		if err != nil {
			t.Fatal(err)
		}
		p.o.Dir, p.report = t.TempDir(), NewReport(&bytes.Buffer{})
		p.runner.Out = p.o.Dir
		v := p.part("placement").variant(name)
		if _, err := p.execute(t.Context(), p.part("placement"), v); err != nil {
			t.Fatal(err)
		}
		one := *ideal
		one.variants = []*variant{v}
		if r, err := p.result(p.part("placement"), &one, onFluid); err != nil || !(math.Abs(r.Value) <= 0.02) {
			t.Errorf("%s: %+v from the ideal bytes across racks for each byte of input, %v: want 0.02 or less", name, r, err)
		}
	}
	if c := s.Claims.find("placement/ideal"); c.NotRun != "the variant did not run (--only)" {
		t.Errorf("a claim about all variants of which one ran: %+v", c)
	}
}

// Without background, Sinbad has little to avoid.
func TestSinbadQuiet(t *testing.T) {
	claims, text := quick(t, "sinbad", Options{Only: []string{"quiet"}, Repeat: 3})
	if m := claims["quiet/write_time"].Measured; m == nil || m.CI.Low > 1.05 || m.CI.High < 0.95 || m.On != onFluid {
		t.Errorf("without background %+v: want an interval near 1\n%s", m, text)
	}
}

// The simulated parts measure all claims about them, and have a file for each trace. Claims are not about a trace of
// another size.
func TestPhilaeOnSmallTrace(t *testing.T) {
	trace, err := workloads.Facebook{Coflows: 60, Ports: 12, Load: 0.6}.Generate(1)
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if err := workloads.WriteTrace(&text, trace); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "small.txt")
	if err := os.WriteFile(path, text.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := shipped(t, "philae").Prepare(Options{Only: []string{"table", "derived", "sensitivity", "learning"}, Repeat: 1, Set: map[string]string{"trace": path}, Dir: filepath.Join(t.TempDir(), "out")})
	if err != nil {
		t.Fatal(err)
	}
	for i := range p.Claims.Claims {
		c := &p.Claims.Claims[i]
		if packets := strings.HasPrefix(c.ID, "packets/"); (c.NotRun == "the claim is about the Facebook trace (FB2010-1Hr-150-0.txt), and "+path+" is another") == packets && !strings.HasPrefix(c.ID, "packets/facebook") {
			t.Errorf("%s: not run: %q", c.ID, c.NotRun)
		}
		c.NotRun = ""
	}
	var out strings.Builder
	if err := p.Run(t.Context(), &out, runner.Options{}, nil); err != nil && !errors.Is(err, ErrClaims) {
		t.Fatal(err)
	}
	for _, c := range p.Claims.Claims {
		if packets := strings.HasPrefix(c.ID, "packets/"); (c.Measured == nil) != packets {
			t.Errorf("%s: measurement %v", c.ID, c.Measured)
		}
	}
	for _, want := range []string{"60 coflows with ", "| aalo ", "(paper 1.51×)", "| low-skew-5, aalo ", "on 72 ports", "aalo:interval=48ms", "| philae:number=1,pilots=number "} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the report has no %q", want)
		}
	}
	for _, bad := range []string{"NaN", "Inf", "%!"} {
		if strings.Contains(out.String(), bad) {
			t.Errorf("the report has %q", bad)
		}
	}
	for _, name := range []string{"table", "learning", "sensitivity", "derived-mantri", "derived-wide", "derived-low-skew-1", "derived-replicated-6"} {
		if _, err := os.Stat(filepath.Join(p.o.Dir, name+".csv")); err != nil {
			t.Error(err)
		}
	}
}

// Claims about the Facebook trace are measured on it alone, and without it those on generated coflows are.
func TestSizeOfInput(t *testing.T) {
	skipped := func(set map[string]string) map[string]bool {
		p, err := shipped(t, "philae").Prepare(Options{Repeat: 1, Set: set})
		if err != nil {
			t.Fatal(err)
		}
		out := map[string]bool{}
		for _, c := range p.Claims.Claims {
			out[c.ID] = c.NotRun != ""
		}
		return out
	}
	if got := skipped(nil); !got["table/aalo/average"] || !got["packets/facebook/switch/average"] || got["packets/generated/switch/average"] {
		t.Errorf("without the trace: %v", got)
	}
	if got := skipped(map[string]string{"trace": oracletest.Path(t, oracletest.Facebook)}); got["table/aalo/average"] || got["packets/facebook/switch/average"] || got["packets/generated/switch/average"] {
		t.Errorf("with the trace: %v", got)
	}
}

// An optional part runs only if it, or a variant of it, is named.
func TestOptionalPart(t *testing.T) {
	for _, only := range [][]string{nil, {"table"}, {"table", "sensitivity"}} {
		s := shipped(t, "philae")
		p, err := s.Prepare(Options{Repeat: 1, Only: only})
		if err != nil {
			t.Fatal(err)
		}
		runs := slices.ContainsFunc(p.parts, func(x *part) bool { return x.name == "sensitivity" })
		if named := slices.Contains(only, "sensitivity"); runs != named {
			t.Errorf("only %q: the optional part runs: %v", only, runs)
		}
		var list bytes.Buffer
		if err := s.WriteList(&list); err != nil || strings.Count(list.String(), " (optional)") != 1 {
			t.Errorf("%v: want one optional part:\n%s", err, &list)
		}
	}
}

func TestOptionsErrors(t *testing.T) {
	for _, tt := range []struct {
		o    Options
		want string
	}{
		{Options{Repeat: 1, Only: []string{"rack", "attic"}}, `--only "attic": unknown part: expected baselines, rack, `},
		{Options{Repeat: 1, Only: []string{"sensitivity/delta"}}, `--only "sensitivity/delta": unknown variant of sensitivity`},
		{Options{}, "--repeats 0: must be 1 or more"},
		{Options{Repeat: 1, Set: map[string]string{"x": "y"}}, "--set x: not an input of "},
		{Options{Repeat: 1, Packets: []string{"x"}}, `--on-packets "x": expected a part that runs scenarios`},
	} {
		var usage UsageError
		if _, err := shipped(t, "sinbad").Prepare(tt.o); !errors.As(err, &usage) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: %v, want %q", tt.o, err, tt.want)
		}
	}
	if _, err := shipped(t, "dolly").Prepare(Options{Repeat: 1, Only: []string{"estimates/oracle"}}); err == nil || err.Error() != "--only: estimates/oracle needs the estimates of estimates/learned: add it" {
		t.Errorf("estimates of a variant that does not run: %v", err)
	}
	first, err := shipped(t, "shufflewatcher").Prepare(Options{Repeat: 1, Only: []string{"rules/prefix"}})
	if err != nil || !strings.HasPrefix(first.Claims.find("rules/prefix-relative").NotRun, "needs the first variant") {
		t.Errorf("relative to a variant that does not run: %v", err)
	}
	p, err := shipped(t, "sinbad").Prepare(Options{Repeat: 1, Only: []string{"quiet"}, Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Run(t.Context(), &bytes.Buffer{}, runner.Options{}, nil); err == nil || !strings.Contains(err.Error(), "name a directory that does not exist") {
		t.Errorf("into a directory that exists: %v", err)
	}
	if !p.NeedsRoot() {
		t.Error("a part on packets needs no root")
	}
}

// A claims file whose scenario lacks an arm, or a variable, is refused with its place before anything runs.
func TestScenarioErrors(t *testing.T) {
	text, err := os.ReadFile("../../scripts/sinbad/claims.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ old, new, want string }{
		{"    base: uniform\n    arm: sinbad-ve\n", "    base: uniform\n    arm: sinbad\n", `parts.edge: pair : unknown arm "sinbad"`},
		{"    base: uniform\n    arm: sinbad-ve\n", "    base: uniform\n    arm: sinbad-ve\n    set: {intensitee: 1}\n", "vars.intensitee: set by --set, but not declared"},
	} {
		path := filepath.Join(t.TempDir(), "claims.yaml")
		changed := strings.ReplaceAll(strings.Replace(string(text), tt.old, tt.new, 1), "scenario: ", "scenario: "+mustAbs(t, "../../scripts/sinbad")+"/")
		if err := os.WriteFile(path, []byte(changed), 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := Read(path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Prepare(Options{Repeat: 1, Only: []string{"edge"}}); err == nil || !strings.Contains(err.Error(), tt.want) || !strings.HasPrefix(err.Error(), path+":") {
			t.Errorf("%v, want %q", err, tt.want)
		}
	}
}

func mustAbs(t *testing.T, path string) string {
	t.Helper()
	abs, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return abs
}

// Where a part has packets, it runs on both backends. A void arm is an error after everything is written, and takes
// precedence; a run that fails ends the suite.
func TestBackends(t *testing.T) {
	for _, tt := range []struct {
		name  string
		level verdict.Level
		err   error
		want  error
	}{{"pass", verdict.Pass, nil, nil}, {"void", verdict.Void, nil, ErrVoid}, {"fails", verdict.Pass, errors.New("no host"), errors.New("quiet: no host")}} {
		p, err := shipped(t, "sinbad").Prepare(Options{Repeat: 1, Only: []string{"quiet"}, Dir: filepath.Join(t.TempDir(), "out")})
		if err != nil {
			t.Fatal(err)
		}
		var ran []string
		p.how = func(on string) func(context.Context, *scenario.Scenario, runner.Options) (*runner.Outcome, error) {
			return func(ctx context.Context, s *scenario.Scenario, o runner.Options) (*runner.Outcome, error) {
				ran = append(ran, on)
				if on == onFluid {
					return runner.Simulate(ctx, s, o)
				}
				out, err := runner.Simulate(ctx, s, o)
				if err == nil {
					out.Report.Summary.Arms[0].Verdict = &tt.level
				}
				return out, errors.Join(err, tt.err)
			}
		}
		var out strings.Builder
		err = p.Run(t.Context(), &out, runner.Options{}, nil)
		switch {
		case tt.err != nil:
			if err == nil || !strings.Contains(err.Error(), "no host") {
				t.Errorf("%s: %v", tt.name, err)
			}
			continue
		case tt.want == nil && err != nil && !errors.Is(err, ErrClaims), tt.want != nil && !errors.Is(err, tt.want):
			t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
		}
		if !slices.Equal(ran, []string{onFluid, onPackets}) || !strings.Contains(out.String(), "(packets)") || !strings.Contains(out.String(), "| quiet/write_time ") {
			t.Errorf("%s: ran on %q\n%s", tt.name, ran, &out)
		}
		if m := p.Claims.find("quiet/write_time").Measured; m == nil || m.On != onPackets {
			t.Errorf("%s: measured %+v, want on packets", tt.name, m)
		}
	}
}
