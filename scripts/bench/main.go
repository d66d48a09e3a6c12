// Command bench measures the time to build and remove a fabric: with testbed, with bare
// netlink requests for the same kernel objects and, if it is installed, with Mininet (Linux
// bridges and TBF links of the same shape). The three take turns, so that other load of the
// machine affects all of them. It needs root and the Go toolchain. Run it from the root of
// the repository:
//
//	make bench-build
//
// It prints a table of medians, or JSON with -json, and reports if Mininet is missing. It
// has no pass or fail criterion.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testbed/results/metrics"
	"time"
)

// The shape of BenchmarkBuild/hosts=100 in emu/kernel.
const leaves, hostsPerLeaf, mbps = 10, 10, 20

// python is Debian's interpreter, which finds the packages of Debian.
const python = "/usr/bin/python3"

// result has the times of all rounds, in milliseconds.
type result struct {
	Hosts   int                  `json:"hosts"`
	Rounds  map[string][]float64 `json:"rounds_ms"`
	Median  map[string]float64   `json:"median_ms"`
	Ratios  map[string]float64   `json:"ratios"`
	Missing []string             `json:"missing,omitempty"`
}

func main() {
	rounds := flag.Int("rounds", 5, "number of rounds")
	big := flag.Bool("big", false, "also build 1,000 hosts (without Mininet)")
	asJSON := flag.Bool("json", false, "print JSON")
	timeout := flag.Duration("timeout", 10*time.Minute, "limit of the total time")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	ctx, cancel := context.WithTimeout(ctx, *timeout)
	err := run(ctx, *rounds, *big, *asJSON)
	cancel()
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, rounds int, big, asJSON bool) (err error) {
	if rounds < 1 {
		return fmt.Errorf("-rounds %d: must be 1 or more", rounds)
	}
	if os.Geteuid() != 0 {
		return errors.New("namespaces need root: use sudo")
	}
	dir, err := os.MkdirTemp("", "testbed-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	binary := filepath.Join(dir, "kernel.test")
	if out, err := exec.CommandContext(ctx, "go", "test", "-c", "-o", binary, "./emu/kernel").CombinedOutput(); err != nil {
		return fmt.Errorf("build the benchmark of emu/kernel: %w\n%s", err, out)
	}
	results := []*result{{Hosts: leaves * hostsPerLeaf}}
	if big {
		results = append(results, &result{Hosts: 1000})
	}
	missing := withoutMininet(ctx)
	for _, r := range results {
		r.Rounds = map[string][]float64{}
		mininet := r.Hosts == leaves*hostsPerLeaf
		if missing != nil && mininet {
			r.Missing = append(r.Missing, missing.Error())
			fmt.Fprintf(os.Stderr, "bench: NOT COMPARED WITH MININET: %v\n", missing)
		}
		for i := range rounds {
			fmt.Fprintf(os.Stderr, "round %d of %d, %d hosts\n", i+1, rounds, r.Hosts)
			if err := r.testbed(ctx, binary); err != nil {
				return err
			}
			if mininet && missing == nil {
				if err := r.mininet(ctx); err != nil {
					return err
				}
			}
		}
		r.summarise()
	}
	if asJSON {
		enc := json.NewEncoder(os.Stdout)
		enc.SetIndent("", "  ")
		return enc.Encode(results)
	}
	for _, r := range results {
		r.print()
	}
	return nil
}

// withoutMininet returns the reason why Mininet cannot run, or nil.
func withoutMininet(ctx context.Context) error {
	const install = "apt-get install --no-install-recommends mininet bridge-utils"
	for _, tool := range []string{python, "mnexec", "brctl", "tc", "unshare"} {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("%s is not installed: %s", tool, install)
		}
	}
	if out, err := exec.CommandContext(ctx, python, "-c", "import mininet.net").CombinedOutput(); err != nil {
		return fmt.Errorf("%s has no mininet (%s): %s", python, lastLine(string(out)), install)
	}
	return nil
}

