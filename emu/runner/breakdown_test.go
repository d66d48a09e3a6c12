package runner

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"testbed/emu/kernel/netnstest"
	"testbed/emu/longtest"
	"testbed/emu/scenario"
	"testbed/results/breakdown"
	"testbed/results/flows"
	"testbed/results/pcap"
	"testbed/results/summary"
	"testbed/results/tooltest"
	"testbed/results/verdict"
)

// taken runs a scenario of one arm, changed by planted if it is set, and returns the breakdown of
// its times. The parts of every record add up to the nanosecond.
func taken(t *testing.T, s *scenario.Scenario, planted tamper) *breakdown.Run {
	t.Helper()
	netnstest.Require(t)
	o := options(t)
	o.tamper = planted
	out, err := Execute(t.Context(), s, o)
	if err != nil {
		t.Fatal(err)
	}
	dir := repeatDir(out.Dir, s.ArmList()[0].Name, 0)
	res, err := flows.Reduce(t.Context(), filepath.Join(dir, "captures"), flows.Options{})
	if err != nil {
		t.Fatal(err)
	}
	rep, err := repeatOf(repeatFiles{dir: dir}, res)
	if err != nil {
		t.Fatal(err)
	}
	addsUp(t, rep)
	return rep.Timing
}

func addsUp(t *testing.T, rep summary.Repeat) {
	t.Helper()
	if rep.Timing == nil || len(rep.Timing.Missing) > 0 || len(rep.Timing.Coflows) != len(rep.Records.Coflows) || len(rep.Timing.Blocks) != len(rep.Records.Blocks) {
		t.Fatalf("of %d coflows and %d blocks this is taken apart: %+v", len(rep.Records.Coflows), len(rep.Records.Blocks), rep.Timing)
	}
	for i, c := range rep.Timing.Coflows {
		if want := rep.Records.Coflows[i].CCT(); breakdown.Sum(c.Shares) != want {
			t.Errorf("coflow %d: shares of %v add up to %v", c.Coflow, want, breakdown.Sum(c.Shares))
		}
	}
	for i, b := range rep.Timing.Blocks {
		if want := rep.Records.Blocks[i].WriteTime(); breakdown.Sum(b.Shares) != want {
			t.Errorf("block %d: shares of %v add up to %v", b.Block, want, breakdown.Sum(b.Shares))
		}
	}
}

// part is a cause's part of a time.
func part(shares []breakdown.Share, c breakdown.Cause) float64 {
	return float64(breakdown.Total(shares, c)) / float64(breakdown.Sum(shares))
}

func TestWhereTheTimeOfCoflowsWent(t *testing.T) {
	longtest.Skip(t, "runs coflows whose time is known, 10 s")
	netnstest.Require(t)
	netnstest.OnlyTiming(t)
	t.Run("alone", func(t *testing.T) {
		netnstest.Timing(t, func(t *testing.T) bool {
			c := taken(t, load(t, "fair", "1 0 1 0 1 1:4.0"), tamper{}).Coflows[0]
			t.Logf("%v: %v", c.CCT, c.Shares)
			return part(c.Shares, breakdown.Serialisation) >= 0.85 && c.Slowdown >= 1 && c.Slowdown < 1.15
		})
	})
	// Both to h0-02, each from a host of its own.
	t.Run("two to one receiver", func(t *testing.T) {
		netnstest.Timing(t, func(t *testing.T) bool {
			ok := true
			for _, c := range taken(t, load(t, "fair", "1 0 1 0 1 4:5.0", "2 0 1 2 1 4:5.0"), tamper{}).Coflows {
				t.Logf("coflow %d, %v: %v", c.Coflow, c.CCT, c.Shares)
				var here, elsewhere time.Duration
				for _, s := range c.Shares {
					if s.Cause == breakdown.Queueing && s.Link == "leaf0>h0-02" {
						here += s.Time
					} else if s.Cause == breakdown.Queueing {
						elsewhere += s.Time
					}
				}
				// What waits for a segment that the full queue dropped waits for that queue too.
				queue := float64(here)/float64(c.CCT) + part(c.Shares, breakdown.Retransmission)
				ok = ok && c.Bottleneck == "leaf0>h0-02" && float64(here) > 0.25*float64(c.CCT) && queue > 0.35 && queue < 0.6 && elsewhere < c.CCT/20 && part(c.Shares, breakdown.Serialisation) > 0.4
			}
			return ok
		})
	})
	// The small one has the uplink that both need as long as it lasts.
	t.Run("held behind a small one", func(t *testing.T) {
		netnstest.Timing(t, func(t *testing.T) bool {
			run := taken(t, load(t, "sebf", "1 0 1 0 1 1:8.0", "2 300 1 2 1 3:3.0"), tamper{})
			large, small := run.Coflows[0], run.Coflows[1]
			t.Logf("large %v: %v", large.CCT, large.Shares)
			t.Logf("small %v: %v", small.CCT, small.Shares)
			held := float64(breakdown.Total(large.Shares, breakdown.Held)) / float64(small.CCT)
			return held > 0.7 && held < 1.15 && part(small.Shares, breakdown.Held) < 0.1
		})
	})
	// A packet in a hundred costs next to nothing: the link stays busy. One in ten does.
	t.Run("loss", func(t *testing.T) {
		tooltest.Need(t, "tc")
		netnstest.Timing(t, func(t *testing.T) bool {
			c := taken(t, load(t, "fair", "1 0 1 0 1 1:1.0"), droppingOf("leaf0", "h0-00", "ingress", 10)).Coflows[0]
			t.Logf("%v: %v", c.CCT, c.Shares)
			return part(c.Shares, breakdown.Retransmission) > 0.15
		})
	})
}

