// Command sinbad compares block placement by Sinbad (Chowdhury, Kandula and Stoica,
// SIGCOMM 2013) with its baselines: on packets on oversubscribed racks and without
// oversubscription, and on the fluid model up to the paper's 3,000 machines. Beside
// every figure that the paper has it prints the paper's, what is expected at this scale,
// and why. docs/sinbad.md explains it.
//
// It is run from the root of the repository:
//
//	make suite-sinbad
//
// The parts on packets need root. Everything it writes goes into one directory.
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
)

// options are the flags.
type options struct {
	dir, binary, expected, only string
	repeat                      int
	fluid                       bool
}

// sinbad is one run of the suite.
type sinbad struct {
	options
	*suite.Report
	program suite.Program
	want    []figure
	got     map[string]measured // by figure's ID
	began   time.Time
}

func main() {
	var o options
	flag.StringVar(&o.dir, "dir", filepath.Join("runs", "sinbad-"+time.Now().Format("20060102-150405")), "directory to write to, which must not exist")
	flag.StringVar(&o.binary, "testbed", filepath.Join("bin", "testbed"), "the program")
	flag.StringVar(&o.expected, "expected", filepath.Join("scripts", "sinbad", "expected.yaml"), "the paper's figures, and those expected here")
	flag.StringVar(&o.only, "only", "", "parts to run, with commas between them: "+strings.Join(partNames(), ", ")+" (all)")
	flag.IntVar(&o.repeat, "repeat", 5, "repeats, but of the part large")
	flag.BoolVar(&o.fluid, "fluid", false, "no packets: all parts on the fluid model alone, which needs no root")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "sinbad: argument %q: want flags alone (-help lists them)\n", flag.Arg(0))
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, o, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "sinbad:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options, stdout io.Writer) (err error) {
	s := &sinbad{options: o, program: suite.Program{Path: o.binary, Dir: o.dir}, got: map[string]measured{}, began: time.Now()}
	chosen := partNames()
	if o.only != "" {
		chosen = strings.Split(o.only, ",")
	}
	packets := false
	for _, name := range chosen {
		i := slices.IndexFunc(parts, func(p part) bool { return p.name == name })
		if i < 0 {
			return fmt.Errorf("-only %q: no part %q: parts are %s", o.only, name, strings.Join(partNames(), ", "))
		}
		packets = packets || parts[i].packets && !o.fluid
	}
	if o.repeat < 1 {
		return fmt.Errorf("-repeat %d: want 1 or more", o.repeat)
	}
	if packets && os.Geteuid() != 0 {
		return errors.New("the parts on packets need root: run it with sudo, or without packets by -fluid")
	}
	if s.want, err = readExpected(o.expected); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(o.dir), 0o755); err != nil {
		return err
	}
	if err := os.Mkdir(o.dir, 0o755); err != nil {
		return fmt.Errorf("%w: want a directory that is not there yet (-dir)", err)
	}
	file, err := os.Create(filepath.Join(o.dir, "report.md"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	s.Report = suite.NewReport(io.MultiWriter(stdout, file))
	var void error
	for _, p := range parts {
		if !slices.Contains(chosen, p.name) {
			continue
		}
		s.Say("## %s\n\n%s\n", strings.ToUpper(p.title[:1])+p.title[1:], p.doc)
		err := p.run(s, ctx, p)
		if err != nil && !errors.Is(err, suite.ErrVoid) {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		void = errors.Join(void, err)
	}
	if err := s.verdicts(); err != nil {
		return err
	}
	s.Say("All of it took %v. Report: %s\n", time.Since(s.began).Round(time.Second), file.Name())
	return errors.Join(s.Err(), void)
}
