// Command sinbad compares block placement by Sinbad (Chowdhury, Kandula and Stoica,
// SIGCOMM 2013) with its baselines: on packets with and without oversubscription, and on
// the fluid model with up to the paper's 3,000 machines. It prints each figure next to the
// paper's, the range that is expected at this scale, and the reason. docs/sinbad.md explains
// the results.
//
// Run it from the root of the repository:
//
//	make suite-sinbad
//
// The parts on packets need root. All output is in one directory.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"

	"testbed/scripts/suite"
)

// options are the flags.
type options struct {
	suite.Options
	fluid    bool
	measured bool // run the part sensitivity on packets
}

// sinbad is one run of the suite.
type sinbad struct {
	options
	*suite.Report
	program suite.Program
	want    []figure
	got     map[string]measured // by figure's ID
}

func main() {
	var o options
	o.Flags("sinbad", partNames())
	flag.BoolVar(&o.fluid, "fluid", false, "run all parts only on the fluid model, which needs no root")
	flag.BoolVar(&o.measured, "measured", false, "run the part sensitivity on packets instead of the fluid model (40 minutes with 5 repeats)")
	suite.Main("sinbad", func(ctx context.Context, stdout io.Writer) error { return run(ctx, o, stdout) })
}

func run(ctx context.Context, o options, stdout io.Writer) (err error) {
	chosen, err := o.Chosen(partNames())
	if err != nil {
		return err
	}
	s := &sinbad{options: o, program: o.Program(), got: map[string]measured{}}
	run := slices.DeleteFunc(slices.Clone(parts), func(p part) bool { return !slices.Contains(chosen, p.name) })
	if o.fluid && o.measured {
		return errors.New("-fluid and -measured: expected at most one of them")
	}
	packets := slices.ContainsFunc(run, func(p part) bool { return p.packets && !o.fluid || p.name == "sensitivity" && o.measured })
	if packets && os.Geteuid() != 0 {
		return errors.New("the parts on packets need root: use sudo, or only the fluid model (-fluid)")
	}
	if s.want, err = readExpected(o.Expected); err != nil {
		return err
	}
	if s.Report, err = o.Begin(stdout); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.End()) }()
	var void error
	for _, p := range run {
		s.Part(p.title)
		s.Say("%s\n", p.doc)
		err := p.run(s, ctx, p)
		if err != nil && !errors.Is(err, suite.ErrVoid) {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		void = errors.Join(void, err)
	}
	if err := s.verdicts(); err != nil {
		return err
	}
	s.Done()
	return void
}
