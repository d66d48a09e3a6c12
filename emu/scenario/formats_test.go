package scenario

import (
	"bytes"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"testbed/topo/units"
	"testbed/workloads"
)

// The same trace in each format gives the same workload.
func TestTraceFormats(t *testing.T) {
	const text = `
name: formats
fabric: {leaves: 2, spines: 1, hosts_per_leaf: 3, host_link: 20Mbps, oversubscription: "3:1", queue: 20ms}
workload:
  - {kind: trace, path: trace.txt, merge: false, mb: MiB}
arms: {coflow: [fair]}
`
	trace, err := workloads.ParseTrace("trace.txt", strings.NewReader("6 2\n1 0 2 0 1 2 3:1.0 5:0.5\n4 100 1 2 1 4:0.25\n"))
	if err != nil {
		t.Fatal(err)
	}
	var want workloads.Workload
	for i, f := range workloads.TraceFormats() {
		fitted, _, err := workloads.Fit(trace, f.Format, workloads.FitOptions{MB: units.MiB})
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if err := workloads.WriteTraceAs(&b, fitted, f.Format); err != nil {
			t.Fatal(err)
		}
		files := fstest.MapFS{"trace.txt": {Data: b.Bytes()}}
		s, err := Parse("s.yaml", []byte(text), Options{Catalog: testPolicies, Open: func(name string) (fs.File, error) { return files.Open(name) }})
		if err != nil {
			t.Fatalf("%s: %v", f.Format, err)
		}
		fabric, err := s.Shape().Build()
		if err != nil {
			t.Fatal(err)
		}
		got, _, err := s.Workload(fabric, 0)
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			want = got
			if len(want.Coflows) != 2 || want.Coflows[0].Flows[0].Size != units.MiB/2 {
				t.Fatalf("workload %+v", want)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", f.Format, diff)
		}
	}
}

// Contents of a format that a trace cannot represent appear in the notes.
func TestTraceRemarks(t *testing.T) {
	const text = `
name: remarks
fabric: {leaves: 2, spines: 1, hosts_per_leaf: 3, host_link: 20Mbps, oversubscription: "3:1", queue: 20ms}
workload:
  - {kind: trace, path: m.cm}
arms: {coflow: [fair]}
`
	files := fstest.MapFS{"m.cm": {Data: []byte("Nodes 6\nConnections 2\n0->1 start 0 size 1000\n0->1 start 0 size 500\n")}}
	s, err := Parse("s.yaml", []byte(text), Options{Catalog: testPolicies, Open: func(name string) (fs.File, error) { return files.Open(name) }})
	if err != nil {
		t.Fatal(err)
	}
	fabric, err := s.Shape().Build()
	if err != nil {
		t.Fatal(err)
	}
	w, notes, err := s.Workload(fabric, 0)
	if err != nil {
		t.Fatal(err)
	}
	if len(w.Coflows) != 1 || w.Coflows[0].Size() != 1500 {
		t.Errorf("workload %+v", w)
	}
	if all := strings.Join(notes, "\n"); !strings.Contains(all, "workload[0]: trace m.cm: merged 1 connections into others between the same nodes") {
		t.Errorf("notes:\n%s", all)
	}
}
