package draw

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"gonum.org/v1/gonum/graph/encoding/dot"
	"gonum.org/v1/gonum/graph/multi"

	"testbed/topo"
	"testbed/topo/units"
)

var update = flag.Bool("update", false, "rewrite testdata/*.golden")

func build(t *testing.T, leaves, spines, hosts int) *topo.Fabric {
	t.Helper()
	f, err := topo.LeafSpine{Leaves: leaves, Spines: spines, HostsPerLeaf: hosts, HostLink: 50 * units.Mbps,
		Oversubscription: units.Ratio{Num: 5, Den: 1}, Queue: topo.Queue{Time: 20 * time.Millisecond}, MTU: 1500}.Build()
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// loads returns a different load for each link, and no load for every seventh.
func loads(id topo.LinkID) (float64, bool) { return float64(id%11) / 10, id%7 != 6 }

func TestGolden(t *testing.T) {
	tests := []struct {
		name                  string
		leaves, spines, hosts int
		o                     Options
	}{
		{"four", 2, 2, 2, Options{Title: "two racks"}},
		{"four-loaded", 2, 2, 2, Options{Title: `"a" & <b>`, Load: loads}},
		{"hundred", 10, 4, 10, Options{}},
		{"switch", 1, 0, 12, Options{}},
		{"brief", 20, 12, 40, Options{Brief: true}},
	}
	for _, tt := range tests {
		for kind, write := range map[string]func(io.Writer, *topo.Fabric, Options) error{"svg": SVG, "dot": DOT} {
			t.Run(tt.name+"."+kind, func(t *testing.T) {
				var got bytes.Buffer
				if err := write(&got, build(t, tt.leaves, tt.spines, tt.hosts), tt.o); err != nil {
					t.Fatal(err)
				}
				golden(t, tt.name+"."+kind, got.Bytes())
			})
		}
	}
}

// Links that differ from the others have labels with their rates.
func TestGoldenUnlike(t *testing.T) {
	ms := time.Millisecond
	for name, hosts := range map[string]int{"unlike": 3, "unlike-many": 10} {
		f, err := topo.LeafSpine{Leaves: 2, Spines: 2, HostsPerLeaf: hosts, HostLink: 50 * units.Mbps, CrossRack: 40 * units.Mbps,
			Queue: topo.Queue{Time: 20 * ms}, MTU: 1500, HostLinks: []topo.HostLink{{Hosts: "h*-01", Rate: 100 * units.Mbps}},
			Links: []topo.LinkChange{{Link: "leaf0<>spine1", Rate: 5 * units.Mbps, Delay: &ms}, {Link: "leaf1>h1-00", Rate: 10 * units.Mbps}}}.Build()
		if err != nil {
			t.Fatal(err)
		}
		var svg, dot bytes.Buffer
		if err := errors.Join(SVG(&svg, f, Options{Title: name}), DOT(&dot, f, Options{})); err != nil {
			t.Fatal(err)
		}
		golden(t, name+".svg", svg.Bytes())
		golden(t, name+".dot", dot.Bytes())
	}
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("drawing differs from %s (-want +got), \"go test -update\" rewrites it:\n%s", path, diff)
	}
}

// An SVG is well-formed and has a line for each link, or each direction.
func TestSVGHasEveryLink(t *testing.T) {
	for _, tt := range []struct {
		name string
		o    Options
		want int
	}{
		{"plain", Options{Title: "<&>\""}, 6 + 2*3},
		{"loaded", Options{Load: func(topo.LinkID) (float64, bool) { return math.Inf(1), true }}, 2*(6+2*3) + len(shades)},
		{"not a number", Options{Load: func(topo.LinkID) (float64, bool) { return math.NaN(), true }}, 6 + 2*3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var out bytes.Buffer
			if err := SVG(&out, build(t, 2, 3, 3), tt.o); err != nil {
				t.Fatal(err)
			}
			lines, rects := 0, 0
			for d := xml.NewDecoder(&out); ; {
				token, err := d.Token()
				if errors.Is(err, io.EOF) {
					break
				} else if err != nil {
					t.Fatal(err)
				}
				if e, ok := token.(xml.StartElement); ok {
					switch e.Name.Local {
					case "line":
						lines++
					case "rect":
						rects++
					}
				}
			}
			if lines != tt.want || rects != 1+3+2+6 {
				t.Errorf("%d lines and %d boxes, want %d and %d", lines, rects, tt.want, 1+3+2+6)
			}
		})
	}
}

// An independent parser reads the graph back: all nodes, all directed links.
func TestDOTIsReadBack(t *testing.T) {
	f := build(t, 3, 2, 4)
	for _, o := range []Options{{Title: `a "title" with \ in it`}, {Load: loads}} {
		var out bytes.Buffer
		if err := DOT(&out, f, o); err != nil {
			t.Fatal(err)
		}
		g := multi.NewDirectedGraph()
		if err := dot.UnmarshalMulti(out.Bytes(), g); err != nil {
			t.Fatalf("%v\n%s", err, out.String())
		}
		if got, want := g.Nodes().Len(), f.Hosts()+f.Racks()+f.Spines(); got != want {
			t.Errorf("%d nodes, want %d", got, want)
		}
		edges, want := g.Edges().Len(), len(f.Links())/2
		if o.Load != nil {
			want = 0 // pairs of nodes; both directions of a link are edges of their own
			for _, l := range f.Links() {
				if l.ID%2 == 0 {
					_, up := loads(l.ID)
					_, down := loads(l.ID + 1)
					want++
					if up || down {
						want++
					}
				}
			}
		}
		if edges != want {
			t.Errorf("%d edges, want %d", edges, want)
		}
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("disk full") }

func TestErrorsOfTheWriter(t *testing.T) {
	f := build(t, 2, 1, 2)
	for _, write := range []func(io.Writer, *topo.Fabric, Options) error{SVG, DOT} {
		if err := write(full{}, f, Options{}); err == nil || !strings.Contains(err.Error(), "disk full") {
			t.Errorf("error %v, want the writer's", err)
		}
	}
}

// A long title, such as a run's, is not cut off at the edge of the picture.
func TestLongTitleFits(t *testing.T) {
	title := "quickstart-20260102-150405-ab12, arm sebf+sinbad, repeat 0: mean load over 22.137s (uplinks estimated)"
	var b bytes.Buffer
	f := build(t, 4, 2, 5)
	if err := SVG(&b, f, Options{Title: title}); err != nil {
		t.Fatal(err)
	}
	var width, size float64
	if _, err := fmt.Sscanf(b.String()[strings.Index(b.String(), " width="):], ` width="%f"`, &width); err != nil {
		t.Fatal(err)
	}
	at := strings.Index(b.String(), "</title><text ")
	if _, err := fmt.Sscanf(b.String()[at+strings.Index(b.String()[at:], "font-size"):], `font-size="%f"`, &size); err != nil {
		t.Fatal(err)
	}
	if wide := 0.65 * size * float64(len(title)); wide > width-margin || size < 8 {
		t.Errorf("a title of %.0f pixels in letters of %v, in a picture of %v", wide, size, width)
	}
}
