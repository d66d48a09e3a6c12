package plot

import (
	"fmt"
	"image/color"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/recorder"

	"testbed/results/flows"
	"testbed/results/rundir/rundirtest"
	"testbed/results/schema"
	"testbed/results/summary"
)

// heights returns the vertical places of the texts of an SVG that a pattern matches, upwards.
func heights(t *testing.T, svg, pattern string) (out []float64) {
	t.Helper()
	texts := regexp.MustCompile(`(?s)<text x="[^"]*" y="([^"]*)"[^>]*>([^<]*)</text>`)
	for _, m := range texts.FindAllStringSubmatch(svg, -1) {
		if ok, err := regexp.MatchString(pattern, m[2]); err != nil {
			t.Fatal(err)
		} else if y, err := strconv.ParseFloat(m[1], 64); ok && err == nil {
			out = append(out, y)
		}
	}
	slices.Sort(out)
	return out
}

// Labels of hosts with different numbers of slots do not touch each other.
func TestLabelsAreApart(t *testing.T) {
	r := *withTasks(t)
	r.Attempts = nil
	slots := 0
	for host := 0; slots < 71; host++ {
		n := 1 // the last hosts have more slots
		if slots >= 21 {
			n = 5
		}
		for slot := range min(n, 71-slots) {
			r.Attempts = append(r.Attempts, schema.Attempt{Key: schema.Key{Arm: "fair+hdfs"}, Job: 1, Task: slots, Attempt: 0, Kind: flows.MapTask,
				Host: fmt.Sprintf("h%d-%02d", host/20, host%20), Slot: slot, End: time.Second, Time: time.Second, Outcome: flows.Committed})
			slots++
		}
	}
	svg, _ := drawSVG(t, "gantt", Options{Arm: "fair+hdfs"}, &r)
	at := heights(t, svg, `^h\d+-\d+$`)
	if len(at) < 8 {
		t.Fatalf("labels at %v", at)
	}
	for i := 1; i < len(at); i++ {
		if d := at[i] - at[i-1]; d < 0.85*DefaultFontSize*0.9 {
			t.Errorf("labels at %.1f and %.1f touch", at[i-1], at[i])
		}
	}
}

// Labels of racks below a figure do not touch each other.
func TestLabelsAcrossAreApart(t *testing.T) {
	r := *made(t, rundirtest.Default())
	for rack := range 60 {
		r.Links = append(r.Links, schema.Load{Link: fmt.Sprintf("h%d-00>leaf%[1]d", rack)})
	}
	svg, _ := drawSVG(t, "disks", Options{Arm: "sebf+hdfs"}, &r)
	labels := regexp.MustCompile(`(?s)<text x="([^"]*)" y="[^"]*" textLength="([^"]*)"[^>]*>rack \d+</text>`).FindAllStringSubmatch(svg, -1)
	if len(labels) < 3 {
		t.Fatalf("labels %q", labels)
	}
	end := -1.0
	for _, m := range labels {
		x, err := strconv.ParseFloat(m[1], 64)
		long, err2 := strconv.ParseFloat(m[2], 64)
		if err != nil || err2 != nil || x < end {
			t.Errorf("a label at %s of length %s after one up to %.1f", m[1], m[2], end)
		}
		end = x + long
	}
}

// The axis of values that are all 0 begins there.
func TestZerosAreOnTheAxis(t *testing.T) {
	r := made(t, rundirtest.Default())
	r.Summary.Arms[0].Losses = &summary.Losses{ByRack: []float64{0, 0}}
	svg, _ := drawSVG(t, "losses.resent_bytes_by_rack", Options{}, r)
	if labels := texts(t, svg); slices.ContainsFunc(labels, func(s string) bool { return strings.HasPrefix(s, "-") }) {
		t.Errorf("labels %q", labels)
	}
}

// reach returns how far the lines that a figure draws extend to the right and upwards.
func reach(t *testing.T, p *plot.Plot, width, height vg.Length) (x, y vg.Length) {
	t.Helper()
	var c recorder.Canvas
	p.Draw(draw.NewCanvas(&c, width, height))
	for _, a := range c.Actions {
		if path, ok := a.(*recorder.Stroke); ok {
			for _, part := range path.Path {
				x, y = max(x, part.Pos.X), max(y, part.Pos.Y)
			}
		}
	}
	return x, y
}

// Marks and the ends of intervals at the edge of a figure are drawn whole.
func TestEdgesAreWhole(t *testing.T) {
	const width, height = 200, 100
	for name, part := range map[string]plot.Plotter{
		"marks":   &marks{at: []point{{0, 0}, {1, 1}}, shape: draw.CrossGlyph{}},
		"whisker": whisker{0, 0.5, 1, 1, color.Black},
		"bar":     bar{1, 0, 1, color.Black},
	} {
		p := plot.New()
		p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 0, 1, 0, 1
		p.HideAxes()
		p.Add(part)
		p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 0, 1, 0, 1
		if x, y := reach(t, p, width, height); x > width || y > height {
			t.Errorf("%s: drawn up to (%.1f, %.1f) of (%d, %d)", name, x, y, width, height)
		}
	}
}

// Bars of a timeline have the numbers of their coflows, apart from each other and within the figure.
func TestTimelineNumbersCoflows(t *testing.T) {
	s := rundirtest.Default()
	s.Coflows = 4
	svg, _ := drawSVG(t, "timeline", Options{Height: 4 * Inch}, made(t, s))
	for _, coflow := range []string{"0", "1", "2", "3"} {
		if n := len(heights(t, svg, "^"+coflow+"$")); n < len(s.Arms) {
			t.Errorf("%d texts %q in a figure of %d arms", n, coflow, len(s.Arms))
		}
	}
	s.Coflows = 60
	svg, _ = drawSVG(t, "timeline", Options{}, made(t, s))
	if n := len(heights(t, svg, `^\d+$`)); n < 5*len(s.Arms) || n > 30*len(s.Arms) {
		t.Errorf("%d numbers in a small figure of %d arms with 60 coflows each, want those that fit", n, len(s.Arms))
	}
}

// extra-slots without clones and backups is an error, and so is gain-by-parameter without numbers in names, with its reason.
func TestFiguresWithoutTheirData(t *testing.T) {
	r := *withTasks(t)
	alone := map[[2]int]bool{}
	r.Attempts = slices.DeleteFunc(slices.Clone(r.Attempts), func(a schema.Attempt) bool {
		task := [2]int{int(a.Job)*1000 + a.Stage, a.Task}
		again := a.Repeat != 0 || a.Arm != "fair+hdfs" || alone[task]
		alone[task] = true
		return again
	})
	wantErr(t, "extra-slots", Options{Arms: []string{"fair+hdfs"}}, ErrNoData, "no task has a clone or backup in repeat 0", &r)
	wantErr(t, "gain-by-parameter", Options{}, ErrNoData, "no name of an arm ends in a number", made(t, rundirtest.Default()))
}
