package cli

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"testbed/emu/deploy"
	"testbed/emu/kernel"
	"testbed/emu/kernel/netnstest"
	"testbed/emu/plan"
	"testbed/topo"
	"testbed/topo/units"
)

// A scenario with a delay is run where the kernel has netem. Where it has not, it
// is refused with a remedy, and nothing is left.
func TestRunWithADelay(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	text := strings.Replace(smallScenario, "queue: 20ms", "queue: 20ms, delay: 2ms", 1)
	if err := os.WriteFile(filepath.Join(p.dir, "delay.yaml"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	before := look(t)
	f, err := topo.LeafSpine{Leaves: 1, HostsPerLeaf: 2, HostLink: units.Mbps, Oversubscription: units.Ratio{Num: 1, Den: 1},
		Queue: topo.Queue{Time: 20 * time.Millisecond}, MTU: 1500, Delay: 2 * time.Millisecond}.Build()
	if err != nil {
		t.Fatal(err)
	}
	switch err := kernel.CheckNeeds(plan.Compile("asks", f, plan.Options{})); {
	case err == nil:
		c := p.command(t, "run", "delay.yaml")
		b, err := c.CombinedOutput()
		out := string(b)
		if err != nil && c.ProcessState.ExitCode() != exitVoid { // the machine may be too busy for a verdict
			t.Fatalf("%v\n%s", err, out)
		}
		for _, want := range []string{"fair+hdfs", "sebf+hdfs"} {
			if !strings.Contains(out, want) {
				t.Errorf("the report lacks %q:\n%s", want, out)
			}
		}
	case !errors.Is(err, deploy.ErrUnsupported) || netnstest.Guest():
		t.Fatal(err)
	default:
		t.Logf("NOT TESTED ON PACKETS: %v; what is tested is the refusal", err)
		_, errs := p.run(t, exitRefused, "run", "delay.yaml")
		for _, want := range []string{"delay.yaml:3:", "fabric.delay: this kernel has no qdisc netem", "modprobe sch_netem", "remove delay"} {
			if !strings.Contains(errs, want) {
				t.Errorf("refused with %q, want %q in it", errs, want)
			}
		}
	}
	p.leftNothing(t, before)
}
