package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"testbed/emu/kernel"
	"testbed/emu/plan"
	"testbed/topo"
	"testbed/topo/units"
)

// Every verb that builds, or states what would be built, names a feature that this kernel lacks at
// its key, with the reason and the remedy, and refuses with the same exit code. Validate accepts the
// file, and the fluid model needs none of the features.
func TestVerbsAgreeOnMissingFeatures(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		key, text, feature string
		shape              func(*topo.LeafSpine)
	}{
		{"congestion_control", "congestion_control: cubik", `this kernel has no TCP congestion control "cubik"`, nil},
		{"delay", "delay: 1ms", "this kernel has no qdisc netem", func(s *topo.LeafSpine) { s.Delay = 1e6 }},
		{"link_model", "link_model: store-and-forward", "this kernel has no qdisc netem", func(s *topo.LeafSpine) { s.StoreAndForward = true }},
		{"red", "red: {min: 10KB, max: 20KB}", "this kernel has no qdisc red", func(s *topo.LeafSpine) {
			s.RED = &topo.RED{Min: 10 * units.KB, Max: 30 * units.KB, Probability: 0.1}
		}},
	} {
		t.Run(tt.key, func(t *testing.T) {
			p := newPlace(t)
			p.edit(t, "queue: 20ms", "queue: 20ms, "+tt.text)
			if tt.shape != nil {
				s := topo.LeafSpine{Leaves: 1, HostsPerLeaf: 2, HostLink: units.Mbps, Queue: topo.Queue{Bytes: 100 * units.KB}, MTU: 1500}
				tt.shape(&s)
				f, err := s.Build()
				if err != nil {
					t.Fatal(err)
				}
				if kernel.CheckNeeds(plan.Compile("asks", f, plan.Options{})) == nil {
					t.Skipf("this kernel has what %s needs", tt.text)
				}
			}
			before := look(t)
			at := fmt.Sprintf("scenario.yaml:3:%d: fabric.%s: %s", column(t, p, tt.text), tt.key, tt.feature)
			for _, v := range []struct {
				verb string
				exit int
			}{{"validate", 0}, {"plan", exitRefused}, {"run", exitRefused}, {"up", exitRefused}} {
				out, errs := p.run(t, v.exit, v.verb, "scenario.yaml")
				if !strings.Contains(errs, at) || !strings.Contains(errs, "use a kernel that has it") {
					t.Errorf("%s: %q, want %q", v.verb, errs, at)
				}
				if v.verb == "plan" && (!strings.Contains(out, "# testbed run refuses this: "+at) || strings.Contains(out, "starts this")) {
					t.Errorf("plan prints %q", out)
				}
			}
			p.run(t, 0, "sim", "scenario.yaml")
			p.leftNothing(t, before)
		})
	}
}

// column returns the column of the value of a text "key: value" in the scenario.
func column(t *testing.T, p place, text string) int {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(p.dir, "scenario.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if at := strings.Index(line, text); at >= 0 {
			return at + strings.Index(text, ": ") + 3
		}
	}
	t.Fatalf("no %q", text)
	return 0
}
