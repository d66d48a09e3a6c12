package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"testbed/results/files"
	tables "testbed/results/table"
	"testbed/topo"
	"testbed/workloads"
)

// workloadCmd is the group of verbs for workload files.
func (a *app) workloadCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use: "workload", Short: "Generate and describe workload files: coflows, writers and jobs",
		Long: `Workload works on files of all that a cluster is asked to do in one run: coflows with
their flows, writers with their blocks, jobs, and what is background. They are text, for
reading, changing and keeping; a scenario replays one with an item of kind workload.
docs/workloads.md explains the format and how workloads are drawn.`,
		Example: `  testbed workload generate scenario.yaml -o jobs.workload
  testbed workload info jobs.workload`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usageError{fmt.Errorf("workload: unknown command %q (testbed workload --help lists them)", args[0])}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.workloadGenerateCmd(), a.workloadInfoCmd())
	return cmd
}

func (a *app) workloadGenerateCmd() *cobra.Command {
	var f scenarioFlags
	var out string
	var repeat int
	var force bool
	cmd := &cobra.Command{
		Use: "generate SCENARIO -o FILE", Short: "Write the workload of a scenario as a file",
		Long: `Generate draws what a scenario asks of its cluster in one repeat, just as a run does, and
writes it as a workload file. On the fabric of the scenario the file replays as the same
workload, with the same IDs, so paths and draws of placements are the same too. FILE may
be -, standard output. With --json it prints what "workload info" tells of it.`,
		Example: `  testbed workload generate scenario.yaml -o jobs.workload
  testbed workload generate scenario.yaml --set seed=7 --repeat 2 -o - | less`,
		Args: exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case out == "":
				return usageError{fmt.Errorf("workload generate: no output: want -o FILE, or -o - for standard output")}
			case repeat < 1:
				return usageError{fmt.Errorf("--repeat %d: want 1 or more", repeat)}
			case a.json && out == stdio:
				return usageError{fmt.Errorf("workload generate: --json with -o -: want one of them on standard output")}
			}
			if out != stdio && !force {
				if _, err := os.Lstat(out); err == nil {
					return hinted{fmt.Errorf("workload generate: %s is there already", out), "--force replaces it"}
				} else if !errors.Is(err, fs.ErrNotExist) {
					return fmt.Errorf("workload generate: %w", err)
				}
			}
			s, err := f.load(args[0])
			if err != nil {
				return err
			}
			if repeat > s.Spec.Repeat {
				return usageError{fmt.Errorf("--repeat %d: the scenario has %d", repeat, s.Spec.Repeat)}
			}
			fabric, err := s.Shape().Build()
			if err != nil {
				return err
			}
			w, notes, err := s.Workload(fabric, repeat-1)
			if err != nil {
				return err
			}
			head := append([]string{fmt.Sprintf("scenario %s, seed %d, repeat %d", s.Spec.Name, s.Spec.Seed, repeat)}, notes...)
			write := func(to io.Writer) error { return workloads.WriteWorkload(to, fabric, w, head...) }
			if out == stdio {
				var b bytes.Buffer
				if err := write(&b); err != nil {
					return err
				}
				if _, err := a.stdout.Write(b.Bytes()); err != nil {
					return fmt.Errorf("write workload: %w", err)
				}
			} else if err := files.Write(out, write); err != nil {
				return err
			}
			stats := (&workloads.WorkloadFile{Racks: fabric.Racks(), Hosts: fabric.Hosts() / fabric.Racks(), Workload: w}).Stats()
			if a.json {
				return a.print(stats, nil)
			}
			_, err = fmt.Fprintf(a.stderr, "%s: %d jobs, %d coflows, %d of background, %d writers of %d blocks\n",
				out, stats.Jobs.Count, stats.Coflows.Count, stats.Background.Count, stats.Writers.Count, stats.Writers.Blocks)
			return err
		},
	}
	f.add(cmd)
	cmd.Flags().StringVarP(&out, "output", "o", "", "file to write, - is standard output (required)")
	cmd.Flags().IntVar(&repeat, "repeat", 1, "of which repeat, from 1")
	cmd.Flags().BoolVar(&force, "force", false, "replace the file if it is there")
	return cmd
}

