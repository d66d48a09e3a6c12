package report

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"testbed/results/metrics"
)

// plain escapes text that would be read as markup.
func plain(s string) string {
	return strings.NewReplacer("|", `\|`, "*", `\*`, "_", `\_`, "<", "&lt;", "`", "\\`", "\n", " ").Replace(s)
}

// Markdown writes the tables, the definitions of their figures, the verdicts and all
// problems.
func (r *Report) Markdown(w io.Writer) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# Run %s\n\nScenario: %s. %s\n", plain(r.in.RunID), plain(r.in.Scenario), r.source())
	if r.in.Ran != "" {
		fmt.Fprintf(&b, "\n%s\n", plain(r.in.Ran))
	}
	fmt.Fprintf(&b, "\n**%s**\n", plain(r.Summary.Sentence()))
	if r.in.Partial != nil {
		fmt.Fprintf(&b, "\n%s\n", plain(r.in.Partial.String()))
	}
	tables := slices.Concat(r.tables(), r.figureTables("fct_slowdown"), r.longTimeTables(), r.figureTables("coordinator"))
	if len(tables) == 0 {
		b.WriteString("\nNothing was measured: there is no record of any coflow, flow or block.\n")
	}
	for _, t := range tables {
		fmt.Fprintf(&b, "\n## %s\n\n", t.title)
		for _, row := range t.rows {
			row[0] = plain(row[0]) // the arm's name; the other cells need no escape
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
		b.WriteString("\n## Why attempts did not pass\n")
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
		for i, v := range a.Verdicts {
			k := a.Numbers.Of(i)
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

// definitionLines returns the definition of each figure. The baseline's name is already
// escaped for the form.
func (r *Report) definitionLines(baseline string) []string {
	var out []string
	if r.in.FluidModel {
		out = append(out, "All times are computed by the fluid model: flows share links max-min fairly within their rate caps, without packets, queues or losses. Nothing was measured.",
			"Coflow completion time (CCT): from the arrival of the coflow to the end of its last flow.",
			"Flow completion time (FCT): from the arrival of the flow's coflow to the end of the flow.",
			"Block write time: from the request to the moment when the last replica is written.")
	} else {
		out = append(out, "All times are nanosecond timestamps of captured packets, from one clock.",
			"Coflow completion time (CCT): from the arrival of the coflow, as recorded in its mark, to the end of its last flow. A coflow with an unfinished flow has no CCT; it is listed under the problems.",
			"Flow completion time (FCT): from the arrival of the flow's coflow to the packet, at the receiver's interface, that completes the flow's bytes.",
			"Block write time: from the write request, as recorded in its mark, or from placement if the block waited for it, to the packet, at the client's interface, that completes the acknowledgements.")
	}
	out = append(out, r.placementDefinitions()...)
	out = append(out, r.taskDefinitions()...)
	out = append(out, r.withoutBackground()...)
	out = append(out, "n: items of all repeats of an arm, pooled; \"19 of 30\" if 11 of the 30 that completed have no record. average: arithmetic mean. P50, P95, P99: percentiles, linearly interpolated between the nearest ranks (rank p·(n−1) from 0, the default of numpy). With 100 items or fewer, P99 lies between the two largest values and adds little to the maximum.",
		"★: the lowest average, shown if all arms have the same items. A paired speed-up whose 95 % interval includes 1 is not significant.",
		"repeats ±: standard deviation of the repeats' averages over their mean, shown if an arm has several repeats.",
		"speed-up: the baseline's average over the arm's average, if both have the same items. The baseline is the first arm, "+baseline+".",
		"paired [95 %]: the paired speed-up with its 95 % confidence interval: the geometric mean of the baseline's time over the arm's time, for the items that both arms have in the same repeat. The interval comes from a bootstrap over clusters, which are assumed independent: a coflow with its flows and repeats, or all blocks that one client writes. Differences between repeats widen it. \""+metrics.FewPairsMark+"\": "+metrics.FewPairs+" (clusters), too few for an interval.")
	out = append(out, r.intervals()...)
	if !r.in.FluidModel {
		out = append(out, "fluid average: the fluid model's average for the items that the captures have too. measured/fluid: the measured average of these items over that average.")
		out = append(out, timeDefinitions(r.timed())...)
		out = append(out, "verdict: the worst verdict of the arm's repeats. A void arm shows no figures. unverified: there is no fidelity record to judge by.")
	}
	return out
}
