package units_test

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"testbed/topo/units"
)

func TestClip(t *testing.T) {
	for _, tt := range []struct{ in, want string }{
		{"", ""}, {"100Mbps", "100Mbps"}, {strings.Repeat("9", 60), strings.Repeat("9", 60)}, {strings.Repeat("9", 61), strings.Repeat("9", 60) + "…"},
		{strings.Repeat("é", 60), strings.Repeat("é", 60)}, {strings.Repeat("é", 100000), strings.Repeat("é", 60) + "…"},
		{strings.Repeat("\xff", 70), strings.Repeat("\xff", 60) + "…"},
	} {
		if got := units.Clip(tt.in); got != tt.want {
			t.Errorf("Clip(%.70q) = %.200q, want %.200q", tt.in, got, tt.want)
		}
	}
}

func TestClipQuoted(t *testing.T) {
	long := strings.Repeat("9", 100000)
	for _, tt := range []struct{ in, want string }{
		{"no quotes", "no quotes"},
		{`rate "10G": expected "100Mbps"`, `rate "10G": expected "100Mbps"`},
		{fmt.Sprintf("a %q and %q", long, "b"), `a "` + long[:60] + `…" and "b"`},
		{fmt.Sprintf("%q", strings.Repeat("x", 59)+"\x01\x02"), `"` + strings.Repeat("x", 59) + `…"`},
		{fmt.Sprintf("%q", strings.Repeat(`"`, 100)), `"` + strings.Repeat(`\"`, 30) + `…"`},
		{`one quote " alone ` + long, `one quote " alone ` + long},
	} {
		if got := units.ClipQuoted(tt.in); got != tt.want {
			t.Errorf("ClipQuoted(%.90q) = %.300q, want %.300q", tt.in, got, tt.want)
		}
	}
}

// An error repeats only the beginning of its input, in quotes.
func TestErrorsAreShort(t *testing.T) {
	long := strings.Repeat("9", 100000)
	for _, parse := range []func(string) error{
		func(s string) error { _, err := units.ParseRate(s); return err },
		func(s string) error { _, err := units.ParseBytes(s); return err },
		func(s string) error { _, err := units.ParseRatio(s); return err },
	} {
		for _, s := range []string{long, long + "Mbps", long + "MB", "1" + strings.Repeat("x", 100000), long + ".." + long + "B", long + ":1"} {
			if err := parse(s); err == nil || utf8.RuneCountInString(err.Error()) > 400 {
				t.Errorf("%.10q…: error of %d bytes", s, len(fmt.Sprint(err)))
			}
		}
	}
}
