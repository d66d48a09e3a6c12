package flowsim_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"testbed/emu/flowsim"
	"testbed/policies"
	"testbed/policies/coflow"
	"testbed/policies/external"
	"testbed/topo/units"
	"testbed/workloads/oracletest"
)

// python is the conversation with a process without bounds.
type python struct {
	in  io.WriteCloser
	out *bufio.Reader
}

func (p python) Ask(line []byte, use func([]byte) (bool, error)) (time.Duration, error) {
	if _, err := p.in.Write(line); err != nil {
		return 0, err
	}
	answer, err := p.out.ReadBytes('\n')
	if err == nil {
		_, err = use(answer)
	}
	return 0, err
}

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
			*b.different = fmt.Sprintf("at %v: %v (-program +python):\n%s", v.Now, got.Err, d)
		}
	}}
}

// SEBF in Python equals that of the program in every decision on the first coflows of the Facebook trace.
func TestPythonOnTrace(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("no python3: ", err)
	}
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
	cmd := exec.Command("python3", "sebf.py")
	cmd.Dir, cmd.Stderr = "../../policies/external/python", os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p := python{in, bufio.NewReader(out)}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s := external.Coflow(external.Settings{})
	if err := s.Open(p, f, 1); err != nil {
		t.Fatal(err)
	}
	var different string
	decisions := 0
	_, err = flowsim.Run(t.Context(), flowsim.Config{Fabric: f, Scheduler: both{coflow.SEBF{}, s, &different, &decisions}}, coflows, nil)
	if err != nil || different != "" || decisions < 2*first {
		t.Errorf("%d decisions, %v, %s", decisions, err, different)
	}
	_ = p.in.Close()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	t.Logf("%d decisions", decisions)
}
