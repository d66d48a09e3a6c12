package quickstart

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"testbed/emu/longtest"
	"testbed/emu/runner"
	"testbed/emu/scenario"
	"testbed/policies/catalog"
)

// Every arm of jobs.yaml completes its jobs, README.md has its table, and the comment of the file states
// the speed-ups of 30 seeds. Short tests simulate one seed.
func TestJobs(t *testing.T) {
	longtest.Computes(t)
	fair, delay := []float64{}, []float64{}
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	for seed := 1; seed <= 30; seed++ {
		s, err := scenario.Load("jobs.yaml", scenario.Options{Catalog: catalog.All(), Set: map[string]string{"seed": strconv.Itoa(seed)}})
		if err != nil {
			t.Fatal(err)
		}
		out, err := runner.Simulate(t.Context(), s, runner.Options{Out: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		mean := map[string]float64{}
		for _, a := range out.Report.Summary.Arms {
			if a.JobTime == nil || a.JobTime.N != 36 {
				t.Fatalf("seed %d: %s completes %+v, want 36 jobs", seed, a.Name, a.JobTime)
			}
			mean[a.Name] = a.JobTime.MeanUS
			slowdown, _ := a.Get("tasks.mean_job_slowdown")
			node, _ := a.Get("tasks.locality.node")
			if row := fmt.Sprintf("| %s | %.1f s | %.2f× | %.0f %% |\n", a.Name, a.JobTime.MeanUS/1e6, slowdown, 100*node); seed == 1 && !strings.Contains(string(readme), row) {
				t.Errorf("README.md has no row %q", row)
			}
		}
		if testing.Short() {
			return
		}
		fair = append(fair, mean["fifo"]/mean["fair"])
		delay = append(delay, mean["fifo"]/mean["delay"])
	}
	data, err := os.ReadFile("jobs.yaml")
	if err != nil {
		t.Fatal(err)
	}
	head, _, _ := strings.Cut(string(data), "name:")
	head = strings.Join(strings.Fields(strings.ReplaceAll(head, "\n#", " ")), " ")
	of := func(x []float64) string {
		slices.Sort(x)
		return fmt.Sprintf("%.2f to %.2f (median %.2f)", x[0], x[len(x)-1], (x[14]+x[15])/2)
	}
	want := fmt.Sprintf("the speed-up of fair relative to fifo in average job time is %s, and that of delay relative to fifo is %s.", of(fair), of(delay))
	if !strings.Contains(head, want) {
		t.Errorf("the comment of jobs.yaml does not state: %s", want)
	}
}
