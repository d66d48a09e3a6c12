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
	"testbed/emu/experiment"
	"testbed/results/files"
	"testbed/topo"
	"testbed/topo/draw"
)

func (a *app) graphCmd() *cobra.Command {
	var f scenarioFlags
	var out, format, arm string
	var repeat int
	cmd := &cobra.Command{
		Use: "graph SCENARIO|TESTBED|RUN", Short: "Draw a fabric, and how a run loaded it, as SVG or DOT",
		Long: `Graph draws the fabric of a scenario file, of a testbed that is up, or of a run
directory, with the rates of its links. Of a run it also shows each link's mean load in
one repeat of one arm, from the captures. Loads of host links count every frame. Loads
of uplinks count flows and blocks between racks, without acknowledgements, and each
rack's are divided evenly over the spines.`,
		Example: `  testbed graph scripts/quickstart/scenario.yaml -o fabric.svg
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
			if err := write(&b, fabric, o); err != nil {
				return err
			}
			if out == "" {
				_, err = a.stdout.Write(b.Bytes())
				return err
			}
			return files.Write(out, func(w io.Writer) error {
				_, err := w.Write(b.Bytes())
				return err
			})
		},
	}
	f.add(cmd)
	cmd.ValidArgsFunction = func(c *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
		names, _ := a.completeTestbeds(c, args, word)
		return names, cobra.ShellCompDirectiveDefault // and files
	}
	cmd.Flags().StringVarP(&out, "output", "o", "", "file to write, .svg or .dot (standard output without it)")
	cmd.Flags().StringVar(&format, "format", "", "svg or dot (by the file's name, or svg)")
	cmd.Flags().StringVar(&arm, "arm", "", "of a run: the arm whose load is shown (the first)")
	cmd.Flags().IntVar(&repeat, "repeat", 0, "of a run: the repeat whose load is shown, from 0")
	completer(cmd)("arm", completeArm)
	completer(cmd)("format", cobra.FixedCompletions([]string{"svg", "dot"}, cobra.ShellCompDirectiveNoFileComp))
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
	return "", fmt.Errorf("format %q: want svg or dot, by --format or the end of the file's name", format)
}

// drawing is what the argument names: a run directory, a file, or a testbed.
func (a *app) drawing(ctx context.Context, f *scenarioFlags, arg, arm string, repeat int, ofRun bool) (*topo.Fabric, draw.Options, error) {
	info, err := os.Stat(arg)
	if err == nil && info.IsDir() {
		if len(f.set) > 0 {
			return nil, draw.Options{}, usageError{fmt.Errorf("--set: %s is a run directory, whose variables are set", arg)}
		}
		l, err := experiment.Loads(ctx, arg, arm, repeat)
		if err != nil {
			return nil, draw.Options{}, err
		}
		return l.Fabric, draw.Options{
			Title: fmt.Sprintf("%s, arm %s, repeat %d: mean load over %v (uplinks estimated)", l.Run, l.Arm, l.Repeat, l.Span.Round(time.Millisecond)),
			Load:  func(id topo.LinkID) (float64, bool) { return l.Links[id], true },
		}, nil
	}
	if ofRun {
		return nil, draw.Options{}, usageError{fmt.Errorf("--arm and --repeat: %s is no run directory, so there is no load to show", arg)}
	}
	if err == nil {
		s, err := f.load(arg)
		if err != nil {
			return nil, draw.Options{}, err
		}
		fabric, err := s.Shape().Build()
		return fabric, draw.Options{Title: s.Spec.Name}, err
	}
	e, err := deploy.Find(a.state, arg)
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
