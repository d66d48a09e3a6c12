package plot

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"pgregory.net/rapid"

	"testbed/results/breakdown"
	"testbed/results/figures"
	"testbed/results/flows"
	"testbed/results/rundir"
	"testbed/results/rundir/rundirtest"
	"testbed/results/schema"
	"testbed/results/summary"
	"testbed/results/verdict"
	"testbed/topo/palette"
	"testbed/topo/units"
	"testbed/workloads"
)

func made(t *testing.T, s rundirtest.Spec) *rundir.Run {
	t.Helper()
	r, err := rundir.Open(rundirtest.Write(t, s))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// ofTasks are the figures of jobs of tasks, which withTasks has the data of.
var ofTasks = []string{"job-cdf", "job-parts", "locality", "gantt", "shares", "gain-by-size", "gain-by-parameter", "extra-slots"}

func withTasks(t *testing.T) *rundir.Run {
	t.Helper()
	s := rundirtest.Default()
	s.Run, s.Tasks, s.Coflows, s.Blocks = "tasks", true, 0, 0
	for _, x := range []float64{0.1, 0.05} {
		s.Arms = append(s.Arms, rundirtest.Arm{Name: fmt.Sprintf("dolly-%v", x), Level: verdict.Pass, Speed: 1 + 10*x})
	}
	return made(t, s)
}

// full returns a run with the data of every other figure.
func full(t *testing.T) *rundir.Run {
	t.Helper()
	dir := rundirtest.Write(t, rundirtest.Default())
	path := filepath.Join(dir, summary.SummaryFile)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(b, []byte(`"traffic"`)) {
		b = bytes.ReplaceAll(b, []byte(`"problems"`), []byte(`"traffic": {"cross_rack_bytes": {"control": 1000000, "shuffle": 9000000, "write": 5}}, "problems"`))
	}
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
	rundirtest.Seal(t, dir)
	r, err := rundir.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, arm := range r.Arms() {
		for i := range 10 {
			at := time.Duration(i) * time.Second
			r.Requests = append(r.Requests, schema.Request{Key: schema.Key{Arm: arm}, End: at + time.Second, RequestTime: at})
		}
	}
	for i := range r.Flows {
		x := 1 + float64(i%7)
		r.Flows[i].Size, r.Flows[i].Slowdown, r.Flows[i].Dst = units.Bytes(1000+i%5*100_000), &x, "h1-00"
	}
	for i := range r.Blocks {
		b := &r.Blocks[i]
		part := b.WriteTime / 4
		b.Held, b.Network, b.Disk, b.Host = &part, &part, &part, &part
	}
	for i := range r.Coflows {
		x := 1 + float64(i%7)
		r.Coflows[i].Slowdown = &x
	}
	for _, a := range r.Summary.Arms {
		for i := range 5 {
			r.Balance = append(r.Balance, schema.Balance{Key: schema.Key{Arm: a.Name}, Interval: time.Second, Cv: 0.5 * float64(i)})
		}
	}
	return r
}

func drawSVG(t *testing.T, f string, o Options, runs ...*rundir.Run) (string, []string) {
	t.Helper()
	fig, err := Find(f)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	notes, err := Draw(&b, runs, fig, "svg", o)
	if err != nil {
		t.Fatal(err)
	}
	return b.String(), notes
}

// texts returns the texts of an SVG, and checks that it is well formed.
func texts(t *testing.T, svg string) []string {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(svg))
	var out []string
	in := false
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatalf("SVG: %v", err)
		}
		switch x := token.(type) {
		case xml.StartElement:
			in = x.Name.Local == "text"
			switch x.Name.Local {
			case "svg", "g", "path", "text":
			default:
				t.Errorf("SVG has an element %s", x.Name.Local)
			}
		case xml.EndElement:
			in = false
		case xml.CharData:
			if in {
				out = append(out, string(x))
			}
		}
	}
}