func lastLine(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return lines[len(lines)-1]
}

var metric = regexp.MustCompile(`([0-9.]+) ([a-z-]+)-ms\b`)

// testbed runs one round of testbed and of bare netlink requests.
func (r *result) testbed(ctx context.Context, binary string) error {
	cmd := exec.CommandContext(ctx, binary, "-test.run", "^$", "-test.bench", fmt.Sprintf("^BenchmarkBuild$/^hosts=%d$", r.Hosts), "-test.benchtime", "1x")
	cmd.Env = append(os.Environ(), "TESTBED_PRIVILEGED=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("benchmark of emu/kernel: %w\n%s", err, out)
	}
	found := metric.FindAllStringSubmatch(string(out), -1)
	if len(found) == 0 {
		return fmt.Errorf("benchmark of emu/kernel: no figures in\n%s", out)
	}
	for _, m := range found {
		v, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			return fmt.Errorf("benchmark of emu/kernel: %w", err)
		}
		r.Rounds[m[2]] = append(r.Rounds[m[2]], v)
	}
	return nil
}

// mininet runs one round of Mininet, in a network namespace of its own.
func (r *result) mininet(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, "unshare", "-n", python, filepath.Join("scripts", "bench", "mininet_build.py"),
		strconv.Itoa(leaves), strconv.Itoa(hostsPerLeaf), strconv.Itoa(mbps))
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // so that it stops its hosts' shells
	cmd.WaitDelay = 30 * time.Second
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("mininet: %w\n%s", err, errs.String())
	}
	var took struct {
		Up   float64 `json:"up_s"`
		Down float64 `json:"down_s"`
	}
	if err := json.Unmarshal([]byte(lastLine(string(out))), &took); err != nil {
		return fmt.Errorf("mininet: %w in %q", err, out)
	}
	r.Rounds["mininet-up"] = append(r.Rounds["mininet-up"], 1000*took.Up)
	r.Rounds["mininet-down"] = append(r.Rounds["mininet-down"], 1000*took.Down)
	return nil
}

func (r *result) summarise() {
	r.Median, r.Ratios = map[string]float64{}, map[string]float64{}
	for name, v := range r.Rounds {
		r.Median[name] = metrics.Median(v)
	}
	ratio := func(name, over, under string) {
		if a, b := r.Median[over], r.Median[under]; a > 0 && b > 0 {
			r.Ratios[name] = a / b
		}
	}
	ratio("up / bare netlink", "up", "bare-up")
	ratio("gone / bare netlink", "gone", "bare-down")
	ratio("Mininet up / up", "mininet-up", "up")
	ratio("Mininet down / down", "mininet-down", "down")
	ratio("Mininet down / gone", "mininet-down", "gone")
}

// meanings are the rows of the table, in order.
var meanings = []struct{ name, what string }{
	{"up", "testbed, built"},
	{"check", "testbed, verified and probed"},
	{"down", "testbed, removed"},
	{"gone", "testbed, removed and freed by the kernel"},
	{"bare-up", "bare netlink, built"},
	{"bare-down", "bare netlink, removed and freed by the kernel"},
	{"mininet-up", "Mininet, started"},
	{"mininet-down", "Mininet, stopped"},
}

func (r *result) print() {
	fmt.Printf("%d hosts, milliseconds\n%-50s %8s %8s %8s %3s\n", r.Hosts, "", "median", "min", "max", "n")
	for _, m := range meanings {
		if v := r.Rounds[m.name]; len(v) > 0 {
			fmt.Printf("%-50s %8.1f %8.1f %8.1f %3d\n", m.what, r.Median[m.name], slices.Min(v), slices.Max(v), len(v))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.Ratios)) {
		fmt.Printf("%-50s %8.2f\n", name, r.Ratios[name])
	}
	for _, m := range r.Missing {
		fmt.Printf("NOT COMPARED WITH MININET: %s\n", m)
	}
	fmt.Println()
}
