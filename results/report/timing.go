package report

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	"testbed/results/breakdown"
	"testbed/results/figures"
	"testbed/results/metrics"
	"testbed/results/summary"
	tables "testbed/results/table"
	"testbed/topo/units"
)

// DefaultLinkInterval is the default interval of link loads in reports.
const DefaultLinkInterval = 100 * time.Millisecond

// Rows of an arm in the Markdown report; the CSV files have all.
const (
	mostCoflows = 10 // slowest
	mostLinks   = 10 // most used
)

// linkInterval returns the requested interval of link loads.
func (in Input) linkInterval() time.Duration { return cmp.Or(in.LinkInterval, DefaultLinkInterval) }

// share returns a part of a time, such as "1.2 s (34 %)".
func share(part, of time.Duration) string {
	if of <= 0 {
		return units.Human(part)
	}
	return fmt.Sprintf("%s (%s)", units.Human(part), percent(part, of))
}

func percent(part, of time.Duration) string {
	if of <= 0 {
		return none
	}
	return units.Percent(float64(part)/float64(of), 1)
}

// timed reports whether any arm has a breakdown of its times.
func (r *Report) timed() bool {
	return slices.ContainsFunc(r.Summary.Arms, func(a summary.Arm) bool { return a.Time != nil })
}

// untimed returns the reasons why arms have no breakdown, each once.
func (r *Report) untimed() (notes []string) {
	for _, a := range r.in.Arms {
		for _, rep := range a.Repeats {
			if rep.Untimed == "" {
				continue
			}
			if note := "There is no breakdown of completion times and no load of links: " + rep.Untimed + "."; !slices.Contains(notes, note) {
				notes = append(notes, note)
			}
		}
	}
	return notes
}

// cells returns the cells of one arm, or placeholders if it is void or they are unknown.
func cells(a *summary.Arm, n int, known bool, cells func() []string) []string {
	switch {
	case a.Void():
		return append([]string{a.Name}, slices.Repeat([]string{"void"}, n)...)
	case !known:
		return append([]string{a.Name}, slices.Repeat([]string{none}, n)...)
	}
	return append([]string{a.Name}, cells()...)
}

// causeTable returns the totals of every arm by cause; write formats a cell.
func (r *Report) causeTable(title string, causes []breakdown.Cause, heads []string,
	of func(*summary.Time) []breakdown.Share, write func(part, of time.Duration) string) (table, bool) {
	t := table{title: title, head: append([]string{"arm", "total"}, heads...), cols: []tables.Column{tables.Names()}}
	any := false
	for i := range r.Summary.Arms {
		a := &r.Summary.Arms[i]
		known := a.Time != nil && len(of(a.Time)) > 0
		any = any || known
		t.rows = append(t.rows, cells(a, 1+len(causes), known, func() []string {
			total := breakdown.Sum(of(a.Time))
			row := []string{units.Human(total)}
			for _, c := range causes {
				row = append(row, write(breakdown.Total(of(a.Time), c), total))
			}
			return row
		}))
	}
	return t, any
}

func names(causes []breakdown.Cause) (out []string) {
	for _, c := range causes {
		out = append(out, string(c))
	}
	return out
}

func coflowShares(t *summary.Time) []breakdown.Share { return t.Coflows }
func blockShares(t *summary.Time) []breakdown.Share  { return t.Blocks }

// timeTables returns the breakdowns in percent, for the terminal.
func (r *Report) timeTables() []table {
	var out []table
	if t, ok := r.causeTable("Breakdown of coflow completion time (CCT)", breakdown.CoflowCauses(), []string{"held", "setup", "serialis.", "queueing", "retrans.", "host", "latency"}, coflowShares, percent); ok {
		out = append(out, t)
	}
	if t, ok := r.causeTable("Breakdown of block write time", breakdown.BlockCauses(), names(breakdown.BlockCauses()), blockShares, percent); ok {
		out = append(out, t)
	}
	if len(out) > 0 {
		last := &out[len(out)-1]
		last.notes = append(r.untimed(), "Breakdown: shares of the total time of all items, by cause; "+summary.MarkdownFile+" defines the causes.")
	}
	return out
}

