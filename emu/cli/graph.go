package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"testbed/emu/deploy"
	"testbed/emu/runner"
	"testbed/results/safefile"
	"testbed/topo"
	"testbed/topo/draw"
)

func (a *app) graphCmd() *cobra.Command {
	var f scenarioFlags
	var out, format, arm string
	var repeat int
	var brief bool
	cmd := &cobra.Command{
		Use: "graph SCENARIO|TESTBED|RUN", Short: "Draw a fabric, and its load in a run, as SVG or DOT",
		Long: `Graph draws the fabric of a scenario file, of a testbed that is up, or of a run
directory, with the rates of its links. For a run it also shows the mean load of each
link in one repeat of one arm, computed from the captures. Loads of host links include
every frame. Loads of uplinks are estimates: flows and blocks between racks, without
acknowledgements, divided evenly over the spines.`,
		Example: `  testbed graph scripts/quickstart/scenario.yaml -o fabric.svg
  testbed graph large.yaml --brief -o fabric.svg
  testbed graph lab --format dot | dot -Tpdf -o lab.pdf
  testbed graph runs/quickstart-20260102-150405-ab12 --arm sebf+sinbad -o load.svg`,
		Args: exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			how, err := graphFormat(format, out)
			if err != nil {
				return usageError{err}
			}
			fabric, o, err := a.drawing(cmd.Context(), &f, args[0], arm, repeat, cmd.Flags().Changed("arm") || cmd.Flags().Changed("repeat"))
			if err != nil {
				return err
			}
			var b bytes.Buffer
			write := draw.SVG
			if how == "dot" {
				write = draw.DOT
			}
			if o.Brief = brief; brief && how == "dot" {
				return usageError{errors.New("--brief: has no effect on DOT")}
			}
			if err := write(&b, fabric, o); err != nil {
				return err
			}
			if out == "" {
				_, err = a.stdout.Write(b.Bytes())
				return err
			}
			return safefile.Write(out, func(w io.Writer) error {
				_, err := w.Write(b.Bytes())
				return err
			})
		},
	}
	f.add(cmd)
	f.addPoint(cmd)
	cmd.ValidArgsFunction = func(c *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
		names, _ := a.completeTestbeds(c, args, word)
		return names, cobra.ShellCompDirectiveDefault // and files
	}
	addOutput(cmd, &out, "", ".svg or .dot file; default: standard output")
	addFormat(cmd, &format, []string{"svg", "dot"})
	cmd.Flags().BoolVar(&brief, "brief", false, "leave out switches and hosts of a large fabric, and state their numbers")
	addArm(cmd, &arm, "of a run directory; default: the first")
	addRepeat(cmd, &repeat, "of a run directory; default: 0")
	return cmd
}

func graphFormat(format, out string) (string, error) {
	if format == "" {
		format = strings.TrimPrefix(filepath.Ext(out), ".")
	}
	switch format {
	case "", "svg":
		return "svg", nil
	case "dot", "gv":
		return "dot", nil
	}
	return "", fmt.Errorf("format %q: must be svg or dot (set --format or the file name extension)", format)
}

// drawing returns the fabric of a run directory, a scenario file, or a testbed.
func (a *app) drawing(ctx context.Context, f *scenarioFlags, arg, arm string, repeat int, ofRun bool) (*topo.Fabric, draw.Options, error) {
	info, err := os.Stat(arg)
	if err == nil && info.IsDir() {
		if len(f.set) > 0 {
			return nil, draw.Options{}, usageError{fmt.Errorf("--set: %s is a run directory, whose variables are fixed", arg)}
		}
		l, err := runner.Loads(ctx, arg, arm, repeat)
		if err != nil {
			return nil, draw.Options{}, err
		}
		return l.Fabric, draw.Options{
			Title: fmt.Sprintf("%s, arm %s, repeat %d: mean load over %v (uplinks estimated)", l.Run, l.Arm, l.Repeat, l.Span.Round(time.Millisecond)),
			Load:  func(id topo.LinkID) (float64, bool) { return l.Links[id], true },
		}, nil
	}
	if ofRun {
		return nil, draw.Options{}, usageError{fmt.Errorf("--arm and --repeat: %s is not a run directory, so there is no load to show", arg)}
	}
	if err == nil {
		s, err := f.one(arg)
		if err != nil {
			return nil, draw.Options{}, err
		}
		fabric, err := s.Shape().Build()
		return fabric, draw.Options{Title: s.Spec.Name}, err
	}
	e, err := deploy.Find(ctx, a.state, arg)
	if errors.Is(err, deploy.ErrNotFound) {
		return nil, draw.Options{}, fmt.Errorf("graph %s: no such scenario file, run directory or testbed", arg)
	} else if err == nil {
		err = e.Problem
	}
	if err != nil {
		return nil, draw.Options{}, err
	}
	fabric, err := e.State.Shape.Build()
	return fabric, draw.Options{Title: "testbed " + e.State.ID}, err
}