func TestWhereTheTimeOfBlocksWent(t *testing.T) {
	longtest.Skip(t, "runs blocks whose time is known, 5 s")
	netnstest.Require(t)
	netnstest.OnlyTiming(t)
	const lone = `
name: lone
fabric: {leaves: 2, spines: 1, hosts_per_leaf: 3, host_link: %s, oversubscription: "1:1", queue: 20ms}
disk: {write: %s, size: 64MB}
workload:
  - {kind: writers, count: 1, blocks: 2, block: 2MB, packet: 32KB, window: 6}
arms: {coflow: [fair], placement: [hdfs]}
`
	for _, tt := range []struct {
		name, link, disk string
		most             breakdown.Cause
	}{
		{"slow disks", "50Mbps", "1.5MB/s", breakdown.Disk},
		{"slow links", "20Mbps", "40MB/s", breakdown.Network},
	} {
		t.Run(tt.name, func(t *testing.T) {
			netnstest.Timing(t, func(t *testing.T) bool {
				ok := true
				for _, b := range taken(t, loadText(t, fmt.Sprintf(lone, tt.link, tt.disk)), tamper{}).Blocks {
					t.Logf("block %d, %v: %v", b.Block, b.WriteTime, b.Shares)
					ok = ok && part(b.Shares, tt.most) > 0.6
				}
				return ok
			})
		})
	}
}

