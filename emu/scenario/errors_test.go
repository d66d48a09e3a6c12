package scenario

import (
	"math"
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"testbed/policies/catalog"
	"testbed/topo/units"
)

// testTraces are the traces that test scenarios can name.
var testTraces = fstest.MapFS{
	"small.txt": {Data: []byte("8 4\n1 0 2 0 1 1 3:65.0\n2 250 1 3 2 0:12.5 5:4\n5 250 1 2 1 2:7.0\n9 1000 8 0 1 2 3 4 5 6 7 2 0:80.0 4:8.0\n")},
	"bad.txt":   {Data: []byte("8 3\n1 0 2 0 1 1 3:65.0\n2 250 1 8 1 0:1\n5 100 1 2 1 2:NaN\n")},
	"local.txt": {Data: []byte("40 1\n1 0 1 0 1 20:1\n")},
	"dir/x.txt": {Data: []byte("1 1\n")},
	"long.txt":  {Data: []byte("1 1\n" + strings.Repeat(" ", 1000))},
}

// testPolicies has fair, sebf, hdfs and sinbad, with few parameters.
var testPolicies = withParams()

// withParams returns testPolicies with parameters of sebf.
func withParams(params ...catalog.Param) catalog.Catalog {
	size := catalog.Param{Type: catalog.Size, Default: units.Bytes(0), Max: math.MaxInt64}
	least, threshold := size, size
	least.Name, threshold.Name = "least", "threshold"
	return catalog.Catalog{
		{Name: "coflow", Doc: "policy that shares the network among coflows", Required: catalog.Always, Examples: []string{"fair", "sebf"},
			Policies: []catalog.Entry{{Name: "fair"}, {Name: "sebf", Params: params}}},
		{Name: "placement", Doc: "policy that chooses the hosts of replicas", Required: catalog.WritesBlocks, Examples: []string{"hdfs", "sinbad"},
			Policies: []catalog.Entry{{Name: "hdfs", Params: []catalog.Param{least}},
				{Name: "sinbad", Params: []catalog.Param{threshold, {Name: "tolerance", Type: catalog.Whole, Max: 100}}}}},
	}
}

func options(set map[string]string) Options {
	return Options{Set: set, Catalog: testPolicies, Open: testTraces.Open}
}

func goodScenario(t testing.TB) string {
	t.Helper()
	data, err := os.ReadFile("testdata/good.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestLoadErrors(t *testing.T) {
	good := goodScenario(t)
	for _, tt := range badScenarios {
		text := tt.new
		if tt.old != "" {
			if strings.Count(good, tt.old) != 1 {
				t.Errorf("%s: %q is in good.yaml %d times, want once", tt.name, tt.old, strings.Count(good, tt.old))
				continue
			}
			text = strings.Replace(good, tt.old, tt.new, 1)
		}
		_, err := Parse("s.yaml", []byte(text), options(tt.set))
		if err == nil {
			t.Errorf("%s: no error, want\n%s", tt.name, tt.want)
		} else if err.Error() != tt.want {
			t.Errorf("%s:\n%v\nwant\n%s", tt.name, err, tt.want)
		}
	}
}

// testFiles opens files by name.
func testFiles(files map[string][]byte) fstest.MapFS {
	m := fstest.MapFS{}
	for name, data := range files {
		m[name] = &fstest.MapFile{Data: data}
	}
	return m
}
