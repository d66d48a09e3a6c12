package compare

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"testbed/results/metrics"
	tables "testbed/results/table"
	"testbed/topo/words"
)

// none is the text of an empty cell.
const none = "–"

// label returns the arm's name, with its run if there are several.
func (s Side) label() string {
	if s.Run == "" {
		return s.Arm
	}
	return s.Run + " " + s.Arm
}

// figure returns the figure of a metric, nil if there is none.
func (c *Comparison) figure(m Metric) *Figure {
	for i := range c.Figures {
		if c.Figures[i].Metric == m {
			return &c.Figures[i]
		}
	}
	return nil
}

// sentence returns the result for a metric as a sentence.
func (c *Comparison) sentence(f *Figure) string {
	s := fmt.Sprintf("%s: %s compared with %s: ", f.Metric.short(), c.Arm.label(), c.Base.label())
	switch {
	case f.Pairs == 0:
		return s + "no item in common."
	case f.GeoMean.Outcome == TooFew:
		return s + fmt.Sprintf("%s: %d pairs of %d %s.", metrics.FewPairs, f.Pairs, f.Clusters, clusters(f.Metric))
	case f.MeanRatio.Outcome == NoneYet && f.GeoMean.Outcome == NoneYet:
		return s + "not significant."
	}
	// The geometric mean comes first: a few large items dominate the averages.
	if o := f.GeoMean.Outcome; o == Faster || o == Slower {
		return fmt.Sprintf("%s: %s is %s than %s, %s by %s (geometric mean); ratio of averages %s.", f.Metric.short(), c.Arm.label(), f.GeoMean.says(), c.Base.label(), f.Metric.noun(), f.Metric.noun(), f.MeanRatio.says())
	}
	return s + fmt.Sprintf("%s by %s (geometric mean) %s; ratio of averages %s.", f.Metric.noun(), f.Metric.noun(), f.GeoMean.says(), f.MeanRatio.says())
}

// clusters returns the noun for the clusters of a metric, in the plural.
func clusters(m Metric) string {
	switch m {
	case "fct":
		return CCT.noun() + "s"
	case "request_time":
		return "jobs or writers"
	case "write_time":
		return "writers"
	}
	return m.noun() + "s"
}

// numbered holds the arms that did not pass, in order of appearance.
type numbered struct {
	sides  []Side
	number map[string]int
}

func (r *Result) numbered() numbered {
	n := numbered{number: map[string]int{}}
	for _, c := range r.Comparisons {
		for _, s := range []Side{c.Base, c.Arm} {
			if s.Verdict != "pass" && s.Verdict != "fluid model" && n.number[s.label()] == 0 {
				n.sides = append(n.sides, s)
				n.number[s.label()] = len(n.sides)
			}
		}
	}
	return n
}

func (n numbered) mark(s Side) string {
	if k := n.number[s.label()]; k > 0 {
		return fmt.Sprintf("%s [%d]", s.Verdict, k)
	}
	return s.Verdict
}

// shape describes which columns the tables need.
type shape struct {
	base     *Side // the common baseline, nil if there are several
	over     bool  // some baselines differ in name from their arms
	unpaired bool
	marks    numbered
}

func (r *Result) shape() shape {
	s := shape{marks: r.numbered(), base: &r.Comparisons[0].Base}
	for i := range r.Comparisons {
		c := &r.Comparisons[i]
		if s.base != nil && c.Base.label() != s.base.label() {
			s.base = nil
		}
		s.over = s.over || c.Base.Arm != c.Arm.Arm
		for _, f := range c.Figures {
			s.unpaired = s.unpaired || f.Unpaired > 0
		}
	}
	return s
}

// title returns the heading of a metric's table.
func (s shape) title(m Metric) string {
	if s.base == nil {
		return m.Title()
	}
	return fmt.Sprintf("%s, relative to %s (%s)", m.Title(), s.base.label(), s.marks.mark(*s.base))
}