// figures returns all results of an arm that a report derives from captures, by file. It excludes
// verdicts, predictions, statistics of the coordinator, and results that need the grouping of
// blocks.
func figures(t *testing.T, dir, arm string) map[string]any {
	t.Helper()
	all := map[string]any{}
	for _, name := range []string{summary.FlowsFile, summary.CoflowsFile, summary.BlocksFile, summary.BreakdownFile, summary.LinksFile, summary.DropsFile} {
		f, err := os.Open(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		rows, err := csv.NewReader(f).ReadAll()
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
		var kept []string
		for _, row := range rows[1:] {
			for i, cell := range row {
				if column := rows[0][i]; row[0] == arm && column != "verdict" && !strings.HasPrefix(column, "fluid_") {
					kept = append(kept, column+" "+cell)
				}
			}
		}
		all[name] = kept
	}
	b, err := os.ReadFile(filepath.Join(dir, summary.SummaryFile))
	if err != nil {
		t.Fatal(err)
	}
	var read struct{ Arms []map[string]any }
	if err := json.Unmarshal(b, &read); err != nil {
		t.Fatal(err)
	}
	for _, a := range read.Arms {
		if a["name"] != arm {
			continue
		}
		for _, key := range []string{"verdict", "verdicts", "coordinator", "request_time", "placement"} {
			delete(a, key)
		}
		for _, metric := range []string{"cct", "fct", "write_time"} {
			if m, ok := a[metric].(map[string]any); ok {
				for _, key := range []string{"fluid", "speedup", "paired"} { // the baseline may be void
					delete(m, key)
				}
			}
		}
		all[summary.SummaryFile] = a
	}
	return all
}

// A report of captures that do not state their fabric, as those of older versions, has
// no breakdown, and states it once.
func TestCapturesWithoutFabric(t *testing.T) {
	dir := t.TempDir()
	for _, arm := range []string{"one", "two"} {
		captures := filepath.Join(dir, arm, "0", "captures")
		if err := os.MkdirAll(captures, 0o755); err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		w, err := pcap.NewWriter(&b, pcap.Meta{RunID: "old", Run: 7, Arm: arm, Host: "h0-00"}, []pcap.Interface{{Name: "eth0"}})
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Close(pcap.Stats{}); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(captures, "h0-00"+flows.Suffix), b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	out, err := Report(t.Context(), dir, ReportOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range out.Report.Summary.Arms {
		if a.Time != nil || a.Traffic != nil || a.Links != nil {
			t.Errorf("%s: %+v", a.Name, a)
		}
	}
	page, err := os.ReadFile(filepath.Join(dir, summary.MarkdownFile))
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(page), "There is no breakdown of completion times and no load of links: the captures do not state the fabric"); n != 1 {
		t.Errorf("said %d times:\n%s", n, page)
	}
}

// withoutDrops are figures but those of drops, of which captures alone have estimates.
func withoutDrops(figures map[string]any) map[string]any {
	out := maps.Clone(figures)
	delete(out, summary.DropsFile)
	kept := maps.Clone(out[summary.SummaryFile].(map[string]any))
	delete(kept, "losses")
	out[summary.SummaryFile] = kept
	return out
}

// A report from captures alone has every figure of the run's own report, except
// verdicts, predictions and the kernel's counts of drops. It estimates the drops and
// marks the estimates. With the record of the run, a report repeats the counts.
func TestReportOfBareCapturesIsTheSame(t *testing.T) {
	t.Parallel()
	s := loadText(t, withBlocks, "1 0 2 0 2 2 1:1.0 3:1.0", "2 100 1 4 2 1:0.4 5:0.2")
	out, arms := onPackets(t, s)
	own := map[string]map[string]any{}
	for i, a := range s.ArmList() {
		addsUp(t, arms[a.Name])
		if !out.Report.Summary.Arms[i].Void() {
			own[a.Name] = figures(t, out.Dir, a.Name)
		}
	}
	var names []string
	for _, a := range s.ArmList() {
		names = append(names, a.Name)
	}
	plantPass(t, out.Dir, names...)
	if _, err := Report(t.Context(), out.Dir, ReportOptions{}); err != nil {
		t.Fatal(err)
	}
	whole := map[string]map[string]any{}
	for _, a := range s.ArmList() {
		whole[a.Name] = figures(t, out.Dir, a.Name)
	}
	err := filepath.WalkDir(out.Dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || filepath.Base(filepath.Dir(path)) == "captures" {
			return err
		}
		return os.Remove(path)
	})
	if err != nil {
		t.Fatal(err)
	}
	bare, err := Report(t.Context(), out.Dir, ReportOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if bare.Level() != verdict.Unverified {
		t.Errorf("verdict of bare captures is %v", bare.Level())
	}
	for _, a := range s.ArmList() {
		got := figures(t, out.Dir, a.Name)
		if d := cmp.Diff(withoutDrops(whole[a.Name]), withoutDrops(got)); d != "" {
			t.Errorf("%s: (-with the record of the run, +captures alone):\n%s", a.Name, d)
		}
		if own[a.Name] != nil {
			if d := cmp.Diff(own[a.Name], whole[a.Name]); d != "" {
				t.Errorf("%s: (-the run's own, +with its record):\n%s", a.Name, d)
			}
		}
		losses := func(figures map[string]any, source string) (resent any) {
			l := figures[summary.SummaryFile].(map[string]any)["losses"].(map[string]any)
			if l["source"] != source {
				t.Errorf("%s: losses %v, want those of %s", a.Name, l, source)
			}
			for _, cell := range figures[summary.DropsFile].([]string) {
				if from, ok := strings.CutPrefix(cell, "source "); ok && from != source {
					t.Errorf("%s: %s has the source %s, want %s", a.Name, summary.DropsFile, from, source)
				}
			}
			return l["resent_packets"]
		}
		if x, y := losses(whole[a.Name], summary.DropsKernel), losses(got, summary.DropsCaptures); x != y {
			t.Errorf("%s: %v packets sent again, and %v by captures alone", a.Name, x, y)
		}
		for _, name := range []string{summary.FlowsFile, summary.CoflowsFile, summary.BlocksFile, summary.BreakdownFile, summary.LinksFile, summary.DropsFile} {
			if len(got[name].([]string)) == 0 {
				t.Errorf("%s: %s has no figure", a.Name, name)
			}
		}
		summary := got[summary.SummaryFile].(map[string]any)
		for _, key := range []string{"cct", "write_time", "time", "traffic", "links", "median_slowdown"} {
			if summary[key] == nil {
				t.Errorf("%s: the summary has no %s", a.Name, key)
			}
		}
	}
}
