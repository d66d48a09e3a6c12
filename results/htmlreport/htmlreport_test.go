package htmlreport

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"

	"testbed/emu/longtest"
	"testbed/hosts/wire"
	"testbed/results/breakdown"
	"testbed/results/flows"
	"testbed/results/flows/flowstest"
	"testbed/results/metrics"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

const ms = time.Millisecond

// secret is the duration of everything in a void arm: a figure that no other arm has.
const secret = 7777777 * time.Microsecond

func fabric(t testing.TB) *topo.Fabric {
	f, err := topo.LeafSpine{Leaves: 4, Spines: 2, HostsPerLeaf: 5, HostLink: 50 * units.Mbps, Oversubscription: units.Ratio{Num: 5, Den: 1}, Queue: topo.Queue{Bytes: 64 * units.KB}, MTU: 1500}.Build()
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// repeat returns a consistent repeat: coflows with flows, blocks, loads of links and shares
// that add up. pace divides its times.
func repeat(f *topo.Fabric, coflows int, pace float64, seed uint64) Repeat {
	rng := rand.New(rand.NewPCG(seed, 1))
	r := Repeat{Fabric: f, Timing: &breakdown.Run{Traffic: breakdown.Traffic{CrossRack: map[string]units.Bytes{}, DiskImbalance: 0.4 / pace}}}
	totals := map[breakdown.Cause]time.Duration{}
	end := time.Duration(0)
	for i := range coflows {
		arrival := time.Duration(i) * 15 * time.Second / time.Duration(coflows)
		cct := time.Duration(math.Exp(rng.NormFloat64()+13.8)*1e3/pace) + ms
		if pace < 0.01 {
			cct = secret
		}
		held := cct / time.Duration(2+rng.IntN(4))
		c := flows.CoflowRecord{Coflow: workloads.CoflowID(i), Width: 3, Size: units.Bytes(3 * cct / 1000), Arrival: arrival, End: arrival + cct}
		r.Records.Coflows = append(r.Records.Coflows, c)
		for k := range 3 {
			start := arrival + held
			if k == 1 { // a pause
				start += (cct - held) / 2
			}
			stop := arrival + cct
			if k == 0 {
				stop = start + (cct-held)/3
			}
			r.Records.Flows = append(r.Records.Flows, flows.FlowRecord{Coflow: c.Coflow, Flow: workloads.FlowID(3*i + k), Src: f.HostName(topo.HostID(k)), Dst: f.HostName(topo.HostID(5 + k)),
				Size: c.Size / 3, Arrival: arrival, Start: start, End: stop})
			p := metrics.Progress{Kind: wire.KindFlow, Group: uint32(i), Member: uint32(3*i + k), Src: f.HostName(topo.HostID(k)), Dst: f.HostName(topo.HostID(5 + k)), Size: c.Size / 3, Complete: true}
			for x := range 40 {
				p.Moments = append(p.Moments, metrics.Moment{Bytes: p.Size * units.Bytes(x) / 39, At: start + (stop-start)*time.Duration(x*x)/(39*39)})
			}
			r.Progress = append(r.Progress, p)
		}
		rest := cct - held
		shares := []breakdown.Share{{Cause: breakdown.Held, Time: held}, {Cause: breakdown.Setup, Time: rest / 20}, {Cause: breakdown.Serialisation, Time: rest / 2}, {Cause: breakdown.Queueing, Link: "leaf0>spine0", Time: rest / 4}, {Cause: breakdown.Latency, Time: rest - rest/20 - rest/2 - rest/4}}
		for _, s := range shares {
			totals[s.Cause] += s.Time
		}
		r.Timing.Coflows = append(r.Timing.Coflows, breakdown.Coflow{Coflow: c.Coflow, CCT: cct, Width: 3, Size: c.Size, Bottleneck: "leaf0>spine0", Lone: rest / 2, Slowdown: float64(cct) / float64(rest/2), Shares: shares})
		end = max(end, c.End)
	}
	for _, cause := range []breakdown.Cause{breakdown.Held, breakdown.Setup, breakdown.Serialisation, breakdown.Queueing, breakdown.Latency} {
		r.Timing.CoflowTotal = append(r.Timing.CoflowTotal, breakdown.Share{Cause: cause, Time: totals[cause]})
	}
	var wrote time.Duration
	for i := range 24 {
		took := time.Duration(float64(2+rng.IntN(5)) * float64(time.Second) / pace)
		if pace < 0.01 {
			took = secret
		}
		b := flows.BlockRecord{Block: workloads.BlockID(i), Client: f.HostName(topo.HostID(i % 6)), Size: 4 * units.MB, Requested: time.Duration(i) * 300 * ms, End: time.Duration(i)*300*ms + took}
		for range 3 {
			b.Hosts = append(b.Hosts, f.HostName(topo.HostID(rng.IntN(f.Hosts()))))
		}
		r.Records.Blocks = append(r.Records.Blocks, b)
		shares := []breakdown.Share{{Cause: breakdown.Network, Time: took / 3}, {Cause: breakdown.Disk, Time: took - took/3}}
		wrote += took
		r.Timing.Blocks = append(r.Timing.Blocks, breakdown.Block{Block: b.Block, WriteTime: took, Shares: shares})
	}
	r.Timing.BlockTotal = []breakdown.Share{{Cause: breakdown.Network, Time: wrote / 3}, {Cause: breakdown.Disk, Time: wrote - wrote/3}}
	r.Timing.Traffic.Makespan = end
	r.Timing.Traffic.CrossRack["shuffle"], r.Timing.Traffic.CrossRack["write"], r.Timing.Traffic.CrossRack["control"] = units.Bytes(188e6+1e6*float64(seed)), units.Bytes(90e6/pace), 12345
	jobs := flowstest.Cluster{Racks: 4, HostsPerRack: 5, MapSlots: 2, ReduceSlots: 1, Jobs: 25, Users: 10, Pace: pace, Node: 1 - 0.5/max(1, pace)}
	if pace < 0.01 {
		jobs.Jobs, jobs.Pace = 1, 1
	}
	made := jobs.Records(seed)
	r.Records.Jobs, r.Records.Attempts = made.Jobs, made.Attempts
	r.Slots = &metrics.TaskSlots{Hosts: jobs.Hosts(), Map: jobs.MapSlots, Reduce: jobs.ReduceSlots}
	if pace < 0.01 {
		for i := range r.Records.Jobs {
			r.Records.Jobs[i].End = r.Records.Jobs[i].Arrival + secret
		}
	}
	const interval = 20 * ms
	n := int(end/interval) + 1
	for _, l := range f.Links() {
		s := flows.LinkSeries{Link: l.ID, Name: f.LinkName(l.ID), Rate: l.Rate, Interval: interval, Drops: int(l.ID) % 3, Observed: l.ID%2 == 0}
		full := float64(l.Rate) / 8 * interval.Seconds()
		for i := range n {
			x := 0.5 + 0.5*math.Sin(float64(i)/60+float64(l.ID))
			if i%97 < 20 {
				x = 0
			}
			s.Bytes = append(s.Bytes, units.Bytes(full*x))
		}
		r.Links = append(r.Links, s)
	}
	return r
}

// hostile are names that a page must not interpret as markup or script.
var hostile = []string{`</script><script>alert(1)</script>`, "fair\u2028\u2029'\"`${x}", `<img src=http://example.com/x.png onerror=alert(2)> & {{.}} --><!--`}

func data(t testing.TB, names ...string) Data {
	f := fabric(t)
	d := Data{RunID: "quick-1", Scenario: "quick", Source: "Source: captured packets.", Human: func(d time.Duration) string { return fmt.Sprintf("%.3f s", d.Seconds()) },
		Summary:     []byte(`{"format": 1, "arms": []}`),
		Definitions: []string{"Average: arithmetic mean."}, Manifest: []Setting{{"kernel", "6.12"}, {"seed", "1"}},
		Checks:   &Table{Title: "Checks", Head: []string{"arm", "verdict"}},
		Problems: []List{{"fair", []string{"flow 3: 10 of 20 bytes"}}}, Reasons: []List{{"[1] sebf is degraded", []string{"packet-spacing"}}},
		Failures: []Table{{Title: "Failures", Head: []string{"arm"}, Rows: [][]Cell{{{Text: "fair"}}}}},
		Scale:    &Table{Title: "Scale check", Lead: "Scale check: nothing is concluded."},
	}
	d.Drawings, d.Tables = map[string][]Drawing{}, map[string][]Table{}
	for _, section := range []string{"tasks", "disks", "time", "traffic"} {
		d.Drawings[section] = []Drawing{{Title: "Drawing of " + section, Lead: "Its lead.", Notes: []string{"A note."},
			SVG: `<svg viewBox="0 0 345 90"><g transform="scale(1)"><path d="M10,10L200,10L200,40L10,40Z" style="fill:var(--verm)"/>` +
				`<text x="10" y="60" style="font-family:Arimo;font-size:9px">0.5 s of its time</text></g></svg>`}}
	}
	for _, section := range []string{"time", "traffic"} {
		d.Tables[section] = []Table{{Title: "Table of " + section, Head: []string{"arm"}, Rows: [][]Cell{{{Text: "fair"}}}}}
	}
	head := Table{Title: "Coflow completion time (CCT)", Head: []string{"arm", "average", "verdict"}}
	for i, name := range names {
		a := Arm{Name: name, Level: "pass"}
		pace := 1 + float64(i)/2
		if strings.HasPrefix(name, "void") {
			a.Void, a.Level, pace = true, "void", 0.001
		}
		for k := range 2 {
			r := repeat(f, 60, pace, uint64(k))
			r.Samples = sampledFile(t, f, i)
			a.Repeats = append(a.Repeats, r)
		}
		d.Arms = append(d.Arms, a)
		row := []Cell{{Text: name}, {Text: "1.234 s", Arm: name, Metric: "cct.mean_us", Value: "1234000", Figure: true, Best: i == 1}, {Text: a.Level, Level: a.Level}}
		if a.Void {
			row[1] = Cell{Text: "void"}
		}
		head.Rows = append(head.Rows, row)
		d.Checks.Rows = append(d.Checks.Rows, []Cell{{Text: name}, {Text: a.Level, Level: a.Level}})
	}
	d.Headline = []Table{head}
	return d
}

func viewsOf(t testing.TB, d *Data) *views {
	t.Helper()
	v, err := newViews(d)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func write(t testing.TB, d Data) string {
	t.Helper()
	var b bytes.Buffer
	if err := Write(&b, d); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// walk calls f for every element.
func walk(t testing.TB, page string, f func(n *html.Node, attr map[string]string)) {
	t.Helper()
	root, err := html.Parse(strings.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	for n := range root.Descendants() {
		if n.Type == html.ElementNode {
			attr := map[string]string{}
			for _, a := range n.Attr {
				attr[a.Key] = a.Val
			}
			f(n, attr)
		}
	}
}

func content(n *html.Node) string {
	var b strings.Builder
	for c := range n.Descendants() {
		if c.Type == html.TextNode {
			b.WriteString(c.Data)
		}
	}
	return b.String()
}

var sections = []string{"headline", "failures", "scale", "reasons", "distributions", "speedups", "tasks", "series", "gantt", "timeline", "links", "balance", "disks", "time", "traffic", "problems", "checks", "manifest", "definitions"}

func TestStructure(t *testing.T) {
	page := write(t, data(t, "fair", "sebf", "weighted"))
	var got, linked []string
	ids := map[string]bool{}
	walk(t, page, func(n *html.Node, attr map[string]string) {
		if id, ok := attr["id"]; ok {
			if ids[id] {
				t.Errorf("two elements are %q", id)
			}
			ids[id] = true
		}
		switch n.Data {
		case "section":
			got = append(got, attr["id"])
			if len(strings.Fields(content(n))) < 4 {
				t.Errorf("section %s is empty", attr["id"])
			}
		case "a":
			linked = append(linked, strings.TrimPrefix(attr["href"], "#"))
		case "table":
			if content(n) == "" {
				t.Error("an empty table")
			}
		case "link", "img", "iframe", "object", "embed", "form", "base":
			t.Errorf("the page has <%s %v>", n.Data, attr)
		}
		for k, v := range attr {
			if strings.HasPrefix(k, "on") || k == "src" || k == "href" && !strings.HasPrefix(v, "#") {
				t.Errorf("<%s %s=%q>: want no handler and no address of another file", n.Data, k, v)
			}
		}
	})
	if strings.Join(got, " ") != strings.Join(sections, " ") {
		t.Errorf("sections %v, want %v", got, sections)
	}
	for _, id := range linked {
		if !ids[id] {
			t.Errorf("a link to %q, which is not there", id)
		}
	}
	if again := write(t, data(t, "fair", "sebf", "weighted")); again != page {
		t.Error("written twice, it differs")
	}
	if len(page) > 1<<20 {
		t.Errorf("%d bytes for three arms of 60 coflows, want at most 1 MiB", len(page))
	}
}

// Names of arms and scenarios come from users: all their characters are text.
func TestHostileNames(t *testing.T) {
	d := data(t, hostile...)
	d.Scenario, d.RunID, d.Partial = hostile[0], hostile[2], hostile[0]
	d.Manifest = append(d.Manifest, Setting{hostile[0], hostile[2]})
	var err error
	if d.Summary, err = json.Marshal(map[string]any{"scenario": hostile[0], "arms": hostile}); err != nil {
		t.Fatal(err)
	}
	// As the report writes it, without escapes.
	d.Summary = bytes.ReplaceAll(bytes.ReplaceAll(d.Summary, []byte(`\u003c`), []byte("<")), []byte(`\u003e`), []byte(">"))
	page := write(t, d)
	scripts, names := 0, map[string]bool{}
	walk(t, page, func(n *html.Node, attr map[string]string) {
		switch n.Data {
		case "img":
			t.Errorf("a name has become <img %v>", attr)
		case "script":
			scripts++
			if strings.Contains(content(n), "alert(") && attr["type"] != "application/json" {
				t.Error("a name has become a script")
			}
		}
		if a, ok := attr["data-arm"]; ok {
			names[a] = true
		}
		switch attr["id"] {
		case "summary":
			var s struct{ Arms []string }
			if err := json.Unmarshal([]byte(content(n)), &s); err != nil || strings.Join(s.Arms, "|") != strings.Join(hostile, "|") {
				t.Errorf("embedded summary: arms %q, %v", s.Arms, err)
			}
		case "charts":
			var c charts
			if err := json.Unmarshal([]byte(content(n)), &c); err != nil || len(c.Arms) != len(hostile) || c.Arms[0].Name != hostile[0] || c.Arms[1].Name != hostile[1] {
				t.Errorf("charts: %+v, %v", c.Arms, err)
			}
			if strings.ContainsAny(content(n), "\u2028\u2029<>") {
				t.Error("charts have raw markup or line separators")
			}
		}
	})
	if scripts != 5 {
		t.Errorf("%d scripts, want 5", scripts)
	}
	for _, name := range hostile {
		if !names[name] {
			t.Errorf("no cell of arm %q", name)
		}
	}
}

// Everything in a void arm takes 7.777777 s, and nothing else does.
func TestVoidArmShowsNoFigure(t *testing.T) {
	for _, names := range [][]string{{"fair", "void sebf"}, {"void fair", "sebf"}, {"void only"}} {
		page := write(t, data(t, names...))
		for _, s := range []string{"7777777", "7777.777", "7.777", "7.78", "7.8 s"} {
			if i := strings.Index(page, s); i >= 0 {
				t.Errorf("arms %q: %q is on the page: …%s…", names, s, page[max(0, i-80):i+40])
			}
		}
		walk(t, page, func(n *html.Node, attr map[string]string) {
			if strings.HasPrefix(attr["data-arm"], "void") && attr["data-value"] != "" {
				t.Errorf("a void arm's cell has the value %q", attr["data-value"])
			}
			if attr["id"] != "charts" {
				return
			}
			var c struct {
				CDFs     []cdf
				Speedups []speedups
				Timeline []timeline
				Links    *linkLoads
				Balance  []balance
			}
			if err := json.Unmarshal([]byte(content(n)), &c); err != nil {
				t.Fatal(err)
			}
			for i, name := range names {
				if !strings.HasPrefix(name, "void") {
					continue
				}
				for _, x := range c.CDFs {
					for _, y := range x.Curves {
						if y.Arm == i {
							t.Errorf("a curve of %s of a void arm", x.ID)
						}
					}
				}
				for _, x := range c.Timeline {
					if x.Arm == i { // includes its progress
						t.Error("a timeline of a void arm")
					}
				}
				if c.Links != nil {
					for _, x := range c.Links.Runs {
						if x.Arm == i {
							t.Error("loads of a void arm")
						}
					}
				}
				if len(c.Speedups) > 0 {
					t.Error("speed-ups with a void arm")
				}
			}
		})
	}
}

// A simulation has no timing and no links, and its page has no such sections.
func TestSimulation(t *testing.T) {
	d := data(t, "fair", "sebf")
	delete(d.Drawings, "time")
	d.Tables = nil
	d.Simulated, d.Checks, d.Reasons, d.Failures, d.Scale, d.Problems = true, nil, nil, nil, nil, nil
	for i := range d.Arms {
		for k := range d.Arms[i].Repeats {
			d.Arms[i].Repeats[k] = Repeat{Records: d.Arms[i].Repeats[k].Records}
		}
	}
	var got []string
	walk(t, write(t, d), func(n *html.Node, attr map[string]string) {
		if n.Data == "section" {
			got = append(got, attr["id"])
		}
	})
	if want := "headline distributions speedups tasks series gantt timeline disks manifest definitions"; strings.Join(got, " ") != want {
		t.Errorf("sections %v, want %s", got, want)
	}
}

// Without any item the page states that nothing was measured.
func TestNothing(t *testing.T) {
	page := write(t, Data{Summary: []byte("{}"), Human: func(time.Duration) string { return "" }, Arms: []Arm{{Name: "a", Repeats: []Repeat{{}}}}})
	if !strings.Contains(page, "Nothing was measured") || strings.Contains(page, "<figure") {
		t.Error("want a page without charts that says that nothing was measured")
	}
	if err := Write(io.Discard, Data{Summary: []byte("{"), Arms: []Arm{{}}}); err == nil {
		t.Error("a summary that is not JSON gives no error")
	}
	full := errors.New("no space left")
	if err := Write(failing{full}, data(t, "a")); !errors.Is(err, full) {
		t.Errorf("a full disk gives %v", err)
	}
}

// The progress chart shows the run's data at its resolution: at most maxFlows flows, the
// longest, from the first moment to the last.
func TestProgressIsTheRuns(t *testing.T) {
	d := data(t, "fair", "void")
	r := &d.Arms[0].Repeats[0]
	const width = maxFlows + 7
	c := r.Records.Coflows[0]
	c.Width, c.Arrival, c.End = width, 500*ms, 2500*ms
	r.Records.Coflows, r.Progress = []flows.CoflowRecord{c}, nil
	for i := range uint32(width) {
		p := metrics.Progress{Kind: wire.KindFlow, Group: uint32(c.Coflow), Member: i, Size: units.Bytes(1000 * (i + 1)), Complete: true,
			Moments: []metrics.Moment{{Bytes: 0, At: 600 * ms}, {Bytes: units.Bytes(250 * (i + 1)), At: 1500 * ms}, {Bytes: units.Bytes(1000 * (i + 1)), At: 2500 * ms}}}
		r.Progress = append(r.Progress, p, metrics.Progress{Kind: wire.KindBlock, Group: uint32(c.Coflow), Member: i, Moments: p.Moments})
	}
	lines := d.timelines()
	if len(lines) != 2 || lines[0].Arm != 0 || lines[1].Arm != 0 {
		t.Fatalf("%d timelines, want two, of the arm that is not void", len(lines))
	}
	got := lines[0].Bars[0].Flows
	if len(got) != maxFlows {
		t.Fatalf("%d flows, want %d", len(got), maxFlows)
	}
	for i, f := range got {
		if f.Flow != width-1-i || f.Size != int64(1000*(width-i)) || !slices.Equal(f.Path, []int{500, 0, 5000, 250, 10000, 1000}) {
			t.Fatalf("place %d: %+v, want flow %d", i, f, width-1-i)
		}
	}
	// Thinned paths keep both ends, and time never decreases.
	for _, b := range lines[1].Bars {
		for _, f := range b.Flows {
			n := len(f.Path) / 2
			if n != maxMoments || f.Path[1] != 0 || f.Path[2*n-1] != progressShares {
				t.Fatalf("flow %d: %v", f.Flow, f.Path)
			}
			for i := 1; i < n; i++ {
				if f.Path[2*i] < f.Path[2*i-2] || f.Path[2*i+1] <= f.Path[2*i-1] {
					t.Fatalf("flow %d goes back: %v", f.Flow, f.Path)
				}
			}
		}
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

// A run with many coflows, hosts and repeats has a page that still opens.
func TestLimits(t *testing.T) {
	longtest.Skip(t, "builds a page of 12,000 coflows, 6 s")
	d := data(t, "fair", "sebf")
	f, err := topo.LeafSpine{Leaves: 12, Spines: 4, HostsPerLeaf: 30, HostLink: 50 * units.Mbps, Uplink: 50 * units.Mbps, Queue: topo.Queue{Bytes: 64 * units.KB}, MTU: 1500}.Build()
	if err != nil {
		t.Fatal(err)
	}
	for i := range d.Arms {
		d.Arms[i].Repeats = nil
		for k := range maxRepeats + 1 {
			r := repeat(f, 1500, 1+float64(i), uint64(k))
			d.Arms[i].Repeats = append(d.Arms[i].Repeats, r)
		}
	}
	v := viewsOf(t, &d)
	items := map[string]int{"cct": 1500, "fct": 4500, "write_time": 24, "job_time": 25}
	for _, c := range v.charts.CDFs {
		for _, x := range c.Curves {
			if want := (maxRepeats + 1) * items[c.ID]; x.N != want || len(x.Times) > maxCDFPoints {
				t.Errorf("%s of %s: %d points of %d, want at most %d of %d", c.ID, d.Arms[x.Arm].Name, len(x.Times), x.N, maxCDFPoints, want)
			}
		}
	}
	bars := map[int]int{}
	for _, x := range v.charts.Timeline {
		bars[x.Arm] += len(x.Bars)
	}
	if len(v.charts.Timeline) != 2*maxRepeats || bars[0] != maxBars {
		t.Errorf("%d timelines, the first arm with %d bars, want %d and %d", len(v.charts.Timeline), bars[0], 2*maxRepeats, maxBars)
	}
	moments, flows, cut := 0, 0, 0
	for _, x := range v.charts.Timeline {
		cut += x.Cut
		for k, b := range x.Bars {
			for _, f := range b.Flows {
				moments, flows = moments+len(f.Path)/2, flows+1
			}
			// The bars with progress are the slowest.
			if x.Cut > 0 && len(b.Flows) == 0 {
				for _, other := range x.Bars {
					if len(other.Flows) > 0 && other.End-other.Arrival < b.End-b.Arrival {
						t.Fatalf("%s, repeat %d: bar %d has no progress, and a faster one has", d.Arms[x.Arm].Name, x.Repeat, k)
					}
				}
			}
		}
	}
	if moments > maxProgress || flows < 1000 {
		t.Errorf("progress of %d flows in %d moments, want at most %d", flows, moments, maxProgress)
	}
	if cut > 0 && len(v.Left["progress"]) == 0 {
		t.Error("progress is left out, and nothing says so")
	}
	l := v.charts.Links
	if cells := len(l.Names) * len(l.Runs) * l.Runs[0].Bins; len(l.Names) != maxLinks || l.Runs[0].Bins > maxBins || cells > max(maxCells, leastBins*maxLinks*len(l.Runs)) {
		t.Errorf("%d links, %d bins, %d cells", len(l.Names), l.Runs[0].Bins, cells)
	}
	for k, name := range l.Names[:2*12*4] {
		if !strings.Contains(name, "spine") {
			t.Errorf("link %d of the heat map is %s, want all of leaves and spines first", k, name)
		}
	}
	for _, id := range []string{"cct", "speedups", "timeline", "links"} {
		if len(v.Left[id]) == 0 {
			t.Errorf("%s: nothing says what is left out", id)
		}
	}
	if n := len(write(t, d)); n > 6<<20 {
		t.Errorf("the page has %d bytes, want at most 6 MiB", n)
	}
}