// table returns the table of a metric; ok is false if no arm has items.
func (r *Result) table(m Metric) (t tables.Table, title string, sentences []string, ok bool) {
	s := r.shape()
	add := func(head string, c tables.Column) { t.Head, t.Columns = append(t.Head, head), append(t.Columns, c) }
	add("arm", tables.Names())
	if s.base == nil {
		add("over", tables.Names())
	}
	add("n", tables.Column{Drop: 2})
	if s.unpaired {
		add("unpaired", tables.Column{Drop: 1})
	}
	add("averages [95 %]", tables.Column{Wrap: 20})
	add("median [95 %]", tables.Column{Drop: 3, Wrap: 20})
	add("geo mean [95 %]", tables.Column{Wrap: 20})
	add("verdict", tables.Column{Left: true, Wrap: 12})
	unpaired := false
	for i := range r.Comparisons {
		c := &r.Comparisons[i]
		row := []string{c.Arm.label()}
		level := s.marks.mark(c.Arm)
		if s.base == nil {
			// The name that arm and baseline share is shown once.
			base := c.Base.label()
			if !s.over {
				base = c.Base.Run
			}
			row = append(row, base)
			if of := s.marks.mark(c.Base); of != level {
				level = of + " / " + level
			}
		}
		f := c.figure(m)
		counts, ratios := []string{none, none}, []string{none, none, none}
		switch {
		case c.Refused != "":
			counts, ratios = []string{"void", "void"}, []string{"void", "void", "void"}
		case f != nil:
			counts = []string{strconv.Itoa(f.Pairs), strconv.Itoa(f.Unpaired)}
			if f.Pairs > 0 {
				ratios = []string{f.MeanRatio.String(), f.MedianRatio.String(), f.GeoMean.String()}
			}
		}
		if !s.unpaired {
			counts = counts[:1]
		}
		row = append(append(row, counts...), ratios...)
		if f != nil {
			ok = true
			sentences = append(sentences, c.sentence(f))
			if f.Unpaired > 0 {
				unpaired = true
			}
		}
		t.Rows = append(t.Rows, append(row, level))
	}
	if unpaired {
		sentences = append(sentences, fmt.Sprintf("Unpaired %ss, which only one of the two arms has, are excluded from the ratios.", m.noun()))
	}
	return t, s.title(m), sentences, ok
}

// head returns the lines before the tables.
func (r *Result) head() []string {
	var out []string
	for _, run := range r.Runs {
		s := fmt.Sprintf("%s: %s (%s)", run.Label, run.ID, run.Backend)
		if run.Label == "" {
			s = fmt.Sprintf("Run %s (%s)", run.ID, run.Backend)
		}
		out = append(out, s)
	}
	for _, v := range r.Varied {
		out = append(out, "varied: "+v.String())
	}
	for _, g := range r.Gates {
		out = append(out, g.String())
	}
	for _, n := range r.Notes {
		out = append(out, "note: "+n)
	}
	out = append(out, "Ratios are the baseline's time divided by the arm's, item by item: above 1 the arm is faster. An interval that includes 1 is not significant.")
	if s := r.noise(); s != "" {
		out = append(out, s)
	}
	return out
}

// noise returns a sentence on run-to-run noise in the intervals; "" without packets.
func (r *Result) noise() string {
	repeats := 0 // the least of any figure
	for _, c := range r.Comparisons {
		for _, f := range c.Figures {
			if f.Repeats > 0 && (repeats == 0 || f.Repeats < repeats) && (c.pairing.Base.Level != 0 || c.pairing.Arm.Level != 0) {
				repeats = f.Repeats
			}
		}
	}
	if repeats == 0 {
		return ""
	}
	return r.Noise.Sentence(repeats)
}

// footnotes returns the reasons why arms did not pass: a heading and lines for each.
func (r *Result) footnotes(say func(heading string, lines []string)) {
	for i, s := range r.numbered().sides {
		what := "is " + s.Verdict + ", its figures are doubtful"
		switch s.Verdict {
		case "void":
			what = "is void and not compared"
		case "unverified":
			what = "is unverified, no fidelity checks are recorded"
		}
		lines := s.Why
		if len(lines) == 0 {
			lines = []string{"no reason is recorded"}
		}
		say(fmt.Sprintf("[%d] %s %s:", i+1, s.label(), what), lines)
	}
}

// Terminal writes the comparison as tables within the style's width.
func (r *Result) Terminal(w io.Writer, style tables.Style) error {
	var b bytes.Buffer
	say := func(first, rest, text string) { _ = style.Paragraph(&b, first, rest, text) } // writes to a buffer do not fail
	for _, line := range r.head() {
		say("", "  ", line)
	}
	shown := 0
	for _, m := range r.metrics {
		t, title, sentences, ok := r.table(m)
		if !ok {
			continue
		}
		shown++
		b.WriteByte('\n')
		say("", "", title)
		fitted, err := t.Draw(&b, style)
		if err != nil {
			return err
		}
		for _, n := range fitted.Notes() {
			say("", "", n)
		}
		for _, s := range sentences {
			say("  ", "    ", s)
		}
	}
	for i, s := range r.unlike() {
		if i == 0 {
			b.WriteByte('\n')
		}
		say("", "  ", s)
	}
	r.nothing(shown, func(text string) { b.WriteByte('\n'); say("", "", text) })
	r.footnotes(func(heading string, lines []string) {
		b.WriteByte('\n')
		say("", "", heading)
		for _, l := range lines {
			say("  - ", "    ", l)
		}
	})
	_, err := w.Write(b.Bytes())
	return err
}

// unlike returns sentences on arms that are not comparable like for like.
func (r *Result) unlike() []string {
	var out []string
	for _, c := range r.Comparisons {
		if len(c.NotLikeForLike) > 0 {
			out = append(out, fmt.Sprintf("≠ %s is not like for like with %s: %s. Placement alone does not explain the ratios.", c.Arm.label(), c.Base.label(), strings.Join(c.NotLikeForLike, ", ")))
		}
	}
	return out
}

