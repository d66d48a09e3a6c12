package cli

import (
	"fmt"
	"io"

	"github.com/olekukonko/tablewriter"
	"github.com/spf13/cobra"

	"testbed/emu/kernel"
)

func (a *app) doctorCmd() *cobra.Command {
	return &cobra.Command{
		Use: "doctor", Short: "Tell what this machine has and lacks", Args: exactly(0),
		Long: `Doctor looks at the kernel, its features and limits, and says what each one that is
missing costs. It changes nothing. It fails where something is missing without
which nothing runs.`,
		Example: "  sudo testbed doctor\n  testbed doctor --json",
		RunE: func(*cobra.Command, []string) error {
			facts := kernel.Probe()
			if err := a.print(facts, func(w io.Writer) error {
				t := tablewriter.NewTable(w)
				t.Header("what", "have", "detail", "without it")
				for _, f := range facts {
					have := "yes"
					if !f.Have {
						have = "no"
					}
					if err := t.Append(f.Name, have, f.Detail, f.Cost); err != nil {
						return err
					}
				}
				return t.Render()
			}); err != nil {
				return err
			}
			for _, f := range facts {
				if f.Needed && !f.Have {
					return fmt.Errorf("%s is missing: %s", f.Name, f.Cost)
				}
			}
			return nil
		},
	}
}