func (a *app) workloadInfoCmd() *cobra.Command {
	var width int
	cmd := &cobra.Command{
		Use: "info FILE", Short: "Describe a workload file: jobs by bin, what comes into racks",
		Long: `Info prints how many jobs, coflows and writers a workload file has, what they move and
write, jobs by bin, and by rack what comes into it from other racks. Bytes of blocks are
without replicas, whose places are the policy's. FILE may be -, standard input.`,
		Example: `  testbed workload info jobs.workload
  testbed workload info jobs.workload --json | jq '.bins'`,
		Args: exactly(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if width < tables.LeastWidth {
				return usageError{fmt.Errorf("--width %d: want %d columns or more", width, tables.LeastWidth)}
			}
			w, err := a.readWorkload(args[0])
			if err != nil {
				return err
			}
			stats := w.Stats()
			return a.print(stats, func(out io.Writer) error { return drawWorkload(out, stats, terminalStyle(width)) })
		},
	}
	cmd.Flags().IntVar(&width, "width", tables.DefaultWidth, "columns that tables are to fit in")
	return cmd
}

// readWorkload reads a workload file or standard input.
func (a *app) readWorkload(path string) (*workloads.WorkloadFile, error) {
	if path == stdio {
		return workloads.ReadWorkload("standard input", a.stdin)
	}
	f, err := os.Open(path)
	if err != nil {
		var sys *fs.PathError
		if errors.As(err, &sys) {
			err = sys.Err
		}
		return nil, fmt.Errorf("read workload %s: %w", path, err)
	}
	defer f.Close() // only read from: closing has nothing to lose
	if info, err := f.Stat(); err != nil {
		return nil, fmt.Errorf("read workload %s: %w", path, err)
	} else if info.IsDir() {
		return nil, fmt.Errorf("read workload %s: it is a directory: want a file", path)
	}
	return workloads.ReadWorkload(path, f)
}

func drawWorkload(w io.Writer, s workloads.WorkloadStats, style tables.Style) error {
	var b strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-12s %s\n", name, fmt.Sprintf(format, args...))
	}
	seconds := func(x float64) time.Duration {
		return time.Duration(x * float64(time.Second)).Round(time.Millisecond)
	}
	mb := func(n int64) string { return grouped(float64(n/1000)/1000) + " MB" }
	line("fabric", "%d racks of %d hosts", s.Racks, s.HostsPerRack)
	if j := s.Jobs; j.Count > 0 {
		line("jobs", "%d from %v to %v, a mean gap of %v; they shuffle %s and write %s", j.Count, seconds(j.First), seconds(j.Last), seconds(j.MeanGap), mb(j.Shuffled), mb(j.Written))
	}
	for _, c := range []struct {
		name string
		workloads.CoflowsStat
	}{{"coflows", s.Coflows}, {"background", s.Background}} {
		if c.Count > 0 {
			line(c.name, "%d of %d flows and %s, the last at %v", c.Count, c.Flows, mb(c.Size), seconds(c.Last))
		}
	}
	if wr := s.Writers; wr.Count > 0 {
		line("writers", "%d of %d blocks and %s, %s with replicas; blocks of %s to %s bytes", wr.Count, wr.Blocks, mb(wr.Size), mb(wr.Stored), grouped(float64(wr.Smallest)), grouped(float64(wr.Largest)))
	}
	if r := s.Readers; r.Count > 0 {
		line("readers", "%d of %d blocks and %s", r.Count, r.Reads, mb(r.Size))
	}
	b.WriteByte('\n')
	if _, err := io.WriteString(w, style.Text(b.String())); err != nil {
		return err
	}
	if len(s.Bins) > 0 {
		t := tables.Table{Head: []string{"bin", "jobs", "of jobs", "written, MB", "of written", "shuffled, MB"}, Columns: []tables.Column{{Left: true}}}
		for _, r := range s.Bins {
			t.Rows = append(t.Rows, []string{fmt.Sprint(r.Bin), grouped(float64(r.Jobs)), shareOf(r.JobShare),
				grouped(float64(r.Written/1000) / 1000), shareOf(r.WrittenShare), grouped(float64(r.Shuffled/1000) / 1000)})
		}
		if err := drawTable(w, t, style); err != nil {
			return err
		}
	}
	t := tables.Table{Head: []string{"into", "coflows, MB", "background, MB", "of it", "writers", "written, MB"}, Columns: []tables.Column{{Left: true}}}
	for _, r := range s.Racked {
		t.Rows = append(t.Rows, []string{topo.LeafName(topo.RackID(r.Rack)), grouped(float64(r.Coflows/1000) / 1000), grouped(float64(r.Background/1000) / 1000),
			shareOf(r.Share), grouped(float64(r.Writers)), grouped(float64(r.Written/1000) / 1000)})
	}
	return drawTable(w, t, style)
}
