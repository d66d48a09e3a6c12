package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"testbed/results/plot"
	"testbed/results/rundir"
	"testbed/results/safefile"
	"testbed/topo/words"
	"testbed/workloads"
)

// length is a flag in points, with a unit.
type length float64

var lengthUnits = []struct {
	name   string
	points float64
}{{"in", plot.Inch}, {"cm", plot.Centimetre}, {"mm", plot.Centimetre / 10}, {"pt", 1}}

func (l *length) Set(s string) error {
	for _, u := range lengthUnits {
		if number, ok := strings.CutSuffix(s, u.name); ok {
			x, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
			if err != nil || !(x > 0) {
				break
			}
			*l = length(x * u.points)
			return nil
		}
	}
	return fmt.Errorf("expected a number above 0 and a unit (in, cm, mm or pt), such as 3.4in")
}

func (l *length) Type() string { return "length" }
func (l *length) String() string {
	return strconv.FormatFloat(float64(*l)/plot.Inch, 'g', 4, 64) + "in"
}

// plotter is one call of plot.
type plotter struct {
	*app
	o             plot.Options
	width, height length
	figure, out   string
	all, format   string
	log, linear   bool
	coflow, flow  int
	repeat        int
}

// allFigures is the --figure that stands for every figure.
const allFigures = "all"

// drawn is a figure that was written, or was not because data is missing.
type drawn struct {
	Figure string   `json:"figure"`
	File   string   `json:"file,omitempty"`
	NoData string   `json:"no_data,omitempty"`
	Notes  []string `json:"notes"`
}

func (a *app) plotCmd() *cobra.Command {
	p := plotter{app: a, width: plot.DefaultWidth, height: plot.DefaultHeight}
	var list bool
	cmd := &cobra.Command{
		Use: "plot RUN...", Short: "Draw a figure for a paper from run directories",
		Long: `Plot draws one figure, or with --figure all each figure that the runs have data for, as
PDF, SVG or PNG. It reads the CSV files and summary.json of runs and simulations; it
requires neither captures nor root. Legends show the number of items, and verdicts other
than pass; void arms are omitted.

Several runs share one figure, with a curve for each arm of each run. Speed-ups are
relative to the baseline of the arm's own run. The directory of a sweep stands for the runs of
its points; without --figure, it gives the speed-ups of each arm over the swept variable.`,
		Example: `  testbed plot --list
  testbed plot runs/quickstart-20260102-150405-ab12 --figure cct-cdf -o cct.pdf
  testbed plot runs/quickstart-20260102-150405-ab12 --figure utilisation --arm sebf+hdfs -o load.svg
  testbed plot runs/quickstart-20260102-150405-ab12 --figure progress --coflow 3 --arm sebf+hdfs -o coflow3.pdf
  testbed plot runs/a runs/b --names a,b --figure speedup-cdf --arms sebf+hdfs -o speedup.pdf
  testbed plot runs/sweep-20260102-150405-ab12 --over load -o load.pdf
  testbed plot runs/quickstart-20260102-150405-ab12 --figure all -o figures --figure-width 8.6cm --font-size 7`,
		Args: runsOrList(&list),
		RunE: func(cmd *cobra.Command, args []string) error {
			if list {
				return p.list()
			}
			if cmd.Flags().Changed("repeat") {
				p.o.Repeat = &p.repeat
			}
			if cmd.Flags().Changed("coflow") {
				if p.coflow < 0 {
					return usageError{fmt.Errorf("plot --coflow %d: must be 0 or more, the number of a coflow", p.coflow)}
				}
				id := workloads.CoflowID(p.coflow)
				p.o.Coflow = &id
			}
			if cmd.Flags().Changed("flow") {
				if p.flow < 0 {
					return usageError{fmt.Errorf("plot --flow %d: must be 0 or more, the number of a flow", p.flow)}
				}
				id := workloads.FlowID(p.flow)
				p.o.Flow = &id
			}
			return p.draw(args)
		},
		ValidArgsFunction: completeDirs,
	}
	f := cmd.Flags()
	addList(cmd, &list, "figures")
	f.StringVar(&p.figure, "figure", "", "`name` of the figure to draw, or all (see --list)")
	addOutput(cmd, &p.out, "", ".pdf, .svg or .png file; with --figure all a directory")
	addFormat(cmd, &p.format, plot.Formats())
	f.Var(&p.width, "figure-width", "width of the figure, in in, cm, mm or pt")
	f.Var(&p.height, "figure-height", "height of the figure, in in, cm, mm or pt")
	f.Float64Var(&p.o.FontSize, "font-size", plot.DefaultFontSize, "size of labels in pt")
	f.IntVar(&p.o.DPI, "dpi", plot.DefaultDPI, "resolution of PNG in dots per inch")
	f.BoolVar(&p.log, "log", false, "draw values on a logarithmic axis")
	f.BoolVar(&p.linear, "linear", false, "draw values on a linear axis")
	f.StringVar(&p.o.Title, "title", "", "title above the figure")
	addArms(cmd, &p.o.Arms, "default: all; drawn in this order")
	f.StringSliceVar(&p.o.Names, "names", nil, "short `names` of the runs for legends (default: their IDs)")
	addBaseline(cmd, &p.o.Baseline, "an arm; default: the first of the run")
	addArm(cmd, &p.o.Arm, "in figures of one arm; default: the first")
	f.StringVar(&p.o.Over, "over", "", "`variable` of a sweep on the axis of figure gain-by-parameter (default: that with the most values)")
	f.IntVar(&p.coflow, "coflow", 0, "`number` of the coflow in figures of one coflow (default in progress: the slowest)")
	f.StringVar(&p.o.Link, "link", "", "`name` of the link, as from>to, in figures of one link (see figure queue)")
	f.IntVar(&p.flow, "flow", 0, "`number` of the flow in figures of one flow (default: that with the most samples)")
	f.BoolVar(&p.o.Bytes, "bytes", false, "draw bytes, not shares of each flow (figure progress)")
	addRepeat(cmd, &p.repeat, "in figures of one repeat; default: 0, in racks all")
	// Former names.
	f.Var(&p.width, "width", "")
	f.Var(&p.height, "height", "")
	f.StringVar(&p.all, "all", "", "")
	hide(cmd, "width", "height", "all")
	cmd.MarkFlagsMutuallyExclusive("log", "linear")
	complete := completer(cmd)
	complete("figure", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		var out []string
		for _, f := range plot.Figures() {
			out = append(out, f.Name+"\t"+f.Doc)
		}
		return append(out, allFigures+"\tall figures that the runs have data for"), cobra.ShellCompDirectiveNoFileComp
	})
	complete("baseline", completeArm)
	return cmd
}

