package scenario

import (
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"testbed/topo/units"
	"testbed/workloads"
)

const scalable = `
name: scalable
vars: {rate: 20Mbps}
fabric: {leaves: 2, spines: 2, hosts_per_leaf: 3, host_link: "${rate}", oversubscription: "3:1", queue: 40KB, mtu: 1500}
disk: {write: 1MB/s, size: 64MB}
scale: {size: 1/10}
workload:
  - {kind: trace, path: trace.txt, mb: MB}
  - {kind: writers, count: 2, blocks: 3, block: 1MB, packet: 32KB, window: 3, start: 1s, spread: 500ms}
arms: {coflow: [fair, sebf], placement: [{name: hdfs, least: 100KB}]}
repeat: 2
seed: 5
capture: {ring: 2MB}
`

func scalableScenario(t *testing.T, text string) *Scenario {
	t.Helper()
	files := fstest.MapFS{"trace.txt": &fstest.MapFile{Data: []byte("6 2\n1 0 2 0 2 2 1:2.0 3:2.0\n2 400 1 4 2 1:0.4 5:0.2\n")}}
	s, err := Parse("scenario.yaml", []byte(text), Options{Catalog: testPolicies, Open: func(name string) (fs.File, error) { return files.Open(name) }})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestScaled(t *testing.T) {
	s := scalableScenario(t, scalable)
	before, err := s.Resolved()
	if err != nil {
		t.Fatal(err)
	}
	two := workloads.Factor{Num: 2, Den: 1}
	half, err := s.Scaled(two)
	if err != nil {
		t.Fatal(err)
	}
	// All rates and sizes are half, and nothing else differs.
	want := scalableScenario(t, strings.NewReplacer("20Mbps", "10Mbps", "queue: 40KB", "queue: 20KB", "1MB/s", "500KB/s", "size: 64MB", "size: 32MB",
		"1/10", "1/20", "block: 1MB", "block: 500KB", "packet: 32KB", "packet: 16KB", "least: 100KB", "least: 50000").Replace(scalable))
	a, err := half.portable()
	if err != nil {
		t.Fatal(err)
	}
	b, err := want.portable()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(b), string(a)); diff != "" {
		t.Errorf("scaled (-want +got):\n%s", diff)
	}
	if after, _ := s.Resolved(); string(after) != string(before) {
		t.Error("the scenario itself was changed")
	}

	// Sizes of the workload are exactly half, and times are the same.
	f, err := s.Shape().Build()
	if err != nil {
		t.Fatal(err)
	}
	g, err := half.Shape().Build()
	if err != nil {
		t.Fatal(err)
	}
	for i, l := range f.Links() {
		if h := g.Links()[i]; h.Rate*2 != l.Rate || h.Queue*2 != l.Queue {
			t.Errorf("%s: %v and %v, want half of %v and %v", f.LinkName(l.ID), h.Rate, h.Queue, l.Rate, l.Queue)
		}
	}
	for repeat := range 2 {
		full, _, err := s.Workload(f, repeat)
		if err != nil {
			t.Fatal(err)
		}
		scaled, _, err := half.Workload(g, repeat)
		if err != nil {
			t.Fatal(err)
		}
		for i := range scaled.Coflows {
			for j := range scaled.Coflows[i].Flows {
				scaled.Coflows[i].Flows[j].Size *= 2
			}
		}
		for i := range scaled.Writers {
			for j := range scaled.Writers[i].Blocks {
				scaled.Writers[i].Blocks[j].Size *= 2
				scaled.Writers[i].Blocks[j].Packet *= 2
			}
		}
		if diff := cmp.Diff(full, scaled); diff != "" {
			t.Errorf("repeat %d, with sizes doubled again (-want +got):\n%s", repeat, diff)
		}
	}

	// Its files are sufficient to load it again.
	files := fstest.MapFS{}
	for _, file := range half.Files() {
		files[file.Name] = &fstest.MapFile{Data: file.Data}
	}
	if _, err := Parse("scenario.yaml", half.Source(), Options{Catalog: testPolicies, Open: func(name string) (fs.File, error) { return files.Open(name) }}); err != nil {
		t.Errorf("the scaled scenario's files: %v", err)
	}
}

func TestScaledRoundsDown(t *testing.T) {
	s := scalableScenario(t, scalable)
	third, err := s.Scaled(workloads.Factor{Num: 3, Den: 1})
	if err != nil {
		t.Fatal(err)
	}
	w := third.Spec.Workload[1].Writers
	if third.Spec.Fabric.HostLink != 6_666_666*units.Bps || w.Block != 333_333 || w.Packet != 10_666 || third.Spec.Scale.Size != (workloads.Factor{Num: 1, Den: 30}) {
		t.Errorf("host link %v, block %v, packet %v, scale %v", third.Spec.Fabric.HostLink, w.Block, w.Packet, third.Spec.Scale.Size)
	}
	if more, err := s.Scaled(workloads.Factor{Num: 5, Den: 2}); err != nil || more.Spec.Fabric.HostLink != 8*units.Mbps {
		t.Errorf("by 5/2: %v", err)
	}
}

func TestScaledOutOfBounds(t *testing.T) {
	tests := []struct {
		name, old, new string
		by             workloads.Factor
		want           string
	}{
		{"not above 1", "", "", workloads.Factor{Num: 1, Den: 1}, "the factor must be above 1"},
		{"queue below two frames", "queue: 40KB", "queue: 4KB", workloads.Factor{Num: 2, Den: 1}, "fabric.queue: 2KB: 2000 bytes at a host's link"},
		{"rate below the least", "", "", workloads.Factor{Num: 1000, Den: 1}, "fabric.host_link: "},
		{"less than a byte", "packet: 32KB, window: 3", "packet: 1B, window: 3", workloads.Factor{Num: 2, Den: 1}, "workload[1].packet: 1 divided by 2 is less than 1"},
		{"a factor that does not fit", "1/10", "1/9000000000000000000", workloads.Factor{Num: 7, Den: 1}, "scale.size: "},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := scalableScenario(t, strings.Replace(scalable, tt.old, tt.new, 1))
			_, err := s.Scaled(tt.by)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want an error with %q", err, tt.want)
			}
		})
	}
}
