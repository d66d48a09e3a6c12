package live

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"testbed/emu/fault"
	"testbed/hosts"
	"testbed/topo"
)

// A fault is noted once, and only where no part of it came before the end.
func TestUnreachedFaults(t *testing.T) {
	const s = time.Second
	steps := fault.Timeline{
		{At: s, Action: fault.SetLink{Link: 2}, Why: "a"}, {At: s, Action: fault.SetLink{Link: 3}, Why: "a"},
		{At: 4 * s, Action: fault.SetLink{Link: 2, Up: true}, Why: "a"},
		{At: 5 * s, Action: fault.SetLink{Link: 4}, Why: "b"}, {At: 5 * s, Action: fault.SetLink{Link: 5}, Why: "b"},
	}
	want := []string{"fault b: did not happen: the repeat ended after 3s"}
	if got := unreached(steps, 3*s); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got := unreached(steps, 6*s); len(got) > 0 {
		t.Errorf("%q, want none", got)
	}
}

// A sender that a fault keeps from ending, and that does not stop when asked to, is not waited for
// without end.
func TestSettleIsBounded(t *testing.T) {
	b := &Backend{faults: &faults{hosts: map[topo.HostID]string{0: "crash"}}}
	b.cfg.Settings.Settle, b.cfg.Settings.Stop = time.Millisecond, 20*time.Millisecond
	var asked error
	b.stopSend = func(cause error) { asked = cause }
	stuck := make(chan struct{})
	b.transfer.Go(func() { <-stuck })
	defer close(stuck)
	if _, err := b.settle(t.Context()); err == nil || !strings.Contains(err.Error(), "senders did not end") || !errors.Is(asked, hosts.ErrStopped) {
		t.Errorf("error %v, senders asked %v: want an error, and ErrStopped", err, asked)
	}
}
