package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"testbed/emu/deploy"
	"testbed/emu/guest"
	"testbed/emu/runner"
	"testbed/results/safefile"
)

// computing are the verbs that change nothing on the machine but the files that they
// write at their end, and those that begin so and then call effects.
var computing = []string{"run", "sim", "demo", "suite", "validate", "plan", "report", "compare", "plot", "export", "pcap", "replay", "graph", "runs", "schema", "policy", "trace", "workload", "gym", "version", "help", "completion"}

// interruptGrace is the time that a computing verb has to return by itself once it is
// interrupted. A single decision of a policy, which cannot be interrupted, can take
// many seconds.
const interruptGrace = 200 * time.Millisecond

var errInterrupted = errors.New("interrupted")

// run runs the command. A computing verb ends within interruptGrace of an interrupt,
// and then never successfully; the others end by themselves, since they clean up and
// save what had ended.
func (a *app) run(ctx context.Context, root *cobra.Command) error {
	ctx = deploy.OnWait(ctx, func(text string) { fmt.Fprintln(a.stderr, "note:", text) })
	done := make(chan error, 1)
	go func() { done <- root.ExecuteContext(ctx) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	a.mu.Lock()
	a.abandoned = a.computes
	a.mu.Unlock()
	if !a.abandoned {
		return <-done
	}
	select {
	case <-done:
	case <-time.After(interruptGrace):
	}
	return fmt.Errorf("%w: %w", errInterrupted, context.Cause(ctx))
}

// effects begins the part of a verb that changes the machine or saves as it goes, and
// that therefore ends by itself. The error is that of a verb that was interrupted
// before.
func (a *app) effects() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.computes = false
	if a.abandoned {
		return errInterrupted
	}
	return nil
}

// Process runs the command line of this process and returns the exit code. The first
// SIGINT, SIGTERM, SIGHUP or SIGQUIT ends the verb in order, a second one the process
// at once. No temporary file is left.
func Process() int {
	guest.First()
	if guest.Inside() {
		if err := runner.Guest(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, "testbed:", err)
		}
		return 0
	}
	ctx, stop := signal.NotifyContext(context.Background(), interrupts(os.Getenv("GOTRACEBACK"))...)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	code := Main(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	safefile.Seal()
	return code
}

// interrupts are the signals that end a verb. Where GOTRACEBACK asks for traces,
// SIGQUIT is left to the runtime, which prints them.
func interrupts(traceback string) []os.Signal {
	all := []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP}
	if slices.Contains([]string{"", "none", "0"}, traceback) {
		all = append(all, syscall.SIGQUIT)
	}
	return all
}
