package report

import (
	"bytes"
	order "cmp"
	"encoding/csv"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"testbed/hosts/wire"
	"testbed/results/breakdown"
	"testbed/results/flows"
	"testbed/results/metrics"
	"testbed/results/rundir"
	"testbed/results/summary"
	tables "testbed/results/table"
	"testbed/results/verdict"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

var update = flag.Bool("update", false, "rewrite testdata/*.golden")

const ms = time.Millisecond

// records has coflows of the given completion times with two flows each, and blocks of half
// those times.
func records(offset time.Duration, ccts ...time.Duration) flows.Records {
	var r flows.Records
	for i, cct := range ccts {
		at := time.Duration(i)*10*ms + offset
		c := flows.CoflowRecord{Coflow: workloads.CoflowID(i), Width: 2, Size: 3 * units.MB, Arrival: at, End: at + cct}
		r.Coflows = append(r.Coflows, c)
		for k := range 2 {
			r.Flows = append(r.Flows, flows.FlowRecord{Coflow: c.Coflow, Flow: workloads.FlowID(2*i + k), Src: "h0-00", Dst: "h1-0" + string(rune('0'+k)),
				Size: units.Bytes(1+k) * units.MB, Arrival: at, Start: at + ms, End: at + cct/time.Duration(2-k), Packets: 700 * (1 + k), Resent: k, Wire: 1_050_000 * units.Bytes(1+k)})
		}
		r.Blocks = append(r.Blocks, flows.BlockRecord{Block: workloads.BlockID(i), Client: "h0-01", Hosts: []string{"h0-01", "h2-00", "h2-03"}, Size: 8 * units.MB,
			Requested: at, End: at + cct/2})
	}
	return r
}

func scaled(r flows.Records, share float64) *flows.Records {
	out := flows.Records{}
	for _, f := range r.Flows {
		f.End = f.Arrival + time.Duration(share*float64(f.FCT()))
		out.Flows = append(out.Flows, f)
	}
	for _, c := range r.Coflows {
		c.End = c.Arrival + time.Duration(share*float64(c.CCT()))
		out.Coflows = append(out.Coflows, c)
	}
	return &out
}

// noFigures draws nothing.
func noFigures(*rundir.Run, string, string) (string, []string, error) { return "", nil, nil }

func pass() verdict.Verdict {
	return verdict.Of(verdict.Check{Name: "capture-drops", Level: verdict.Pass, Value: "0", Pass: "0", Void: "> 0"})
}

func measured(r flows.Records, v verdict.Verdict, fluid *flows.Records) summary.Repeat {
	return summary.Repeat{Records: r, Verdict: v, Fluid: fluid}
}

func packetRun() Input {
	degraded := verdict.Of(
		verdict.Check{Name: "capture-drops", Level: verdict.Pass, Value: "0", Pass: "0", Void: "> 0"},
		verdict.Check{Name: "packet-spacing", Level: verdict.Degraded, Value: "84 %", Pass: "≥ 90 %", Void: "< 50 %", Reason: "packets leave in bursts"})
	void := verdict.Of(verdict.Check{Name: "capture-drops", Level: verdict.Void, Value: "17", Pass: "0", Void: "> 0", Reason: "completion times may be late"})
	fair := []flows.Records{records(0, 80*ms, 1234567891, 40*ms, 160*ms), records(123, 82*ms, 1200*ms, 44*ms, 150*ms)}
	sebf := []flows.Records{records(0, 40*ms, 1100*ms, 20*ms, 100*ms), records(7, 41*ms, 1000*ms, 30*ms, 90*ms)}
	late := records(0, 77777*time.Microsecond, 77777*time.Microsecond)
	late.Problems = []string{"coflow 2: 1 of its 2 flows are complete, so it has no record: flow 4 has 10 of 20 bytes at h1-00"}
	for i := range 6 {
		late.Problems = append(late.Problems, "coflow "+string(rune('3'+i))+": no mark | of its *arrival*")
	}
	in := Input{RunID: "fig9-001", Scenario: "figure_9", Seed: 1, Arms: []Arm{
		{Name: "fair", Repeats: []summary.Repeat{measured(fair[0], pass(), scaled(fair[0], 0.9)), measured(fair[1], pass(), scaled(fair[1], 0.9))}},
		{Name: "sebf", Repeats: []summary.Repeat{measured(sebf[0], pass(), scaled(sebf[0], 0.8)), measured(sebf[1], degraded, nil)}},
		{Name: "starved", Repeats: []summary.Repeat{measured(records(0, 99*ms), pass(), nil), measured(late, void, nil)}},
		{Name: "kept_only|captures", Repeats: []summary.Repeat{measured(records(0, 90*ms, 1300*ms, 50*ms), verdict.Missing("only the captures were kept"), nil)}},
	}}
	for i := range in.Arms {
		for k := range in.Arms[i].Repeats {
			timed(&in.Arms[i].Repeats[k])
			of := in.Arms[i].Repeats[k].Records.Flows
			for n := range of {
				of[n].Setup = of[n].FCT() / []time.Duration{16, 40, 16, 8}[i]
			}
		}
	}
	for k := range in.Arms[0].Repeats { // the other arms have estimates
		rep := &in.Arms[0].Repeats[k]
		rep.Resent = 1000 * (k + 1)
		for l := range rep.Links {
			rep.Links[l].Counted = true
		}
	}
	kept := &in.Arms[3].Repeats[0]
	kept.Timing, kept.Links, kept.Fabric, kept.Untimed = nil, nil, nil, "the captures do not state the fabric"
	in.Arms[1].Repeats[0].Timing.Missing = []string{"coflow 9: 1 of its 2 flows have a trail"}
	return in
}

// timed gives a repeat a breakdown of its times, and loads of the links of two hosts under
// one leaf.
func timed(r *summary.Repeat) {
	run := &breakdown.Run{Traffic: breakdown.Traffic{CrossRack: map[string]units.Bytes{breakdown.Shuffle: 12_345_678, breakdown.Write: 700_000, breakdown.Control: 1234, breakdown.MapRead: 0}, DiskImbalance: 0.25, Makespan: 1250 * ms}}
	for _, c := range r.Records.Coflows {
		cct := c.CCT()
		held, setup, serial, queue := cct/10, cct/40, cct/2, cct/5
		run.Coflows = append(run.Coflows, breakdown.Coflow{Coflow: c.Coflow, CCT: cct, Width: c.Width, Size: c.Size, Skew: 4. / 3, Slowest: workloads.FlowID(2*c.Coflow + 1), Bottleneck: "h0-00>leaf0", Lone: serial, Slowdown: float64(cct) / float64(serial),
			Shares: []breakdown.Share{{Cause: breakdown.Held, Time: held}, {Cause: breakdown.Setup, Time: setup}, {Cause: breakdown.Serialisation, Time: serial}, {Cause: breakdown.Queueing, Link: "leaf0>h0-01", Time: queue}, {Cause: breakdown.Queueing, Link: "h0-00>leaf0", Time: queue / 2}, {Cause: breakdown.Latency, Time: cct - held - setup - serial - queue - queue/2}}})
		run.CoflowTotal = append(run.CoflowTotal, run.Coflows[len(run.Coflows)-1].Shares...)
	}
	for _, b := range r.Records.Blocks {
		all := b.WriteTime()
		run.Blocks = append(run.Blocks, breakdown.Block{Block: b.Block, WriteTime: all, Shares: []breakdown.Share{{Cause: breakdown.Network, Time: all / 4}, {Cause: breakdown.Disk, Time: all - all/4}}})
		run.BlockTotal = append(run.BlockTotal, run.Blocks[len(run.Blocks)-1].Shares...)
	}
	r.Timing = run
	for _, f := range r.Records.Flows {
		r.Progress = append(r.Progress, metrics.Progress{Kind: wire.KindFlow, Group: uint32(f.Coflow), Member: uint32(f.Flow), Src: f.Src, Dst: f.Dst, Size: f.Size, Complete: true, SentKnown: f.Flow != 1,
			Moments: []metrics.Moment{{Bytes: 0, Sent: f.Start, At: f.Start + 100}, {Bytes: f.Size / 2, Sent: f.Start + (f.End-f.Start)/4, At: f.Start + (f.End-f.Start)/3}, {Bytes: f.Size, Sent: f.End - 1500, At: f.End}}})
	}
	for _, b := range r.Records.Blocks[:1] {
		r.Progress = append(r.Progress, metrics.Progress{Kind: wire.KindBlock, Group: uint32(b.Block), Member: 1, Generation: 1, Src: b.Hosts[0], Dst: b.Hosts[1], Size: b.Size,
			Moments: []metrics.Moment{{Bytes: 0, At: b.Requested}, {Bytes: b.Size / 3, At: b.End - 7}}})
	}
	var err error
	if r.Fabric, err = (topo.LeafSpine{Leaves: 1, HostsPerLeaf: 2, HostLink: 8 * units.Mbps, Queue: topo.Queue{Time: 20 * ms}, MTU: 1500}).Build(); err != nil {
		panic(err)
	}
	for _, l := range r.Fabric.Links() {
		s := flows.LinkSeries{Link: l.ID, Name: r.Fabric.LinkName(l.ID), Rate: l.Rate, Interval: 40 * ms, Bytes: []units.Bytes{40_000, 20_000, 0, 10_000}, Queue: []units.Bytes{0, 3000, 1514, 0}}
		if l.ID == 3 {
			s.Bytes, s.Queue, s.Drops = []units.Bytes{0, 0, 0, 40_000}, make([]units.Bytes, 4), 1234
		}
		r.Links = append(r.Links, s)
	}
}

func fluidRun() Input {
	return Input{RunID: "sim-7", Scenario: "figure 9", FluidModel: true, Arms: []Arm{
		{Name: "fair", Repeats: []summary.Repeat{{Records: records(0, 80*ms, 1200*ms)}}},
		{Name: "sebf", Repeats: []summary.Repeat{{Records: records(0, 40*ms, 900*ms)}}},
	}}
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (go test -update writes it)", err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}

func TestGolden(t *testing.T) {
	for _, run := range []struct {
		name string
		in   Input
	}{{"packets", packetRun()}, {"fluid", fluidRun()}} {
		r, err := New(run.in)
		if err != nil {
			t.Fatal(err)
		}
		for _, form := range []struct {
			name  string
			write func(io.Writer) error
		}{
			{"terminal.txt", r.Terminal}, {summary.MarkdownFile, r.Markdown}, {summary.SummaryFile, r.JSON},
			{summary.FlowsFile, csvOf(r.flows())}, {summary.CoflowsFile, csvOf(r.coflows())}, {summary.BlocksFile, csvOf(r.blocks())}, {summary.BreakdownFile, csvOf(r.breakdown())}, {summary.LinksFile, csvOf(r.links())}, {summary.DropsFile, csvOf(r.drops())}, {summary.ProgressFile, csvOf(r.progress())},
		} {
			if run.in.FluidModel && (form.name == summary.BreakdownFile || form.name == summary.LinksFile || form.name == summary.DropsFile || form.name == summary.ProgressFile) {
				continue
			}
			t.Run(run.name+"/"+form.name, func(t *testing.T) {
				var got, again bytes.Buffer
				if err := errors.Join(form.write(&got), form.write(&again)); err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(got.Bytes(), again.Bytes()) {
					t.Error("written twice, it differs")
				}
				switch form.name {
				case summary.SummaryFile:
					goldenSummary(t, run.name+"-"+form.name, got.Bytes())
				case summary.MarkdownFile, "terminal.txt":
					golden(t, run.name+"-"+form.name, elided(r, got.String()))
				default:
					golden(t, run.name+"-"+form.name, got.Bytes())
				}
			})
		}
	}
}

// No figure of a void repeat appears anywhere: its completion times are 77.777 ms and no
// other record has them.
func TestVoidShowsNoFigure(t *testing.T) {
	r, err := New(packetRun())
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	files, err := r.Write(dir, noFigures)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{summary.FlowsFile, summary.CoflowsFile, summary.BlocksFile, summary.BreakdownFile, summary.LinksFile, summary.DropsFile, summary.ProgressFile, summary.SummaryFile, summary.MarkdownFile, summary.PageFile}; !cmp.Equal(want, files) {
		t.Errorf("Write = %v, want %v", files, want)
	}
	var all bytes.Buffer
	if err := r.Terminal(&all); err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		b, err := os.ReadFile(filepath.Join(dir, f))
		if err != nil {
			t.Fatal(err)
		}
		all.Write(b)
	}
	// Nor do those of the breakdown: 7.7777 ms held, 15.5554 ms queued.
	for _, figure := range []string{"77.8", "77.77", "77777", "38888", "38.9", "7777.7", "7.78", "15555.4", "15.6 ms"} {
		if strings.Contains(all.String(), figure) {
			t.Errorf("%s of a void repeat is shown", figure)
		}
	}
	for _, a := range r.Summary.Arms {
		if a.Void() != (a.Name == "starved") || a.Void() && (a.Time != nil || a.Traffic != nil || a.Links != nil || a.MedianSlowdown != nil || a.CCT != nil || a.FCT != nil || a.WriteTime != nil) {
			t.Errorf("arm %s: void %v, CCT %v", a.Name, a.Void(), a.CCT)
		}
	}
}

func TestVoidBaseline(t *testing.T) {
	in := packetRun()
	in.Arms[0].Repeats[1].Verdict = in.Arms[2].Repeats[1].Verdict
	r, err := New(in)
	if err != nil {
		t.Fatal(err)
	}
	if m := r.Summary.Arms[1].CCT; m.Speedup != nil || m.Paired != nil {
		t.Error("a speed-up over a void baseline")
	}
	var b bytes.Buffer
	if err := r.Terminal(&b); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.String(), "The baseline fair is void") || strings.Contains(b.String(), "×") {
		t.Errorf("terminal:\n%s", b.String())
	}
}