// Each figure names its axes with units, how many items it shows, and verdicts.
func TestFiguresNameWhatTheyShow(t *testing.T) {
	r, tasks := full(t), withTasks(t)
	for name, want := range map[string][]string{
		"cct-cdf":           {"Coflow completion time (s)", "Fraction of coflows", "fair+hdfs, n = 24", "sebf+hdfs, n = 24", "sebf+sinbad, n = 24 (degraded)", "0.5", "1.0"},
		"fct-cdf":           {"Flow completion time (s)", "Fraction of flows", "fair+hdfs, n = 48"},
		"write-cdf":         {"Block write time (s)", "Fraction of blocks", "sebf+sinbad, n = 10 (degraded)"},
		"request-cdf":       {"Write request time (s)", "Fraction of write requests", "fair+hdfs, n = 10"},
		"speedup-cdf":       {"Speed-up of a coflow relative to fair+hdfs (×)", "sebf+hdfs, n = 24", "sebf+sinbad, n = 24 (degraded)"},
		"speedup-by-size":   {"Coflow size (MB)", "Speed-up relative to fair+hdfs (×)", "sebf+hdfs, n = 24"},
		"slowdown-cdf":      {"Slowdown: CCT / time of the coflow alone (×)", "fair+hdfs, n = 24"},
		"fct-slowdown":      {"FCT slowdown (×)", "Flow size", "up to 10KB", "fair+hdfs, n = 48 flows", "sebf+sinbad, n = 48 flows (degraded)"},
		"timeline":          {"Time since the first arrival (s), repeat 0", "sebf+sinbad", "n = 12, degraded", "n = 12"},
		"breakdown":         {"Average coflow completion time (s)", "held", "serialisation", "queueing", "host", "n = 24", "n = 24, degraded"},
		"write-breakdown":   {"Average block write time (s)", "network", "disk", "host", "n = 10", "n = 10, degraded"},
		"slowest":           {"Completion time of the slowest coflows (s)", "fair+hdfs, n = 24 coflows", "coflow 5, repeat 0", "held", "queueing"},
		"disks":             {"Stored in a repeat (MB)", "Host", "rack 0"},
		"utilisation":       {"Load of links, fair+hdfs, repeat 0, n = 4 links", "leaf0>spine0", "100 %", "Time since the first arrival (s)"},
		"racks":             {"fair+hdfs, n = 1 racks, 2 repeats", "Load of a rack's links (%)", "rack 0, saturated 0 %", "Time since the first arrival (s)"},
		"progress":          {"fair+hdfs, repeat 0, coflow 5: n = 2 flows, 6.51 MB", "Time since the coflow arrived (s)", "Received (% of the flow)", "each flow", "coflow in all", "last to end: flow 11", "100"},
		"goodput":           {"Goodput (Mbps)", "Time since the first arrival (s), repeat 0", "fair+hdfs, n = 1 receivers", "sebf+sinbad, n = 1 receivers (degraded)"},
		"incast":            {"Senders", "Goodput (Mbps)", "fair+hdfs, n = 24 coflows", "sebf+sinbad, n = 24 coflows (degraded)"},
		"cv-time":           {"Cv of link loads", "fair+hdfs, n = 2 links", "sebf+sinbad, n = 2 links (degraded)"},
		"cv-cdf":            {"Cv of the bottleneck links' load", "Fraction of intervals", "fair+hdfs, n = 5 intervals", "sebf+sinbad, n = 5 intervals (degraded)", "2.0", "1.0"},
		"repeats":           {"Average coflow completion time of a repeat (s)", "n = 2 repeats", "n = 2 repeats, degraded"},
		"job-cdf":           {"Job time (s)", "Fraction of jobs", "fair+hdfs, n = 24", "sebf+sinbad, n = 24 (degraded)"},
		"job-parts":         {"Average job time (s)", "waiting", "mapping", "shuffling", "computing", "writing", "n = 24", "n = 24, degraded"},
		"locality":          {"Maps that committed (%)", "node", "rack", "off-rack", "fair+hdfs, n = 811", "1–2 maps, n = 11", "101 maps or more, n = 600"},
		"gantt":             {"fair+hdfs, n = 397 attempts, in 24 slots, repeat 0", "reading a block", "fetching outputs", "waiting to compute", "computing", "writing and committing", "backup, n = 8", "committed first, n = 8", "copied, n = 7", "killed or failed, n = 15", "h1-03", "Time since the first arrival (s)"},
		"gain-by-size":      {"Speed-up of jobs relative to fair+hdfs (×), 95 % intervals", "1–10 tasks", "51–150 tasks", "sebf+sinbad, n = 24 pairs (degraded)"},
		"gain-by-parameter": {"Speed-up of jobs relative to fair+hdfs (×)", "Number at the end of the arm's name", "dolly, n ≥ 24 pairs", "0.10"},
		"extra-slots":       {"Time since the first arrival (s), repeat 0", "Slots of clones and backups", "fair+hdfs, n = 397 attempts"},
		"shares":            {"fair+hdfs, n = 397 attempts, repeat 0", "Slots in use", "u1", "u3"},
		"queue":             {"leaf0>spine0, repeat 0", "Queue (KB)", "Time since the first arrival (s)", "fair+hdfs, n = 20 samples", "sebf+sinbad, n = 20 samples (degraded)"},
		"throughput":        {"leaf0>spine0, repeat 0", "Throughput (Mbps)", "fair+hdfs, n = 19 samples"},
		"drops":             {"Packets dropped since the start", "fair+hdfs, n = 20 samples"},
		"rtt":               {"flow 0, repeat 0", "Round-trip time (ms)", "fair+hdfs, n = 20 samples"},
		"cwnd":              {"flow 0, repeat 0", "Congestion window (packets)", "sebf+hdfs, n = 20 samples"},
		"fairness":          {"repeat 0", "Fairness of flows (Jain's index)", "fair+hdfs, n = 20 samples"},
		"bytes":             {"Bytes between racks in a repeat (MB)", "shuffle", "control", "write", "fair+hdfs"},
	} {
		of := r
		if slices.Contains(ofTasks, name) {
			of = tasks
		}
		svg, _ := drawSVG(t, name, Options{Height: 4.5 * Inch}, of)
		got := texts(t, svg)
		for _, w := range want {
			if !slices.Contains(got, w) {
				t.Errorf("%s shows %q, want %q", name, got, w)
			}
		}
	}
	if n := len(Figures()); n != 36 {
		t.Errorf("%d figures, 36 are tested", n)
	}
}

