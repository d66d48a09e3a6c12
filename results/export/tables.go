package export

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"

	"testbed/results/rundir"
	"testbed/results/samples"
	"testbed/results/schema"
	"testbed/results/summary"
)

// Table is one table over all runs.
type Table struct {
	Name    string
	Doc     string
	Columns []schema.Column
	// rows calls row for the rows of all runs, structs that the columns read.
	rows func(runs []*rundir.Run, row func(reflect.Value) error) error
}

// exported is a row of a table.
type exported[T any] struct {
	Run string `csv:"run" doc:"ID of the run"`
	Row T      `csv:",inline"`
}

// table returns a table with the columns of T.
func table[T any](name, doc string, list func(*rundir.Run) []T) Table {
	return tableOf(name, doc, func(r *rundir.Run) ([]T, error) { return list(r), nil })
}

// tableOf returns a table with the columns of T, whose rows may be unreadable. Flags are its last columns.
func tableOf[T any](name, doc string, list func(*rundir.Run) ([]T, error)) Table {
	return streamOf(name, doc, func(r *rundir.Run, row func(T) error) error {
		all, err := list(r)
		for i := 0; i < len(all) && err == nil; i++ {
			err = row(all[i])
		}
		return err
	})
}

// streamOf is tableOf for rows that are not in memory at once: list calls row for each.
func streamOf[T any](name, doc string, list func(r *rundir.Run, row func(T) error) error) Table {
	t := Table{Name: name, Doc: doc, Columns: schema.Columns[exported[T]]()}
	flag := func(c schema.Column) int {
		if c.Type == schema.Bool {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(t.Columns, func(a, b schema.Column) int { return flag(a) - flag(b) })
	t.rows = func(runs []*rundir.Run, row func(reflect.Value) error) error {
		for _, r := range runs {
			x := exported[T]{Run: r.Summary.RunID}
			var failed error // of row, which states what it wrote
			err := list(r, func(of T) error {
				x.Row = of
				failed = row(reflect.ValueOf(&x).Elem())
				return failed
			})
			switch {
			case failed != nil:
				return failed
			case err != nil:
				return fmt.Errorf("read run %s: %w", r.Dir, err)
			}
		}
		return nil
	}
	return t
}

func (t Table) header() []string {
	names := make([]string, len(t.Columns))
	for i, c := range t.Columns {
		names[i] = c.Name
	}
	return names
}

// Tables returns all tables in the order in which they are written.
func Tables() []Table {
	return []Table{
		table("runs", "one row per run", func(r *rundir.Run) []runRow { return []runRow{runOf(r)} }),
		armTable(),
		table("slowdowns", "one row per arm and range of flow sizes: FCT over that of the same flow alone on the idle fabric", slowdownsOf),
		rackTable(),
		tableOf("trials", "one row per execution of an arm, void ones too; other tables join by run, arm and repeat", trialsOf),
		table("flows", "one row per flow", func(r *rundir.Run) []schema.Flow { return r.Flows }),
		table("coflows", "one row per coflow; held_us to latency_us are the parts of cct_us", func(r *rundir.Run) []schema.Coflow { return r.Coflows }),
		table("blocks", "one row per block; held_us to host_us are the parts of write_time_us", func(r *rundir.Run) []schema.Block { return r.Blocks }),
		table("requests", "one row per write request: all blocks of one writer", func(r *rundir.Run) []schema.Request { return r.Requests }),
		table("jobs", "one row per job; waiting_us to writing_us are the parts of job_time_us", func(r *rundir.Run) []schema.Job { return r.Jobs }),
		table("attempts", "one row per attempt of a task", func(r *rundir.Run) []schema.Attempt { return r.Attempts }),
		table("balance", "one row per interval of the balance of links", func(r *rundir.Run) []schema.Balance { return r.Balance }),
		table("breakdown", "one row per part of a coflow's completion time", func(r *rundir.Run) []schema.Share { return r.Breakdown }),
		table("progress", "one row per moment of a flow, or of a hop of a block's pipeline", func(r *rundir.Run) []schema.Moment { return r.Progress }),
		table("links", "one row per interval of a link", func(r *rundir.Run) []schema.Load { return r.Links }),
		table("drops", "one row per link", func(r *rundir.Run) []schema.Drop { return r.Drops }),
		streamOf("link_samples", "one row per reading of a link while packets pass, and the first and the last without: every 200 ms, and every 8 ms of half of them", linkSamples),
		streamOf("flow_samples", "one row per reading of a flow's connection that differs from the one before: every 20 ms, of up to 64 flows at a time", flowSamples),
	}
}

func linkSamples(r *rundir.Run, row func(schema.LinkSample) error) error {
	return r.Samples(func(k schema.Key, in *samples.Reader) error {
		for p, err := range in.LinkPoints() {
			if err == nil {
				err = row(schema.LinkSampleOf(k, p))
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

func flowSamples(r *rundir.Run, row func(schema.FlowSample) error) error {
	return r.Samples(func(k schema.Key, in *samples.Reader) error {
		for p, err := range in.FlowPoints() {
			if err == nil {
				err = row(schema.FlowSampleOf(k, p))
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// Find returns the table with a name.
func Find(name string) (Table, error) {
	var names []string
	for _, t := range Tables() {
		if t.Name == name {
			return t, nil
		}
		names = append(names, t.Name)
	}
	return Table{}, fmt.Errorf("no table %q: must be one of %s", name, strings.Join(names, ", "))
}

type runRow struct {
	Scenario    string     `csv:"scenario" doc:"name of the scenario"`
	Source      string     `csv:"source" doc:"packets or fluid model"`
	Baseline    string     `csv:"baseline" doc:"arm that speed-ups are relative to"`
	Directory   string     `csv:"directory" doc:"directory of the run"`
	State       string     `csv:"state" is:"null" doc:"complete, interrupted, failed or running; from here on null without manifest.json"`
	Seed        string     `csv:"seed" is:"null" doc:"seed, a decimal of up to 64 bits"`
	Vars        string     `csv:"vars" is:"null" doc:"swept variables and values, as JSON"`
	Repeats     *int       `csv:"repeats" doc:"requested repeats of each arm"`
	Workload    string     `csv:"workload_fingerprint" is:"null" doc:"equal for runs of the same scenario and traces"`
	ScaledBy    string     `csv:"scaled_by" is:"null" doc:"factor by which rates and sizes were divided"`
	Tool        string     `csv:"tool" is:"null" doc:"version of testbed"`
	Go          string     `csv:"go" is:"null" doc:"version of Go"`
	Kernel      string     `csv:"kernel" is:"null" doc:"kernel release"`
	CPUs        *int       `csv:"cpus" doc:"usable processors"`
	Calibration string     `csv:"calibration" is:"null" doc:"calibration of the links' token buckets"`
	Started     *time.Time `csv:"started" unit:"UTC" doc:"when the run began"`
	Ended       *time.Time `csv:"ended" unit:"UTC" doc:"when the run ended"`
}

func runOf(r *rundir.Run) runRow {
	row := runRow{Scenario: r.Summary.Scenario, Source: r.Summary.Source, Baseline: r.Summary.Baseline, Directory: r.Dir}
	if m := r.Manifest; m != nil {
		row.State, row.Seed, row.Repeats, row.Workload, row.ScaledBy = m.State, fmt.Sprint(m.Seed), &m.Repeats, m.Workload, m.ScaledBy
		row.Vars = object(m.Vars)
		row.Tool, row.Go, row.Kernel, row.CPUs, row.Calibration = m.Tool, m.Go, m.Kernel, &m.CPUs, m.Calibration
		row.Started, row.Ended = utc(m.Started), utc(m.Ended)
	}
	return row
}

// object returns values as a JSON object in their order, "" for none.
func object(values []rundir.Value) string {
	var parts []string
	for _, v := range values {
		name, _ := json.Marshal(v.Name) // a string always marshals
		value, _ := json.Marshal(v.Value)
		parts = append(parts, fmt.Sprintf("%s: %s", name, value))
	}
	if len(parts) == 0 {
		return ""
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

// trialRow is a rundir.Trial with what varied between the trials of its run and of other points of a sweep.
type trialRow struct {
	Arm         string     `csv:"arm" doc:"arm of the run"`
	Repeat      int        `csv:"repeat" doc:"repeat of the arm, from 0"`
	Verdict     string     `csv:"verdict" doc:"verdict when it ended; fluid model in a simulation"`
	Key         string     `csv:"key" doc:"digest of all that it depends on besides program and machine"`
	Seed        string     `csv:"seed" doc:"seed, a decimal of up to 64 bits"`
	Vars        string     `csv:"vars" is:"null" doc:"swept variables and values, as JSON"`
	Set         string     `csv:"set" is:"null" doc:"keys that arms set and values, as JSON"`
	Tool        string     `csv:"tool" doc:"version of testbed"`
	Executed    string     `csv:"executed_run" is:"null" doc:"run that executed it, before a merge; from here on null in a simulation"`
	Machine     string     `csv:"machine" is:"null" doc:"ID of the machine"`
	Kernel      string     `csv:"kernel" is:"null" doc:"kernel release"`
	CPUs        *int       `csv:"cpus" doc:"usable processors"`
	Calibration string     `csv:"calibration" is:"null" doc:"calibration of the links' token buckets"`
	Began       *time.Time `csv:"began" unit:"UTC" doc:"when the trial began"`
	Ended       *time.Time `csv:"ended" unit:"UTC" doc:"when the trial ended"`
}

func trialsOf(r *rundir.Run) (out []trialRow, err error) {
	all, err := r.Trials()
	for _, t := range all {
		row := trialRow{Arm: t.Arm, Repeat: t.Repeat, Verdict: summary.SourceFluidModel, Key: t.Key, Seed: fmt.Sprint(t.Seed),
			Vars: object(r.Manifest.Vars), Set: object(r.Manifest.Set[t.Arm]), Tool: t.Tool, Executed: t.Run,
			Machine: t.Machine, Kernel: t.Kernel, Calibration: t.Calibration, Began: utc(t.Began), Ended: utc(t.Ended)}
		if t.Verdict != nil {
			row.Verdict, row.CPUs = t.Verdict.String(), &t.CPUs
		}
		out = append(out, row)
	}
	return out, err
}

// utc returns nil for the zero time.
func utc(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

type slowdownRow struct {
	Arm   string  `csv:"arm" doc:"arm of the run"`
	Above int     `csv:"above_bytes" unit:"bytes" doc:"the flows are larger"`
	UpTo  *int    `csv:"up_to_bytes" unit:"bytes" doc:"they are not larger; null for no bound"`
	N     int     `csv:"n" doc:"flows of all repeats"`
	P50   float64 `csv:"p50" unit:"ratio" doc:"median slowdown"`
	P95   float64 `csv:"p95" unit:"ratio" doc:"95th percentile"`
	P99   float64 `csv:"p99" unit:"ratio" doc:"99th percentile"`
}

func slowdownsOf(r *rundir.Run) (out []slowdownRow) {
	for _, a := range r.Summary.Arms {
		for _, s := range a.FlowSlowdowns {
			row := slowdownRow{Arm: a.Name, Above: s.Above, N: s.N, P50: s.P50, P95: s.P95, P99: s.P99}
			if s.UpTo > 0 {
				row.UpTo = &s.UpTo
			}
			out = append(out, row)
		}
	}
	return out
}

type armRow struct {
	Arm           string `csv:"arm" doc:"name"`
	Set           string `csv:"set" is:"null" doc:"keys that arms set and values, as JSON"`
	Place         int    `csv:"place" doc:"position among the run's arms, from 0"`
	Repeats       int    `csv:"repeats" doc:"completed repeats"`
	Verdict       string `csv:"verdict" doc:"worst verdict of the repeats; fluid model in a simulation"`
	Problems      int    `csv:"problems" doc:"problems in the records"`
	FailedCoflows int    `csv:"failed_coflows" doc:"coflows with a flow that a fault ended"`
	FailedBlocks  int    `csv:"failed_blocks" doc:"blocks that a fault ended"`
	arm           *summary.Arm
}

// armTable returns the table of arms, whose last columns are the figures of summary.Declared.
func armTable() Table {
	t := table("arms", "one row per arm: the figures of summary.json; null if the arm is void", armsOf)
	for _, f := range summary.Figures() {
		if f.Column == "" || f.List != nil {
			continue
		}
		c := schema.Column{Name: f.Section + "_" + f.Column, Type: schema.Double, Unit: f.Unit.Name(), Doc: f.Doc,
			Optional: true}
		if f.Unit == summary.Count {
			c.Type = schema.Int
		}
		t.Columns = append(t.Columns, schema.Extra(c, func(row reflect.Value) any {
			x, ok := f.In(reflect.ValueOf(&row.Addr().Interface().(*exported[armRow]).Row.arm.Declared).Elem())
			switch {
			case !ok:
				return nil
			case c.Type == schema.Int:
				return int64(x)
			}
			return x
		}))
	}
	return t
}

type rackRow struct {
	Arm  string `csv:"arm" doc:"arm of the run"`
	Rack int    `csv:"rack" doc:"number of the rack, from 0"`
	arm  *summary.Arm
}

// rackTable returns the table of racks, whose last columns are the figures by rack of summary.Declared.
func rackTable() Table {
	var figures []*summary.Figure
	for _, f := range summary.Figures() {
		if f.Racks != "" {
			figures = append(figures, f)
		}
	}
	t := table("racks", "one row per arm and rack: the figures by rack of summary.json", func(r *rundir.Run) (out []rackRow) {
		for i := range r.Summary.Arms {
			a, racks := &r.Summary.Arms[i], 0
			for _, f := range figures {
				racks = max(racks, len(f.ByRack(&a.Declared)))
			}
			for rack := range racks {
				out = append(out, rackRow{a.Name, rack, a})
			}
		}
		return out
	})
	for _, f := range figures {
		c := schema.Column{Name: f.Racks, Type: schema.Double, Unit: f.Unit.Name(), Doc: f.Doc, Optional: true}
		t.Columns = append(t.Columns, schema.Extra(c, func(row reflect.Value) any {
			x := row.Addr().Interface().(*exported[rackRow]).Row
			if all := f.ByRack(&x.arm.Declared); x.Rack < len(all) && !math.IsNaN(all[x.Rack]) {
				return all[x.Rack]
			}
			return nil
		}))
	}
	return t
}

func armsOf(r *rundir.Run) (out []armRow) {
	for i := range r.Summary.Arms {
		a := &r.Summary.Arms[i]
		row := armRow{arm: a, Arm: a.Name, Place: i, Repeats: a.Repeats, Verdict: summary.SourceFluidModel,
			Problems: len(a.Problems)}
		if r.Manifest != nil {
			row.Set = object(r.Manifest.Set[a.Name])
		}
		if a.Verdict != nil {
			row.Verdict = a.Verdict.String()
		}
		if f := a.Failures; f != nil {
			row.FailedCoflows, row.FailedBlocks = f.Coflows, f.Blocks
		}
		out = append(out, row)
	}
	return out
}
