// Command philae compares the coflow schedulers of the Philae paper (Jajoo, Hu and
// Lin, USENIX ATC 2019) and the schedulers before and after it: on a whole trace in the
// flow-level simulator, and on packets on two fabrics. It prints each figure next to the
// paper's, and the reasons for differences. docs/philae.md explains the results.
//
// Run it from the root of the repository:
//
//	make suite-philae
//
// The part on packets needs root. All output is in one directory.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"

	"testbed/results/safefile"
	"testbed/scripts/suite"
	"testbed/workloads"
)

// parts are the parts of the suite, in order.
var parts = []struct {
	name, doc string
	run       func(*philae, context.Context) error
}{
	{"table", "every policy on the whole trace", (*philae).table},
	{"derived", "derived traces: without low skew, with skewed mappers, wide coflows only, six copies", (*philae).derived},
	{"sensitivity", "Philae's parameters: T, Q0, E and pilots", (*philae).sensitivity},
	{"learning", "accuracy and duration of learning sizes", (*philae).learning},
	{"packets", "the policies on packets and on the fluid model", (*philae).packets},
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
	from    string // path of the trace; empty to generate one
	coflows int
	seed    uint64
}

func main() {
	var o options
	o.Flags("philae", partNames())
	flag.StringVar(&o.from, "trace", "", "`file` with a coflow trace (default: a generated trace similar to the Facebook trace)")
	flag.IntVar(&o.coflows, "coflows", 0, "use only the first N coflows of the trace, in the simulated parts (default: all)")
	flag.Uint64Var(&o.seed, "seed", 1, "seed of the generated trace, the skew among mappers, and the jobs")
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
		return fmt.Errorf("-coflows %d: must be 0 or more", o.coflows)
	}
	s := &philae{options: o, program: o.Program()}
	if s.paper, err = readExpected(o.Expected); err != nil {
		return err
	}
	if err := s.read(); err != nil {
		return err
	}
	if slices.Contains(chosen, "packets") && os.Geteuid() != 0 {
		return errors.New("the part packets needs root: use sudo, or leave it out (-only table,derived,sensitivity,learning)")
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

// read reads the trace or, without -trace, generates one.
func (s *philae) read() error {
	if s.from == "" {
		t, err := workloads.Facebook{}.Generate(s.seed)
		if err != nil {
			return err
		}
		s.trace = t
		return nil
	}
	f, err := safefile.Open(s.from)
	if err != nil {
		return err
	}
	defer f.Close()
	s.trace, _, _, err = workloads.ReadTrace(s.from, f, "")
	return err
}
