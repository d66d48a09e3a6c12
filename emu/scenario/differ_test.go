package scenario

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const differing = `name: a
fabric: {leaves: 2, spines: 1, hosts_per_leaf: 2, host_link: 50Mbps}
disk:
  write: 3MB/s
workload:
  - {kind: trace, path: trace.txt, mb: MB}
  - kind: writers
    count: 1
    blocks: 2
    block: 4MB
    replicas: 2
arms: {coflow: [fair], placement: [hdfs]}
`

func TestWorkloadDiffers(t *testing.T) {
	read := func(text, trace string) *Scenario {
		t.Helper()
		dir := t.TempDir()
		for name, data := range map[string]string{"scenario.yaml": text, "trace.txt": trace} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		s, err := Load(filepath.Join(dir, "scenario.yaml"), Options{Catalog: testPolicies})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	const trace = "4 1\n1 0 1 0 1 1:1.0\n"
	a := read(differing, trace)
	edit := func(pairs ...string) string { return strings.NewReplacer(pairs...).Replace(differing) }
	type diff struct {
		key        string
		a, b       string
		aLine, bAt int
	}
	for _, tt := range []struct {
		name  string
		text  string
		trace string
		want  []diff
	}{
		{"the same", differing, trace, nil},
		{"arms, repeat, name, capture, limits, where disks are", edit("name: a", "name: b", "[fair]", "[fair, sebf]", "write: 3MB/s", "write: 3MB/s\n  dir: /tmp") + "repeat: 4\ncapture: {snaplen: 256}\nlimits: {duration: 30m}\n", trace, nil},
		{"a default written out, and comments", "# a\n" + differing + "heartbeat: {alpha: 0.2}\nseed: 1\n", trace, nil},
		{"a rate and a block", edit("50Mbps", "100Mbps", "block: 4MB", "block: 8MB"), trace, []diff{{"fabric.host_link", "50Mbps", "100Mbps", 2, 2}, {"workload[1].block", "4MB", "8MB", 10, 10}}},
		{"a default that one states", differing + "seed: 7\n", trace, []diff{{"seed", "1", "7", 0, 13}}},
		{"what is in the trace", differing, "4 1\n1 0 1 0 1 1:2.0\n", []diff{{"workload[0].path", "trace.txt (SHA-256 ", "trace.txt (SHA-256 ", 6, 6}}},
		{"a key that one has not", edit("  - {kind: trace, path: trace.txt, mb: MB}", "  - {kind: trace, path: trace.txt, mb: MB, first: 1}"), trace, []diff{{"workload[0].first", "", "1", 0, 6}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := WorkloadDiffers(a, read(tt.text, tt.trace))
			if err != nil {
				t.Fatal(err)
			}
			var shown []diff
			for _, d := range got {
				x := diff{key: d.Key}
				cut := func(s string) string {
					if i := strings.Index(s, "(SHA-256 "); i >= 0 {
						return s[:i+9]
					}
					return s
				}
				if d.A != nil {
					x.a, x.aLine = cut(d.A.Text), d.A.Line
				}
				if d.B != nil {
					x.b, x.bAt = cut(d.B.Text), d.B.Line
				}
				shown = append(shown, x)
			}
			if d := cmp.Diff(tt.want, shown, cmp.AllowUnexported(diff{})); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}
