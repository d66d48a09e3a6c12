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
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

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
	paper expected
	trace *workloads.Trace
	began time.Time
	*suite.Report
	program suite.Program
}

type options struct {
	trace, dir, binary, expected string
	only                         string
	coflows                      int
	seed                         uint64
	repeat                       int
}

func main() {
	var o options
	flag.StringVar(&o.trace, "trace", "", "coflow trace; without it one is generated that is like the public one")
	flag.StringVar(&o.dir, "dir", filepath.Join("runs", "philae-"+time.Now().Format("20060102-150405")), "directory to write to, which must not exist")
	flag.StringVar(&o.binary, "testbed", filepath.Join("bin", "testbed"), "the program, for the part on packets")
	flag.StringVar(&o.expected, "expected", filepath.Join("scripts", "philae", "expected.yaml"), "the paper's figures")
	flag.StringVar(&o.only, "only", "", "parts to run, with commas between them: "+partNames()+" (all)")
	flag.IntVar(&o.coflows, "coflows", 0, "only so many coflows from the start of the trace, in the parts that are computed; 0 is all")
	flag.Uint64Var(&o.seed, "seed", 1, "of what is drawn: the generated trace, skew among mappers, jobs")
	flag.IntVar(&o.repeat, "repeat", 5, "repeats on packets")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "philae: argument %q: want flags alone (-help lists them)\n", flag.Arg(0))
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, o, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "philae:", err)
		os.Exit(1)
	}
}

func partNames() string {
	var names []string
	for _, p := range parts {
		names = append(names, p.name)
	}
	return strings.Join(names, ", ")
}

// chosen are the parts that only names.
func chosen(only string) (func(string) bool, error) {
	if only == "" {
		return func(string) bool { return true }, nil
	}
	names := strings.Split(only, ",")
	for _, n := range names {
		if !slices.Contains(strings.Split(partNames(), ", "), n) {
			return nil, fmt.Errorf("-only %q: no part %q: parts are %s", only, n, partNames())
		}
	}
	return func(name string) bool { return slices.Contains(names, name) }, nil
}

func run(ctx context.Context, o options, stdout io.Writer) (err error) {
	want, err := chosen(o.only)
	if err != nil {
		return err
	}
	if o.coflows < 0 || o.repeat < 1 {
		return fmt.Errorf("-coflows %d, -repeat %d: want 0 or more, and 1 or more", o.coflows, o.repeat)
	}
	s := &philae{options: o, began: time.Now(), program: suite.Program{Path: o.binary, Dir: o.dir}}
	if s.paper, err = readExpected(o.expected); err != nil {
		return err
	}
	if err := s.read(); err != nil {
		return err
	}
	if want("packets") && os.Geteuid() != 0 {
		return errors.New("the part on packets needs root: run it with sudo, or without it by -only table,derived,sensitivity,learning")
	}
	if err := os.MkdirAll(filepath.Dir(o.dir), 0o755); err != nil {
		return err
	}
	if err := os.Mkdir(o.dir, 0o755); err != nil {
		return fmt.Errorf("%w: want a directory that is not there yet (-dir)", err)
	}
	report, err := os.Create(filepath.Join(o.dir, "report.md"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, report.Close()) }()
	s.Report = suite.NewReport(io.MultiWriter(stdout, report))
	for _, p := range parts {
		if !want(p.name) {
			continue
		}
		s.Say("## %s\n", strings.ToUpper(p.doc[:1])+p.doc[1:])
		if err := p.run(s, ctx); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		s.Reasons(s.paper.Reasons, p.name)
	}
	s.Say("All of it took %v. Report: %s\n", time.Since(s.began).Round(time.Second), report.Name())
	return s.Err()
}

// read gets the trace, or generates one.
func (s *philae) read() error {
	if s.options.trace == "" {
		t, err := workloads.Facebook{}.Generate(s.seed)
		if err != nil {
			return err
		}
		s.trace = t
		return nil
	}
	f, err := os.Open(s.options.trace)
	if err != nil {
		return err
	}
	defer f.Close() // only read from
	s.trace, _, _, err = workloads.ReadTrace(s.options.trace, f, "")
	return err
}
