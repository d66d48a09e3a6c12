package plot

import (
	"cmp"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gonum.org/v1/plot/plotter"

	"testbed/results/rundir"
	"testbed/results/rundir/rundirtest"
)

// pageCharts is the part of the page's data that figures show too. Times are microseconds.
type pageCharts struct {
	CDFs []struct {
		ID     string
		Curves []struct {
			Arm, N int
			T      []float64
		}
	}
	Speedups []struct {
		Arm   int
		Pairs [][4]float64
	}
	Timeline []struct {
		Arm, Repeat int
		Bars        []struct {
			ID, Width int
			At, End   float64
			Flows     []struct {
				ID   int
				Path pagePath
			}
		}
	}
}

// pagePath is pairs of a time and a share, each pair four digits.
type pagePath []int

func (p *pagePath) UnmarshalText(text []byte) error {
	for ; len(text) > 3; text = text[4:] {
		pair := 0
		for _, digit := range text[:4] {
			pair = 64*pair + strings.IndexByte("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", digit)
		}
		*p = append(*p, pair/1001, pair%1001)
	}
	return nil
}

func chartsOf(t *testing.T, dir string) (out pageCharts) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "report.html"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(b), `<script type="application/json" id="charts">`)
	text, _, ok2 := strings.Cut(rest, "</script>")
	if !ok || !ok2 {
		t.Fatal("the page has no charts")
	}
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// partsOf returns the parts of a type that a figure draws.
func partsOf[T any](t *testing.T, name string, r *rundir.Run, o Options) (out []T) {
	t.Helper()
	f, err := Find(name)
	if err != nil {
		t.Fatal(err)
	}
	d, err := drawn([]*rundir.Run{r}, f, o)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range d.drawn {
		if x, ok := p.(T); ok {
			out = append(out, x)
		}
	}
	return out
}

// The page and the figures show the same numbers. The page rounds times to a microsecond,
// speed-ups to four decimals and progress to a thousandth.
func TestFiguresAgreeWithThePage(t *testing.T) {
	dir := rundirtest.Write(t, rundirtest.Default())
	r, err := rundir.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	c := chartsOf(t, dir)
	near := func(what string, got, want, off float64) {
		t.Helper()
		if !(math.Abs(got-want) <= off) {
			t.Errorf("%s: the figure shows %v, the page %v", what, got, want)
		}
	}
	const us = 1e6 // the figures of this run are in seconds

	names := map[string]string{"cct": "cct-cdf", "fct": "fct-cdf", "write_time": "write-cdf"}
	if len(c.CDFs) != len(names) {
		t.Fatalf("the page has %d distributions, want %d", len(c.CDFs), len(names))
	}
	for _, x := range c.CDFs {
		lines := partsOf[*plotter.Line](t, names[x.ID], r, Options{})
		if len(lines) != len(x.Curves) {
			t.Fatalf("%s: %d curves, %d on the page", x.ID, len(lines), len(x.Curves))
		}
		for i, curve := range x.Curves {
			if len(lines[i].XYs) != 2*curve.N || len(curve.T) != curve.N {
				t.Fatalf("%s, arm %d: %d corners, %d times on the page of %d", x.ID, i, len(lines[i].XYs), len(curve.T), curve.N)
			}
			for k, at := range curve.T {
				near(x.ID, lines[i].XYs[2*k+1].X*us, at, 0.51)
				near(x.ID+" share", lines[i].XYs[2*k+1].Y, float64(k+1)/float64(curve.N), 1e-12)
			}
		}
	}

	dots := partsOf[*plotter.Scatter](t, "speedup-by-size", r, Options{})
	lines := partsOf[*plotter.Line](t, "speedup-cdf", r, Options{})
	if len(dots) != 2 || len(c.Speedups) != 2 || len(lines) != 2 {
		t.Fatalf("%d and %d arms with speed-ups, %d on the page, want 2", len(dots), len(lines), len(c.Speedups))
	}
	for i, s := range c.Speedups {
		points := slices.SortedStableFunc(slices.Values(dots[i].XYs), func(a, b plotter.XY) int { return cmp.Compare(a.Y, b.Y) })
		if len(points) != len(s.Pairs) || len(points) == 0 {
			t.Fatalf("%d speed-ups, %d on the page", len(points), len(s.Pairs))
		}
		for k, p := range s.Pairs {
			near("speed-up", points[k].Y, p[0], 0.51e-4)
			near("size", points[k].X*1e6, p[1], 1e-6)
			near("distribution of speed-ups", lines[i].XYs[2*k+1].X, p[0], 0.51e-4)
		}
	}

	progressed := 0
	for _, x := range c.Timeline {
		arm := r.Arms()[x.Arm]
		bars := partsOf[boxes](t, "timeline", r, Options{Arms: []string{arm}, Repeat: new(x.Repeat)})
		if len(bars) != 1 || len(bars[0]) != len(x.Bars) {
			t.Fatalf("%s: %d schedules of %d coflows", arm, len(bars), len(x.Bars))
		}
		for k, b := range x.Bars {
			near("arrival", bars[0][k].x0*us, b.At, 0.51)
			near("end", bars[0][k].x1*us, b.End, 0.51)
		}
		slowest := slices.Clone(x.Bars)
		slices.SortStableFunc(slowest, func(a, b struct {
			ID, Width int
			At, End   float64
			Flows     []struct {
				ID   int
				Path pagePath
			}
		}) int {
			return cmp.Compare(b.End-b.At, a.End-a.At)
		})
		one := slowest[0]
		// The figure draws the flow that ended last after the others and their sum.
		lines := partsOf[*plotter.Line](t, "progress", r, Options{Arm: arm, Repeat: new(x.Repeat)})
		for _, f := range one.Flows {
			found := slices.ContainsFunc(lines, func(l *plotter.Line) bool {
				if len(f.Path) != 2*len(l.XYs) {
					return false
				}
				for k, p := range l.XYs {
					if math.Abs(p.X*us/(one.End-one.At)-float64(f.Path[2*k])/10_000) > 0.51e-4 || math.Abs(p.Y/100-float64(f.Path[2*k+1])/1000) > 0.51e-3 {
						return false
					}
				}
				return true
			})
			if !found {
				t.Errorf("%s, repeat %d, coflow %d: no line is that of flow %d on the page", arm, x.Repeat, one.ID, f.ID)
			}
			progressed++
		}
	}
	if len(c.Timeline) != 6 || progressed != 12 {
		t.Errorf("%d schedules and the progress of %d flows, want 6 and 12", len(c.Timeline), progressed)
	}
}
