package tasks

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParsePools(t *testing.T) {
	got, err := ParsePools("prod=2:10:4, adhoc=0.5,x = 1:3")
	want := []Pool{{"prod", 2, [2]int{10, 4}}, {"adhoc", 0.5, [2]int{}}, {"x", 1, [2]int{3, 0}}}
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Errorf("pools (-want +got), %v:\n%s", err, d)
	}
	for text, want := range map[string][]string{
		"":                  {`pool "": expected user=weight`},
		"a":                 {`pool "a": expected user=weight`},
		"=1":                {`expected user=weight`},
		"a=1,a=2":           {`pool "a=2": user "a" has two pools`},
		"a=0,b=-1,c=NaN":    {`weight "0"`, `weight "-1"`, `weight "NaN": must be a number above 0, at most 1e+06`},
		"a=x":               {`weight "x"`},
		"a=1:-1,b=1:2:many": {`minimum share "-1": must be a whole number of slots from 0 to 1000000`, `minimum share "many"`},
		"a=1:2:3:4":         {`4 numbers`},
		"a=Inf":             {`weight "Inf"`},
	} {
		pools, err := ParsePools(text)
		for _, w := range want {
			if err == nil || pools != nil || !strings.Contains(err.Error(), w) {
				t.Errorf("ParsePools(%q) = %v, %v, want %q in the error", text, pools, err, w)
			}
		}
	}
}

func FuzzParsePools(f *testing.F) {
	f.Add("prod=2:10:4,adhoc=0.5")
	f.Fuzz(func(t *testing.T, text string) {
		pools, err := ParsePools(text)
		for _, p := range pools {
			if !(p.Weight > 0) || p.Name == "" || p.Min[0] < 0 || p.Min[1] < 0 || err != nil {
				t.Errorf("ParsePools(%q) = %+v, %v", text, pools, err)
			}
		}
	})
}