func TestSummaryFigures(t *testing.T) {
	r, err := New(packetRun())
	if err != nil {
		t.Fatal(err)
	}
	fair, sebf := r.Summary.Arms[0].CCT, r.Summary.Arms[1].CCT
	// (80 + 1234.567891 + 40 + 160 + 82 + 1200 + 44 + 150) / 8 ms
	if fair.N != 8 || fair.MeanUS != 373820.986 || fair.Speedup != nil {
		t.Errorf("fair: n %d, mean %v µs, want 8, 373820.986", fair.N, fair.MeanUS)
	}
	// (40 + 1100 + 20 + 100 + 41 + 1000 + 30 + 90) / 8 = 302.625 ms
	if sebf.MeanUS != 302625 || *sebf.Speedup != 1.235261 {
		t.Errorf("sebf: mean %v µs, speed-up %v, want 302625, 1.235261", sebf.MeanUS, *sebf.Speedup)
	}
	if sebf.Paired.Pairs != 8 || sebf.Paired.Unpaired != 0 || sebf.Paired.GeoMean < 1.5 || sebf.Paired.GeoMean > 1.7 {
		t.Errorf("sebf: paired %+v", *sebf.Paired)
	}
	// Only the first repeat has a prediction, at 0.8 of what was measured.
	if sebf.Fluid.N != 4 || sebf.Fluid.MeanUS != 252000 || sebf.Fluid.Ratio != 1.25 {
		t.Errorf("sebf: fluid %+v, want 4, 252000 µs, 1.25", *sebf.Fluid)
	}
	if fair.Repeats.Repeats != 2 || r.Summary.Arms[3].CCT.Repeats != nil {
		t.Error("spread between repeats: want one for fair and none for a single repeat")
	}
}

