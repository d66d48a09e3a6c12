// Command truth compares runs in real time with runs of the same scenarios in virtual time, in which nothing
// outside disturbs a packet: the quickstart, its jobs, and scenarios that are drawn from seeds. Each scenario
// runs twice in real time, so that the differences of two equal runs are known too. It needs root, a quiet
// machine, and for virtual time qemu or a kernel of user-mode Linux. Run it from the root of the repository:
//
//	make truth TRUTH_FLAGS="-kernel bin/linux"
//
// With -aa it compares two arms that differ in their names alone instead, in pairs of trials in virtual time:
// with equal seeds, and with different ones.
//
// It keeps its runs below -o, makes only those that are missing, and prints tables in Markdown. It has no
// pass or fail criterion.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"time"
)

func main() {
	var o options
	flag.StringVar(&o.program, "testbed", "bin/testbed", "the program")
	flag.StringVar(&o.kernel, "kernel", "", "kernel of virtual time (default: as testbed run finds it)")
	flag.StringVar(&o.dir, "o", "runs/truth", "directory of scenarios and runs")
	flag.IntVar(&o.drawn, "drawn", 10, "number of drawn scenarios")
	flag.IntVar(&o.aa, "aa", 0, "compare this number of pairs of equal arms instead")
	flag.StringVar(&o.clock, "time", "", "make only the runs in real or in virtual time")
	flag.DurationVar(&o.limit, "timeout", 2*time.Hour, "limit of the total time")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	ctx, cancel := context.WithTimeout(ctx, o.limit)
	err := o.run(ctx, os.Stdout)
	cancel()
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "truth:", err)
		os.Exit(1)
	}
}

type options struct {
	program, kernel, dir, clock string
	drawn, aa                   int
	limit                       time.Duration
}

// clocks are the runs of a scenario: two in real time and one in virtual time.
var clocks = [3]string{"real", "again", virtual}

const virtual = "virtual"

func (o *options) run(ctx context.Context, w io.Writer) error {
	if o.aa > 0 {
		return o.runEqualArms(ctx, w)
	}
	scenarios := map[string]string{"quickstart": "scripts/quickstart/scenario.yaml", "jobs": "scripts/quickstart/jobs.yaml"}
	names := []string{"quickstart", "jobs"}
	for seed := range uint64(o.drawn) {
		name := fmt.Sprintf("drawn-%02d", seed)
		names = append(names, name)
		file, err := draw(filepath.Join(o.dir, name), seed, 0)
		if err != nil {
			return err
		}
		scenarios[name] = file
	}
	all := map[string][3]string{}
	for i, clock := range clocks {
		for _, name := range names {
			kind := "real"
			if clock == virtual {
				kind = virtual
			}
			dir, err := o.made(ctx, filepath.Join(o.dir, name, clock), kind, "run", scenarios[name])
			if err != nil {
				return err
			}
			dirs := all[name]
			dirs[i] = dir
			all[name] = dirs
		}
	}
	var rows []row
	for _, name := range names {
		r, err := compareRuns(name, all[name])
		if err != nil {
			return err
		}
		rows = append(rows, r...)
	}
	return write(w, append(rows, pooled(rows, "drawn-")...))
}

// exitVoid is the exit code of a run of which an arm is void.
const exitVoid = 3

// made returns the one run below a directory, which the arguments make if there is none.
func (o *options) made(ctx context.Context, under, kind string, args ...string) (string, error) {
	const latest = "latest"
	if _, err := os.Stat(under); err == nil {
		return filepath.Join(under, latest), nil
	}
	if o.clock != "" && o.clock != kind {
		return "", nil
	}
	part := under + ".part"
	if err := os.RemoveAll(part); err != nil {
		return "", err
	}
	args = append(args, "-o", part, "--captures", "drop")
	if kind == virtual {
		args = append(args, "--time", virtual)
		if o.kernel != "" {
			args = append(args, "--vm-kernel", o.kernel)
		}
	}
	fmt.Fprintln(os.Stderr, "truth:", o.program, args)
	cmd := exec.CommandContext(ctx, o.program, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = time.Minute
	cmd.Stdout, cmd.Stderr = io.Discard, os.Stderr
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !(errors.As(err, &exit) && exit.ExitCode() == exitVoid) {
		return "", fmt.Errorf("%s %v: %w", o.program, args, err)
	}
	return filepath.Join(under, latest), os.Rename(part, under)
}
