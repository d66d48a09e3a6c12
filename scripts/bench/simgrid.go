package main

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"testbed/results/metrics"
	"testbed/results/safefile"
)

// The set of flows that testbed and SimGrid simulate, about 6,000.
const (
	simPorts   = 100
	simRate    = 1_000_000_000 // bit/s of a port, each way
	simCoflows = 60
	simWidth   = 20   // most senders, and most receivers, of a coflow
	simMost    = 50   // MB, of the largest flow
	simEvery   = 100  // ms between two coflows
	simEqual   = 1e-6 // s, between completion times that count as equal
)

// withoutSimGrid returns the reason why SimGrid cannot run, or nil.
func withoutSimGrid(ctx context.Context) error {
	if out, err := exec.CommandContext(ctx, python, "-c", "import simgrid").CombinedOutput(); err != nil {
		return fmt.Errorf("%s has no simgrid (%s): apt-get install --no-install-recommends python3-simgrid", python,
			lastLine(fmt.Sprintf("%v\n%s", err, out)))
	}
	return nil
}

// simulations compares the processor time for the simulation of max-min fair flows with that of SimGrid.
// It is an error if the completion times differ.
func simulations(ctx context.Context, rounds int, dir string) (row, error) {
	testbed, trace, times := filepath.Join(dir, "testbed"), filepath.Join(dir, "trace.txt"), filepath.Join(dir, "times.csv")
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", testbed, ".").CombinedOutput(); err != nil {
		return row{}, fmt.Errorf("build testbed: %w\n%s", err, out)
	}
	flows, err := writeTrace(trace)
	if err != nil {
		return row{}, err
	}
	took := map[string][]float64{}
	user := func(name string, args ...string) (string, error) {
		cmd := exec.CommandContext(ctx, name, args...)
		var errs strings.Builder
		cmd.Stderr = &errs
		out, err := cmd.Output()
		if err != nil {
			return "", fmt.Errorf("simulate %d flows with %s: %w\n%s", flows, filepath.Base(name), err, errs.String())
		}
		took[name] = append(took[name], 1000*cmd.ProcessState.UserTime().Seconds())
		return string(out), nil
	}
	var most float64
	for i := range rounds {
		fmt.Fprintf(os.Stderr, "round %d of %d, %d simulated flows\n", i+1, rounds, flows)
		if _, err := user(testbed, "trace", "simulate", trace, "--rate", strconv.Itoa(simRate)+"bps", "-p", "fair",
			"--coflows-csv", times); err != nil {
			return row{}, err
		}
		out, err := user(python, filepath.Join("scripts", "bench", "simgrid_flows.py"), trace, strconv.Itoa(simRate))
		if err != nil {
			return row{}, err
		}
		ours, err := safefile.Read(times)
		if err != nil {
			return row{}, err
		}
		if most, err = difference(string(ours), out); err != nil {
			return row{}, fmt.Errorf("completion times of testbed and SimGrid: %w", err)
		}
	}
	return row{
		What:    fmt.Sprintf("%d fluid flows, user CPU", flows),
		Testbed: metrics.Median(took[testbed]),
		Peer:    fmt.Sprintf("SimGrid, CCTs within %.0f ns", most*1e9),
		Other:   metrics.Median(took[python]),
		Unit:    "ms",
	}, nil
}

// writeTrace writes a trace of coflows and returns the number of its flows.
func writeTrace(path string) (int, error) {
	rng := rand.New(rand.NewPCG(1, 1))
	var b strings.Builder
	flows := 0
	fmt.Fprintf(&b, "%d %d\n", simPorts, simCoflows)
	for c := range simCoflows {
		senders, receivers := rng.Perm(simPorts)[:1+rng.IntN(simWidth)], rng.Perm(simPorts)[:1+rng.IntN(simWidth)]
		flows += len(senders) * len(receivers)
		fmt.Fprintf(&b, "%d %d %d", c+1, simEvery*c, len(senders))
		for _, p := range senders {
			fmt.Fprintf(&b, " %d", p)
		}
		fmt.Fprintf(&b, " %d", len(receivers))
		for _, p := range receivers {
			fmt.Fprintf(&b, " %d:%d.0", p, len(senders)*(1+rng.IntN(simMost))) // flows of whole megabytes
		}
		b.WriteByte('\n')
	}
	return flows, safefile.WriteData(path, []byte(b.String()))
}

// difference returns the largest difference in seconds between the completion times in testbed's table
// of coflows and those in lines of a number, a comma and seconds. It is an error if the coflows are not
// the same or a difference is above simEqual.
func difference(table, lines string) (float64, error) {
	rows, err := csv.NewReader(strings.NewReader(table)).ReadAll()
	if err != nil {
		return 0, err
	}
	at := map[string]int{}
	if len(rows) > 0 {
		for i, name := range rows[0] {
			at[name] = i
		}
	}
	id, hasID := at["coflow"]
	cct, hasTime := at["cct_s"]
	if !hasID || !hasTime {
		return 0, errors.New("the table has no columns coflow and cct_s")
	}
	want := map[string]float64{}
	for _, r := range rows[1:] {
		if want[r[id]], err = strconv.ParseFloat(r[cct], 64); err != nil {
			return 0, err
		}
	}
	most := 0.0
	read := csv.NewReader(strings.NewReader(lines))
	for {
		r, err := read.Read()
		if err == io.EOF {
			break
		}
		if err != nil {
			return 0, err
		}
		if len(r) != 2 {
			return 0, fmt.Errorf("%q: expected a number and a time", r)
		}
		got, err := strconv.ParseFloat(r[1], 64)
		if err != nil {
			return 0, err
		}
		ours, known := want[r[0]]
		if !known {
			return 0, fmt.Errorf("coflow %q: not in the table, or twice", r[0])
		}
		delete(want, r[0])
		most = max(most, math.Abs(got-ours))
		if !(most <= simEqual) {
			return 0, fmt.Errorf("coflow %s: %v s and %v s: must differ by at most %v s", r[0], ours, got, simEqual)
		}
	}
	if len(want) > 0 {
		return 0, fmt.Errorf("%d coflows are missing", len(want))
	}
	return most, nil
}