// Figures of a page have the colours of its style sheet, and a run without their data has none.
func TestFiguresOfAPage(t *testing.T) {
	all, tasks := full(t), withTasks(t)
	css := palette.CSS()
	for _, f := range Figures() {
		r := all
		if slices.Contains(ofTasks, f.Name) {
			r = tasks
		}
		svg, _, err := OnPage(r, f.Name, r.Arms()[0])
		if err != nil || len(texts(t, svg)) < 3 || !strings.HasPrefix(svg, "<svg") {
			t.Errorf("%s: %v, %.80s", f.Name, err, svg)
		}
		if i := strings.Index(svg, ":#000000"); i >= 0 || strings.Contains(svg, ":#FFFFFF") {
			t.Errorf("%s has black or white whatever the theme", f.Name)
		}
		for _, m := range regexp.MustCompile(`var\((--\w+)\)`).FindAllStringSubmatch(svg, -1) {
			if !strings.Contains(css, m[1]+":") {
				t.Errorf("%s has a colour %s, which the style sheet has not", f.Name, m[1])
			}
		}
	}
	if svg, notes, err := OnPage(all, "job-parts", ""); svg != "" || notes != nil || err != nil {
		t.Errorf("no jobs of tasks: %.80q, %q, %v", svg, notes, err)
	}
	if _, _, err := OnPage(all, "none", ""); err == nil {
		t.Error("no error for an unknown figure")
	}
}

func TestVoidArmsAreLeftOut(t *testing.T) {
	s := rundirtest.Default()
	s.Arms[1].Level = verdict.Void
	r := made(t, s)
	for _, f := range Figures() {
		var b bytes.Buffer
		notes, err := Draw(&b, []*rundir.Run{r}, f, "svg", Options{})
		if errors.Is(err, ErrNoData) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if slices.ContainsFunc(texts(t, b.String()), func(s string) bool { return strings.Contains(s, "sebf+hdfs") }) {
			t.Errorf("%s shows the void arm", f.Name)
		}
		if !slices.ContainsFunc(notes, func(n string) bool { return strings.HasPrefix(n, "arm sebf+hdfs is void and omitted") }) {
			t.Errorf("%s: notes %q", f.Name, notes)
		}
	}
	// The arm after it has the colour that it has on the page, and a figure of one arm does not state what others lack.
	lines := partsOf[*plotter.Line](t, "cct-cdf", r, Options{})
	if len(lines) != 2 || lines[1].Color != palette.Arm(2).Light {
		t.Errorf("%d lines, want two, the second in the colour of the third arm", len(lines))
	}
	if _, notes, err := OnPage(r, "slowest", r.Arms()[0]); err != nil || len(notes) > 0 {
		t.Errorf("notes %q on a figure of one arm, %v", notes, err)
	}
	s.Arms[0].Level = verdict.Void
	wantErr(t, "speedup-cdf", Options{}, ErrNoData, "the baseline fair+hdfs is void", made(t, s))
	s.Arms[2].Level = verdict.Void
	wantErr(t, "cct-cdf", Options{}, ErrNoData, "every arm is void", made(t, s))
}

