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
)

// Options are the flags that all suites have.
type Options struct {
	Dir      string // to write to, which must not exist
	Testbed  string // the program
	Expected string // the file of the paper's figures
	Only     string // parts to run, with commas between them; all where it is empty
	Repeat   int    // repeats, 1 or more
}

// Flags makes them the flags of a suite of that name with the given parts.
func (o *Options) Flags(name string, parts []string) {
	flag.StringVar(&o.Dir, "dir", filepath.Join("runs", name+"-"+time.Now().Format("20060102-150405")), "directory to write to, which must not exist")
	flag.StringVar(&o.Testbed, "testbed", filepath.Join("bin", "testbed"), "the program")
	flag.StringVar(&o.Expected, "expected", filepath.Join("scripts", name, "expected.yaml"), "the paper's figures")
	flag.StringVar(&o.Only, "only", "", "parts to run, with commas between them: "+strings.Join(parts, ", ")+" (all)")
	flag.IntVar(&o.Repeat, "repeat", 5, "repeats")
}

// Main is the main function of a suite, once it has made its flags: an interrupt ends
// the context of run.
func Main(name string, run func(context.Context, io.Writer) error) {
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "%s: argument %q: want flags alone (-help lists them)\n", name, flag.Arg(0))
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

// Chosen are those of a suite's parts that are to run, in their order.
func (o *Options) Chosen(parts []string) ([]string, error) {
	if o.Repeat < 1 {
		return nil, fmt.Errorf("-repeat %d: want 1 or more", o.Repeat)
	}
	if o.Only == "" {
		return parts, nil
	}
	names := strings.Split(o.Only, ",")
	for _, n := range names {
		if !slices.Contains(parts, n) {
			return nil, fmt.Errorf("-only %q: no part %q: parts are %s", o.Only, n, strings.Join(parts, ", "))
		}
	}
	return slices.DeleteFunc(slices.Clone(parts), func(p string) bool { return !slices.Contains(names, p) }), nil
}

// Begin makes the directory, and in it report.md, to which goes what is said on stdout.
// Report.End closes it.
func (o *Options) Begin(stdout io.Writer) (*Report, error) {
	if err := os.MkdirAll(filepath.Dir(o.Dir), 0o755); err != nil {
		return nil, err
	}
	if err := os.Mkdir(o.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("%w: want a directory that is not there yet (-dir)", err)
	}
	file, err := os.Create(filepath.Join(o.Dir, "report.md"))
	if err != nil {
		return nil, err
	}
	r := NewReport(io.MultiWriter(stdout, file))
	r.file, r.began = file, time.Now()
	return r, nil
}

// Program is the program, with the runs in the suite's directory.
func (o *Options) Program() Program { return Program{Path: o.Testbed, Dir: o.Dir} }

// Part begins a part of the report.
func (r *Report) Part(title string) {
	r.Say("## %s\n", strings.ToUpper(title[:1])+title[1:])
}

// Done says how long it all took and where the report is.
func (r *Report) Done() {
	r.Say("All of it took %v. Report: %s\n", time.Since(r.began).Round(time.Second), r.file.Name())
}

// End closes the file of the report, and returns the first error of writing it.
func (r *Report) End() error {
	if r.file == nil {
		return r.err
	}
	return cmp.Or(r.err, r.file.Close())
}
