package kernel

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"testbed/topo/units"
)

// A snapshot has the parameters that no plan states and no report shows, and nothing changes it but a change.
func TestSnapshot(t *testing.T) {
	k := keep(t, shape(1, 2, 0, 20*units.Mbps, 1500))
	read := func(namespace string) Snapshot {
		t.Helper()
		s, err := k.x.Snapshot(t.Context(), namespace)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	before, other := read("h0-00"), read("h0-01")
	if len(before) < 100 {
		t.Errorf("only %d parameters", len(before))
	}
	for name := range before {
		if !before.Parameter(name) {
			t.Errorf("%s: %s in a new namespace", name, before[name])
		}
	}
	if diff := cmp.Diff(before, read("h0-00")); diff != "" {
		t.Errorf("without a change (-before +after):\n%s", diff)
	}
	second := t.TempDir() // a second mount of procfs
	k.sh("h0-00", fmt.Sprintf("unshare -m sh -c 'mount --make-rprivate / && mount -t proc proc %[1]s && "+
		"echo 4096 8192 8192 >%[1]s/sys/net/ipv4/tcp_rmem'", second))
	k.sh("h0-00", "echo 1 >/proc/sys/net/ipv4/conf/eth0/accept_local")
	before["net.ipv4.tcp_rmem"], before["net.ipv4.conf.eth0.accept_local"] = "4096 8192 8192", "1"
	if diff := cmp.Diff(before, read("h0-00")); diff != "" {
		t.Errorf("after two changes (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(other, read("h0-01")); diff != "" {
		t.Errorf("another namespace (-before +after):\n%s", diff)
	}
}

// BenchmarkSnapshot reads 20 hosts and their switches.
func BenchmarkSnapshot(b *testing.B) {
	k := keep(b, shape(2, 10, 1, 20*units.Mbps, 1500))
	b.ReportAllocs()
	for b.Loop() {
		for _, name := range k.plan.Namespaces() {
			if _, err := k.x.Snapshot(b.Context(), name); err != nil {
				b.Fatal(err)
			}
		}
	}
}
