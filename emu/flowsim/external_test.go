package flowsim_test

import (
	"fmt"
	"os/exec"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"testbed/emu/flowsim"
	"testbed/emu/outside"
	"testbed/emu/wasm/wasmtest"
	"testbed/policies"
	"testbed/policies/coflow"
	"testbed/policies/external"
	"testbed/results/safefile"
	"testbed/topo/units"
	"testbed/workloads/oracletest"
)

// both compares the decisions of two policies.
type both struct {
	policies.CoflowScheduler
	other     policies.CoflowScheduler
	different *string
	decisions *int
}

func (b both) New() policies.CoflowInstance {
	other := b.other.New()
	return observed{b.CoflowScheduler.New(), func(v *policies.CoflowView, s *policies.Schedule) {
		var got policies.Schedule
		other.Decide(v, &got)
		*b.decisions++
		if d := cmp.Diff(fmt.Sprint(s.Steps), fmt.Sprint(got.Steps)); (d != "" || got.Err != nil) && *b.different == "" {
			*b.different = fmt.Sprintf("at %v: %v (-program +example):\n%s", v.Now, got.Err, d)
		}
	}}
}

// The examples of SEBF equal that of the program in every decision on the first coflows of the Facebook trace.
func TestExamplesOnTrace(t *testing.T) {
	first := 100
	if testing.Short() {
		first = 20
	}
	trace := oracletest.Trace(t, oracletest.First150)
	trace.Coflows = trace.Coflows[:first]
	f, coflows, err := flowsim.Ports{Rate: units.Gbps}.Coflows(trace)
	if err != nil {
		t.Fatal(err)
	}
	module := func(path string) external.Settings {
		return external.Settings{Module: path, Output: units.MB, Memory: 64 * units.MiB, Work: 1e9}
	}
	for name, settings := range map[string]func(*testing.T) external.Settings{
		"C":  func(t *testing.T) external.Settings { return module(wasmtest.C(t)) },
		"Go": func(t *testing.T) external.Settings { return module(wasmtest.SEBF(t)) },
		"Python": func(t *testing.T) external.Settings {
			if _, err := exec.LookPath("python3"); err != nil {
				t.Skip("no python3: ", err)
			}
			return external.Settings{Command: []string{"python3", "sebf.py"}, Output: units.MB, Timeout: time.Minute}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := external.Coflow(settings(t))
			p, err := outside.Start(t.Context(), &s.Policy, outside.Options{Dir: "../../policies/external/python", Read: safefile.Read})
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Open(p, f, 1); err != nil {
				t.Fatal(err)
			}
			var different string
			decisions := 0
			_, err = flowsim.Run(t.Context(), flowsim.Config{Fabric: f, Scheduler: both{coflow.SEBF{}, s, &different, &decisions}}, coflows, nil)
			if err != nil || different != "" || decisions < 2*first {
				t.Errorf("%d decisions, %v, %s", decisions, err, different)
			}
			if err := p.Close(); err != nil {
				t.Error(err)
			}
			t.Logf("%d decisions", decisions)
		})
	}
}
