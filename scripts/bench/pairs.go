package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"testbed/results/metrics"
	"testbed/results/safefile"
)

// Pairs of hosts of one rack, each with a flow at the rate of its links.
const (
	pairs      = 32
	pairMbps   = 20
	pairMB     = 12 // of a flow, which takes about 5 s
	pairPort   = 7000
	pairStart  = 8 * time.Second // until all programs in C have started
	pairWindow = 4 * time.Second // of a flow, in which the processors are read
	pairSample = 250 * time.Millisecond
	pairName   = "bench-pairs"
)

// load compares the share of the processors that a run takes on its flows, with captures and all checks, with that
// of a sender and a receiver in C for each flow, on the same fabric.
func load(ctx context.Context, rounds int, dir string) (row, error) {
	in := func(name string) string { return filepath.Join(dir, name) }
	testbed, program, scenario := in("testbed"), in("pairs"), in("pairs.yaml")
	var trace strings.Builder
	fmt.Fprintf(&trace, "%d %d\n", 2*pairs, pairs)
	for i := range pairs {
		fmt.Fprintf(&trace, "%d 0 1 %d 1 %d:%d\n", i+1, i, pairs+i, pairMB)
	}
	text := fmt.Sprintf(`name: %s
fabric: {leaves: 1, spines: 0, hosts_per_leaf: %d, host_link: %dMbps, queue: 40ms}
workload: [{kind: trace, path: pairs.txt, mb: MB}]
arms: {coflow: [fair]}
`, pairName, 2*pairs, pairMbps)
	err := errors.Join(safefile.WriteData(scenario, []byte(text)), safefile.WriteData(in("pairs.txt"),
		[]byte(trace.String())))
	if err != nil {
		return row{}, err
	}
	source := filepath.Join("scripts", "bench", "testdata", "pairs.c")
	for _, build := range [][]string{{"cc", "-O2", "-o", program, source}, {"go", "build", "-o", testbed, "."}} {
		if out, err := exec.CommandContext(ctx, build[0], build[1:]...).CombinedOutput(); err != nil {
			return row{}, fmt.Errorf("%s: %w\n%s", strings.Join(build, " "), err, out)
		}
	}
	var ours, bare []float64
	for i := range rounds {
		fmt.Fprintf(os.Stderr, "round %d of %d, %d flows of %d Mbps\n", i+1, rounds, pairs, pairMbps)
		share, err := ofRun(ctx, testbed, scenario, in("runs"))
		if err != nil {
			return row{}, err
		}
		ours = append(ours, share)
		if share, err = ofPrograms(ctx, testbed, program, scenario, in("state")); err != nil {
			return row{}, err
		}
		bare = append(bare, share)
	}
	return row{What: fmt.Sprintf("%d flows of %d Mbps, busy", pairs, pairMbps), Testbed: metrics.Median(ours),
		Peer: "senders and receivers in C", Other: metrics.Median(bare), Unit: "% of CPUs"}, nil
}

// ofRun returns the share of the processors in percent, the median over the time of a run, of which most are its
// flows.
func ofRun(ctx context.Context, testbed, scenario, to string) (float64, error) {
	cmd := exec.CommandContext(ctx, testbed, "run", scenario, "-q", "--json", "--force", "--captures", "drop", "-o", to)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 30 * time.Second
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	var shares []float64
	for {
		before, err := jiffies()
		if err != nil {
			return 0, errors.Join(err, cmd.Cancel(), <-ended)
		}
		select {
		case err := <-ended:
			const void = 3 // exit code of a run whose verdict is void
			if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() == void {
				err = nil
			}
			return metrics.Median(shares), err
		case <-time.After(pairSample):
		}
		after, err := jiffies()
		if err != nil {
			return 0, errors.Join(err, cmd.Cancel(), <-ended)
		}
		shares = append(shares, busy(before, after))
	}
}

// ofPrograms returns the share of the processors in percent, while programs in C send and receive on hosts of a
// fabric.
func ofPrograms(ctx context.Context, testbed, program, scenario, state string) (share float64, err error) {
	run := func(ctx context.Context, args ...string) error {
		cmd := exec.CommandContext(ctx, testbed, append(args, "--state-dir", state)...)
		if args[0] == "exec" {
			cmd = exec.CommandContext(ctx, testbed, append([]string{"--state-dir", state}, args...)...)
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w\n%s", strings.Join(args, " "), err, out)
		}
		return nil
	}
	if err := run(ctx, "up", scenario, "--name", pairName, "-q"); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, run(context.WithoutCancel(ctx), "down", pairName, "-q")) }()
	at := time.Now().Add(pairStart).Truncate(time.Second)
	size := strconv.Itoa(pairMB * 1_000_000)
	var all errgroup.Group
	for i := range pairs {
		all.Go(func() error {
			return run(ctx, "exec", fmt.Sprintf("h0-%02d", pairs+i), "--", program, "receive",
				strconv.Itoa(pairPort), size)
		})
		all.Go(func() error {
			return run(ctx, "exec", fmt.Sprintf("h0-%02d", i), "--", program, "send",
				fmt.Sprintf("10.0.%d.1", pairs+i), strconv.Itoa(pairPort), size,
				strconv.FormatInt(at.Unix(), 10))
		})
	}
	time.Sleep(time.Until(at.Add(500 * time.Millisecond)))
	before, err := jiffies()
	if err == nil {
		time.Sleep(pairWindow)
		var after [2]float64
		after, err = jiffies()
		share = busy(before, after)
	}
	return share, errors.Join(err, all.Wait())
}

func busy(before, after [2]float64) float64 {
	return 100 * (after[0] - before[0]) / (after[1] - before[1])
}

// jiffies returns the times for which the processors were busy, and all, since the machine started.
func jiffies() (times [2]float64, err error) {
	b, err := safefile.Read("/proc/stat")
	if err != nil {
		return times, err
	}
	line, _, _ := strings.Cut(string(b), "\n")
	for i, field := range strings.Fields(line)[1:9] { // without those of guests, which count as user
		x, err := strconv.ParseFloat(field, 64)
		if err != nil {
			return times, fmt.Errorf("/proc/stat: %w", err)
		}
		if times[1] += x; i != 3 && i != 4 { // idle, iowait
			times[0] += x
		}
	}
	return times, nil
}