func TestJSONIsReadable(t *testing.T) {
	r, err := New(packetRun())
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := r.JSON(&b); err != nil {
		t.Fatal(err)
	}
	want := b.String()
	back := Report{}
	d := json.NewDecoder(&b)
	d.DisallowUnknownFields()
	if err := d.Decode(&back.Summary); err != nil {
		t.Fatal(err)
	}
	b.Reset()
	if err := back.JSON(&b); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("summary (-want +got):\n%s", diff)
	}
}

// The terminal, the Markdown report, the headline CSV and the JSON summary have the same
// numbers: each figure that a program reads is, rounded, in the table.
func TestFormsAgree(t *testing.T) {
	for name, in := range map[string]Input{"packets": packetRun(), "fluid": fluidRun()} {
		r, err := New(in)
		if err != nil {
			t.Fatal(err)
		}
		var terminal, markdown, headline, data bytes.Buffer
		if err := errors.Join(r.TerminalIn(&terminal, tables.Style{Width: 300}), r.Markdown(&markdown), r.HeadlineCSV(&headline), r.JSON(&data)); err != nil {
			t.Fatal(err)
		}
		var s map[string]any // as a program has it, which knows nothing of our types
		if err := json.Unmarshal(data.Bytes(), &s); err != nil {
			t.Fatal(err)
		}
		rows, err := csv.NewReader(&headline).ReadAll()
		if err != nil {
			t.Fatal(err)
		}
		column := map[string]int{}
		for i, h := range rows[0] {
			column[h] = i
		}
		figures, cells := 0, 0
		for _, a := range s["arms"].([]any) {
			arm := a.(map[string]any)
			for _, m := range []struct{ key, title string }{{"cct", "Coflow completion time (CCT)"}, {"fct", "Flow completion time (FCT)"}, {"write_time", "Block write time"}} {
				var row []string
				for _, x := range rows[1:] {
					if x[0] == arm["name"] && x[1] == m.key {
						row = x
					}
				}
				f, ok := arm[m.key].(map[string]any)
				if !ok {
					if row == nil || row[2] != "void" || strings.Join(row[4:], "") != "" {
						t.Errorf("%s: row of a void arm: %q", name, row)
					}
					continue
				}
				want := map[string]any{}
				for _, of := range summary.TimeColumns() {
					want[of.CSV] = valueAt(f, of.Key)
				}
				for _, h := range rows[0][4:] {
					cell := row[column[h]]
					if want[h] == nil {
						if cell != "" {
							t.Errorf("%s, %s, %s: %s is %q in CSV and not in JSON", name, arm["name"], m.key, h, cell)
						}
						continue
					}
					if got, err := strconv.ParseFloat(cell, 64); err != nil || got != want[h].(float64) {
						t.Errorf("%s, %s, %s: %s is %q in CSV, %v in JSON", name, arm["name"], m.key, h, cell, want[h])
					}
					figures++
				}
				// The line of the arm in both tables.
				us := func(key string) string { return units.Human(time.Duration(math.Round(1000 * f[key].(float64)))) }
				shown := []string{fmt.Sprint(f["n"]), us("mean_us"), us("p50_us"), us("p95_us"), us("p99_us")}
				if x, ok := want["between_repeats"].(float64); ok {
					shown = append(shown, fmt.Sprintf("%.1f %%", 100*x))
				}
				if x, ok := want["speedup"].(float64); ok {
					e := metrics.Estimate{Value: want["geo_mean"].(float64)}
					if low, ok := want["geo_mean_low"].(float64); ok {
						e.CI = metrics.Interval{Low: low, High: want["geo_mean_high"].(float64)}
					}
					shown = append(shown, fmt.Sprintf("%.2f×", x), e.String())
				}
				if x, ok := want["fluid_ratio"].(float64); ok {
					shown = append(shown, units.Human(time.Duration(math.Round(1000*want["fluid_mean_us"].(float64)))), fmt.Sprintf("%.3f", x))
				}
				for form, text := range map[string]string{"terminal": strings.ReplaceAll(terminal.String(), "│", "|"), "markdown": strings.NewReplacer(`\|`, "/", `\_`, "_").Replace(markdown.String())} {
					_, text, _ = strings.Cut(text, m.title+"\n")
					var line []string
					for l := range strings.Lines(text) {
						l = strings.ReplaceAll(l, "kept_only|captures", "kept_only/captures")
						if c := strings.Split(l, "|"); len(c) > 2 && strings.TrimSpace(c[1]) == strings.ReplaceAll(arm["name"].(string), "|", "/") {
							for _, x := range c[2:] {
								line = append(line, strings.TrimPrefix(strings.TrimSpace(x), best+" "))
							}
							break
						}
					}
					at := 0
					for _, w := range shown { // in this order; other columns may be between them
						i := slices.Index(line[at:], w)
						if i < 0 {
							t.Errorf("%s, %s, %s: %q is not in the %s's line %q", name, arm["name"], m.key, w, form, line)
							break
						}
						at += i + 1
						cells++
					}
				}
			}
		}
		if figures < 60 || cells < 40 {
			t.Errorf("%s: %d figures and %d cells were compared", name, figures, cells)
		}
	}
}