func wantErr(t *testing.T, f string, o Options, is error, want string, runs ...*rundir.Run) {
	t.Helper()
	fig, err := Find(f)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	_, err = Draw(&b, runs, fig, "svg", o)
	if err == nil || !strings.Contains(err.Error(), want) || is != nil && !errors.Is(err, is) {
		t.Errorf("%s: error %v, want %q", f, err, want)
	}
	if b.Len() > 0 {
		t.Errorf("%s: %d bytes were written beside the error", f, b.Len())
	}
}

func TestWhatCannotBeDrawn(t *testing.T) {
	r := made(t, rundirtest.Default())
	s := rundirtest.Default()
	s.FluidModel, s.Timing, s.Run = true, false, "sim"
	sim := made(t, s)
	wantErr(t, "cct-cdf", Options{Arms: []string{"sebf+hdf"}}, nil, `unknown arm "sebf+hdf": did you mean sebf+hdfs?`, r)
	wantErr(t, "cct-cdf", Options{Arms: []string{"something"}}, nil, `must be one of fair+hdfs, sebf+hdfs, sebf+sinbad`, r)
	wantErr(t, "speedup-cdf", Options{Arms: []string{"fair+hdfs"}}, ErrNoData, "no arm other than the baseline", r)
	wantErr(t, "timeline", Options{Repeat: new(5)}, ErrNoData, "no repeat 5: must be 0 to 1", r)
	wantErr(t, "timeline", Options{Scale: Log}, nil, "omit --log", r)
	wantErr(t, "cct-cdf", Options{Width: 1}, nil, "sides must be 1 to 100 in", r)
	wantErr(t, "cct-cdf", Options{Height: math.NaN()}, nil, "sides must be", r)
	wantErr(t, "cct-cdf", Options{FontSize: 1}, nil, "font size 1 pt", r)
	wantErr(t, "cct-cdf", Options{DPI: 1}, nil, "dots per inch", r)
	wantErr(t, "cct-cdf", Options{Names: []string{"a", "b"}}, nil, "2 names for 1 runs", r)
	wantErr(t, "cct-cdf", Options{Height: Inch, FontSize: 20}, nil, "no room for the plot: a legend", r)
	wantErr(t, "utilisation", Options{}, ErrNoData, "one arm of one run, but there are 2 runs", r, sim)
	wantErr(t, "cct-cdf", Options{}, nil, "no run")
	none := workloads.CoflowID(99)
	wantErr(t, "progress", Options{Coflow: &none}, ErrNoData, "coflow 99 did not complete under fair+hdfs in repeat 0: the 12 completed coflows have numbers from 0 to 11", r)
	wantErr(t, "goodput", Options{Coflow: &none, Arm: "sebf+hdfs", Repeat: new(1)}, ErrNoData, "coflow 99 did not complete under sebf+hdfs in repeat 1", r)
	wantErr(t, "progress", Options{}, ErrNoData, "one arm of one run, but there are 2 runs", r, sim)
	wantErr(t, "cct-cdf", Options{Coflow: &none}, nil, "omit --coflow", r)
	wantErr(t, "goodput", Options{Bytes: true}, nil, "omit --bytes", r)
	for _, f := range []string{"slowdown-cdf", "breakdown", "utilisation", "racks", "cv-time", "bytes", "progress", "goodput"} {
		wantErr(t, f, Options{}, ErrNoData, "(a simulation has no packets)", sim)
	}
	var b bytes.Buffer
	f, _ := Find("cct-cdf")
	if _, err := Draw(&b, []*rundir.Run{r}, f, "gif", Options{}); err == nil || !strings.Contains(err.Error(), `format "gif": must be one of pdf, svg, png`) {
		t.Errorf("error %v", err)
	}
	if _, err := Draw(&b, []*rundir.Run{r}, f, "png", Options{Width: MostSide, Height: MostSide}); err == nil || !strings.Contains(err.Error(), "million pixels") {
		t.Errorf("error %v", err)
	}
	if _, err := Find("ccd-cdf"); err == nil || !strings.Contains(err.Error(), "did you mean cct-cdf?") {
		t.Errorf("error %v", err)
	}
}

