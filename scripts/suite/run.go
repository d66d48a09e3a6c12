package suite

import (
	"cmp"
	"context"
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

	"testbed/results/safefile"
)

// Options are the flags that all suites have.
type Options struct {
	Dir      string // output directory; must not exist
	Testbed  string // path of the program testbed
	Expected string // path of the paper's figures
	Only     string // parts to run, separated by commas; empty for all
	Repeat   int    // repeats of each scenario, 1 or more
}

// Flags defines the command-line flags of the suite with this name and these parts.
func (o *Options) Flags(name string, parts []string) {
	flag.StringVar(&o.Dir, "dir", filepath.Join("runs", name+"-"+time.Now().Format("20060102-150405")), "output `directory`, which must not exist")
	flag.StringVar(&o.Testbed, "testbed", filepath.Join("bin", "testbed"), "`path` of testbed")
	flag.StringVar(&o.Expected, "expected", filepath.Join("scripts", name, "expected.yaml"), "`file` with the paper's figures")
	flag.StringVar(&o.Only, "only", "", "`parts` to run, separated by commas: "+strings.Join(parts, ", ")+" (default: all)")
	flag.IntVar(&o.Repeat, "repeat", 5, "number of repeats")
}

// Main is the main function of a suite, called after its flags are defined. An interrupt
// cancels the context of run.
func Main(name string, run func(context.Context, io.Writer) error) {
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "%s: unexpected argument %q: only flags are accepted (see -help)\n", name, flag.Arg(0))
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}

// Chosen returns the parts to run, in the order of parts.
func (o *Options) Chosen(parts []string) ([]string, error) {
	if o.Repeat < 1 {
		return nil, fmt.Errorf("-repeat %d: must be 1 or more", o.Repeat)
	}
	if o.Only == "" {
		return parts, nil
	}
	names := strings.Split(o.Only, ",")
	for _, n := range names {
		if !slices.Contains(parts, n) {
			return nil, fmt.Errorf("-only %q: unknown part %q: must be one of %s", o.Only, n, strings.Join(parts, ", "))
		}
	}
	return slices.DeleteFunc(slices.Clone(parts), func(p string) bool { return !slices.Contains(names, p) }), nil
}

// Begin creates the output directory and its report.md, and returns a report that writes to
// report.md and stdout. Report.End closes the file.
func (o *Options) Begin(stdout io.Writer) (*Report, error) {
	if err := safefile.MkdirAll(filepath.Dir(o.Dir)); err != nil {
		return nil, err
	}
	if err := safefile.Mkdir(o.Dir); err != nil {
		return nil, fmt.Errorf("%w: name a directory that does not exist (-dir)", err)
	}
	file, err := safefile.Create(filepath.Join(o.Dir, "report.md"))
	if err != nil {
		return nil, err
	}
	r := NewReport(io.MultiWriter(stdout, file))
	r.file, r.began = file, time.Now()
	return r, nil
}

// Program returns the program, which writes its runs to the output directory.
func (o *Options) Program() Program { return Program{Path: o.Testbed, Dir: o.Dir} }

// Part begins a part of the report.
func (r *Report) Part(title string) {
	r.Say("## %s\n", strings.ToUpper(title[:1])+title[1:])
}

// Done writes the total duration and the path of the report.
func (r *Report) Done() {
	r.Say("Total time: %v. Report: %s\n", time.Since(r.began).Round(time.Second), r.file.Name())
}

// End closes the report's file, and returns the first write error.
func (r *Report) End() error {
	if r.file == nil {
		return r.err
	}
	return cmp.Or(r.err, r.file.Close())
}
