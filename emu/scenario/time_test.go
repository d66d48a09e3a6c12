package scenario

import (
	"strings"
	"testing"

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