// completer returns a function that registers the completion of a flag.
func completer(cmd *cobra.Command) func(flag string, how cobra.CompletionFunc) {
	return func(flag string, how cobra.CompletionFunc) {
		if err := cmd.RegisterFlagCompletionFunc(flag, how); err != nil {
			panic(err) // the flag was not declared before
		}
	}
}

func completeDirs(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveFilterDirs
}

// completeArm completes one arm of the runs on the command line.
func completeArm(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	var out []string
	for _, name := range armsOf(args) {
		if !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

// armsOf returns the arms in the manifests of run directories. The command itself reports
// what cannot be read.
func armsOf(dirs []string) []string {
	var out []string
	for _, dir := range dirs {
		if m, err := rundir.ReadManifest(dir); err == nil {
			out = append(out, m.Arms...)
		}
	}
	return out
}

// completeArms completes a list of arms of the runs on the command line.
func completeArms(_ *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	begin := ""
	if i := strings.LastIndex(word, ","); i >= 0 {
		begin = word[:i+1]
	}
	var out []string
	for _, name := range armsOf(args) {
		if !slices.Contains(out, begin+name) && !slices.Contains(strings.Split(begin, ","), name) {
			out = append(out, begin+name)
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

func (p *plotter) list() error {
	figures := plot.Figures()
	return p.print(figures, func(w io.Writer) error {
		for _, f := range figures {
			if _, err := fmt.Fprintf(w, "%-16s %s\n", f.Name, f.Doc); err != nil {
				return err
			}
		}
		return nil
	})
}

// linkToOther reports whether a directory is a symbolic link to another one of the list, as
// runs/latest is in runs/*.
func linkToOther(dirs []string, i int) bool {
	info, err := os.Lstat(filepath.Clean(dirs[i]))
	if err != nil || info.Mode().Type() != fs.ModeSymlink {
		return false
	}
	for k, other := range dirs {
		if at, err := os.Lstat(filepath.Clean(other)); k != i && err == nil && at.IsDir() && same(dirs[i], other) {
			return true
		}
	}
	return false
}

// noteChanges prints the files of a run directory that changed after the run.
func (a *app) noteChanges(dir string, changes []rundir.Change) {
	for _, c := range changes[:min(mostChanges, len(changes))] {
		fmt.Fprintf(a.stderr, "note: %s: %s\n", dir, c)
	}
	if more := len(changes) - mostChanges; more > 0 {
		fmt.Fprintf(a.stderr, "note: %s: %d more files changed\n", dir, more)
	}
}

// mostChanges is the maximum number of changed files that are printed for a run directory.
const mostChanges = 20

// runDirs replaces the directories of sweeps by those of their points, and leaves out links to others.
func (a *app) runDirs(dirs []string) (all []string, err error) {
	for i, dir := range dirs {
		if linkToOther(dirs, i) {
			continue
		}
		s, err := rundir.ReadSweep(dir)
		if err != nil {
			return nil, err
		}
		if s == nil {
			all = append(all, dir)
			continue
		}
		points, missing := s.PointDirs(dir)
		if len(missing) > 0 {
			fmt.Fprintf(a.stderr, "note: %s: no trial has ended of %s: %s\n", dir, words.Plural(len(missing), "point", "points"), words.First(missing, mostListed))
		}
		all = append(all, points...)
	}
	return all, nil
}

// openRuns reads directories of runs and sweeps, and notes partial and changed ones on standard error.
func (a *app) openRuns(dirs []string) ([]*rundir.Run, error) {
	dirs, err := a.runDirs(dirs)
	if err != nil {
		return nil, err
	}
	var runs []*rundir.Run
	var errs []error
	for _, dir := range dirs {
		r, err := rundir.Open(dir)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		a.noteChanges(dir, r.Changes)
		if p := r.Summary.Partial; p != nil {
			fmt.Fprintf(a.stderr, "note: %s: %s\n", r.Summary.RunID, p)
		}
		runs = append(runs, r)
	}
	return runs, errors.Join(errs...)
}

// allSweeps reports whether all directories are those of sweeps.
func allSweeps(dirs []string) bool {
	return !slices.ContainsFunc(dirs, func(dir string) bool {
		s, err := rundir.ReadSweep(dir)
		return s == nil || err != nil
	})
}

func (p *plotter) draw(dirs []string) error {
	p.o.Width, p.o.Height = float64(p.width), float64(p.height)
	switch {
	case p.log:
		p.o.Scale = plot.Log
	case p.linear:
		p.o.Scale = plot.Linear
	}
	if p.all != "" && p.figure == "" && p.out == "" { // the former --all DIR
		p.figure, p.out = allFigures, p.all
	}
	named := p.out // its ending is a format
	switch {
	case p.figure == "" && p.out != "" && allSweeps(dirs):
		p.figure = "gain-by-parameter"
	case p.figure == "":
		return usageError{errors.New("plot: no figure: give --figure NAME, or --figure all (--list lists the figures)")}
	case p.figure == allFigures && p.out == "":
		return usageError{errors.New("plot: no directory to write to: give -o DIR, such as -o figures")}
	case p.figure == allFigures:
		named = ""
	case p.out == "":
		return usageError{errors.New("plot: no file to write to: give -o FILE, such as -o " + p.figure + ".pdf")}
	}
	format, err := plotFormat(p.format, named)
	if err != nil {
		return usageError{err}
	}
	if p.figure == allFigures {
		runs, err := p.openRuns(dirs)
		if err != nil {
			return err
		}
		return p.drawAll(runs, format)
	}
	f, err := plot.Find(p.figure)
	if err != nil {
		return usageError{fmt.Errorf("plot --figure: %w", err)}
	}
	runs, err := p.openRuns(dirs)
	if err != nil {
		return err
	}
	one, err := p.one(runs, f, format, p.out)
	if err != nil {
		return err
	}
	return p.print([]drawn{one}, func(io.Writer) error { return nil })
}

// one draws a figure in memory, then writes the file.
func (p *plotter) one(runs []*rundir.Run, f plot.Figure, format, path string) (drawn, error) {
	var b bytes.Buffer
	notes, err := plot.Draw(&b, runs, f, format, p.o)
	if err != nil {
		return drawn{}, err
	}
	for _, n := range notes {
		fmt.Fprintf(p.stderr, "note: %s: %s\n", f.Name, n)
	}
	out := drawn{Figure: f.Name, File: path, Notes: append([]string{}, notes...)}
	return out, safefile.WriteData(path, b.Bytes())
}

func (p *plotter) drawAll(runs []*rundir.Run, format string) error {
	if err := safefile.MkdirAll(p.out); err != nil {
		return fmt.Errorf("plot --figure all: %w", err)
	}
	scale, coflow, inBytes, over := p.o.Scale, p.o.Coflow, p.o.Bytes, p.o.Over
	var out []drawn
	for _, f := range plot.Figures() {
		if p.o.Scale = scale; !f.Scales {
			p.o.Scale = plot.AutoScale
		}
		if p.o.Over = over; f.Name != "gain-by-parameter" {
			p.o.Over = ""
		}
		p.o.Coflow, p.o.Bytes = nil, f.Name == "progress" && inBytes
		if f.Name == "progress" || f.Name == "goodput" {
			p.o.Coflow = coflow
		}
		one, err := p.one(runs, f, format, filepath.Join(p.out, f.Name+"."+format))
		if errors.Is(err, plot.ErrNoData) || errors.Is(err, plot.ErrNoRoom) {
			fmt.Fprintf(p.stderr, "note: not drawn: %v\n", err)
			one, err = drawn{Figure: f.Name, NoData: err.Error(), Notes: []string{}}, nil
		}
		if err != nil {
			return err
		}
		out = append(out, one)
	}
	return p.print(out, func(w io.Writer) error {
		for _, d := range out {
			if d.File == "" {
				continue
			}
			if _, err := fmt.Fprintln(w, d.File); err != nil {
				return err
			}
		}
		return nil
	})
}

func plotFormat(format, out string) (string, error) {
	end := strings.ToLower(strings.TrimPrefix(filepath.Ext(out), "."))
	if format == "" {
		format = end
		if out == "" {
			format = plot.Formats()[0]
		}
	}
	if !slices.Contains(plot.Formats(), format) {
		return "", fmt.Errorf("format %q: must be one of %s (set --format or the file name extension)", format, strings.Join(plot.Formats(), ", "))
	}
	return format, nil
}