// nothing returns the reason why there is no table.
func (r *Result) nothing(shown int, say func(string)) {
	if shown > 0 {
		return
	}
	for _, c := range r.Comparisons {
		if c.Refused != "" {
			say(fmt.Sprintf("%s and %s are not compared: %s.", c.Arm.label(), c.Base.label(), c.Refused))
		}
	}
	if !r.Void() {
		say("No arm has a coflow, flow, block or job to compare.")
	}
}

// plain escapes markup.
func plain(s string) string {
	return strings.NewReplacer("|", `\|`, "*", `\*`, "_", `\_`, "<", "&lt;", "`", "\\`", "\n", " ").Replace(s)
}

// Markdown writes the comparison as Markdown, with all columns.
func (r *Result) Markdown(w io.Writer) error {
	var b bytes.Buffer
	b.WriteString("# Comparison\n\n")
	for _, line := range r.head() {
		fmt.Fprintf(&b, "- %s\n", plain(line))
	}
	shown := 0
	for _, m := range r.metrics {
		t, title, sentences, ok := r.table(m)
		if !ok {
			continue
		}
		shown++
		fmt.Fprintf(&b, "\n## %s\n\n", plain(title))
		for _, row := range t.Rows {
			row[0], row[1] = plain(row[0]), plain(row[1]) // names, or a number
		}
		if err := t.Markdown(&b); err != nil {
			return err
		}
		b.WriteByte('\n')
		for _, s := range sentences {
			fmt.Fprintf(&b, "- %s\n", plain(s))
		}
	}
	for _, s := range r.unlike() {
		fmt.Fprintf(&b, "\n%s\n", plain(s))
	}
	r.nothing(shown, func(text string) { fmt.Fprintf(&b, "\n%s\n", plain(text)) })
	r.footnotes(func(heading string, lines []string) {
		fmt.Fprintf(&b, "\n%s\n\n", plain(heading))
		for _, l := range lines {
			fmt.Fprintf(&b, "- %s\n", plain(l))
		}
	})
	_, err := w.Write(b.Bytes())
	return err
}

// CSV writes a row for each comparison and metric, and one for each comparison that
// was refused. Columns: base_run, base_arm, base_verdict, run, arm, verdict, metric
// (cct, fct, write_time, request_time, job_time, job_slowdown, job_time_by_bin.N; empty if refused),
// pairs, clusters, unpaired, then mean_ratio, median and geo_mean, each with _low and
// _high of its 95 % interval and _outcome, then refused (the reason), not_like_for_like
// (reasons, separated by semicolons) and varied (keys in which the runs differ, likewise).
// Missing figures are empty; runs that are pooled are separated by plus signs.
func (r *Result) CSV(w io.Writer) error {
	c := words.NewCSV(w)
	head := []string{"base_run", "base_arm", "base_verdict", "run", "arm", "verdict", "metric", "pairs", "clusters", "unpaired"}
	for _, e := range []string{"mean_ratio", "median", "geo_mean"} {
		head = append(head, e, e+"_low", e+"_high", e+"_outcome")
	}
	if err := c.Write(append(head, "refused", "not_like_for_like", "varied")); err != nil {
		return err
	}
	ids := func(labels string) string {
		var out []string
		of := strings.Split(labels, poolSign)
		for _, run := range r.Runs {
			if slices.Contains(of, run.Label) {
				out = append(out, run.ID)
			}
		}
		return strings.Join(out, poolSign)
	}
	varied := make([]string, len(r.Varied))
	for i, v := range r.Varied {
		varied[i] = v.String()
	}
	for _, x := range r.Comparisons {
		begin := []string{ids(x.Base.Run), x.Base.Arm, x.Base.Verdict, ids(x.Arm.Run), x.Arm.Arm, x.Arm.Verdict}
		if x.Refused != "" {
			if err := c.Write(append(append(begin, make([]string, 16)...), x.Refused, "", strings.Join(varied, "; "))); err != nil {
				return err
			}
		}
		for _, f := range x.Figures {
			row := append(begin[:len(begin):len(begin)], string(f.Metric), strconv.Itoa(f.Pairs), strconv.Itoa(f.Clusters), strconv.Itoa(f.Unpaired))
			for _, e := range []Estimate{f.MeanRatio, f.MedianRatio, f.GeoMean} {
				number := func(v float64) string {
					if f.Pairs == 0 {
						return ""
					}
					return strconv.FormatFloat(v, 'f', -1, 64)
				}
				low, high := "", ""
				if e.CI.Known() {
					low, high = number(e.CI.Low), number(e.CI.High)
				}
				row = append(row, number(e.Value), low, high, string(e.Outcome))
			}
			if err := c.Write(append(row, "", strings.Join(x.NotLikeForLike, "; "), strings.Join(varied, "; "))); err != nil {
				return err
			}
		}
	}
	c.Flush()
	return c.Error()
}
