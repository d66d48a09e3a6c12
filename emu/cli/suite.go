package cli

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"testbed/emu/flowsim/comparison"
	"testbed/emu/runner"
	"testbed/emu/suite"
)

func (a *app) suiteCmd() *cobra.Command {
	var o suite.Options
	var store storeFlags
	var set []string
	var repeats string
	var list, figures bool
	cmd := &cobra.Command{
		Use: "suite FILE", Short: "Run the experiments of a paper and judge its claims",
		Long: `Suite runs the parts of a file that states the claims of a paper: scenarios and traces, the
arms that are compared, the paper's figures, and the ranges expected here (docs/suites.md). It
prints a table for each part, and the claims with their outcomes. Its output directory has
these as report.md, report.html and claims.json, and the run directories.

Parts on packets require root; --fluid runs them on the fluid model only. Ctrl-C ends the run
that is under way cleanly, and then the suite.

Exit code 3 means that an arm is void, and 4 that a required claim is not reproduced.
Everything is written in both cases.`,
		Example: `  testbed suite scripts/dolly/claims.yaml --list
  testbed suite scripts/dolly/claims.yaml --only cluster,budget/12
  sudo testbed suite scripts/sinbad/claims.yaml --repeats 10
  testbed suite scripts/philae/claims.yaml --only table --set trace=FB2010-1Hr-150-0.txt
  testbed suite --figures`,
		Args: between(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case figures && len(args) == 0:
				return a.print(suite.Quantities(), suite.WriteQuantities)
			case figures || len(args) == 0:
				return usageError{errors.New("suite: expected a file, or --figures without a file")}
			}
			s, err := suite.Read(args[0])
			if err != nil {
				return withPipeHint(err)
			}
			if list {
				return a.print(s.List(), s.WriteList)
			}
			if o.Set, err = assignments("--set", set); err != nil {
				return err
			}
			if o.Repeat, err = strconv.Atoi(repeats); err != nil {
				return usageError{fmt.Errorf("--repeats %q: must be a number of repeats", repeats)}
			}
			captures, err := store.mode()
			if err != nil {
				return err
			}
			if o.Dir = store.out; !cmd.Flags().Changed("output") {
				o.Dir = filepath.Join(defaultOut, s.Name()+"-"+time.Now().Format("20060102-150405"))
			}
			p, err := s.Prepare(o)
			var usage suite.UsageError
			if errors.As(err, &usage) {
				return usageError{err}
			}
			if err != nil {
				return err
			}
			o := runner.Options{StateRoot: a.state, Version: version, Captures: captures,
				Warn: func(text string) { fmt.Fprintln(a.stderr, "warning:", text) }}
			if p.NeedsRoot() {
				if err := a.needRoot("suite", createsNamespaces, "without root: --fluid leaves out packets"); err != nil {
					return err
				}
				if o.Calibration, err = a.calibration(); err != nil {
					return err
				}
			}
			if err := a.effects(); err != nil {
				return err
			}
			var out io.Writer = a.stdout
			if a.json {
				out = io.Discard
			}
			err = p.Run(cmd.Context(), out, o, a.suiteProgress)
			if a.json && (err == nil || errors.Is(err, suite.ErrVoid) || errors.Is(err, suite.ErrClaims)) {
				err = errors.Join(err, a.print(p.Claims, nil))
			}
			if errors.Is(err, suite.ErrVoid) {
				err = errors.Join(errVoid, err)
			}
			return err
		},
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return []string{"yaml", "yml"}, cobra.ShellCompDirectiveFilterFileExt
		},
	}
	f := cmd.Flags()
	addList(cmd, &list, "the parts of the file, what they run, and their claims")
	f.BoolVar(&figures, "figures", false, "list the quantities and relations that figures can have, and exit")
	f.StringSliceVar(&o.Only, "only", nil, "run only these `parts`, or variants as part/variant (default: all except optional parts)")
	f.StringVar(&repeats, "repeats", fmt.Sprint(suite.DefaultRepeat), "repeats (their number, of which a part can have a multiple)")
	f.BoolVar(&o.Fluid, "fluid", false, "exclude packets: run all parts on the fluid model only, which needs no root")
	f.StringSliceVar(&o.Packets, "on-packets", nil, "run these `parts` on packets too, in addition to those whose file says so")
	f.StringArrayVar(&set, "set", nil, "set a variable of the scenario: `name=value` (an input of the file, with its path; repeatable)")
	store.add(cmd)
	f.Lookup("output").Usage = "write to this `path` (a directory that does not exist; default: runs/NAME-TIME)"
	complete := completer(cmd)
	parts := func(_ *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		var names []string
		if len(args) == 1 {
			if s, err := suite.Read(args[0]); err == nil {
				before, _, _ := cutLast(typed, ",")
				for _, p := range s.List() {
					names = append(names, before+p.Name+"\t"+p.Title)
				}
			}
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
	complete("only", parts)
	complete("on-packets", parts)
	return cmd
}

// cutLast cuts text after the last separator.
func cutLast(text, separator string) (before, after string, found bool) {
	i := strings.LastIndex(text, separator)
	return text[:i+1], text[i+1:], i >= 0
}

// suiteProgress shows the progress of a run of a suite; see suite.Plan.Run.
func (a *app) suiteProgress(name string) (run func(runner.Progress), trace func(comparison.Progress), done func()) {
	if !a.shown.quiet {
		fmt.Fprintln(a.stderr, name)
	}
	d := a.progress()
	return d.update, func(p comparison.Progress) { d.show(traceState(p)) }, d.done
}