// valueAt returns the value of a key such as paired.geo_mean_ci[0] in an object of JSON; nil if there is none.
func valueAt(in any, key string) any {
	for part := range strings.SplitSeq(key, ".") {
		name, end, ofList := strings.Cut(strings.TrimSuffix(part, "]"), "[")
		object, _ := in.(map[string]any)
		in = object[name]
		if i, err := strconv.Atoi(end); ofList && err == nil {
			list, ok := in.([]any)
			if !ok || i >= len(list) {
				return nil
			}
			in = list[i]
		}
	}
	return in
}

// No line is wider than any style, and the columns that do not fit are named.
func TestTerminalFits(t *testing.T) {
	in := packetRun()
	in.Arms[1].Name = "sebf-with-everything+sinbad-with-a-threshold-of-10MB"
	r, err := New(in)
	if err != nil {
		t.Fatal(err)
	}
	for _, style := range []tables.Style{{}, {Width: 80}, {Width: 60, ASCII: true}, {Width: 100, ASCII: true}, {Width: 240}} {
		var b bytes.Buffer
		if err := r.TerminalIn(&b, style); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(b.String()) {
			line = strings.TrimSuffix(line, "\n")
			if w := tables.Width(line); w > order.Or(style.Width, tables.DefaultWidth) {
				t.Errorf("%+v: %d columns: %s", style, w, line)
			}
			if i := strings.IndexFunc(line, func(r rune) bool { return r > 127 }); style.ASCII && i >= 0 {
				t.Errorf("%+v: not ASCII: %s", style, line)
			}
		}
		if left := strings.Contains(b.String(), "Columns hidden to fit the terminal: "); left != (style.Width < 240) {
			t.Errorf("%+v: says that something is left out: %v\n%s", style, left, b.String())
		}
		for _, figure := range []string{"373.8 ms", "302.6 ms", "1.60", "<8 pairs", "degraded [1]", "void [2]"} {
			if !strings.Contains(b.String(), figure) {
				t.Errorf("%+v: no %s in\n%s", style, figure, b.String())
			}
		}
	}
}

