package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"testbed/results/archive"
	"testbed/results/files"
	"testbed/results/plot"
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
	return fmt.Errorf("want a number above 0 and its unit, in, cm, mm or pt, such as 3.4in")
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
	coflow        int
}

// drawn is a figure that was written, or was not for want of data.
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
		Long: `Plot draws one figure (--figure, -o) or all that the runs hold data for (--all) as
PDF, SVG or PNG. It reads the CSV files and summary.json of runs on packets and of
simulations, and needs neither captures nor root. Legends name the number of items
and verdicts other than pass; arms that are void are left out.

Several runs are drawn into one figure, each arm of each run by itself, and
speed-ups are over the baseline of the arm's own run.`,
		Example: `  testbed plot --list
  testbed plot runs/quickstart-20260102-150405-ab12 --figure cct-cdf -o cct.pdf
  testbed plot runs/quickstart-20260102-150405-ab12 --figure utilisation --arm sebf+hdfs -o load.svg
  testbed plot runs/quickstart-20260102-150405-ab12 --figure progress --coflow 3 --arm sebf+hdfs -o coflow3.pdf
  testbed plot runs/a runs/b --names a,b --figure speedup-cdf --arms sebf+hdfs -o speedup.pdf
  testbed plot runs/quickstart-20260102-150405-ab12 --all figures --width 8.6cm --font-size 7`,
		Args: runsOrList(&list),
		RunE: func(cmd *cobra.Command, args []string) error {
			if list {
				return p.list()
			}
			if cmd.Flags().Changed("coflow") {
				if p.coflow < 0 {
					return usageError{fmt.Errorf("plot --coflow %d: want a coflow's number, 0 or more", p.coflow)}
				}
				id := workloads.CoflowID(p.coflow)
				p.o.Coflow = &id
			}
			return p.draw(args)
		},
		ValidArgsFunction: completeDirs,
	}
	f := cmd.Flags()
	f.BoolVar(&list, "list", false, "list the figures")
	f.StringVar(&p.figure, "figure", "", "which figure to draw; --list shows all")
	f.StringVarP(&p.out, "output", "o", "", "file to write, .pdf, .svg or .png")
	f.StringVar(&p.all, "all", "", "directory to write all figures to that the runs have data for")
	f.StringVar(&p.format, "format", "", "pdf, svg or png (by the file's name, or pdf)")
	f.Var(&p.width, "width", "width, in in, cm, mm or pt")
	f.Var(&p.height, "height", "height, in in, cm, mm or pt")
	f.Float64Var(&p.o.FontSize, "font-size", plot.DefaultFontSize, "size of labels in pt")
	f.IntVar(&p.o.DPI, "dpi", plot.DefaultDPI, "dots per inch of PNG")
	f.BoolVar(&p.log, "log", false, "draw values on a logarithmic axis")
	f.BoolVar(&p.linear, "linear", false, "draw values on a linear axis")
	f.StringVar(&p.o.Title, "title", "", "title above the figure")
	f.StringSliceVar(&p.o.Arms, "arms", nil, "which arms to draw, in this order (all)")
	f.StringSliceVar(&p.o.Names, "names", nil, "a short name for each run, for legends (its ID)")
	f.StringVar(&p.o.Baseline, "baseline", "", "arm that speed-ups are over (the run's own)")
	f.StringVar(&p.o.Arm, "arm", "", "of figures of one arm: which (the first)")
	f.IntVar(&p.coflow, "coflow", 0, "of figures of one coflow: which, by its number (progress: the slowest)")
	f.BoolVar(&p.o.Bytes, "bytes", false, "of progress: draw bytes, not shares of each flow")
	f.IntVar(&p.o.Repeat, "repeat", 0, "of figures of one repeat: which, from 0")
	cmd.MarkFlagsMutuallyExclusive("log", "linear")
	complete := completer(cmd)
	complete("figure", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		var out []string
		for _, f := range plot.Figures() {
			out = append(out, f.Name+"\t"+f.Doc)
		}
		return out, cobra.ShellCompDirectiveNoFileComp
	})
	complete("format", cobra.FixedCompletions(plot.Formats(), cobra.ShellCompDirectiveNoFileComp))
	complete("all", completeDirs)
	complete("arms", completeArms)
	complete("arm", completeArm)
	complete("baseline", completeArm)
	return cmd
}

// completer registers how values of flags are completed.
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

// armsOf are the arms that the manifests of run directories name. What cannot be
// read is said when the command runs.
func armsOf(dirs []string) []string {
	var out []string
	for _, dir := range dirs {
		if m, err := archive.ReadManifest(dir); err == nil {
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

// openRuns reads run directories back, and says what is not as usual about them.
func (a *app) openRuns(dirs []string) ([]*archive.Run, error) {
	var runs []*archive.Run
	var errs []error
	for _, dir := range dirs {
		r, err := archive.Open(dir)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if p := r.Summary.Partial; p != nil {
			fmt.Fprintf(a.stderr, "note: %s: %s\n", r.Summary.RunID, p)
		}
		runs = append(runs, r)
	}
	return runs, errors.Join(errs...)
}

func (p *plotter) draw(dirs []string) error {
	p.o.Width, p.o.Height = float64(p.width), float64(p.height)
	switch {
	case p.log:
		p.o.Scale = plot.Log
	case p.linear:
		p.o.Scale = plot.Linear
	}
	switch {
	case (p.figure == "") == (p.all == ""):
		return usageError{errors.New("plot: want one of --figure NAME and --all DIR (--list shows the figures)")}
	case p.figure != "" && p.out == "":
		return usageError{errors.New("plot: no file to write: want -o FILE, such as -o " + p.figure + ".pdf")}
	case p.all != "" && p.out != "":
		return usageError{errors.New("plot: --all DIR writes files of its own: leave out -o")}
	}
	format, err := plotFormat(p.format, p.out)
	if err != nil {
		return usageError{err}
	}
	if p.all != "" {
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

// one draws a figure in memory and writes it in one go.
func (p *plotter) one(runs []*archive.Run, f plot.Figure, format, path string) (drawn, error) {
	var b bytes.Buffer
	notes, err := plot.Draw(&b, runs, f, format, p.o)
	if err != nil {
		return drawn{}, err
	}
	for _, n := range notes {
		fmt.Fprintf(p.stderr, "note: %s: %s\n", f.Name, n)
	}
	out := drawn{Figure: f.Name, File: path, Notes: append([]string{}, notes...)}
	return out, files.Write(path, func(w io.Writer) error {
		_, err := w.Write(b.Bytes())
		return err
	})
}

func (p *plotter) drawAll(runs []*archive.Run, format string) error {
	if err := os.MkdirAll(p.all, 0o755); err != nil {
		return fmt.Errorf("plot --all: %w", err)
	}
	scale, coflow, inBytes := p.o.Scale, p.o.Coflow, p.o.Bytes
	var out []drawn
	for _, f := range plot.Figures() {
		if p.o.Scale = scale; !f.Scales {
			p.o.Scale = plot.AutoScale
		}
		p.o.Coflow, p.o.Bytes = nil, f.Name == "progress" && inBytes
		if f.Name == "progress" || f.Name == "goodput" {
			p.o.Coflow = coflow
		}
		one, err := p.one(runs, f, format, filepath.Join(p.all, f.Name+"."+format))
		if errors.Is(err, plot.ErrNoData) {
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
		return "", fmt.Errorf("format %q: want %s, by --format or the end of the file's name", format, strings.Join(plot.Formats(), ", "))
	}
	return format, nil
}
