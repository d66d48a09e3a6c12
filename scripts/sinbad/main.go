// Command sinbad compares block placement by Sinbad (Chowdhury, Kandula and Stoica,
// SIGCOMM 2013) with its baselines: on packets with and without oversubscription, and on
// the fluid model with up to the paper's 3,000 machines. claims.yaml has the paper's claims;
// docs/sinbad.md explains the results.
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
	"io"
	"slices"

	"testbed/scripts/suite"
)

// options are the flags.
type options struct {
	suite.Options
	measured bool // run the part sensitivity on packets
}

// sinbad is one run of the suite.
type sinbad struct {
	options
	*suite.Report
	program suite.Program
	claims  *suite.Claims
}

func main() {
	var o options
	o.Flags("sinbad", partNames())
	o.FluidFlag()
	flag.BoolVar(&o.measured, "measured", false, "run the part sensitivity on packets instead of the fluid model (40 minutes with 5 repeats)")
	suite.Main("sinbad", func(ctx context.Context, stdout io.Writer) error { return run(ctx, o, stdout) })
}

func run(ctx context.Context, o options, stdout io.Writer) error {
	chosen, err := o.Chosen(partNames())
	if err != nil {
		return err
	}
	s := &sinbad{options: o, program: o.Program()}
	run := slices.DeleteFunc(slices.Clone(parts), func(p part) bool { return !slices.Contains(chosen, p.name) })
	if o.Fluid && o.measured {
		return errors.New("-fluid and -measured: expected at most one of them")
	}
	packets := slices.ContainsFunc(run, func(p part) bool { return p.packets || p.name == "sensitivity" && o.measured })
	if err := o.NeedRoot(packets); err != nil {
		return err
	}
	if s.claims, err = suite.ReadClaims(o.Claims, partNames()); err != nil {
		return err
	}
	if o.Fluid {
		s.claims.Backend = "fluid model"
	}
	if s.Report, err = o.Begin(stdout); err != nil {
		return err
	}
	var chosenParts []suite.Part
	for _, p := range run {
		chosenParts = append(chosenParts, suite.Part{Name: p.name, Title: p.title, Run: func(ctx context.Context) error {
			s.Say("%s\n", p.doc)
			return p.run(s, ctx, p)
		}})
	}
	return s.Run(ctx, s.claims, chosenParts)
}
