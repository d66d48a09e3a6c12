package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"testbed/workloads"
)

// scaleFlag is --check-scale: alone, "=3" or, since a flag that may stand alone
// leaves what follows it to the arguments, "3" as one of two arguments.
type scaleFlag struct {
	by  string
	set func() bool
}

// defaultScale is the factor of --check-scale without one.
const defaultScale = "2"

func (f *scaleFlag) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.by, "check-scale", "", "run every arm again with all rates and sizes divided by this `factor`, above 1, and report whether speed-ups change")
	cmd.Flags().Lookup("check-scale").NoOptDefVal = defaultScale
	f.set = func() bool { return cmd.Flags().Changed("check-scale") }
}

// args checks the arguments of a verb that takes a scenario.
func (f *scaleFlag) args(cmd *cobra.Command, args []string) error {
	if f.set() && len(args) == 2 {
		_, err := f.factor(args)
		return err
	}
	if err := exactly(1)(cmd, args); err != nil || !f.set() {
		return err
	}
	_, err := f.factor(args)
	return err
}

// at returns the index of the factor among two arguments, -1 if neither is one.
func at(args []string) int {
	for i, a := range args {
		if _, err := workloads.ParseFactor(a); err == nil && len(args) == 2 {
			return i
		}
	}
	return -1
}

func (f *scaleFlag) factor(args []string) (workloads.Factor, error) {
	text := f.by
	if i := at(args); i >= 0 {
		text = args[i]
	} else if len(args) == 2 {
		return workloads.Factor{}, usageError{fmt.Errorf("expected 1 argument, the path of a scenario, got %q and %q", args[0], args[1])}
	}
	by, err := workloads.ParseFactor(text)
	if err != nil || by.Num <= by.Den {
		return by, usageError{fmt.Errorf("--check-scale %q: must be a number above 1, such as 2 or 3/2", text)}
	}
	return by, nil
}

// split returns the path of the scenario and the factor, zero without the flag, from
// arguments that args accepted.
func (f *scaleFlag) split(args []string) (path string, by workloads.Factor) {
	if !f.set() {
		return args[0], by
	}
	by, _ = f.factor(args)
	if at(args) == 0 {
		return args[1], by
	}
	return args[0], by
}