// longTimeTables returns the breakdowns, traffic and links, for Markdown.
func (r *Report) longTimeTables() []table {
	if !r.timed() {
		return nil
	}
	var out []table
	if t, ok := r.causeTable("Breakdown of coflow completion time (CCT)", breakdown.CoflowCauses(), names(breakdown.CoflowCauses()), coflowShares, share); ok {
		t.head = append(t.head, "median slowdown")
		for i, a := range r.Summary.Arms {
			cell := none
			if a.Void() {
				cell = "void"
			} else if a.MedianSlowdown != nil {
				cell = fmt.Sprintf("%.2f×", *a.MedianSlowdown)
			}
			t.rows[i] = append(t.rows[i], cell)
		}
		out = append(out, t, r.slowestTable())
	}
	if t, ok := r.causeTable("Breakdown of block write time", breakdown.BlockCauses(), names(breakdown.BlockCauses()), blockShares, share); ok {
		out = append(out, t)
	}
	out = append(out, r.figureTables("traffic")...)
	if t := r.linkTable(); len(t.rows) > 0 {
		out = append(out, t)
	}
	for _, a := range r.Summary.Arms {
		if a.Time != nil && len(a.Time.Missing) > 0 {
			out[0].notes = append(out[0].notes, fmt.Sprintf("%s: without a breakdown: %s.", a.Name, some(a.Time.Missing)))
		}
	}
	return out
}

// mostMissing is the number of items of a list that a line names; it only counts the rest.
const mostMissing = 5

func some(list []string) string {
	out := ""
	for i, s := range list {
		if i == mostMissing {
			return fmt.Sprintf("%s; %d more", out, len(list)-i)
		}
		if i > 0 {
			out += "; "
		}
		out += s
	}
	return out
}

// slowestTable returns the slowest coflows of each arm.
func (r *Report) slowestTable() table {
	head := []string{"arm", "repeat", "coflow", "flows", "size", "CCT", "lone time", "slowdown", "bottleneck"}
	t := table{title: "Slowest coflows", head: append(append(head, names(breakdown.CoflowCauses())...), "longest queueing at")}
	t.cols = make([]tables.Column, len(t.head))
	t.cols[len(head)-1].Left, t.cols[len(t.head)-1].Left = true, true
	for i := range r.in.Arms {
		if r.Summary.Arms[i].Void() {
			continue
		}
		type one struct {
			repeat int
			breakdown.Coflow
		}
		var all []one
		for k, rep := range r.in.Arms[i].Repeats {
			if rep.Timing != nil {
				for c := range rep.Timing.Counted() {
					all = append(all, one{r.in.Arms[i].Numbers.Of(k), c})
				}
			}
		}
		slices.SortStableFunc(all, func(a, b one) int { return cmp.Compare(b.CCT, a.CCT) })
		for _, c := range all[:min(len(all), mostCoflows)] {
			lone, slowdown := none, none
			if c.Lone > 0 {
				lone, slowdown = units.Human(c.Lone), fmt.Sprintf("%.2f×", c.Slowdown)
			}
			row := []string{r.in.Arms[i].Name, strconv.Itoa(c.repeat), strconv.Itoa(int(c.Coflow.Coflow)), strconv.Itoa(c.Width),
				units.Short(float64(c.Size), "B"), units.Human(c.CCT), lone, slowdown, cmp.Or(c.Bottleneck, none)}
			for _, cause := range breakdown.CoflowCauses() {
				row = append(row, percent(breakdown.Total(c.Shares, cause), c.CCT))
			}
			at := none
			if link, wait := c.Worst(); link != "" {
				at = fmt.Sprintf("%s: %s", link, units.Human(wait))
			}
			t.rows = append(t.rows, append(row, at))
		}
		if more := len(all) - mostCoflows; more > 0 {
			t.notes = append(t.notes, fmt.Sprintf("%s: %d more in %s and %s.", r.in.Arms[i].Name, more, summary.CoflowsFile, summary.BreakdownFile))
		}
	}
	return t
}

