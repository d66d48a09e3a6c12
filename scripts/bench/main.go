// Command bench compares testbed with other programs and with limits, on this machine: the time to
// build, check and remove a fabric with bare netlink requests for the same kernel objects and with
// Mininet (Linux bridges and TBF links of the same shape), the rate at which a capture is read with
// tshark, the processor time for the simulation of max-min fair flows with SimGrid, which must have the
// same results, and the share of the processors that flows of a run take with senders and receivers in C. They take
// turns, so that other load of the machine affects all of them. It needs root and the Go toolchain. Run it from the
// root of the repository:
//
//	make bench
//
// It prints tables of medians, or JSON with -json, and names what is not installed. It has no pass or
// fail criterion.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
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
	Hosts  int                  `json:"hosts"`
	Rounds map[string][]float64 `json:"rounds_ms"`
	Median map[string]float64   `json:"median_ms"`
}

// row compares testbed with a peer or a limit.
type row struct {
	What    string  `json:"what"`
	Testbed float64 `json:"testbed"`
	Peer    string  `json:"peer"`
	Other   float64 `json:"of_peer"`
	Unit    string  `json:"unit"`
	Ratio   float64 `json:"ratio"`
}

// output is what is printed.
type output struct {
	Rows    []row     `json:"rows"`
	Missing []string  `json:"missing,omitempty"`
	Builds  []*result `json:"builds"`
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
	compile := exec.CommandContext(ctx, "go", "test", "-c", "-o", binary, "./emu/kernel")
	if out, err := compile.CombinedOutput(); err != nil {
		return fmt.Errorf("build the benchmark of emu/kernel: %w\n%s", err, out)
	}
	results := []*result{{Hosts: leaves * hostsPerLeaf}}
	if big {
		results = append(results, &result{Hosts: 1000})
	}
	out := output{Builds: results}
	missing := func(what string, why error) {
		out.Missing = append(out.Missing, fmt.Sprintf("NOT COMPARED WITH %s: %v", what, why))
		fmt.Fprintf(os.Stderr, "bench: %s\n", out.Missing[len(out.Missing)-1])
	}
	noMininet := withoutMininet(ctx)
	if noMininet != nil {
		missing("MININET", noMininet)
	}
	for _, r := range results {
		r.Rounds = map[string][]float64{}
		for i := range rounds {
			fmt.Fprintf(os.Stderr, "round %d of %d, %d hosts\n", i+1, rounds, r.Hosts)
			if err := r.testbed(ctx, binary); err != nil {
				return err
			}
			if r.Hosts == leaves*hostsPerLeaf && noMininet == nil {
				if err := r.mininet(ctx); err != nil {
					return err
				}
			}
		}
		r.Median = map[string]float64{}
		for name, v := range r.Rounds {
			r.Median[name] = metrics.Median(v)
		}
		out.Rows = append(out.Rows, r.rows()...)
	}
	if _, err := exec.LookPath("tshark"); err != nil {
		missing("TSHARK", errors.New("not installed: apt-get install --no-install-recommends tshark"))
	} else if r, err := captures(ctx, rounds); err != nil {
		return err
	} else {
		out.Rows = append(out.Rows, r)
	}
	if err := withoutSimGrid(ctx); err != nil {
		missing("SIMGRID", err)
	} else if r, err := simulations(ctx, rounds, dir); err != nil {
		return err
	} else {
		out.Rows = append(out.Rows, r)
	}
	if _, err := exec.LookPath("cc"); err != nil {
		missing("A RECEIVER IN C", errors.New("no compiler: apt-get install --no-install-recommends gcc libc6-dev"))
	} else if r, err := load(ctx, rounds, dir); err != nil {
		return err
	} else {
		out.Rows = append(out.Rows, r)
	}
	for i, r := range out.Rows {
		out.Rows[i].Ratio = r.Testbed / r.Other
	}
	if asJSON {
		enc := json.NewEncoder(os.Stdout)
		enc.SetIndent("", "  ")
		return enc.Encode(out)
	}
	for _, r := range results {
		r.print()
	}
	fmt.Printf("%-30s %12s   %-34s %12s %-10s %6s\n", "medians", "testbed", "peer or limit", "", "", "ratio")
	for _, r := range out.Rows {
		fmt.Printf("%-30s %12.1f   %-34s %12.1f %-10s %6.2f\n", r.What, r.Testbed, r.Peer, r.Other, r.Unit, r.Ratio)
	}
	for _, m := range out.Missing {
		fmt.Println(m)
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
	cmd := exec.CommandContext(ctx, binary, "-test.run", "^$", "-test.bench",
		fmt.Sprintf("^BenchmarkBuild$/^hosts=%d$", r.Hosts), "-test.benchtime", "1x")
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

// rows compares the medians of a fabric's times.
func (r *result) rows() (list []row) {
	for _, x := range []struct{ what, testbed, peer, other string }{
		{"up", "up", "bare netlink, one thread", "bare-up"},
		{"up", "up", "bare netlink, as many threads", "bare-parallel-up"},
		{"up and checked", "checked", "bare netlink, one thread", "bare-up"},
		{"removed and freed", "gone", "bare netlink", "bare-down"},
		{"up", "up", "Mininet, started", "mininet-up"},
		{"removed and freed", "gone", "Mininet, stopped", "mininet-down"},
	} {
		ours, other := r.Median[x.testbed], r.Median[x.other]
		if x.testbed == "checked" {
			ours = r.Median["up"] + r.Median["check"]
		}
		if other > 0 {
			list = append(list, row{What: fmt.Sprintf("%d hosts, %s", r.Hosts, x.what), Testbed: ours, Peer: x.peer,
				Other: other, Unit: "ms"})
		}
	}
	return list
}

var rate = regexp.MustCompile(`/(tshark|testbed)-?\d*\s.* ([0-9.e+]+) packets/s`)

// captures compares the rate at which one processor reads a capture with that of tshark.
func captures(ctx context.Context, rounds int) (row, error) {
	out, err := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-bench",
		"^BenchmarkCapture$/^snap=96$/^(tshark|testbed)$",
		"-benchtime", "1x", "-count", strconv.Itoa(rounds), "./results/flows").CombinedOutput()
	if err != nil {
		return row{}, fmt.Errorf("benchmark of results/flows: %w\n%s", err, out)
	}
	found := map[string][]float64{}
	for _, m := range rate.FindAllStringSubmatch(strings.ReplaceAll(string(out), "\t", " "), -1) {
		v, err := strconv.ParseFloat(m[2], 64)
		if err != nil {
			return row{}, fmt.Errorf("benchmark of results/flows: %w", err)
		}
		found[m[1]] = append(found[m[1]], v)
	}
	if len(found) != 2 {
		return row{}, fmt.Errorf("benchmark of results/flows: no rates in\n%s", out)
	}
	return row{What: "a capture, one processor", Testbed: metrics.Median(found["testbed"]), Peer: "tshark -z conv,tcp",
		Other: metrics.Median(found["tshark"]), Unit: "packets/s"}, nil
}

// meanings are the rows of the table, in order.
var meanings = []struct{ name, what string }{
	{"up", "testbed, built"},
	{"check", "testbed, verified and probed"},
	{"down", "testbed, removed"},
	{"gone", "testbed, removed and freed by the kernel"},
	{"bare-up", "bare netlink, built on one thread"},
	{"bare-parallel-up", "bare netlink, built on as many threads"},
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
	fmt.Println()
}
