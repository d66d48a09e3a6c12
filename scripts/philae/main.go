// Command philae compares the coflow schedulers of the Philae paper (Jajoo, Hu and
// Lin, USENIX ATC 2019) and the schedulers before and after it: on a whole trace in the
// flow-level simulator, and on packets on two fabrics. claims.yaml has the paper's claims, and
// reasons for differences; docs/philae.md explains the results.
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
	claims  *suite.Claims
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

func run(ctx context.Context, o options, stdout io.Writer) error {
	chosen, err := o.Chosen(partNames())
	if err != nil {
		return err
	}
	if o.coflows < 0 {
		return fmt.Errorf("-coflows %d: must be 0 or more", o.coflows)
	}
	s := &philae{options: o, program: o.Program()}
	if s.claims, err = suite.ReadClaims(o.Claims, partNames()); err != nil {
		return err
	}
	if err := s.read(); err != nil {
		return err
	}
	s.scale()
	if slices.Contains(chosen, "packets") && os.Geteuid() != 0 {
		return errors.New("the part packets needs root: use sudo, or leave it out (-only table,derived,sensitivity,learning)")
	}
	if s.Report, err = o.Begin(stdout); err != nil {
		return err
	}
	var chosenParts []suite.Part
	for _, p := range parts {
		if slices.Contains(chosen, p.name) {
			chosenParts = append(chosenParts, suite.Part{Name: p.name, Title: p.doc, Run: func(ctx context.Context) error { return p.run(s, ctx) }})
		}
	}
	return s.Run(ctx, s.claims, chosenParts)
}

// The Facebook trace, which the claims of the simulated parts are about, has these coflows and
// ports.
const (
	facebookCoflows = 526
	facebookPorts   = 150
	facebookSize    = 35_533_534 * megabyte
)

// facebook reports whether a trace is the Facebook trace.
func facebook(t *workloads.Trace) bool {
	var size workloads.Megabytes
	for _, c := range t.Coflows {
		for _, r := range c.Reducers {
			size += r.Size
		}
	}
	return len(t.Coflows) == facebookCoflows && t.Ports == facebookPorts && size == facebookSize
}

// scale skips the claims that are about another trace or another part of it.
func (s *philae) scale() {
	why := ""
	switch {
	case s.coflows > 0 && s.coflows < len(s.trace.Coflows):
		why = fmt.Sprintf("the claim is about the whole Facebook trace, and -coflows selects %d of its coflows", s.coflows)
	case !facebook(s.trace):
		why = "the claim is about the Facebook trace, and this one is another (-trace)"
	}
	if why != "" {
		for _, part := range []string{"table/", "derived/", "learning/"} {
			s.claims.Skip(part, why)
		}
	}
	if s.from == "" {
		s.claims.Skip("packets/facebook", "the claim is about the Facebook trace (-trace)")
	} else {
		s.claims.Skip("packets/generated", "the claim is about the generated trace, without -trace")
		if !facebook(s.trace) {
			s.claims.Skip("packets/facebook", why)
		}
	}
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
