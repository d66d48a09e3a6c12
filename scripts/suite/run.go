package suite

import (
	"cmp"
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

	"testbed/results/report"
	"testbed/results/safefile"
)

// Options are the flags that all suites have.
type Options struct {
	Dir     string // output directory; must not exist
	Testbed string // path of the program testbed
	Claims  string // path of the paper's claims
	Only    string // parts to run, separated by commas; empty for all
	Repeat  int    // repeats of each scenario, 1 or more
	Fluid   bool   // run parts on packets on the fluid model only
}

// Flags defines the command-line flags of the suite with this name and these parts.
func (o *Options) Flags(name string, parts []string) {
	flag.StringVar(&o.Dir, "dir", filepath.Join("runs", name+"-"+time.Now().Format("20060102-150405")), "output `directory`, which must not exist")
	flag.StringVar(&o.Testbed, "testbed", filepath.Join("bin", "testbed"), "`path` of testbed")
	flag.StringVar(&o.Claims, "claims", filepath.Join("scripts", name, "claims.yaml"), "`file` with the paper's claims")
	flag.StringVar(&o.Only, "only", "", "`parts` to run, separated by commas: "+strings.Join(parts, ", ")+" (default: all)")
	flag.IntVar(&o.Repeat, "repeat", 5, "number of repeats")
}

// FluidFlag defines the flag of suites with parts on packets.
func (o *Options) FluidFlag() {
	flag.BoolVar(&o.Fluid, "fluid", false, "run all parts only on the fluid model, which needs no root")
}

// NeedRoot returns an error if parts that run on packets are chosen, and may not. packets reports whether
// there are any.
func (o *Options) NeedRoot(packets bool) error {
	if packets && !o.Fluid && os.Geteuid() != 0 {
		return errors.New("the parts on packets need root: use sudo, or only the fluid model (-fluid)")
	}
	return nil
}

// Both runs a scenario on the fluid model and, if packets is true and Fluid is not, on packets: measured
// is nil otherwise. If an arm is void, the error is ErrVoid, and both have their figures.
func (o *Options) Both(ctx context.Context, packets bool, scenario string, args ...string) (fluid, measured *report.Summary, err error) {
	p := o.Program()
	if fluid, err = p.Run(ctx, "sim", scenario, args...); err != nil || !packets || o.Fluid {
		return fluid, nil, err
	}
	if measured, err = p.Run(ctx, "run", scenario, args...); measured == nil {
		return nil, nil, err
	}
	return fluid, measured, err
}

// exitClaims is the exit code of a suite of which a required claim is not reproduced. Other
// errors have exit code 1.
const exitClaims = 4

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
		if errors.Is(err, ErrClaims) {
			os.Exit(exitClaims)
		}
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

// Part is an experiment of a suite.
type Part struct {
	Name, Title string
	Run         func(context.Context) error
	Packets     bool // needs root
}

// RunParts reads the claims, creates the output directory, and runs the chosen ones of all parts. It calls begin before.
func (o *Options) RunParts(ctx context.Context, stdout io.Writer, parts []Part, begin func(*Report, *Claims)) error {
	var names []string
	for _, p := range parts {
		names = append(names, p.Name)
	}
	chosen, err := o.Chosen(names)
	if err != nil {
		return err
	}
	parts = slices.DeleteFunc(parts, func(p Part) bool { return !slices.Contains(chosen, p.Name) })
	if err := o.NeedRoot(slices.ContainsFunc(parts, func(p Part) bool { return p.Packets })); err != nil {
		return err
	}
	claims, err := ReadClaims(o.Claims, names)
	if err != nil {
		return err
	}
	report, err := o.Begin(stdout)
	if err != nil {
		return err
	}
	begin(report, claims)
	return report.Run(ctx, claims, parts)
}

// Run runs parts, writes the claims to the report and to claims.json next to it, and closes the
// report's file. It continues after a part with a void arm. Its error is that of the first part
// that fails otherwise, or else that of void arms, or else ErrClaims.
func (r *Report) Run(ctx context.Context, c *Claims, parts []Part) error {
	void, err := r.run(ctx, c, parts)
	if bad := r.End(); err != nil || bad != nil {
		return errors.Join(err, void, bad)
	}
	return cmp.Or(void, c.broken())
}

func (r *Report) run(ctx context.Context, c *Claims, parts []Part) (void, err error) {
	for _, p := range parts {
		r.Part(p.Title)
		err := p.Run(ctx)
		if err != nil && !errors.Is(err, ErrVoid) {
			return void, fmt.Errorf("%s: %w", p.Name, err)
		}
		void = errors.Join(void, err)
		c.ran[p.Name] = true
	}
	if err := c.write(r); err != nil {
		return void, err
	}
	if err := safefile.Write(filepath.Join(filepath.Dir(r.file.Name()), "claims.json"), c.encode); err != nil {
		return void, err
	}
	r.Say("Total time: %v. Report: %s\n", time.Since(r.began).Round(time.Second), r.file.Name())
	return void, nil
}

// End closes the report's file, and returns the first write error.
func (r *Report) End() error {
	if r.file == nil {
		return r.err
	}
	return cmp.Or(r.err, r.file.Close())
}
