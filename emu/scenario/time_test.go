package scenario

import (
	"strings"
	"testing"
	"time"

	"testbed/policies/catalog"
)

// Time and seed can be stated from outside, where the file has them and where it has not. The time is no part of the
// work, so the fingerprint stays.
func TestTimeOfTheCaller(t *testing.T) {
	const text = "name: x\nfabric: {leaves: 1, spines: 1, hosts_per_leaf: 3, host_link: 10Mbps}\ndisk: {write: 1MB/s, size: 1GB}\n" +
		"workload: [{kind: writers, count: 1, blocks: 1, block: 64MB}]\narms: {coflow: [fair]}"
	seed, prints := uint64(7), map[string]bool{}
	for _, tt := range []struct{ file, time, want string }{
		{text, "", "real"}, {text, VirtualTime, VirtualTime}, {text + "\ntime: virtual", "", VirtualTime}, {text + "\ntime: virtual # why", "real", "real"},
	} {
		s, err := Parse("s.yaml", []byte(tt.file), Options{Catalog: catalog.All(), Time: tt.time, Seed: &seed})
		if err != nil {
			t.Fatal(err)
		}
		again, err := Parse("s.yaml", s.Source(), Options{Catalog: catalog.All()})
		if err != nil || s.Spec.Time != tt.want || again.Spec.Time != tt.want || again.Spec.Seed != seed {
			t.Errorf("time %q: %q, and of its source %q, want %q (%v)", tt.time, s.Spec.Time, again.Spec.Time, tt.want, err)
		}
		print, err := s.Fingerprint()
		if err != nil {
			t.Fatal(err)
		}
		prints[print] = true
	}
	if len(prints) != 1 {
		t.Errorf("%d fingerprints, want 1", len(prints))
	}
	if _, err := Parse("s.yaml", []byte(text+"\ntime: slow"), Options{Catalog: catalog.All()}); err == nil || !strings.Contains(err.Error(), "virtual") {
		t.Errorf("time: slow: %v", err)
	}
}

// A fork is stated in the file or from outside. Its arms differ in their coflow policies only.
func TestFork(t *testing.T) {
	const text = "name: x\nfabric: {leaves: 1, spines: 1, hosts_per_leaf: 3, host_link: 10Mbps}\ndisk: {write: 1MB/s, size: 1GB}\n" +
		"workload: [{kind: writers, count: 1, blocks: 1, block: 64MB}]\nfork_at: 2s\narms: "
	for _, tt := range []struct{ arms, want string }{
		{"{coflow: [fair, sebf]}", ""},
		{"[{coflow: fair, placement: hdfs}, {coflow: sebf, placement: sinbad}]", "arms[1].placement: differs from that of arm fair+hdfs"},
		{"[{coflow: fair}, {coflow: sebf, set: {fabric.queue: 1s}}]", "arms[1].set: changes the scenario of an arm"},
		{"[{coflow: fair}, {coflow: sebf, set: {fork_at: 1s}}]", "fork_at"},
	} {
		s, err := Parse("s.yaml", []byte(text+tt.arms), Options{Catalog: catalog.All(), ForkAt: 3 * time.Second})
		if tt.want != "" {
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%s: %v, want %q", tt.arms, err, tt.want)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		again, err := Parse("s.yaml", s.Source(), Options{Catalog: catalog.All()})
		if err != nil || s.Spec.ForkAt != 3*time.Second || again.Spec.ForkAt != s.Spec.ForkAt {
			t.Errorf("fork at %v, and of its source %v, %v", s.Spec.ForkAt, again.Spec.ForkAt, err)
		}
	}
}