// linkTable returns the most utilised links of each arm, over all repeats.
func (r *Report) linkTable() table {
	t := table{title: "Most utilised links", head: []string{"arm", "link", "rate", "mean utilisation", "peak utilisation", "longest queue", "drops"}}
	for i, a := range r.in.Arms {
		if r.Summary.Arms[i].Void() {
			continue
		}
		type one struct {
			name string
			rate units.Rate
			metrics.LinkUse
			estimated bool // whether Drops is an estimate in any repeat
		}
		byName := map[string]*one{}
		var all []*one
		n := 0
		for _, rep := range a.Repeats {
			if len(rep.Links) == 0 {
				continue
			}
			n++
			uses := figures.LinkUses(rep.Links, r.in.linkInterval())
			for k, l := range rep.Links {
				x := byName[l.Name]
				if x == nil {
					x = &one{name: l.Name, rate: l.Rate}
					byName[l.Name], all = x, append(all, x)
				}
				u := uses[k]
				x.Mean += u.Mean
				x.Peak, x.Queue = max(x.Peak, u.Peak), max(x.Queue, u.Queue)
				x.Drops, x.estimated = x.Drops+u.Drops, x.estimated || !u.Counted
			}
		}
		slices.SortStableFunc(all, func(x, y *one) int { return cmp.Compare(y.Mean, x.Mean) })
		for _, x := range all[:min(len(all), mostLinks)] {
			t.rows = append(t.rows, []string{a.Name, x.name, x.rate.String(), units.Percent(x.Mean/float64(n), 1), units.Percent(x.Peak, 1),
				units.Short(float64(x.Queue), "B"), dropsCell(x.Drops, !x.estimated)})
		}
		if more := len(all) - mostLinks; more > 0 {
			drops := 0
			for _, x := range all[mostLinks:] {
				drops += x.Drops
			}
			t.notes = append(t.notes, fmt.Sprintf("%s: %d less utilised links in %s; they dropped %s packets (%s).", a.Name, more, summary.LinksFile, grouped(drops), summary.DropsFile))
		}
	}
	t.notes = append(t.notes, r.lossLines()...)
	if len(t.rows) > 0 {
		t.notes = append(t.notes, "drops: packets of all kinds that the queue ahead of the link dropped in all repeats, counted by the kernel. "+estimated+" marks an estimate from captures, used if there is no such count: payload packets captured before the link and not after it. If several links are possible, the fullest one is charged. Drops of a host's own queue are unknown.")
	}
	return t
}

// timeDefinitions returns the definitions of the breakdowns, if there are any.
func timeDefinitions(any bool) []string {
	if !any {
		return nil
	}
	return []string{"Breakdown of CCT: the completion time of a coflow, divided by cause along its slowest flow; the shares add up to it. Bottleneck: the link on that flow's path on which the coflow's own bytes take longest. held: the coflow policy held the coflow back, and none of its bytes over the bottleneck were in flight. setup: the policy had released the coflow, but none of its payload had left yet (overhead of the testbed). serialisation: the coflow's own bytes on the bottleneck. queueing: bytes of other transfers on links of the path. retransmission: a lost segment delayed the flow. host: nothing in flight although the policy held nothing back, or the receiver's window was closed. latency: the rest.",
		"lone time: the time that the coflow's own bytes need on the link that they load longest. slowdown: the completion time over it.",
		"Breakdown of block write time: the critical path, followed back from the last acknowledgement. network: bytes or acknowledgements in flight on a hop. disk: a host has a packet, and the acknowledgement of the later replicas, but has not acknowledged it. host: the rest.",
		"Traffic: bytes of frames. control: acknowledgements and all other frames without payload of a transfer. Disk imbalance: coefficient of variation of the bytes stored by each host. Makespan: from the first arrival to the last completion. Utilisation: bytes over the bytes that the link rate allows. Cv: coefficient of variation (standard deviation over mean) of the links' utilisation in the same interval."}
}
