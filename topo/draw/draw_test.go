package draw

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
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

// loads makes up a different load for each link, and none for every seventh.
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