// The lowest average is marked if the averages are over the same items.
func TestBestIsMarked(t *testing.T) {
	r, err := New(fluidRun())
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := r.Terminal(&b); err != nil {
		t.Fatal(err)
	}
	if strings.Count(b.String(), best+" 470.0 ms") != 1 || strings.Count(b.String(), best) != 4 { // three tables and the legend
		t.Errorf("want one mark in each of three tables:\n%s", b.String())
	}
	r, err = New(packetRun()) // arms of different numbers of items
	if err != nil {
		t.Fatal(err)
	}
	b.Reset()
	if err := r.Terminal(&b); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(b.String(), best) {
		t.Errorf("a mark though the arms have different items:\n%s", b.String())
	}
}

func TestCSVIsRectangular(t *testing.T) {
	r, err := New(packetRun())
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		write func(io.Writer) error
		rows  int
	}{"flows": {csvOf(r.flows()), 2 * 20}, "coflows": {csvOf(r.coflows()), 20}, "blocks": {csvOf(r.blocks()), 20}} {
		var b bytes.Buffer
		if err := tt.write(&b); err != nil {
			t.Fatal(err)
		}
		rows, err := csv.NewReader(&b).ReadAll()
		if err != nil || len(rows) != 1+tt.rows {
			t.Errorf("%s: %d rows, %v, want %d", name, len(rows), err, 1+tt.rows)
		}
	}
}

