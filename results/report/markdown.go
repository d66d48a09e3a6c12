package report

import (
	"bytes"
	"fmt"
	"io"
	"strings"
)

// plain keeps text from being read as markup.
func plain(s string) string {
	return strings.NewReplacer("|", `\|`, "*", `\*`, "_", `\_`, "<", "&lt;", "`", "\\`", "\n", " ").Replace(s)
}

// Markdown writes the tables, how their figures are defined, the verdicts and
// all problems.
func (r *Report) Markdown(w io.Writer) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# Run %s\n\nScenario: %s. %s\n", plain(r.in.RunID), plain(r.in.Scenario), r.source())
	if r.in.Partial != nil {
		fmt.Fprintf(&b, "\n%s\n", plain(r.in.Partial.String()))
	}
	tables := append(append(r.tables(), r.longTimeTables()...), r.coordinatorTable()...)
	if len(tables) == 0 {
		b.WriteString("\nNothing was measured: no coflow, flow or block has a record.\n")
	}
	for _, t := range tables {
		fmt.Fprintf(&b, "\n## %s\n\n", t.title)
		for _, row := range t.rows {
			row[0] = plain(row[0]) // the arm's name; the rest is ours
		}
		if err := t.markdown(&b); err != nil {
			return err
		}
		for _, n := range t.notes {
			fmt.Fprintf(&b, "\n%s\n", plain(n))
		}
	}
	for _, note := range r.untimed() {
		fmt.Fprintf(&b, "\n%s\n", plain(note))
	}
	if c := r.Summary.ScaleCheck; c != nil {
		if err := r.scaleMarkdown(&b, c); err != nil {
			return err
		}
	}
	if reasons := r.reasons(); len(reasons) > 0 {
		b.WriteString("\n## Why arms did not pass\n")
		for _, reason := range reasons {
			fmt.Fprintf(&b, "\n%s\n\n", plain(reason.heading))
			for _, c := range reason.checks {
				fmt.Fprintf(&b, "- %s\n", plain(c))
			}
		}
	}
	r.checks(&b)
	for i, a := range r.Summary.Arms {
		if len(a.Problems) == 0 {
			continue
		}
		fmt.Fprintf(&b, "\n## Problems in the records of %s\n\n", plain(r.Summary.Arms[i].Name))
		for _, p := range a.Problems {
			fmt.Fprintf(&b, "- %s\n", plain(p))
		}
	}
	r.definitions(&b)
	_, err := w.Write(b.Bytes())
	return err
}

// checks lists every check of every repeat, passed or not.
func (r *Report) checks(b *bytes.Buffer) {
	if r.in.FluidModel {
		return
	}
	b.WriteString("\n## Fidelity checks\n\n| arm | repeat | check | measured | pass | void | verdict |\n| --- | ---: | --- | --- | --- | --- | --- |\n")
	for _, a := range r.Summary.Arms {
		for k, v := range a.Verdicts {
			for _, c := range v.Checks {
				fmt.Fprintf(b, "| %s | %d | %s | %s | %s | %s | %s |\n", plain(a.Name), k, plain(c.Name), plain(c.Value), plain(c.Pass), plain(c.Void), c.Level)
			}
			if len(v.Checks) == 0 {
				fmt.Fprintf(b, "| %s | %d | none | %s | %s | %s | %s |\n", plain(a.Name), k, none, none, none, v.Level)
			}
		}
	}
}

func (r *Report) definitions(b *bytes.Buffer) {
	b.WriteString("\n## How the figures are defined\n\n")
	for _, d := range r.definitionLines(plain(r.Summary.Baseline)) {
		fmt.Fprintf(b, "- %s\n", d)
	}
}

// definitionLines say how each figure was computed, with the baseline's name as it
// is to be written.
func (r *Report) definitionLines(baseline string) []string {
	var out []string
	if r.in.FluidModel {
		out = append(out, "All times are the fluid model's: flows share links max-min fairly under their ceilings, without packets, queues or losses. Nothing was measured.",
			"Coflow completion time: from the arrival of the coflow to the end of its last flow.",
			"Flow completion time: from the arrival of the flow's coflow to its end.",
			"Block write time: from the request to the moment when the last replica is written.")
	} else {
		out = append(out, "All times are stamps of captured packets, nanoseconds, by one clock.",
			"Coflow completion time: from the arrival of the coflow, as its mark states it, to the end of its last flow. A coflow with a flow that did not finish has none; it is listed under the problems.",
			"Flow completion time: from the arrival of the flow's coflow to the packet, at the receiver's interface, that completes its bytes.",
			"Block write time: from the write request, as its mark states it, or from when it was placed where it had to wait, to the packet, at the client's interface, that completes the acknowledgements.")
	}
	out = append(out, r.placementDefinitions()...)
	out = append(out, r.withoutBackground()...)
	out = append(out, "n: items of all repeats of an arm, pooled. Average: arithmetic mean. P50, P95, P99: percentiles by linear interpolation between the nearest ranks, at rank p·(n−1) from 0, as numpy does by default: of 100 items or fewer P99 lies between the two longest, and says little more than the longest does.",
		"★: the least average, where all arms have the same items. Whether it is less by more than chance, the interval of the paired speed-up tells.",
		"repeats ±: standard deviation of the repeats' averages over their mean, shown where an arm has several repeats.",
		"speed-up: the baseline's average over the arm's. The baseline is the first arm, "+baseline+".",
		"paired [95 %]: the paired speed-up, the geometric mean, over the items that both arms have in the same repeat, of the baseline's time over the arm's, with a 95 % bootstrap interval that draws a coflow with all its repeats, flows with their coflow, and blocks with all that their client writes, as one. It takes those as independent.")
	if !r.in.FluidModel {
		out = append(out, "fluid average: what the fluid model predicts for the items that both it and the captures have; measured/fluid: the measured average of those items over it.")
		out = append(out, timeDefinitions(r.timed())...)
		out = append(out, "verdict: the worst over the arm's repeats. A void arm shows no figure. Unverified means that there is no fidelity record to judge by.")
	}
	return out
}
