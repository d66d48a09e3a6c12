// Command philae compares the coflow schedulers of the Philae paper (Jajoo, Hu and
// Lin, USENIX ATC 2019) and those before and after it: on a whole trace by arithmetic,
// and on packets on two fabrics. Beside every figure that the paper has it prints the
// paper's, and where they differ, why. docs/philae.md explains it.
//
// It is run from the root of the repository:
//
//	make suite-philae
//
// The part on packets needs root. Everything it writes goes into one directory.
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
	"testbed/workloads"
)

// parts are what the suite is made of, in order.
var parts = []struct {
	name, doc string
	run       func(*philae, context.Context) error
}{
	{"table", "every policy on the whole trace", (*philae).table},
	{"derived", "the traces derived from it: low skew filtered, skewed mappers, wide coflows alone, six side by side", (*philae).derived},
	{"sensitivity", "Philae's parameters: T, Q0, E and pilots", (*philae).sensitivity},
	{"learning", "how well and how soon sizes are learned", (*philae).learning},
	{"packets", "the policies on packets, beside the fluid model", (*philae).packets},
}

// philae is one run of the suite.
type philae struct {
	options
	*suite.Report
	program suite.Program
	paper   expected
	trace   *workloads.Trace
}

type options struct {
	suite.Options
	from    string // the trace's file
	coflows int
	seed    uint64
}

func main() {
	var o options
	o.Flags("philae", partNames())
	flag.StringVar(&o.from, "trace", "", "coflow trace; without it one is generated that is like the public one")
	flag.IntVar(&o.coflows, "coflows", 0, "only so many coflows from the start of the trace, in the parts that are computed; 0 is all")
	flag.Uint64Var(&o.seed, "seed", 1, "of what is drawn: the generated trace, skew among mappers, jobs")
	suite.Main("philae", func(ctx context.Context, stdout io.Writer) error { return run(ctx, o, stdout) })
}

func partNames() []string {
	var names []string
	for _, p := range parts {
		names = append(names, p.name)
	}
	return names
}

func run(ctx context.Context, o options, stdout io.Writer) (err error) {
	chosen, err := o.Chosen(partNames())
	if err != nil {
		return err
	}
	if o.coflows < 0 {
		return fmt.Errorf("-coflows %d: want 0 or more", o.coflows)
	}
	s := &philae{options: o, program: o.Program()}
	if s.paper, err = readExpected(o.Expected); err != nil {
		return err
	}
	if err := s.read(); err != nil {
		return err
	}
	if slices.Contains(chosen, "packets") && os.Geteuid() != 0 {
		return errors.New("the part on packets needs root: run it with sudo, or without it by -only table,derived,sensitivity,learning")
	}
	if s.Report, err = o.Begin(stdout); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.End()) }()
	for _, p := range parts {
		if !slices.Contains(chosen, p.name) {
			continue
		}
		s.Part(p.doc)
		if err := p.run(s, ctx); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		s.Reasons(s.paper.Reasons, p.name)
	}
	s.Done()
	return nil
}

// read gets the trace, or generates one.
func (s *philae) read() error {
	if s.from == "" {
		t, err := workloads.Facebook{}.Generate(s.seed)
		if err != nil {
			return err
		}
		s.trace = t
		return nil
	}
	f, err := os.Open(s.from)
	if err != nil {
		return err
	}
	defer f.Close() // only read from
	s.trace, _, _, err = workloads.ReadTrace(s.from, f, "")
	return err
}
