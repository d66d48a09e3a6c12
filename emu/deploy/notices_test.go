package deploy

import (
	"slices"
	"testing"
	"time"

	"testbed/emu/plan"
)

// What was changed is a change until it is reported as planned again, or to the end. Reports of what is as planned, of
// unplanned neighbours that go, and of the opening of a parameter that is then written are none.
func TestChanges(t *testing.T) {
	p := smallPlan(t)
	want, err := Expect(p)
	if err != nil {
		t.Fatal(err)
	}
	start := time.Unix(100, 0)
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	leaf := want.found[want.at["leaf0"]]
	device := leaf.Devices[1]
	shaper := device.Qdiscs[0]
	half := shaper
	half.Rate /= 2
	down := device
	down.Up = false
	route := leaf.Routes[0]
	qdisc := func(ms int, q Qdisc, gone bool) Notice {
		return Notice{At: at(ms), Namespace: "leaf0", On: device.Name, Qdisc: &q, Gone: gone}
	}
	ingress := Qdisc{Kind: "clsact", Parent: "ingress"}
	for _, tt := range []struct {
		name    string
		notices []Notice
		want    []Change // without Difference but What
		what    []string
	}{
		{"nothing", nil, nil, nil},
		{"as planned", []Notice{{At: at(2), Namespace: "leaf0", Device: &device}, {At: at(3), Namespace: "leaf0", Route: &route}}, nil, nil},
		{"set again, which fills the bucket", []Notice{qdisc(1, shaper, false), qdisc(3, shaper, false)}, []Change{{From: at(1), Until: at(3)}}, []string{"tbf set again"}},
		{"for a moment", []Notice{qdisc(1, half, false), qdisc(5, shaper, false)}, []Change{{From: at(1), Until: at(5)}}, []string{"rate"}},
		{"to the end", []Notice{qdisc(1, half, false)}, []Change{{From: at(1)}}, []string{"rate"}},
		{"twice", []Notice{qdisc(1, half, false), qdisc(2, half, false), qdisc(5, shaper, false), qdisc(6, half, false)}, []Change{{From: at(1), Until: at(5)}, {From: at(6)}}, []string{"rate", "rate"}},
		{"gone", []Notice{qdisc(1, shaper, true)}, []Change{{From: at(1)}}, []string{"qdisc"}},
		{"a device down and deleted", []Notice{{At: at(1), Namespace: "leaf0", Device: &down}, {At: at(2), Namespace: "leaf0", Device: &down, Gone: true}},
			[]Change{{From: at(1), Until: at(2)}, {From: at(2)}}, []string{"device", "device"}},
		{"a filter that goes with its qdisc", []Notice{qdisc(1, ingress, false), {At: at(2), Namespace: "leaf0", On: device.Name, Other: "filter at ingress"}, qdisc(3, ingress, true)},
			[]Change{{From: at(1), Until: at(3)}, {From: at(2), Until: at(3)}}, []string{"qdisc", "filter at ingress"}},
		{"a parameter, opened and written", []Notice{{At: at(1), Namespace: "leaf0", Parameter: "net.ipv4.ip_forward", Value: "1"}, {At: at(2), Namespace: "leaf0", Parameter: "net.ipv4.ip_forward", Value: "0"}},
			[]Change{{From: at(2)}}, []string{"net.ipv4.ip_forward"}},
		{"an unplanned neighbour goes", []Notice{{At: at(1), Namespace: "leaf0", Gone: true, Neighbour: &plan.Neighbour{Namespace: "leaf0", Device: device.Name}}}, nil, nil},
		{"another namespace", []Notice{{At: at(1), Namespace: "none", Device: &device}}, nil, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := want.Changes(tt.notices, nil)
			var what []string
			for i := range got {
				what = append(what, got[i].What)
				got[i].Difference = Difference{}
			}
			if !slices.Equal(got, tt.want) || !slices.Equal(what, tt.what) {
				t.Errorf("changes %+v of %q, want %+v of %q", got, what, tt.want, tt.what)
			}
		})
	}
	// What is found at the end is a change of its own, unless it was reported.
	d := Difference{Namespace: "leaf0", Device: device.Name, Subject: "leaf0>" + want.peers["leaf0/"+device.Name], What: "rate", Planned: shaper.Rate.String(), Found: half.Rate.String()}
	if got := want.Changes([]Notice{qdisc(1, half, false)}, []Difference{d}); len(got) != 1 || got[0].From != at(1) || got[0].Difference != d {
		t.Errorf("a change that stays: %+v", got)
	}
	if got := want.Changes([]Notice{qdisc(1, half, false), qdisc(2, shaper, false)}, []Difference{d}); len(got) != 2 || !got[1].From.IsZero() {
		t.Errorf("a change that was taken back, and came again unnoticed: %+v", got)
	}
}
