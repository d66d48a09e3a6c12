package coflow_test

import (
	"slices"
	"testing"

	"testbed/policies/catalog"
	"testbed/policies/coflow"
)

// Every policy of the catalog is timed with its defaults, and takes no memory.
func TestCatalogIsTimed(t *testing.T) {
	for _, e := range catalog.Entries(catalog.RoleCoflow) {
		p, err := catalog.Coflow(e.Name, nil)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(coflow.Timed(), p) {
			t.Errorf("BenchmarkDecision does not time %s, %+v", e.Name, p)
		}
	}
}
