// Package cli is the command line: one file per command, each a thin layer over
// emu/runner, emu/deploy and emu/kernel. Results go to standard output,
// progress and errors to standard error, so that output can be piped.
// ExitCodes lists the exit codes.
//
// It contains no logic that a program using the packages would lack.
package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"testbed/emu/deploy"
	"testbed/emu/scenario"
	"testbed/emu/suite"
	"testbed/results/safefile"
	"testbed/topo/magic"
	"testbed/topo/units"
	"testbed/topo/words"
)

// Exit codes.
const (
	exitFailure = 1
	exitUsage   = 2
	exitVoid    = 3
	exitRefused = 4
	exitGate    = 5
)

// ExitCodes is the list of exit codes in help and documentation.
const ExitCodes = `  0    success
  1    failure, interrupt, or a replay that differs
  2    incorrect usage
  3    the verdict of an arm is void: its results are withheld
  4    refused before the start: the machine lacks capacity, memory or a kernel feature
       suite: a required claim is not reproduced
  5    compare: a gate failed (--fail-if)
  126  exec, shell: the command cannot be executed
  127  exec, shell: command not found
  exec and shell otherwise return the exit code of the command that they run
`

// errVoid is the error of a run that prints no headline figure.
var errVoid = errors.New("run is void: fidelity checks failed, results withheld (the reasons are above and in report.md)")

// usageError is an error on the command line.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// hinted is an error with advice on what to do.
type hinted struct {
	error
	hint string
}

func (e hinted) Unwrap() error { return e.error }

// refusal is the error of work that was not started because this machine lacks the
// capacity for it.
type refusal interface {
	error
	Refused()
}

// exitCode ends the program with a code and without a message.
type exitCode int

func (e exitCode) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// notRun is the error of a command that could not be started, with the exit code that
// shells return for it.
type notRun struct {
	error
	code int
}

func (e notRun) Unwrap() error { return e.error }

// app holds what commands share.
type app struct {
	args   []string // of the command line, without the program's name
	stdin  io.Reader
	stdout *output
	stderr io.Writer // of visible text
	screen io.Writer // standard error for progress, which moves the cursor
	json   bool
	state  string // directory of the testbeds' state
	shown  progressFlags

	mu        sync.Mutex
	computes  bool // the command can end at once without losing anything
	abandoned bool // it was interrupted and ends at once
}

// output is standard output for text, which it writes as words.Visible: names in captures and
// runs of others reach the terminal as text. It keeps the first error, since some writers
// discard theirs.
type output struct {
	w   io.Writer
	err error
}

func (o *output) Write(p []byte) (int, error) { return o.keep(words.VisibleWriter(o.w).Write(p)) }

// exact is standard output for bytes that are no text, or that move the cursor.
type exact struct{ *output }

func (o exact) Write(p []byte) (int, error) { return o.keep(o.w.Write(p)) }

func (o *output) keep(n int, err error) (int, error) {
	if err != nil {
		err = fmt.Errorf("write standard output: %w", safefile.Reason(err))
		o.err = cmp.Or(o.err, err)
	}
	return n, err
}

// Main runs one command line and returns the exit code.
func Main(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	out := &output{w: stdout}
	screen := stderr
	stderr = words.VisibleWriter(stderr)
	a := &app{args: args, stdin: stdin, stdout: out, stderr: stderr, screen: screen}
	root := a.root()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(out)
	root.SetErr(stderr)
	err := a.run(ctx, root)
	if !errors.Is(err, errInterrupted) && out.err != nil && !errors.Is(err, out.err) { // help and completion do not return it
		err = errors.Join(err, out.err)
	}
	var code exitCode
	switch {
	case err == nil:
		return 0
	case errors.As(err, &code):
		return int(code)
	}
	text := err.Error()
	var notText *magic.NotTextError
	if errors.As(err, &notText) {
		said := notText.Error()
		notText.Command = pipeline(args, notText.Kind)
		text = strings.ReplaceAll(text, said, notText.Error())
	}
	// Errors in a scenario or a suite begin with their position, the format that editors parse.
	prefix := "testbed: "
	var inScenario *scenario.Errors
	var inSuite suite.FileError
	if errors.As(err, &inScenario) || errors.As(err, &inSuite) {
		prefix = ""
	}
	for line := range strings.Lines(strings.TrimRight(units.ClipQuoted(text), "\n") + "\n") {
		fmt.Fprint(stderr, prefix, line)
	}
	var h hinted
	if errors.As(err, &h) {
		fmt.Fprintf(stderr, "hint: %s\n", h.hint)
	}
	var usage usageError
	var refused refusal
	var command notRun
	switch {
	case errors.As(err, &command):
		return command.code
	case errors.Is(err, errVoid):
		return exitVoid
	case errors.Is(err, errGate):
		return exitGate
	case errors.As(err, &refused) || errors.Is(err, deploy.ErrUnsupported) || errors.Is(err, suite.ErrClaims):
		return exitRefused
	case errors.As(err, &usage) || strings.HasPrefix(err.Error(), "unknown command"): // the latter is cobra's
		return exitUsage
	}
	return exitFailure
}

// Help lists commands in the order in which they are added.
func init() { cobra.EnableCommandSorting = false }

