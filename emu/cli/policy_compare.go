package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"testbed/emu/flowsim/comparison"
	"testbed/emu/runner"
	"testbed/emu/views"
	"testbed/policies/catalog"
	"testbed/results/safefile"
	"testbed/topo/units"
	"testbed/topo/words"
)

// viewLimit is the flag that bounds files of views.
type viewLimit struct{ text string }

func (l *viewLimit) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&l.text, "file-size", views.DefaultLimits().File.String(), "largest `size` of a file of views")
}

func (l *viewLimit) limits() (views.Limits, error) {
	out := views.DefaultLimits()
	var err error
	if out.File, err = units.ParseBytes(l.text); err != nil || out.File <= 0 {
		return out, usageError{errors.Join(fmt.Errorf("--file-size %s: must be a positive size such as 1GB", l.text), err)}
	}
	out.Line = min(out.Line, out.File)
	return out, nil
}

func (a *app) policyRecordCmd() *cobra.Command {
	var arm, out, role string
	var repeat int
	var force bool
	var limit viewLimit
	cmd := &cobra.Command{
		Use: "record RUN", Short: "Write what a policy of a run was shown, and what it answered",
		Long: `Record steps the engine through the log of an arm and a repeat, as replay does, and writes each view of
the policy of a role with its answer: a line of JSON for each decision (docs/writing-a-policy.md).
Views of coflows show all that the engine knows, those of other roles what the policy needs.`,
		Example: `  testbed policy record runs/latest --arm sebf -o views.jsonl
  testbed policy record runs/latest --arm fair+sinbad --role placement --repeat 1 -o views.jsonl`,
		Args: exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			limits, err := limit.limits()
			if err := errors.Join(err, checkRole(role, true), checkOutput("policy record", out, force)); err != nil {
				return err
			}
			if repeat < 0 {
				return usageError{fmt.Errorf("--repeat %d: must be 0 or more", repeat)}
			}
			o := runner.RecordOptions{ReplayOptions: runner.ReplayOptions{Arm: arm, Repeat: repeat, Version: version}, Role: role, Limits: limits}
			var done *runner.Recorded
			write := func(w io.Writer) (err error) {
				done, err = runner.Record(cmd.Context(), args[0], o, w)
				return err
			}
			if out == stdio {
				return write(exact{a.stdout})
			}
			if err := safefile.Write(out, write); err != nil {
				return err
			}
			return a.print(done, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "%s: %s of %s policy %s in %s, repeat %d\n", out, words.Plural(done.Views, "view", "views"),
					role, done.Header.Policy, done.Header.Arm, repeat)
				return err
			})
		},
		ValidArgsFunction: completeDirs,
	}
	addArm(cmd, &arm, "default: the only one")
	addRepeat(cmd, &repeat, "default: the first")
	addRole(cmd, &role, catalog.RoleCoflow, "the recorded one")
	addOutput(cmd, &out, "", "file of views, or - for standard output")
	addForce(cmd, &force, "replace the file")
	limit.add(cmd)
	return cmd
}

// subject holds the flags that name a policy.
type subject struct {
	exec, wasm, parameters string
	timeout                time.Duration
}

func (s *subject) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&s.exec, catalog.Exec, "", "`command` of a process, run in the working directory")
	f.StringVar(&s.wasm, catalog.Wasm, "", "`file` of a WebAssembly module")
	f.StringVar(&s.parameters, "parameters", "", "parameters (JSON, for a process or module)")
	f.DurationVar(&s.timeout, "wait", 5*time.Second, "longest wait for an answer of a process")
}

