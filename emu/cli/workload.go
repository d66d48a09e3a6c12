package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"testbed/emu/scenario"
	"testbed/results/safefile"
	tables "testbed/results/table"
	"testbed/topo"
	"testbed/workloads"
	"testbed/workloads/jobs"
)

// workloadCmd is the group of verbs for workload files.
func (a *app) workloadCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use: "workload", Short: "Generate and describe workload files",
		Long: `Workload works on files that hold all work of a cluster in one run: coflows with their
flows, writers with their blocks, jobs, and background traffic. They are text, and can be
read, edited and kept; a scenario replays one with an item of kind workload.
docs/workloads.md explains the format and how workloads are drawn.

The verbs under jobs work on jobs of map and reduce tasks.`,
		Example: `  testbed workload generate scenario.yaml -o jobs.workload
  testbed workload info jobs.workload
  testbed workload jobs generate bm --tasks 1/8 -o bm.yaml`,
	}
	return subcommands(cmd, a.workloadGenerateCmd(), a.workloadInfoCmd(), a.workloadJobsCmd())
}

func (a *app) workloadGenerateCmd() *cobra.Command {
	var f scenarioFlags
	var out string
	var repeat int
	var force bool
	cmd := &cobra.Command{
		Use: "generate SCENARIO -o FILE", Short: "Write the workload of a scenario as a file",
		Long: `Generate draws the workload of one repeat of a scenario, as a run does, and writes it to a
workload file. On the fabric of the scenario, the file replays as the same workload with
the same ids, so paths and placement draws are the same too. FILE may be -, standard
output. With --json it prints the statistics of "workload info".`,
		Example: `  testbed workload generate scenario.yaml -o jobs.workload
  testbed workload generate scenario.yaml --set seed=7 --repeat 2 -o - | less`,
		Args: exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case out == "":
				return usageError{fmt.Errorf("workload generate: no output: give -o FILE, or -o - for standard output")}
			case repeat < 0:
				return usageError{fmt.Errorf("--repeat %d: must be 0 or more", repeat)}
			case a.json && out == stdio:
				return usageError{fmt.Errorf("workload generate: --json and -o - exclude each other: both write to standard output")}
			}
			if out != stdio && !force {
				if _, err := os.Lstat(out); err == nil {
					return hinted{fmt.Errorf("workload generate: %s exists", out), "use --force to replace it"}
				} else if !errors.Is(err, fs.ErrNotExist) {
					return fmt.Errorf("workload generate: %w", err)
				}
			}
			s, err := f.one(args[0])
			if err != nil {
				return err
			}
			if most := s.Spec.Repeat.AtMost; repeat >= most {
				return usageError{fmt.Errorf("--repeat %d: must be below %d, the number of repeats of the scenario (the first is 0)", repeat, most)}
			}
			fabric, err := s.Shape().Build()
			if err != nil {
				return err
			}
			if slices.ContainsFunc(s.Spec.Workload, func(i scenario.Item) bool { return i.Tasks != nil }) {
				return hinted{fmt.Errorf("workload generate: %s has jobs of tasks, which a workload file cannot hold", args[0]), "use testbed workload jobs generate for a job file"}
			}
			w, notes, err := s.Workload(fabric, repeat)
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
			} else if err := safefile.Write(out, write); err != nil {
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
	f.addPoint(cmd)
	addOutput(cmd, &out, "", "file, - for standard output; required")
	addRepeat(cmd, &repeat, "default: 0")
	addForce(cmd, &force, "replace an existing file")
	return cmd
}

func (a *app) workloadInfoCmd() *cobra.Command {
	var width widthFlag
	cmd := &cobra.Command{
		Use: "info FILE", Short: "Describe a workload file: jobs by bin, bytes into racks",
		Long: `Info prints the number of jobs, coflows and writers of a workload file, their bytes, jobs
by bin, and for each rack the bytes from other racks. Bytes of blocks exclude replicas,
since the placement policy chooses their hosts. FILE may be -, standard input.`,
		Example: `  testbed workload info jobs.workload
  testbed workload info jobs.workload --json | jq '.bins'`,
		Args: exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := width.check(); err != nil {
				return err
			}
			w, err := a.readWorkload(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			stats := w.Stats()
			return a.print(stats, func(out io.Writer) error { return drawWorkload(out, stats, width.style(a)) })
		},
	}
	width.add(cmd)
	return cmd
}

// readWorkload reads a workload file or standard input.
func (a *app) readWorkload(ctx context.Context, path string) (*workloads.WorkloadFile, error) {
	f, err := a.text(ctx, "workload", path)
	if err != nil {
		return nil, err
	}
	defer f.Close() // only read from: closing has nothing to lose
	w, err := workloads.ReadWorkload(f.name, f)
	return w, f.refuse(err, jobs.FormatWorkload)
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