func TestInputMistakes(t *testing.T) {
	if _, err := New(Input{}); err == nil || !strings.Contains(err.Error(), "no arm") {
		t.Errorf("no arm: %v", err)
	}
	_, err := New(Input{Arms: []Arm{{Name: "a", Repeats: nil}, {Name: "a", Repeats: []summary.Repeat{{}}}, {Name: "", Repeats: []summary.Repeat{{Verdict: pass()}}}}})
	for _, want := range []string{`arm "a" has no repeat`, `arm name "a"`, `arm "a", repeat 0: no verdict`, `arm name ""`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
}

func TestNothingMeasured(t *testing.T) {
	r, err := New(Input{RunID: "x", Arms: []Arm{{Name: "a", Repeats: []summary.Repeat{{Verdict: pass(), Records: flows.Records{Problems: []string{"no capture has a mark"}}}}}}})
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := errors.Join(r.Terminal(&b), r.Markdown(&b)); err != nil {
		t.Fatal(err)
	}
	if strings.Count(b.String(), "Nothing was measured") != 2 || strings.Count(b.String(), "no capture has a mark") != 2 {
		t.Errorf("output:\n%s", b.String())
	}
}

type fullDisk struct{}

var errFull = errors.New("no space left")

func (fullDisk) Write([]byte) (int, error) { return 0, errFull }

func TestWriteErrors(t *testing.T) {
	r, err := New(packetRun())
	if err != nil {
		t.Fatal(err)
	}
	for name, write := range map[string]func(io.Writer) error{"terminal": r.Terminal, "markdown": r.Markdown, "json": r.JSON, "flows": csvOf(r.flows()), "coflows": csvOf(r.coflows()), "blocks": csvOf(r.blocks())} {
		if err := write(fullDisk{}); !errors.Is(err, errFull) {
			t.Errorf("%s to a full disk: %v", name, err)
		}
	}
	if _, err := r.Write(filepath.Join(t.TempDir(), "none"), noFigures); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no directory: %v", err)
	}
}

