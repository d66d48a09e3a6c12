package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"testbed/emu/experiment"
	"testbed/emu/scenario"
)

func (a *app) validateCmd() *cobra.Command {
	var f scenarioFlags
	cmd := &cobra.Command{
		Use: "validate SCENARIO", Short: "Check a scenario and the traces it names",
		Example: `  testbed validate scenario.yaml
  testbed validate scripts/quickstart/facebook.yaml --set trace=FB2010-1Hr-150-0.txt`,
		Args: exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := f.load(args[0])
			if err != nil {
				return err
			}
			p, err := experiment.Preview(cmd.Context(), s, false)
			if err != nil {
				return err
			}
			return a.print(p, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "%s: good: %s\n", args[0], p)
				return err
			})
		},
	}
	f.add(cmd)
	return cmd
}

func (a *app) planCmd() *cobra.Command {
	var f scenarioFlags
	cmd := &cobra.Command{
		Use: "plan SCENARIO", Short: "Print how a scenario's fabric would be built, and what running it would take",
		Long: `Plan prints each operation as the ip, tc or sysctl command it stands for, and ahead
of them, as comments, what the workload comes to, how long it would run and how
much of this machine it would take. Nothing is built.`,
		Example: `  testbed plan scenario.yaml | less
  testbed plan scenario.yaml --json | jq .load`,
		Args: exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := f.load(args[0])
			if err != nil {
				return err
			}
			c, err := a.calibration()
			if err != nil {
				return err
			}
			p, err := experiment.Predict(cmd.Context(), s, c)
			if err != nil {
				return err
			}
			return a.print(p, p.Script)
		},
	}
	f.add(cmd)
	return cmd
}

func (a *app) schemaCmd() *cobra.Command {
	return &cobra.Command{
		Use: "schema", Short: "Print the JSON schema of scenario files, for editors",
		Example: `  testbed schema > scenario.schema.json
  # then, as the first line of a scenario:
  # yaml-language-server: $schema=scenario.schema.json`,
		Args: exactly(0),
		RunE: func(*cobra.Command, []string) error {
			b, err := scenario.Schema()
			if err != nil {
				return err
			}
			_, err = a.stdout.Write(b)
			return err
		},
	}
}
