package deploy

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"testbed/emu/plan"
	"testbed/topo"
	"testbed/topo/units"
)

// queuedPlan has a delay and RED with ECN on every link.
func queuedPlan(t testing.TB) *plan.Plan {
	t.Helper()
	s := small
	s.Queue = topo.Queue{Bytes: 200 * units.KB}
	s.Delay = 2 * time.Millisecond
	s.RED = &topo.RED{Min: 10 * units.KB, Max: 30 * units.KB, Probability: 0.1, ECN: true}
	f, err := s.Build()
	if err != nil {
		t.Fatal(err)
	}
	return plan.Compile("queued", f, plan.Options{})
}

// Every operation that a plan may have can be read back, and its namespace is known. A plan with an
// unknown type of operation is refused.
func TestEveryOperationIsKnown(t *testing.T) {
	p := queuedPlan(t)
	have := map[string]bool{}
	for _, op := range p.Ops() {
		have[fmt.Sprintf("%T", op)] = true
	}
	for _, op := range plan.OpTypes() {
		if !have[fmt.Sprintf("%T", op)] {
			t.Errorf("the plan of this test has no %T", op)
		}
	}
	if _, err := Expect(p); err != nil {
		t.Error(err)
	}
	for _, op := range p.Ops() {
		if _, two := op.(plan.Veth); two != (plan.NamespaceOf(op) == "") {
			t.Errorf("plan.NamespaceOf(%T) = %q", op, plan.NamespaceOf(op))
		}
	}
}

// Each setting of each kind of qdisc is compared, and so is each qdisc's parent.
func TestVerifyComparesQdiscs(t *testing.T) {
	p := queuedPlan(t)
	m := newMirror(t, p)
	if err := Verify(t.Context(), p, m); err != nil {
		t.Fatalf("of a kernel that has all: %v", err)
	}
	const link = "leaf0>h0-00: "
	for _, c := range []struct {
		name  string
		alter func(q []Qdisc) []Qdisc
		want  []string
	}{
		{"delay", func(q []Qdisc) []Qdisc { q[0].Delay += time.Microsecond; return q },
			[]string{"delay 2ms in the plan, 2.001ms in the kernel"}},
		{"limit of the delay", func(q []Qdisc) []Qdisc { q[0].Packets = 1000; return q },
			[]string{fmt.Sprintf("delay's limit %d packets in the plan, 1000 packets in the kernel", delayOf(p, "leaf0", "h0-00").Packets)}},
		{"loss", func(q []Qdisc) []Qdisc { q[0].Besides = []string{"loss", "jitter"}; return q },
			[]string{"delay's loss none in the plan, loss in the kernel", "delay's jitter none in the plan, jitter in the kernel"}},
		{"rate below a delay", func(q []Qdisc) []Qdisc { q[1].Rate = units.Mbps; return q },
			[]string{"rate 50Mbps in the plan, 1Mbps in the kernel"}},
		{"no delay", func(q []Qdisc) []Qdisc { q[1].Parent = "root"; return q[1:] },
			[]string{"qdisc netem at root in the plan, tbf in the kernel", "qdisc tbf at 1:1 in the plan, none in the kernel"}},
		{"no shaper", func(q []Qdisc) []Qdisc { return q[:1] },
			[]string{"qdisc tbf at 1:1 in the plan, none in the kernel", "qdisc red at 2:1 in the plan, none in the kernel"}},
		{"no red", func(q []Qdisc) []Qdisc { return q[:2] },
			[]string{"qdisc red at 2:1 in the plan, none in the kernel"}},
		{"red", func(q []Qdisc) []Qdisc {
			q[2].Limit, q[2].Min, q[2].Max, q[2].Weight, q[2].Probability, q[2].ECN = 1, 2, 3, 5, 0.5, false
			return q
		}, []string{"red's limit 200000 bytes in the plan, 1 bytes in the kernel", "red's min 10000 bytes in the plan, 2 bytes in the kernel",
			"red's max 30000 bytes in the plan, 3 bytes in the kernel", "red's weight 2^-4 in the plan, 2^-5 in the kernel",
			"red's probability 0.1 in the plan, 0.5 in the kernel", "red's ecn on in the plan, off in the kernel"}},
		{"probability as the kernel keeps it", func(q []Qdisc) []Qdisc { q[2].Probability = math.Floor(0.1*(1<<32)) / (1 << 32); return q }, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			m.alter = func(namespace string, f *Found) {
				if namespace != "leaf0" {
					return
				}
				i := slices.IndexFunc(f.Devices, func(d Device) bool { return d.Name == "h0-00" })
				f.Devices[i].Qdiscs = c.alter(slices.Clone(f.Devices[i].Qdiscs))
			}
			err := Verify(t.Context(), p, m)
			var d *DifferenceError
			var got []string
			if errors.As(err, &d) {
				got = d.Differences
			} else if err != nil {
				t.Fatal(err)
			}
			var want []string
			for _, w := range c.want {
				want = append(want, link+w)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func delayOf(p *plan.Plan, namespace, device string) plan.Delay {
	for _, op := range p.Ops() {
		if d, ok := op.(plan.Delay); ok && d.Namespace == namespace && d.Device == device {
			return d
		}
	}
	return plan.Delay{}
}