// Simulated values are marked as such.
// Samples are drawn as steps that hold until the next one, or end before a gap.
func TestSteps(t *testing.T) {
	ms := time.Millisecond
	at := func(from, to time.Duration, value float64) sampled { return sampled{from, to, value} }
	for _, c := range []struct {
		name string
		all  []sampled
		held bool
		want string
	}{
		{"rates", []sampled{at(0, 5*ms, 1), at(5*ms, 6*ms, 3)}, true, "[[{0 1} {5 1} {5 3} {6 3}]]"},
		{"lengths", []sampled{at(1*ms, 1*ms, 1), at(4*ms, 4*ms, 3)}, true, "[[{1 1} {4 1} {4 3}]]"},
		{"from before the first arrival", []sampled{at(-2*ms, 1*ms, 1)}, true, "[[{0 1} {1 1}]]"},
		{"a gap", []sampled{at(0, 1*ms, 1), at(4*ms, 5*ms, 3)}, false, "[[{0 1} {1 1}] [{4 3} {5 3}]]"},
		{"no gap", []sampled{at(0, 1*ms, 1), at(2*ms, 3*ms, 3)}, false, "[[{0 1} {1 1} {2 1} {2 3} {3 3}]]"},
	} {
		lines := steps(c.all, c.held, 2*ms)
		for _, line := range lines {
			for i := range line {
				line[i].X /= float64(ms)
			}
		}
		if got := fmt.Sprint(lines); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

func TestSimulationsSayThatTheyAre(t *testing.T) {
	s := rundirtest.Default()
	s.FluidModel, s.Timing, s.Run = true, false, "sim"
	sim := made(t, s)
	svg, _ := drawSVG(t, "cct-cdf", Options{}, sim)
	if got := texts(t, svg); !slices.Contains(got, "Coflow completion time (s), fluid model") {
		t.Errorf("a simulation shows %q", got)
	}
	svg, _ = drawSVG(t, "cct-cdf", Options{Width: 10 * Inch, Names: []string{"run", "sim"}}, made(t, rundirtest.Default()), sim)
	got := texts(t, svg)
	for _, want := range []string{"Coflow completion time (s)", "fair+hdfs, run, n = 24", "fair+hdfs, sim, n = 24 (fluid model)"} {
		if !slices.Contains(got, want) {
			t.Errorf("both show %q, want %q", got, want)
		}
	}
}

// Ticks are within the axis, ascend, and are labelled with their values.
func TestTicks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		low := math.Pow(10, rapid.Float64Range(-6, 6).Draw(t, "low"))
		high := low * (1 + math.Pow(10, rapid.Float64Range(-2, 7).Draw(t, "span")))
		for name, ticks := range map[string][]float64{"linear": labelled(t, linearTicks{}.Ticks(low, high)), "log": labelled(t, logTicks{}.Ticks(low, high))} {
			if len(ticks) < 2 || len(ticks) > 10 {
				t.Errorf("%s %v to %v: %d labels", name, low, high, len(ticks))
			}
			if !slices.IsSorted(ticks) || ticks[0] < low || ticks[len(ticks)-1] > high {
				t.Errorf("%s %v to %v: marks at %v", name, low, high, ticks)
			}
		}
	})
}

// Numbers of racks, and counts, are whole.
func TestTicksOfCountsAreWhole(t *testing.T) {
	for high := 0.9; high < 1000; high *= 1.1 {
		ticks := whole.Ticks(-0.5, high)
		if len(ticks) == 0 || len(ticks) > 8 {
			t.Errorf("up to %v: %d marks", high, len(ticks))
		}
		for _, x := range ticks {
			if x.Value != math.Round(x.Value) || strings.Contains(x.Label, ".") {
				t.Errorf("up to %v: a mark %q at %v", high, x.Label, x.Value)
			}
		}
	}
}