// Command returns the command tree, for documentation that is generated from it.
func Command() *cobra.Command {
	a := &app{stdin: strings.NewReader(""), stdout: &output{w: io.Discard}, stderr: io.Discard}
	return a.root()
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "testbed",
		Short: "Emulate leaf-spine clusters and compare policies on real packets",
		Long: `testbed emulates leaf-spine clusters with network namespaces on one Linux machine. It runs
shuffles (coflows) and replicated block writes over real TCP under several policies, and
reports completion times from captured packets, each with a verdict on its fidelity.`,
		Example: `  sudo testbed doctor                                  # what this machine lacks
  testbed demo --sim                                   # fluid model: seconds, no root
  sudo testbed demo                                    # real packets: about two minutes
  testbed init                                         # a scenario to change
  testbed compare RUN                                  # confidence intervals of the speed-ups
  testbed plot RUN --figure cct-cdf -o cct.pdf         # a figure for a paper
  testbed completion bash --help                       # completion in the shell`,
		Version:       version,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetVersionTemplate(built().String())
	root.Flags().Bool("version", false, "print the version") // -v is not a common name of it
	root.SetUsageTemplate(root.UsageTemplate() + "{{if not .HasParent}}\nExit codes:\n" + ExitCodes + "{{end}}")
	root.SetFlagErrorFunc(unknownFlag)
	root.PersistentFlags().BoolVar(&a.json, "json", false, "write JSON")
	root.PersistentFlags().StringVar(&a.state, "state-dir", deploy.Root(), "`directory` of the state of testbeds (also "+deploy.RootEnv+")")
	a.shown.add(root)
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		flags := cmd.Flags()
		for cmd.HasParent() && cmd.Parent().HasParent() {
			cmd = cmd.Parent()
		}
		a.mu.Lock()
		a.computes = slices.Contains(computing, cmd.Name())
		a.mu.Unlock()
		return errors.Join(emptyPath(flags), a.shown.check())
	}
	root.AddGroup(&cobra.Group{ID: "run", Title: "Experiments:"}, &cobra.Group{ID: "hand", Title: "A testbed by hand:"}, &cobra.Group{ID: "machine", Title: "This machine:"})
	root.SetCompletionCommandGroupID("machine")
	root.SetHelpCommandGroupID("machine")
	group := func(id string, cmds ...*cobra.Command) {
		for _, c := range cmds {
			c.GroupID = id
			root.AddCommand(c)
		}
	}
	group("run", a.demoCmd(), a.initCmd(), profiled(a.runCmd()), profiled(a.simCmd()), a.shardsCmd(), a.mergeCmd(), a.suiteCmd(), a.validateCmd(), a.planCmd(), profiled(a.reportCmd()), a.compareCmd(), a.plotCmd(), a.exportCmd(), a.pcapCmd(), a.replayCmd(), a.graphCmd(), a.runsCmd(), a.schemaCmd(), a.policyCmd(), a.traceCmd(), a.workloadCmd(), a.gymCmd())
	group("hand", a.upCmd(), a.downCmd(), a.psCmd(), a.inspectCmd(), a.execCmd(), a.shellCmd(), a.faultCmd())
	group("machine", a.doctorCmd(), a.calibrateCmd(), a.gcCmd(), a.versionCmd())
	root.AddCommand(a.guardCmd())
	root.SetOut(a.stdout) // which the completion commands keep
	root.InitDefaultCompletionCmd()
	root.InitDefaultHelpCmd()
	for _, c := range root.Commands() {
		switch c.Name() {
		case "completion":
			c.Short = "Generate the completion script of a shell"
			c.Example = `  source <(testbed completion bash)                                       # in this shell
  testbed completion bash > /usr/share/bash-completion/completions/testbed   # as root, for all`
			subcommands(c)
		case "help":
			c.Short, c.Run = "Show the help of a command", nil
			c.RunE = func(_ *cobra.Command, args []string) error {
				of, rest, err := root.Find(args)
				if err != nil || len(rest) > 0 && of.HasSubCommands() {
					return unknownCommand(cmp.Or(of, root), rest)
				}
				of.InitDefaultHelpFlag() // as in "testbed COMMAND --help"
				return of.Help()
			}
		}
	}
	subcommands(root)
	root.SetGlobalNormalizationFunc(presentFlag)
	return root
}

// exactly accepts n arguments.
func exactly(n int) cobra.PositionalArgs { return between(n, n) }

// between accepts least to most arguments; a negative most is no limit. Its error is a
// usage error with the usage line.
func between(least, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) >= least && (most < 0 || len(args) <= most) {
			return nil
		}
		expected := fmt.Sprint(least)
		switch {
		case most < 0:
			expected += " or more"
		case most > least:
			expected += " to " + fmt.Sprint(most)
		}
		if expected += " argument"; least != 1 || most != 1 {
			expected += "s"
		}
		return usageError{fmt.Errorf("%s: expected %s, got %d (usage: %s)", cmd.Name(), expected, len(args), cmd.UseLine())}
	}
}

// runsOrList accepts run directories, or no argument with --list.
func runsOrList(list *bool) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case *list && len(args) > 0:
			return usageError{fmt.Errorf("%s --list: expected no run directory", cmd.Name())}
		case !*list && len(args) == 0:
			return usageError{fmt.Errorf("%s: expected run directories, or --list", cmd.Name())}
		}
		return nil
	}
}

// print writes v as JSON where that is set, otherwise with text.
func (a *app) print(v any, text func(io.Writer) error) error {
	if !a.json {
		return text(a.stdout)
	}
	enc := json.NewEncoder(a.stdout)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}
