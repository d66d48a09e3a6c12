package main

import (
	"context"
	"fmt"
	"math"
	"path/filepath"

	"testbed/results/report"
)

// placement is the part that runs jobs without limits of slots, where SAMP and SARP have them.
const placement = "placement"

// ideal is a row of the bytes across racks for each byte of input that an independent simulation of the placement
// found, by the number of blocks of a job in sizes.
type ideal struct {
	racks int
	ratio float64
	rule  string
	bytes [5]float64
}

var (
	sizes  = [5]int{1, 4, 16, 64, 256} // blocks of a job
	ideals = []ideal{
		{5, 1, "first-increase", [5]float64{0, 0.26, 0.44, 0.52, 0.56}},
		{5, 0.55, "first-increase", [5]float64{0, 0.26, 0.40, 0.44, 0.42}},
		{10, 1, "first-increase", [5]float64{0, 0.44, 0.63, 0.72, 0.76}},
		{10, 0.55, "first-increase", [5]float64{0, 0.40, 0.59, 0.71, 0.76}},
		{10, 0.55, "best-prefix", [5]float64{0, 0.32, 0.45, 0.48, 0.49}},
	}
)

// jobsOf returns the number of jobs of a size, so that larger ones, which differ less, take as long.
func jobsOf(blocks int) int { return max(20, min(400, 4000/blocks)) }

// set returns the assignments to variables of placement.yaml.
func (x ideal) set(blocks int) []string {
	return []string{fmt.Sprintf("racks=%d", x.racks), fmt.Sprintf("ratio=%v", x.ratio), "samp=" + x.rule, fmt.Sprintf("maps=%d", blocks), fmt.Sprintf("jobs=%d", jobsOf(blocks))}
}

// crossing returns the bytes across racks for each byte of input of jobs with these blocks of 16 MB.
func crossing(s *report.Summary, blocks int) float64 {
	b := s.Arms[0].Tasks.Bytes
	return (b.ReadCrossRack + b.FetchedCrossRack) / (16e6 * float64(blocks*jobsOf(blocks)))
}

// placement compares the bytes across racks with the ideal ones.
func (w *watcher) placement(ctx context.Context) error {
	w.Say("Jobs of equal size without limits of slots, one at a time, whose tasks run only where SAMP and SARP have them: bytes across racks for each byte of input, and those of an independent simulation of the placement.\n")
	w.claims.Backend = "fluid model"
	rows, worst := [][]string{}, 0.0
	for _, x := range ideals {
		row := []string{fmt.Sprint(x.racks), fmt.Sprint(x.ratio), x.rule}
		for i, n := range sizes {
			runs, err := w.Backends(ctx, w.Report, false, filepath.Join("scripts", "shufflewatcher", "placement.yaml"), 1, x.set(n)...)
			if runs == nil {
				return err
			}
			got := crossing(runs[0].Summary, n)
			worst = max(worst, math.Abs(got-x.bytes[i]))
			row = append(row, fmt.Sprintf("%.3f (%.2f)", got, x.bytes[i]))
		}
		rows = append(rows, row)
	}
	w.claims.Exact(placement+"/ideal", worst)
	header := []string{"racks", "ratio", "rule"}
	for _, n := range sizes {
		header = append(header, fmt.Sprintf("%d blocks", n))
	}
	return w.Draw(header, rows)
}