// A report that cannot be written leaves the previous one, and no file of its own.
func TestWriteIsAllOrNothing(t *testing.T) {
	r, err := New(packetRun())
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, summary.MarkdownFile), []byte("before"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, summary.PageFile), 0o755); err != nil { // written after the first
		t.Fatal(err)
	}
	if _, err := r.Write(dir, noFigures); err == nil || !strings.Contains(err.Error(), summary.PageFile) {
		t.Errorf("a page that is a directory: %v", err)
	}
	left, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(dir, summary.MarkdownFile)); err != nil || string(b) != "before" || len(left) != 2 {
		t.Errorf("%q, %v; %d files, want 2", b, err, len(left))
	}
}

func TestHuman(t *testing.T) {
	for _, tt := range []struct {
		d    time.Duration
		want string
	}{
		{0, "0 s"}, {1, "0.00 µs"}, {567, "0.57 µs"}, {5678, "5.68 µs"}, {9996, "10.0 µs"}, {56_789, "56.8 µs"}, {999_960, "1.00 ms"}, {999_940, "999.9 µs"},
		{5_678_901, "5.68 ms"}, {9_996_000, "10.0 ms"}, {56_700_000, "56.7 ms"}, {999_940_000, "999.9 ms"}, {999_960_000, "1.000 s"},
		{1_234_400_000, "1.234 s"}, {3600 * time.Second, "3600.000 s"}, {-56_700_000, "-56.7 ms"},
	} {
		if got := units.Human(tt.d); got != tt.want {
			t.Errorf("human(%d) = %q, want %q", int64(tt.d), got, tt.want)
		}
	}
}

// A symbolic link in place of a file of the report is refused before any file changes: with
// root privileges it could lead to any file of the machine.
func TestLinkAtAPlaceOfTheReport(t *testing.T) {
	r, err := New(packetRun())
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	target := filepath.Join(t.TempDir(), "target")
	if err := os.WriteFile(target, []byte("precious"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(target, filepath.Join(dir, summary.PageFile)); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Write(dir, noFigures); err == nil || !strings.Contains(err.Error(), summary.PageFile+": it is a symbolic link") {
		t.Errorf("report over a link: %v", err)
	}
	if b, err := os.ReadFile(target); err != nil || string(b) != "precious" {
		t.Errorf("the target of the link: %q, %v", b, err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("%v, %v: want the link alone", entries, err)
	}
}

// Averages over different items, as in a run that was cut short, have no ratio: the table says what was
// completed. A lost record is counted.
func TestNoRatioOverDifferentItems(t *testing.T) {
	arm := func(name string, completed int, ccts ...time.Duration) Arm {
		r := summary.Repeat{Verdict: verdict.Of(), Completed: map[string]int{"coflows": completed}}
		for i, cct := range ccts {
			r.Records.Coflows = append(r.Records.Coflows, flows.CoflowRecord{Coflow: workloads.CoflowID(i), End: cct})
		}
		return Arm{Name: name, Repeats: []summary.Repeat{r}}
	}
	rep, err := New(Input{RunID: "x", Arms: []Arm{arm("fair", 3, time.Second, time.Second, 10*time.Second), arm("sebf", 5, time.Second, time.Second)}})
	if err != nil {
		t.Fatal(err)
	}
	m := rep.Summary.Arms[1].CCT
	if m.Speedup != nil || m.Paired == nil || m.Paired.Pairs != 2 || m.Paired.GeoMean != 1 || m.N != 2 || m.Of != 5 || rep.Summary.Arms[0].CCT.Of != 0 {
		t.Errorf("metric %+v", m)
	}
	var text bytes.Buffer
	if err := rep.TerminalIn(&text, tables.Style{Width: 200}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"2 of 5", "fair completed 3 coflows and sebf 2, of which 2 are the same, so their averages are not comparable"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, text.String())
		}
	}
}
