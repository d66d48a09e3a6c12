package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"github.com/spf13/cobra"

	"testbed/emu/scenario"
	"testbed/results/rundir"
	"testbed/results/safefile"
	tables "testbed/results/table"
	"testbed/scripts"
)

func (a *app) demoCmd() *cobra.Command {
	var packets packetFlags
	var form forms
	var sim bool
	cmd := &cobra.Command{
		Use: "demo", Short: "Run the quickstart: four arms, on packets or the fluid model",
		Long: `Demo runs the scenario "quickstart", which the program brings, as "testbed run" does: two minutes on
packets, which requires root. With --sim it runs on the fluid model, as "testbed sim" does.
"testbed init" writes the scenario, to change it.`,
		Example: `  sudo testbed demo
  testbed demo --sim`,
		Args: exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			f := &scenarioFlags{cmd: cmd, example: scripts.Quickstart}
			scale := &scaleFlag{set: func() bool { return false }}
			args := []string{scripts.Quickstart}
			if sim {
				return a.execute(cmd.Context(), f, scale, &choiceFlags{}, &form, args, packets.store.out,
					rundir.Fluid, onFluid)
			}
			complete := a.onPackets("demo", "without root: testbed demo --sim", &packets)
			return a.execute(cmd.Context(), f, scale, &choiceFlags{}, &form, args, packets.store.out, rundir.Packets,
				complete)
		},
	}
	cmd.Flags().BoolVar(&sim, "sim", false, "run on the fluid model, without root")
	packets.add(cmd)
	form.add(cmd, "arm and metric")
	return cmd
}

// example is a row of the list of examples.
type example struct {
	Name  string `json:"name"`
	About string `json:"about"`
}

func (a *app) initCmd() *cobra.Command {
	var list bool
	var out string
	var names []string
	for _, e := range scripts.Examples() {
		names = append(names, e.Name)
	}
	cmd := &cobra.Command{
		Use: "init [EXAMPLE]", Short: "Write a scenario to begin with, from the examples of the program",
		Long: `Init writes an example, the quickstart by default, into a directory of its name: a scenario with
comments, and the traces that it reads. It replaces no file. --list shows the examples.`,
		Example: `  testbed init --list
  testbed init
  testbed init jobs -o mine
  testbed sim mine/jobs.yaml`,
		Args:      between(0, 1),
		ValidArgs: names,
		RunE: func(_ *cobra.Command, args []string) error {
			if list {
				return a.listExamples()
			}
			name := scripts.Quickstart
			if len(args) > 0 {
				name = args[0]
			}
			e, err := scripts.Find(name)
			if err != nil {
				return usageError{fmt.Errorf("init: %w", err)}
			}
			if out == "" {
				out = name
			}
			to, err := writeExample(e, out)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(a.stdout, "wrote %s\nnext: %s sim %s, or on packets: %s\n",
				to, quote(program()), quote(to), a.invocation("run", to))
			return err
		},
	}
	addList(cmd, &list, "the examples")
	addOutput(cmd, &out, "", "directory, default: one with the name of the example")
	return cmd
}

func (a *app) listExamples() error {
	t := tables.Table{Head: []string{"example", "about"}, Columns: []tables.Column{tables.Names(), tables.Prose()}}
	var all []example
	for _, e := range scripts.Examples() {
		text, err := scripts.Files().ReadFile(e.Path)
		if err != nil {
			return err
		}
		about := example{e.Name, scripts.About(text)}
		all = append(all, about)
		t.Rows = append(t.Rows, []string{about.Name, about.About})
	}
	return a.print(all, func(w io.Writer) error { return drawTable(w, t, terminalStyle(0)) })
}

// loadExample reads the scenario of an example.
func loadExample(name string, o scenario.Options) (*scenario.Scenario, error) {
	e, err := scripts.Find(name)
	if err != nil {
		return nil, err
	}
	text, err := scripts.Files().ReadFile(e.Path)
	if err != nil {
		return nil, err
	}
	o.Open = scripts.Files().Open
	return scenario.Parse(e.Path, text, o)
}

// writeExample writes all files of an example into a directory, or none, and returns the path of
// the scenario. Commands in comments name the scenario there.
func writeExample(e scripts.Example, dir string) (_ string, err error) {
	if err := safefile.MkdirAll(dir); err != nil {
		return "", err
	}
	var written []string
	defer func() {
		if err != nil {
			for _, path := range written {
				err = errors.Join(err, os.Remove(path))
			}
		}
	}()
	from := path.Dir(e.Path)
	for _, name := range append([]string{path.Base(e.Path)}, e.Reads...) {
		text, err := scripts.Files().ReadFile(path.Join(from, name))
		if err != nil {
			return "", err
		}
		to := filepath.Join(dir, name)
		f, err := safefile.Create(to)
		if errors.Is(err, fs.ErrExist) {
			return "", hinted{fmt.Errorf("init: %s exists and is not replaced: no file is written", to),
				"choose another directory with -o DIR"}
		}
		if err != nil {
			return "", err
		}
		written = append(written, to)
		_, err = f.Write(bytes.ReplaceAll(text, []byte("scripts/"+from+"/"), []byte(filepath.Clean(dir)+"/")))
		if err := errors.Join(err, f.Close()); err != nil {
			return "", fmt.Errorf("write %s: %w", to, err)
		}
	}
	return written[0], nil
}
