// Package cli is the command line: one file a verb, each a thin layer over
// emu/experiment, emu/deploy and emu/kernel. Results go to standard output,
// progress and errors to standard error, so that output can be piped.
//
// Exit codes: 0 done, 1 failed or a replay that differs, 2 wrong usage, 3 a run or a
// compared arm whose verdict is void.
//
// It decides nothing that a library user could not.
package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"testbed/emu/deploy"
	"testbed/emu/scenario"
)

// version is set when the binary is linked.
var version = "unknown"

// Exit codes.
const (
	exitFailure = 1
	exitUsage   = 2
	exitVoid    = 3
)

// errVoid ends a run that prints no headline figure.
var errVoid = errors.New("the run is void: its figures may not be believed, and are not printed (the reasons are above and in the run directory)")

// usageError is a mistake on the command line.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// hinted is an error with advice on what to do.
type hinted struct {
	error
	hint string
}

func (e hinted) Unwrap() error { return e.error }

// exitCode passes on the code of a command that was run for the user.
type exitCode int

func (e exitCode) Error() string { return fmt.Sprintf("the command ended with exit code %d", int(e)) }

// app is what verbs share.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	json           bool
	state          string // directory of the testbeds' state
	shown          progressFlags
}

// Main runs one command line and returns the exit code.
func Main(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	a := &app{stdin: stdin, stdout: stdout, stderr: stderr}
	root := a.root()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	var code exitCode
	switch {
	case err == nil:
		return 0
	case errors.As(err, &code):
		return int(code)
	}
	// Mistakes in a scenario begin with their place, as editors want it.
	prefix := "testbed: "
	var mistakes *scenario.Errors
	if errors.As(err, &mistakes) {
		prefix = ""
	}
	for line := range strings.Lines(strings.TrimRight(err.Error(), "\n") + "\n") {
		fmt.Fprint(stderr, prefix, line)
	}
	var h hinted
	if errors.As(err, &h) {
		fmt.Fprintf(stderr, "hint: %s\n", h.hint)
	}
	var usage usageError
	switch {
	case errors.Is(err, errVoid):
		return exitVoid
	case errors.As(err, &usage) || strings.HasPrefix(err.Error(), "unknown command"):
		return exitUsage
	}
	return exitFailure
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "testbed",
		Short: "Emulate a leaf-spine cluster in network namespaces and compare policies on real packets",
		Long: `testbed builds an oversubscribed leaf-spine fabric out of network namespaces,
runs shuffles and replicated block writes in it under several policies, and
reports completion times measured from captured packets, each with a verdict of
how far it may be believed. The same policies also run on a fluid model, without
root, in seconds.

Each run leaves a directory: captures, CSV files, and report.html, one page with all
tables and charts, for any browser. "testbed compare" tells whether arms or runs
differ by more than chance, "testbed plot" draws figures for papers, and "testbed
report" computes everything again from the captures.`,
		Example: `  sudo testbed run scripts/quickstart/scenario.yaml
  testbed sim scripts/quickstart/scenario.yaml
  testbed plan scripts/quickstart/scenario.yaml | less
  sudo testbed up scripts/quickstart/scenario.yaml && sudo testbed exec h0-00 -- ping -c 3 10.3.4.1
  testbed report runs/quickstart-20260102-150405-ab12
  testbed compare runs/quickstart-20260102-150405-ab12`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usageError{fmt.Errorf("unknown command %q (testbed --help lists them)", args[0])}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usageError{fmt.Errorf("%w (%s --help shows the flags)", err, cmd.CommandPath())}
	})
	root.PersistentFlags().BoolVar(&a.json, "json", false, "print data as JSON")
	root.PersistentFlags().StringVar(&a.state, "state-dir", deploy.Root(), "where the state of testbeds is kept, also "+deploy.RootEnv)
	a.shown.add(root)
	root.PersistentPreRunE = func(*cobra.Command, []string) error { return a.shown.check() }
	root.AddGroup(&cobra.Group{ID: "run", Title: "Experiments:"}, &cobra.Group{ID: "hand", Title: "A testbed by hand:"}, &cobra.Group{ID: "machine", Title: "This machine:"})
	group := func(id string, cmds ...*cobra.Command) {
		for _, c := range cmds {
			c.GroupID = id
			root.AddCommand(c)
		}
	}
	group("run", a.runCmd(), a.simCmd(), a.validateCmd(), a.planCmd(), a.reportCmd(), a.compareCmd(), a.plotCmd(), a.exportCmd(), a.pcapCmd(), a.replayCmd(), a.graphCmd(), a.schemaCmd(), a.traceCmd(), a.workloadCmd())
	group("hand", a.upCmd(), a.downCmd(), a.psCmd(), a.inspectCmd(), a.execCmd(), a.shellCmd(), a.faultCmd())
	group("machine", a.doctorCmd(), a.calibrateCmd(), a.gcCmd(), a.versionCmd())
	return root
}

// exactly is cobra.ExactArgs with an error that is a usage error and shows the
// usage line.
func exactly(n int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != n {
			return usageError{fmt.Errorf("%s: %d arguments, want %d: %s", cmd.Name(), len(args), n, cmd.UseLine())}
		}
		return nil
	}
}

// runsOrList wants run directories, or none with --list.
func runsOrList(list *bool) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case *list && len(args) > 0:
			return usageError{fmt.Errorf("%s --list: want no run", cmd.Name())}
		case !*list && len(args) == 0:
			return usageError{fmt.Errorf("%s: no run: want run directories, or --list", cmd.Name())}
		}
		return nil
	}
}

// print writes v as JSON, or with text.
func (a *app) print(v any, text func(io.Writer) error) error {
	if !a.json {
		return text(a.stdout)
	}
	enc := json.NewEncoder(a.stdout)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// needRoot refuses early, before anything is half done.
func needRoot(verb string) error {
	if os.Geteuid() != 0 {
		return hinted{fmt.Errorf("%s: making network namespaces needs root, this is user %d", verb, os.Geteuid()),
			fmt.Sprintf("run it with sudo; testbed sim does the same on the fluid model without root, and %q shows what this machine lacks", "testbed doctor")}
	}
	return nil
}

func (a *app) versionCmd() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Args: exactly(0),
		Example: "  testbed version --json",
		RunE: func(*cobra.Command, []string) error {
			v := struct {
				Version string `json:"version"`
				Go      string `json:"go"`
				OS      string `json:"os"`
				Arch    string `json:"arch"`
			}{version, runtime.Version(), runtime.GOOS, runtime.GOARCH}
			return a.print(v, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "testbed %s (%s, %s/%s)\n", v.Version, v.Go, v.OS, v.Arch)
				return err
			})
		},
	}
}