// policy returns the policy that the flags or an argument name, and whether they name one.
func (s *subject) policy(a *app, role string, args []string) (p views.Policy, err error) {
	p = views.Policy{Role: role, Stderr: a.stderr, Params: map[string]any{}}
	given := 0
	if len(args) > 0 {
		given++
		named, err := comparison.ParsePolicy(role, args[0])
		if err != nil {
			return p, usageError{err}
		}
		if p.Name = named.Name; named.Params != nil {
			p.Params = named.Params
		}
	}
	if s.exec != "" {
		given++
		p.Name = catalog.Exec
		var words []any
		for _, word := range strings.Fields(s.exec) {
			words = append(words, word)
		}
		p.Params[catalog.Exec], p.Params["timeout"] = words, s.timeout
	}
	if s.wasm != "" {
		given++
		p.Name, p.Params[catalog.Wasm] = catalog.Wasm, s.wasm
	}
	if given != 1 {
		return p, usageError{fmt.Errorf("%d policies: give the name of one of the program, --exec or --wasm", given)}
	}
	if s.parameters != "" {
		var m map[string]any
		if err := json.Unmarshal([]byte(s.parameters), &m); err != nil || !catalog.IsExternal(p.Name) {
			return p, usageError{errors.Join(fmt.Errorf("--parameters %s: must be a JSON object, for --exec or --wasm", units.Clip(s.parameters)), err)}
		}
		p.Params["parameters"] = m
	}
	if err := errors.Join(catalog.All().Check(role, p.Name, p.Params)...); err != nil {
		return p, usageError{err}
	}
	return p, nil
}

func (a *app) policyCompareCmd() *cobra.Command {
	var of subject
	var limit viewLimit
	cmd := &cobra.Command{
		Use: "compare VIEWS [POLICY]", Short: "Compare the answers of a policy with recorded ones",
		Long: `Compare passes each view of a file of "testbed policy record" to a policy: one of the program, a process or a
module. It compares each answer with the recorded one, whatever was answered before, and prints the
number of equal ones, the first view with different answers, and the times of the decisions.

Exit code 1 means that an answer differs, or that the policy gave none.`,
		Example: `  testbed policy compare views.jsonl --exec 'python3 mine.py'
  testbed policy compare views.jsonl --wasm mine.wasm --parameters '{"alpha": 0.5}'
  testbed policy compare views.jsonl sebf:allocation=greedy
  testbed policy compare views.jsonl --exec ./mine --json | jq .first_difference`,
		Args: between(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			limits, err := limit.limits()
			if err != nil {
				return err
			}
			in, name, err := a.input(cmd.Context(), "views", args[0])
			if err != nil {
				return err
			}
			defer in.Close() // only read from
			r, err := views.NewReader(in, limits)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			p, err := of.policy(a, r.Role, args[1:])
			if err != nil {
				return err
			}
			done, err := views.Compare(cmd.Context(), r, p)
			if done == nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			if printed := a.print(done, func(w io.Writer) error { return printCompared(w, done) }); printed != nil {
				return printed
			}
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			if done.First != nil {
				return exitCode(exitFailure)
			}
			return nil
		},
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 0 {
				return []string{"jsonl"}, cobra.ShellCompDirectiveFilterFileExt
			}
			return policyNames(""), cobra.ShellCompDirectiveNoFileComp
		},
	}
	of.add(cmd)
	limit.add(cmd)
	return cmd
}

// mostView is the most of a view that is printed, in bytes.
const mostView = 2000

func printCompared(w io.Writer, t *views.Compared) error {
	var b strings.Builder
	of := t.Recorded
	fmt.Fprintf(&b, "%d of %s equal to those of %s policy %s", t.Equal, words.Plural(t.Views, "answer", "answers"), of.Role, of.Policy)
	if of.Problem != "" {
		fmt.Fprintf(&b, " (%s)", of.Problem)
	}
	fmt.Fprintf(&b, "\ndecisions take %v (p50), %v (p99), %v (most)\n", t.P50, t.P99, t.Most)
	if d := t.First; d != nil {
		fmt.Fprintf(&b, "first difference: view %d, %.6f s\n  recorded: %s\n  answer:   %s\n  view:     %s\n", d.N, d.Now.Seconds(),
			clip(string(d.Recorded), mostView), clip(string(d.Answer), mostView), clip(string(d.View), mostView))
	}
	_, err := io.WriteString(w, b.String())
	return err
}
