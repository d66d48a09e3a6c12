package runner

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"testbed/emu/kernel/netnstest"
	"testbed/results/samples"
	"testbed/results/verdict"
)

// A void repeat runs again, up to the number of attempts in the scenario. The last attempt
// counts. Earlier attempts are reported and kept, without their captures.
func TestAttempts(t *testing.T) {
	t.Parallel()
	netnstest.Require(t)
	for _, attempts := range []int{2, 3} {
		t.Run(fmt.Sprint(attempts), func(t *testing.T) {
			t.Parallel()
			s := loadText(t, fmt.Sprintf(twoRacks, "fair")+fmt.Sprintf("tries: %d\n", attempts), "1 0 1 0 1 1:1.0")
			o := options(t)
			ran := 0
			o.tamper = tamper{recorded: func(captures string) error {
				if ran++; ran > 2 {
					return nil
				}
				return missing(captures, "h0-00")
			}}
			out, err := Execute(t.Context(), s, o)
			if err != nil {
				t.Fatal(err)
			}
			if ran != attempts {
				t.Fatalf("ran %d times, want %d", ran, attempts)
			}
			arm := out.Report.Summary.Arms[0]
			last := arm.Verdicts[0]
			// The machine may also disturb the last attempt, but not by this check.
			if got, planted := level(last, "captured-bytes"), attempts == 2; (got == verdict.Void) != planted || len(last.Earlier) != attempts-1 {
				t.Errorf("captured-bytes is %v after %d attempts, want the last one's", got, len(last.Earlier))
			}
			for i, e := range last.Earlier {
				if e.Level != verdict.Void || len(e.Earlier) != 0 {
					t.Errorf("try %d is %v, want void", i+1, e.Level)
				}
				dir := filepath.Join(out.Dir, "tries", arm.Name, fmt.Sprintf("0.%d", i+1))
				var kept verdict.Verdict
				if found, err := readJSON(filepath.Join(dir, fidelityFile), &kept); err != nil || !found {
					t.Fatal(found, err)
				}
				if diff := cmp.Diff(e, kept); diff != "" {
					t.Errorf("what is kept of try %d (-reported, +kept):\n%s", i+1, diff)
				}
				for _, name := range []string{"events.jsonl", measuredFile, samples.File, "fluid.json"} {
					if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
						t.Error(err)
					}
				}
				if _, err := os.Stat(filepath.Join(dir, "captures")); !os.IsNotExist(err) {
					t.Errorf("captures of try %d were kept: %v", i+1, err)
				}
			}
			text, err := os.ReadFile(filepath.Join(out.Dir, "report.md"))
			if err != nil {
				t.Fatal(err)
			}
			want := []string{"repeat 0, attempt 1: captured-bytes is void"}
			if attempts == 2 {
				want = append(want, "repeat 0, attempt 2 (used for the figures): captured-bytes is void")
			}
			for _, w := range want {
				if !strings.Contains(string(text), w) {
					t.Errorf("report.md does not say %q", w)
				}
			}
			again, err := Report(t.Context(), out.Dir, ReportOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(arm.Verdicts, again.Report.Summary.Arms[0].Verdicts); diff != "" {
				t.Errorf("reported again (-run, +again):\n%s", diff)
			}
		})
	}
}