func labelled(t *rapid.T, ticks []plot.Tick) []float64 {
	var out []float64
	for _, x := range ticks {
		if x.Label == "" {
			continue
		}
		v, err := strconv.ParseFloat(x.Label, 64)
		if err != nil || math.Abs(v-x.Value) > 0.01*math.Abs(x.Value) {
			t.Errorf("label %q of %v", x.Label, x.Value)
		}
		out = append(out, x.Value)
	}
	return out
}

func TestFiguresOfTasksNeedTasks(t *testing.T) {
	r := made(t, rundirtest.Default())
	for f, want := range map[string]string{"job-cdf": "no job completed", "job-parts": "no job in jobs.csv has parts", "locality": "no task read a block",
		"gain-by-size": "no arm other than the baseline has a job of tasks",
		"gantt":        "no attempt of a task in repeat 0 of fair+hdfs", "shares": "no attempt of a task"} {
		wantErr(t, f, Options{}, ErrNoData, want, r)
	}
	// Classes of jobs are left out where they do not fit.
	_, notes := drawSVG(t, "locality", Options{Height: 1.5 * Inch}, withTasks(t))
	if len(notes) != 1 || !strings.Contains(notes[0], "no room for 25 rows") {
		t.Errorf("notes %q", notes)
	}
}

// A figure of arms is drawn by its key; an arm without it is named.
func TestFigureOfArms(t *testing.T) {
	svg, _ := drawSVG(t, "tasks.locality.node", Options{}, withTasks(t))
	for _, want := range []string{"tasks.locality.node (%)", "fair+hdfs", "repeats"} {
		if !strings.Contains(svg, want) {
			t.Errorf("no %q in the figure", want)
		}
	}
	wantErr(t, "tasks.shuffle.saturated_mean", Options{}, ErrNoData, "no tasks.shuffle.saturated_mean", withTasks(t))
}

// A figure by rack is drawn by its key, a line for each arm that has it.
func TestFigureByRack(t *testing.T) {
	const key = "losses.resent_bytes_by_rack"
	r := made(t, rundirtest.Default())
	r.Summary.Arms[0].Losses = &summary.Losses{ByRack: []float64{2e6, 0, 1e6}}
	f, err := Find(key)
	if err != nil {
		t.Fatal(err)
	}
	d := newDrawing(f, []*rundir.Run{r}, Options{})
	if err := errors.Join(d.choose(), f.draw(d)); err != nil {
		t.Fatal(err)
	}
	var points plotter.XYs
	for _, p := range d.drawn {
		if line, ok := p.(*plotter.Line); ok {
			points = append(points, line.XYs...)
		}
	}
	if want := (plotter.XYs{{X: 0, Y: 2}, {X: 1, Y: 0}, {X: 2, Y: 1}}); !slices.Equal(points, want) {
		t.Errorf("points %v, want %v", points, want)
	}
	svg, notes := drawSVG(t, key, Options{}, r)
	if !strings.Contains(svg, key+" (MB)") || len(notes) != len(r.Summary.Arms)-1 {
		t.Errorf("notes %q of\n%s", notes, svg)
	}
	wantErr(t, key, Options{}, ErrNoData, "no "+key, withTasks(t))
}

// The parts of stacks and charts have a colour of their own, and no two of one chart share it.
func TestPartsHaveColours(t *testing.T) {
	text := func(causes []breakdown.Cause) (out []string) {
		for _, c := range causes {
			out = append(out, string(c))
		}
		return out
	}
	parts := []string{}
	for _, p := range figures.Parts {
		parts = append(parts, p.Name)
	}
	for _, names := range [][]string{
		text(breakdown.CoflowCauses()), text(breakdown.BlockCauses()), breakdown.Classes(), figures.PhaseNames(), parts,
		{flows.NodeLocal, flows.RackLocal, flows.OffRack},
	} {
		seen := map[palette.Tone]string{}
		for _, name := range names {
			if of := palette.Of(name); !palette.Known(name) || seen[of] != "" {
				t.Errorf("%s has no colour of its own (known: %v, that of %q)", name, palette.Known(name), seen[of])
			}
			seen[palette.Of(name)] = name
		}
	}
}
