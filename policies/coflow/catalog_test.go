package coflow_test

import (
	"slices"
	"testing"

	"testbed/policies/catalog"
	"testbed/policies/coflow"
	"testbed/policies/coflow/philaesim"
)

// contenders returns all coflow policies of the catalog with their defaults, and variants.
func contenders() []coflow.Contender {
	sim, contention := philaesim.Default(), philaesim.Default()
	contention.Impact = 4
	return append(coflow.Contenders(), coflow.Contender{Name: "philae-sim", Policy: sim}, coflow.Contender{Name: "philae-sim-contention", Policy: contention})
}

func BenchmarkDecision(b *testing.B) { coflow.BenchDecisions(b, contenders()) }

func TestNoAllocation(t *testing.T) { coflow.CheckNoAllocation(t, contenders()) }

// Every policy of the catalog is benchmarked with its defaults and does not allocate.
func TestCatalogIsBenchmarked(t *testing.T) {
	for _, e := range catalog.All().Entries(catalog.RoleCoflow) {
		p, err := catalog.Coflow(e.Name, nil)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(contenders(), func(c coflow.Contender) bool { return c.Policy == p }) {
			t.Errorf("BenchmarkDecision does not include %s, %+v", e.Name, p)
		}
	}
}
