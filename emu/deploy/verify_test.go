package deploy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"testbed/emu/plan"
)

// mirror is a kernel that matches a plan, except for the changes by alter.
type mirror struct {
	want  *Expectation
	alter func(namespace string, f *Found)
	lost  []Lost
	err   error
}

func (m *mirror) Read(_ context.Context, namespace string, parameters []string) (Found, error) {
	want := m.want.found[m.want.at[namespace]]
	f := Found{Devices: slices.Clone(want.Devices), Addresses: slices.Clone(want.Addresses),
		Neighbours: slices.Clone(want.Neighbours), Routes: slices.Clone(want.Routes), Parameters: map[string]string{}}
	for _, key := range parameters {
		f.Parameters[key] = want.Parameters[key]
	}
	if m.alter != nil {
		m.alter(namespace, &f)
	}
	return f, m.err
}

func (m *mirror) Probe(context.Context, []plan.Veth) ([]Lost, error) { return m.lost, m.err }

func newMirror(t *testing.T, p *plan.Plan) *mirror {
	t.Helper()
	want, err := Expect(p)
	if err != nil {
		t.Fatal(err)
	}
	return &mirror{want: want}
}

func TestVerifyComparesAll(t *testing.T) {
	p := smallPlan(t)
	m := newMirror(t, p)
	if err := Verify(t.Context(), p, m); err != nil {
		t.Fatalf("of a kernel that has all: %v", err)
	}
	// A kernel without an optional parameter is as the plan says; one without
	// another is not.
	m.alter = func(_ string, f *Found) { delete(f.Parameters, "net.ipv4.fib_multipath_hash_seed") }
	if err := Verify(t.Context(), p, m); err != nil {
		t.Errorf("without an optional parameter: %v", err)
	}
	m.alter = func(_ string, f *Found) { delete(f.Parameters, "net.ipv4.ip_forward") }
	if err := Verify(t.Context(), p, m); err == nil || !strings.Contains(err.Error(), "leaf0: net.ipv4.ip_forward 1 in the plan, none in the kernel") {
		t.Errorf("without ip_forward: %v", err)
	}
	m.alter = func(namespace string, f *Found) {
		if namespace == "leaf0" {
			f.Devices[1].XDP = true
		}
	}
	if err := Verify(t.Context(), p, m); err == nil || !strings.Contains(err.Error(), ": XDP program none in the plan, one in the kernel") {
		t.Errorf("with an XDP program: %v", err)
	}
	m.alter = func(namespace string, f *Found) {
		if namespace == "leaf0" {
			f.Devices[1].MTU = 9000
		}
	}
	m.lost = []Lost{{From: m.want.links[1].A, To: m.want.links[1].B, Why: "it did not come"}}
	err := Verify(t.Context(), p, m)
	var d *DifferenceError
	if !errors.As(err, &d) || len(d.Differences) != 2 || !strings.Contains(d.Differences[0], "leaf0>") || !strings.Contains(d.Differences[1], "a frame from eth0 is lost: it did not come") {
		t.Errorf("Verify() = %v", err)
	}
}

func TestVerifyCountsWhatItDoesNotPrint(t *testing.T) {
	p := smallPlan(t)
	m := newMirror(t, p)
	m.alter = func(_ string, f *Found) { f.Addresses, f.Neighbours, f.Routes = nil, nil, nil }
	err := Verify(t.Context(), p, m)
	var d *DifferenceError
	if !errors.As(err, &d) || len(d.Differences) <= MaxDifferences {
		t.Fatalf("Verify() = %v", err)
	}
	if want := fmt.Sprintf("and %d more", len(d.Differences)-MaxDifferences); !strings.HasSuffix(err.Error(), want) || strings.Count(err.Error(), "\n") != MaxDifferences+1 {
		t.Errorf("no %q at the end of %v", want, err)
	}
}

func TestVerifyPassesOnErrors(t *testing.T) {
	p := smallPlan(t)
	m := newMirror(t, p)
	m.err = errInjected
	if err := Verify(t.Context(), p, m); !errors.Is(err, errInjected) {
		t.Errorf("Verify() = %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("the user said so")
	cancel(why)
	if err := Verify(ctx, p, newMirror(t, p)); !errors.Is(err, why) {
		t.Errorf("Verify() with a cancelled context = %v", err)
	}
}
