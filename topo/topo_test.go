package topo

import (
	"strings"
	"testing"
	"time"

	"testbed/topo/units"
)

func quickstart() LeafSpine {
	return LeafSpine{Leaves: 4, Spines: 2, HostsPerLeaf: 5, HostLink: 50 * units.Mbps,
		Oversubscription: units.Ratio{Num: 5, Den: 1}, Queue: Queue{Time: 20 * time.Millisecond}, MTU: 1500}
}

func TestBuildOversubscription(t *testing.T) {
	f, err := quickstart().Build()
	if err != nil {
		t.Fatal(err)
	}
	if got, want := len(f.Links()), 2*20+2*4*2; got != want {
		t.Errorf("links = %d, want %d", got, want)
	}
	for i, l := range f.Links() {
		if int(l.ID) != i {
			t.Errorf("link %d has ID %d", i, l.ID)
		}
		want := 50 * units.Mbps
		if l.Kind == LeafUp || l.Kind == LeafDown {
			want = 25 * units.Mbps
		}
		if l.Rate != want || l.Queue != want.BytesIn(20*time.Millisecond) {
			t.Errorf("%s: rate %v queue %v, want rate %v", f.LinkName(l.ID), l.Rate, l.Queue, want)
		}
	}
	var up units.Rate
	for s := range f.Spines() {
		up += f.Link(f.LeafUp(2, s)).Rate
	}
	if want := 5 * 50 * units.Mbps / 5; up != want {
		t.Errorf("uplinks of a rack = %v, want %v", up, want)
	}
}

func TestPath(t *testing.T) {
	f, err := quickstart().Build()
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		src, dst HostID
		hash     uint32
		want     string
	}{
		{3, 3, 0, ""},
		{0, 4, 7, "h0-00>leaf0 leaf0>h0-04"},
		{0, 19, 6, "h0-00>leaf0 leaf0>spine0 spine0>leaf3 leaf3>h3-04"},
		{7, 12, 7, "h1-02>leaf1 leaf1>spine1 spine1>leaf2 leaf2>h2-02"},
	} {
		var names []string
		for _, l := range f.Path(tt.src, tt.dst, tt.hash) {
			names = append(names, f.LinkName(l))
		}
		if got := strings.Join(names, " "); got != tt.want {
			t.Errorf("Path(%d, %d, %d) = %q, want %q", tt.src, tt.dst, tt.hash, got, tt.want)
		}
	}
}

func TestNamesAndAddresses(t *testing.T) {
	f, err := quickstart().Build()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for h := range HostID(f.Hosts()) {
		name := f.HostName(h)
		if got, ok := HostNameOf(f.HostAddr(h)); !ok || got != name {
			t.Errorf("HostNameOf(%v) = %q, %v, want %q", f.HostAddr(h), got, ok, name)
		}
		if got, err := f.FindHost(name); err != nil || got != h {
			t.Errorf("FindHost(%q) = %d, %v, want %d", name, got, err, h)
		}
		r, i, ok := ParseHostName(name)
		if !ok || f.HostIn(r, i) != h {
			t.Errorf("ParseHostName(%q) = %d, %d, %v", name, r, i, ok)
		}
		if !RackPrefix(f.RackOf(h)).Contains(f.HostAddr(h)) {
			t.Errorf("%v is not in %v", f.HostAddr(h), RackPrefix(f.RackOf(h)))
		}
		seen[f.HostAddr(h).String()], seen[f.GatewayAddr(h).String()] = true, true
	}
	for r := range RackID(f.Racks()) {
		for s := range f.Spines() {
			a, b := UplinkAddrs(r, s)
			seen[a.String()], seen[b.String()] = true, true
		}
	}
	if want := 2*f.Hosts() + 2*f.Racks()*f.Spines(); len(seen) != want {
		t.Errorf("%d distinct addresses, want %d", len(seen), want)
	}
	for _, name := range []string{"", "h", "h1", "h1-1", "leaf0", "h-1-01", "h01-00"} {
		if _, _, ok := ParseHostName(name); ok {
			t.Errorf("ParseHostName(%q) is ok", name)
		}
	}
	if _, err := f.FindHost("h9-99"); err == nil || !strings.Contains(err.Error(), "h0-00 to h3-04") {
		t.Errorf("FindHost of an unknown host: %v", err)
	}
}

func TestBuildReportsAllMistakes(t *testing.T) {
	_, err := LeafSpine{Leaves: 0, HostsPerLeaf: 999, Spines: -1}.Build()
	if err == nil {
		t.Fatal("no error")
	}
	for _, field := range []string{"leaves", "hosts_per_leaf", "spines", "host_link", "oversubscription", "queue", "mtu"} {
		if !strings.Contains(err.Error(), field+":") {
			t.Errorf("error does not name %s: %v", field, err)
		}
	}
}

func FuzzParseQueue(f *testing.F) {
	for _, s := range []string{"64KB", "20ms", "0s", "-1s", "x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		q, err := ParseQueue(s)
		if err == nil && (q.Bytes < 0 || q.Time < 0) {
			t.Errorf("ParseQueue(%q) = %+v", s, q)
		}
	})
}

func TestIsSwitch(t *testing.T) {
	for name, want := range map[string]bool{LeafName(0): true, LeafName(249): true, SpineName(0): true, SpineName(63): true,
		"": false, "leaf": false, "leaf-1": false, "leaf+1": false, "leaf01": false, "leaf0x": false, "spine": false, "h0-00": false, "leafspine0": false} {
		if got := IsSwitch(name); got != want {
			t.Errorf("IsSwitch(%q) = %v, want %v", name, got, want)
		}
	}
}
