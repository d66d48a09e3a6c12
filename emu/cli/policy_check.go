package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"testbed/emu/views"
	"testbed/policies/catalog"
	"testbed/results/safefile"
	"testbed/topo/words"
)

// defaultClusters is the number of random clusters of a check: about 2 s for a policy in Python.
const defaultClusters = 20

// checkResult is the JSON of a check.
type checkResult struct {
	*views.Checked
	Views string `json:"views,omitempty"` // path
}

func (a *app) policyCheckCmd() *cobra.Command {
	var of subject
	var role, out string
	o := views.CheckOptions{Clusters: defaultClusters, Limits: views.DefaultLimits()}
	cmd := &cobra.Command{
		Use: "check [POLICY]", Short: "Check that a policy keeps the contract, on random clusters",
		Long: `Check asks several instances of a policy to decide on random clusters, and compares: answers must be
complete, name only what the view shows, and exceed no capacity; instances with the same views must
give the same answers, which do not depend on what the policy does not need or on the values of IDs,
only on their order. A process must answer in time, and in its messages.

Of the clusters that show a problem, the smallest is reported, and its views are written to a file
that "testbed policy compare" reads. Exit code 1 means that there is a problem.`,
		Example: `  testbed policy check --exec 'python3 mine.py'
  testbed policy check --role tasks --exec 'python3 fair.py' --clusters 100
  testbed policy check --wasm mine.wasm --seed 2 --json
  testbed policy check sebf:allocation=greedy`,
		Args: between(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkRole(role, true); err != nil {
				return err
			}
			if o.Clusters <= 0 {
				return usageError{fmt.Errorf("--clusters %d: must be positive", o.Clusters)}
			}
			p, err := of.policy(a, role, args)
			if err != nil {
				return err
			}
			show := a.progress()
			o.Progress = func(n int) {
				show.show(state{stage: fmt.Sprintf("cluster %d/%d", n+1, o.Clusters), share: float64(n) / float64(o.Clusters)})
			}
			done, err := views.Check(cmd.Context(), p, o)
			show.done()
			if err != nil {
				return err
			}
			r := checkResult{Checked: done}
			if done.File != nil {
				r.Views = out
				if err := safefile.WriteData(out, done.File); err != nil {
					return err
				}
			}
			err = a.print(r, func(w io.Writer) error { return printChecked(w, r) })
			if err == nil && done.Problem != "" {
				err = exitCode(exitFailure)
			}
			return err
		},
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return policyNames(role), cobra.ShellCompDirectiveNoFileComp
		},
	}
	addRole(cmd, &role, catalog.RoleCoflow, "that is checked")
	of.add(cmd)
	cmd.Flags().IntVar(&o.Clusters, "clusters", o.Clusters, "number of random clusters")
	cmd.Flags().BoolVar(&o.ByID, "by-id", false, "allow answers that depend on the values of IDs, as those of random draws by ID do")
	addSeed(cmd, &o.Seed, "of the clusters")
	addOutput(cmd, &out, "failed-views.jsonl", "file of the views that show a problem, which is replaced")
	return cmd
}

func printChecked(w io.Writer, r checkResult) error {
	var b strings.Builder
	what := fmt.Sprintf("%s in %s", words.Plural(r.Decisions, "decision", "decisions"), words.Plural(r.Clusters, "cluster", "clusters"))
	if r.Problem == "" {
		fmt.Fprintf(&b, "OK: %s policy %s: %s\n", r.Role, r.Policy, what)
	} else {
		fmt.Fprintf(&b, "FAILS: %s policy %s: %d of %s\n  %s\n", r.Role, r.Policy, r.Failed, what, r.Problem)
		if r.Views != "" {
			fmt.Fprintf(&b, "  view:  %s\n  views: %s (testbed policy compare %s …)\n", clip(string(r.View), mostView), r.Views, r.Views)
		}
	}
	fmt.Fprintf(&b, "decisions take %v (p50), %v (p99), %v (most)\n", r.P50, r.P99, r.Most)
	_, err := io.WriteString(w, b.String())
	return err
}
