package deploy

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"testbed/emu/plan"
)

// Notice is a report by the kernel that something in a namespace was changed: the state after the change
// of one of the objects below, or its last state if it is gone.
type Notice struct {
	At        time.Time
	Namespace string
	Gone      bool

	Device    *Device // without its qdiscs
	On        string  // the device of Qdisc or Other; "" for none
	Qdisc     *Qdisc
	Address   *plan.Address
	Neighbour *plan.Neighbour // permanent
	Route     *Route
	// Parameter was written, perhaps with the value that it had. Value was read after that.
	Parameter, Value string
	// Other is something that no plan has, such as "filter at ingress".
	Other string
}

// Change is a difference between the kernel and the plan that came or went while namespaces were watched.
type Change struct {
	Difference
	From  time.Time // when the kernel reported it; zero if it was found only at the end
	Until time.Time // when the kernel reported that it was taken back; zero if it was there at the end
}

// writeTime is the longest time from the report that a parameter is opened for writing, which empties it, to that of the write:
// 21 ms were seen on emulated processors.
const writeTime = 100 * time.Millisecond

// Changes returns what notices, in order of time, and a comparison at the end show.
func (e *Expectation) Changes(notices []Notice, end []Difference) []Change {
	var out []Change
	open := map[string][]int{} // of out, by object
	for i, n := range notices {
		if n.Parameter != "" && e.planned(n) && slices.ContainsFunc(notices[i+1:], func(m Notice) bool {
			return m.Namespace == n.Namespace && m.Parameter == n.Parameter && m.At.Sub(n.At) < writeTime
		}) {
			continue // the next report has the value that was written
		}
		key, now := e.judge(n)
		if n.Qdisc != nil && !n.Gone && len(now) == 0 && len(open[key]) == 0 {
			out = e.again(out, n)
			continue
		}
		if n.Gone && n.Qdisc != nil { // and with it, its filters, which the kernel does not report
			for other, of := range open {
				if strings.HasPrefix(other, n.Namespace+" "+n.On+" filter ") {
					for _, i := range of {
						out[i].Until = n.At
					}
					delete(open, other)
				}
			}
		}
		left := open[key][:0]
		for _, i := range open[key] {
			if slices.Contains(now, out[i].Difference) {
				left = append(left, i)
			} else {
				out[i].Until = n.At
			}
		}
		for _, d := range now {
			if !slices.ContainsFunc(left, func(i int) bool { return out[i].Difference == d }) {
				left, out = append(left, len(out)), append(out, Change{Difference: d, From: n.At})
			}
		}
		open[key] = left
	}
	for _, d := range end {
		if !slices.ContainsFunc(out, func(c Change) bool { return c.Until.IsZero() && c.Difference == d }) {
			out = append(out, Change{Difference: d})
		}
	}
	return out
}

// SetAgain is what a queue is that was set to what it was, which fills its bucket.
const SetAgain = "set again"

// again adds that a queue was set to what it was.
func (e *Expectation) again(out []Change, n Notice) []Change {
	d := e.differ(n.Namespace)
	d.add(d.link(n.On), n.Qdisc.Kind+" "+SetAgain, none, "one")
	for i := range out {
		if out[i].Difference == d.differences[0] {
			out[i].Until = n.At
			return out
		}
	}
	return append(out, Change{Difference: d.differences[0], From: n.At, Until: n.At})
}

// planned reports whether a parameter had its planned value when it was read.
func (e *Expectation) planned(n Notice) bool {
	at, ok := e.at[n.Namespace]
	if !ok {
		return false
	}
	value, ok := e.found[at].Parameters[n.Parameter]
	return ok && words(value) == words(n.Value)
}

// judge returns the name of the object of a notice, and its differences from the plan.
func (e *Expectation) judge(n Notice) (object string, _ []Difference) {
	at, ok := e.at[n.Namespace]
	if !ok {
		return "", nil
	}
	want := e.found[at]
	d := e.differ(n.Namespace)
	switch {
	case n.Device != nil:
		object = "device " + n.Device.Name
		i := slices.IndexFunc(want.Devices, func(w Device) bool { return w.Name == n.Device.Name })
		switch {
		case i < 0 && !n.Gone:
			d.add(d.link(n.Device.Name), "device", none, n.Device.Name)
		case i >= 0 && n.Gone:
			d.add(d.link(n.Device.Name), "device", n.Device.Name, none)
		case i >= 0:
			d.compareDevice(want.Devices[i], *n.Device)
		}
	case n.Qdisc != nil:
		object = "qdisc " + n.On + " " + n.Qdisc.Parent
		i := slices.IndexFunc(want.Devices, func(w Device) bool { return w.Name == n.On })
		if i < 0 {
			break // the device is a difference
		}
		only := func(all []Qdisc, gone bool) Device {
			w := Device{Name: n.On}
			for _, q := range all {
				if q.Parent == n.Qdisc.Parent && !gone {
					w.Qdiscs = append(w.Qdiscs, q)
				}
			}
			return w
		}
		d.compareQdiscs(only(want.Devices[i].Qdiscs, false), only([]Qdisc{*n.Qdisc}, n.Gone))
	case n.Address != nil:
		object = "address " + n.Address.Device + n.Address.Prefix.String()
		w, g := one(want.Addresses, *n.Address, n.Gone, func(a, b plan.Address) bool { return a.Device == b.Device && a.Prefix.Addr() == b.Prefix.Addr() })
		d.compare(&Found{Addresses: w}, Found{Addresses: g})
	case n.Neighbour != nil:
		object = "neighbour " + n.Neighbour.Device + n.Neighbour.Addr.String()
		w, g := one(want.Neighbours, *n.Neighbour, n.Gone, func(a, b plan.Neighbour) bool { return a.Device == b.Device && a.Addr == b.Addr })
		d.compare(&Found{Neighbours: w}, Found{Neighbours: g})
	case n.Route != nil:
		object = "route " + n.Route.Dst.String()
		w, g := one(want.Routes, *n.Route, n.Gone, func(a, b Route) bool { return a.Dst == b.Dst })
		d.compare(&Found{Routes: w}, Found{Routes: g})
	case n.Parameter != "":
		object = "parameter " + n.Parameter
		planned, ok := want.Parameters[n.Parameter]
		value := words(n.Value)
		switch {
		case !ok:
			planned = "as built"
		case e.planned(n):
			value += " when it was read, after it was written"
		}
		d.add(d.whole(), n.Parameter, words(planned), value)
	default:
		object = fmt.Sprintf("%s %s", n.On, n.Other)
		subject := d.whole()
		if n.On != "" {
			subject = d.link(n.On)
		}
		if !n.Gone {
			d.add(subject, n.Other, none, "one")
		}
	}
	return n.Namespace + " " + object, d.differences
}

// one returns those of the planned objects that are the one that was found, and that one unless it is gone.
func one[T any](planned []T, found T, gone bool, same func(a, b T) bool) (w, g []T) {
	for _, p := range planned {
		if same(p, found) {
			w = append(w, p)
		}
	}
	if !gone {
		g = []T{found}
	}
	return w, g
}
