package live

import (
	"cmp"
	"maps"
	"net"
	"slices"
	"sync"

	"testbed/emu/fidelity"
	"testbed/emu/kernel"
)

// connections compares what each connection really uses with what was asked for, once it is
// established.
type connections struct {
	want kernel.TCPState
	mu   sync.Mutex
	odd  map[fidelity.KernelChange]bool
}

// check compares a connection that a host opened.
func (x *connections) check(host string, c *net.TCPConn) error {
	got, err := kernel.TCPStateOf(c)
	if err != nil {
		return err
	}
	note := func(what, planned, found string) {
		if planned == found {
			return
		}
		x.mu.Lock()
		defer x.mu.Unlock()
		if x.odd == nil {
			x.odd = map[fidelity.KernelChange]bool{}
		}
		x.odd[fidelity.KernelChange{AtEnd: true, Where: host, What: what + " of connections", Planned: planned, Found: found}] = true
	}
	onOff := func(what string, planned, found bool) {
		name := map[bool]string{true: "on", false: "off"}
		note(what, name[planned], name[found])
	}
	if x.want.Congestion != "" {
		note("congestion control", x.want.Congestion, got.Congestion)
	}
	onOff("timestamps", x.want.Timestamps, got.Timestamps)
	onOff("SACK", x.want.SACK, got.SACK)
	onOff("window scaling", x.want.WindowScaling, got.WindowScaling)
	if !x.want.ECN { // where it is wanted, TCP does without it if the first SYN is lost
		onOff("ECN", false, got.ECN)
	}
	return nil
}

// found returns the differences, by host.
func (x *connections) found() []fidelity.KernelChange {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.SortedFunc(maps.Keys(x.odd), func(a, b fidelity.KernelChange) int {
		return cmp.Or(cmp.Compare(a.Where, b.Where), cmp.Compare(a.What, b.What), cmp.Compare(a.Found, b.Found))
	})
}
