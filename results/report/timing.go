package report

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"testbed/results/flows"
	"testbed/results/metrics"
	tables "testbed/results/table"
	"testbed/results/timing"
	"testbed/topo/units"
	"testbed/workloads"
)

// DefaultLinkInterval is the interval of loads of links in reports, where nothing else
// is asked.
const DefaultLinkInterval = 100 * time.Millisecond

// How many rows of an arm the page has; the CSV files have all.
const (
	mostCoflows = 10 // slowest
	mostLinks   = 10 // most used
)

// TimeSummary is where the time of an arm went: microseconds by cause, over all
// repeats.
type TimeSummary struct {
	CoflowsUS map[timing.Cause]float64 `json:"coflows_us,omitempty"`
	// QueuedUS is the queueing among them, by link.
	QueuedUS map[string]float64       `json:"queued_at_us,omitempty"`
	BlocksUS map[timing.Cause]float64 `json:"blocks_us,omitempty"`
	// Missing are the coflows and blocks with a record that are not in these sums, and
	// why, with the repeat in front.
	Missing         []string `json:"missing,omitempty"`
	coflows, blocks []timing.Share
}

// TrafficSummary is what an arm put on the wire: averages over its repeats.
type TrafficSummary struct {
	CrossRack     map[string]float64 `json:"cross_rack_bytes"`
	DiskImbalance float64            `json:"disk_imbalance"`
	MakespanUS    float64            `json:"makespan_us"`
	makespan      time.Duration
}

// LinkSummary is the use of the links whose use decides (metrics.BottleneckLinks).
type LinkSummary struct {
	IntervalUS float64 `json:"interval_us"`
	Links      int     `json:"links"`
	Mean       float64 `json:"mean"`      // utilisation, over links, time and repeats
	Peak       float64 `json:"peak"`      // of any link in an interval
	MedianCv   float64 `json:"median_cv"` // between links, of intervals in which any carried something
}

// summarizeTiming fills in what is known of where an arm's time went.
func (in Input) summarizeTiming(s *ArmSummary, arm Arm) {
	var coflows, blocks []timing.Share
	var slowdowns []float64
	n := 0.0
	for k, r := range arm.Repeats {
		if r.Timing == nil {
			continue
		}
		if s.Time == nil {
			s.Time, s.Traffic = &TimeSummary{}, &TrafficSummary{CrossRack: map[string]float64{}}
		}
		coflows, blocks = append(coflows, r.Timing.CoflowTotal...), append(blocks, r.Timing.BlockTotal...)
		for _, m := range r.Timing.Missing {
			s.Time.Missing = append(s.Time.Missing, fmt.Sprintf("repeat %d: %s", k, m))
		}
		for _, c := range r.Timing.Coflows {
			if c.Slowdown > 0 {
				slowdowns = append(slowdowns, c.Slowdown)
			}
		}
		n++
		for class, b := range r.Timing.Traffic.CrossRack {
			s.Traffic.CrossRack[class] += float64(b)
		}
		s.Traffic.DiskImbalance += r.Timing.Traffic.DiskImbalance
		s.Traffic.makespan += r.Timing.Traffic.Makespan
	}
	if s.Time == nil {
		return
	}
	s.Time.coflows, s.Time.blocks = coflows, blocks
	s.Time.CoflowsUS, s.Time.BlocksUS = byCause(coflows, timing.CoflowCauses()), byCause(blocks, timing.BlockCauses())
	queued := map[string]time.Duration{}
	for _, x := range coflows {
		if x.Cause == timing.Queueing {
			queued[x.Link] += x.Time
		}
	}
	if len(queued) > 0 {
		s.Time.QueuedUS = map[string]float64{}
	}
	for link, d := range queued {
		s.Time.QueuedUS[link] = micros(d)
	}
	for class := range s.Traffic.CrossRack {
		s.Traffic.CrossRack[class] = round6(s.Traffic.CrossRack[class] / n)
	}
	s.Traffic.DiskImbalance = round6(s.Traffic.DiskImbalance / n)
	s.Traffic.makespan /= time.Duration(n)
	s.Traffic.MakespanUS = micros(s.Traffic.makespan)
	if len(slowdowns) > 0 {
		m := round6(metrics.Median(slowdowns))
		s.MedianSlowdown = &m
	}
	s.Links = in.linkSummary(arm)
}

// byCause is microseconds of each cause; nil for no shares.
func byCause(shares []timing.Share, causes []timing.Cause) map[timing.Cause]float64 {
	if len(shares) == 0 {
		return nil
	}
	out := map[timing.Cause]float64{}
	for _, c := range causes {
		out[c] = micros(timing.Total(shares, c))
	}
	return out
}

// linkInterval is the interval of loads of links that is asked for.
func (in Input) linkInterval() time.Duration { return cmp.Or(in.LinkInterval, DefaultLinkInterval) }

// binned are the loads of a repeat's links in the report's interval, and how long
// they are.
func (in Input) binned(rep Repeat) (links []flows.LinkSeries, over time.Duration) {
	for _, l := range rep.Links {
		over = max(over, time.Duration(len(l.Bytes))*l.Interval)
		links = append(links, metrics.Rebin(l, in.linkInterval()))
	}
	return links, over
}

func (in Input) linkSummary(arm Arm) *LinkSummary {
	out := &LinkSummary{}
	var cvs []float64
	n := 0
	for _, r := range arm.Repeats {
		if r.Fabric == nil || len(r.Links) != len(r.Fabric.Links()) {
			continue
		}
		links, over := in.binned(r)
		which := metrics.BottleneckLinks(r.Fabric)
		out.Links = len(which)
		for _, l := range which {
			out.IntervalUS = micros(links[l].Interval)
			u := metrics.UseOf(links[l], over)
			out.Mean += u.Mean
			out.Peak = max(out.Peak, u.Peak)
			n++
		}
		cvs = append(cvs, metrics.LinkCvs(links, which)...)
	}
	if n == 0 {
		return nil
	}
	out.Mean, out.Peak, out.MedianCv = round6(out.Mean/float64(n)), round6(out.Peak), round6(metrics.Median(cvs))
	return out
}

// share is a part of a time, such as "1.2 s (34 %)".
func share(part, of time.Duration) string {
	if of <= 0 {
		return human(part)
	}
	return fmt.Sprintf("%s (%s)", human(part), percent(part, of))
}

func percent(part, of time.Duration) string {
	if of <= 0 {
		return none
	}
	return fmt.Sprintf("%.1f %%", 100*float64(part)/float64(of))
}

// timed tells whether any arm has its time taken apart.
func (r *Report) timed() bool {
	return slices.ContainsFunc(r.Summary.Arms, func(a ArmSummary) bool { return a.Time != nil })
}

// untimed are the reasons why arms have no breakdown, each once.
func (r *Report) untimed() (notes []string) {
	for _, a := range r.in.Arms {
		for _, rep := range a.Repeats {
			if rep.Untimed == "" {
				continue
			}
			if note := "There is no breakdown of times and no load of links: " + rep.Untimed + "."; !slices.Contains(notes, note) {
				notes = append(notes, note)
			}
		}
	}
	return notes
}

// cells are those of one arm, or what stands in for them.
func (a *ArmSummary) cells(n int, known bool, cells func() []string) []string {
	switch {
	case a.Void():
		return append([]string{a.Name}, slices.Repeat([]string{"void"}, n)...)
	case !known:
		return append([]string{a.Name}, slices.Repeat([]string{none}, n)...)
	}
	return append([]string{a.Name}, cells()...)
}

// causeTable is the totals of every arm by cause; write makes a cell.
func (r *Report) causeTable(title string, causes []timing.Cause, heads []string, of func(*TimeSummary) []timing.Share, write func(part, of time.Duration) string) (table, bool) {
	t := table{title: title, head: append([]string{"arm", "total"}, heads...), cols: []tables.Column{tables.Names()}}
	any := false
	for i := range r.Summary.Arms {
		a := &r.Summary.Arms[i]
		known := a.Time != nil && len(of(a.Time)) > 0
		any = any || known
		t.rows = append(t.rows, a.cells(1+len(causes), known, func() []string {
			total := timing.Sum(of(a.Time))
			row := []string{human(total)}
			for _, c := range causes {
				row = append(row, write(timing.Total(of(a.Time), c), total))
			}
			return row
		}))
	}
	return t, any
}

func names(causes []timing.Cause) (out []string) {
	for _, c := range causes {
		out = append(out, string(c))
	}
	return out
}

func coflowShares(t *TimeSummary) []timing.Share { return t.coflows }
func blockShares(t *TimeSummary) []timing.Share  { return t.blocks }

// timeTables are those of the terminal: where the time went, in percent.
func (r *Report) timeTables() []table {
	var out []table
	if t, ok := r.causeTable("Where the time of coflows went", timing.CoflowCauses(), []string{"held", "serialis.", "queueing", "retrans.", "host", "latency"}, coflowShares, percent); ok {
		out = append(out, t)
	}
	if t, ok := r.causeTable("Where the time of block writes went", timing.BlockCauses(), names(timing.BlockCauses()), blockShares, percent); ok {
		out = append(out, t)
	}
	if notes := r.untimed(); len(notes) > 0 && len(out) > 0 {
		out[len(out)-1].notes = notes
	}
	return out
}

// longTimeTables are those of the page.
func (r *Report) longTimeTables() []table {
	if !r.timed() {
		return nil
	}
	var out []table
	if t, ok := r.causeTable("Where the time went: coflows", timing.CoflowCauses(), names(timing.CoflowCauses()), coflowShares, share); ok {
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
	if t, ok := r.causeTable("Where the time went: block writes", timing.BlockCauses(), names(timing.BlockCauses()), blockShares, share); ok {
		out = append(out, t)
	}
	out = append(out, r.trafficTable())
	if t := r.linkTable(); len(t.rows) > 0 {
		out = append(out, t)
	}
	for _, a := range r.Summary.Arms {
		if a.Time != nil && len(a.Time.Missing) > 0 {
			out[0].notes = append(out[0].notes, fmt.Sprintf("%s: not taken apart: %s.", a.Name, some(a.Time.Missing)))
		}
	}
	return out
}

// mostMissing is how many of a list a line names before it only counts.
const mostMissing = 5

func some(list []string) string {
	out := ""
	for i, s := range list {
		if i == mostMissing {
			return fmt.Sprintf("%s; and %d more", out, len(list)-i)
		}
		if i > 0 {
			out += "; "
		}
		out += s
	}
	return out
}

// slowestTable is the slowest coflows of each arm.
func (r *Report) slowestTable() table {
	t := table{title: "The slowest coflows", head: append(append([]string{"arm", "repeat", "coflow", "CCT", "slowdown", "bottleneck"}, names(timing.CoflowCauses())...), "queued most at")}
	for i := range r.in.Arms {
		if r.Summary.Arms[i].Void() {
			continue
		}
		type one struct {
			repeat int
			timing.Coflow
		}
		var all []one
		for k, rep := range r.in.Arms[i].Repeats {
			if rep.Timing != nil {
				for _, c := range rep.Timing.Coflows {
					all = append(all, one{k, c})
				}
			}
		}
		slices.SortStableFunc(all, func(a, b one) int { return cmp.Compare(b.CCT, a.CCT) })
		for _, c := range all[:min(len(all), mostCoflows)] {
			row := []string{r.in.Arms[i].Name, strconv.Itoa(c.repeat), strconv.Itoa(int(c.Coflow.Coflow)), human(c.CCT), slowdown(c.Coflow), cmp.Or(c.Bottleneck, none)}
			for _, cause := range timing.CoflowCauses() {
				row = append(row, percent(timing.Total(c.Shares, cause), c.CCT))
			}
			at := none
			if link, wait := c.Worst(); link != "" {
				at = fmt.Sprintf("%s: %s", link, human(wait))
			}
			t.rows = append(t.rows, append(row, at))
		}
		if more := len(all) - mostCoflows; more > 0 {
			t.notes = append(t.notes, fmt.Sprintf("%s: and %d more, see %s and %s.", r.in.Arms[i].Name, more, CoflowsFile, BreakdownFile))
		}
	}
	return t
}

func slowdown(c timing.Coflow) string {
	if c.Slowdown == 0 {
		return none
	}
	return fmt.Sprintf("%.2f×", c.Slowdown)
}

// bytes3 prints an amount with three digits or so, in the unit that suits it.
func bytes3(b float64) string {
	for _, u := range []struct {
		size units.Bytes
		name string
	}{{units.GB, "GB"}, {units.MB, "MB"}, {units.KB, "KB"}} {
		if b >= float64(u.size) {
			return fmt.Sprintf("%.2f %s", b/float64(u.size), u.name)
		}
	}
	return fmt.Sprintf("%.0f B", b)
}

// trafficTable is what crossed racks, and how evenly links and disks were used.
func (r *Report) trafficTable() table {
	t := table{title: "Traffic", head: []string{"arm"}}
	for _, class := range timing.Classes() {
		t.head = append(t.head, "cross-rack "+class)
	}
	t.head = append(t.head, "disk imbalance", "makespan", "mean use of links", "peak", "median Cv")
	for i := range r.Summary.Arms {
		a := &r.Summary.Arms[i]
		t.rows = append(t.rows, a.cells(len(t.head)-1, a.Traffic != nil, func() (row []string) {
			for _, class := range timing.Classes() {
				row = append(row, bytes3(a.Traffic.CrossRack[class]))
			}
			row = append(row, fmt.Sprintf("%.3f", a.Traffic.DiskImbalance), human(a.Traffic.makespan))
			if a.Links == nil {
				return append(row, none, none, none)
			}
			return append(row, fmt.Sprintf("%.1f %%", 100*a.Links.Mean), fmt.Sprintf("%.1f %%", 100*a.Links.Peak), fmt.Sprintf("%.3f", a.Links.MedianCv))
		}))
	}
	t.notes = append(t.notes, "Use of links is that of those between leaves and spines where racks are oversubscribed, else of those of hosts. Several repeats: averages of them, and the highest peak.")
	return t
}

// linkTable is the most used links of each arm, all repeats together.
func (r *Report) linkTable() table {
	t := table{title: "Links", head: []string{"arm", "link", "rate", "mean use", "peak use", "longest queue", "drops", "suspected drops"}}
	for i, a := range r.in.Arms {
		if r.Summary.Arms[i].Void() {
			continue
		}
		type one struct {
			name string
			rate units.Rate
			metrics.LinkUse
		}
		byName := map[string]*one{}
		var all []*one
		n := 0
		for _, rep := range a.Repeats {
			if len(rep.Links) == 0 {
				continue
			}
			n++
			links, over := r.in.binned(rep)
			for _, l := range links {
				x := byName[l.Name]
				if x == nil {
					x = &one{name: l.Name, rate: l.Rate}
					byName[l.Name], all = x, append(all, x)
				}
				u := metrics.UseOf(l, over)
				x.Mean += u.Mean
				x.Peak, x.Queue = max(x.Peak, u.Peak), max(x.Queue, u.Queue)
				x.Drops, x.Suspect = x.Drops+u.Drops, x.Suspect+u.Suspect
			}
		}
		slices.SortStableFunc(all, func(x, y *one) int { return cmp.Compare(y.Mean, x.Mean) })
		for _, x := range all[:min(len(all), mostLinks)] {
			t.rows = append(t.rows, []string{a.Name, x.name, x.rate.String(), fmt.Sprintf("%.1f %%", 100*x.Mean/float64(n)), fmt.Sprintf("%.1f %%", 100*x.Peak),
				bytes3(float64(x.Queue)), strconv.Itoa(x.Drops), strconv.Itoa(x.Suspect)})
		}
		if more := len(all) - mostLinks; more > 0 {
			t.notes = append(t.notes, fmt.Sprintf("%s: and %d less used links, see %s.", a.Name, more, LinksFile))
		}
	}
	return t
}

// timeDefinitions are those of the tables of times, where there are any.
func timeDefinitions(any bool) []string {
	if !any {
		return nil
	}
	return []string{"Where the time went, of a coflow: its completion time, taken apart along its slowest flow; the shares add up to it. Bottleneck: the link of that flow's path on which the coflow's own bytes take the longest. held: nothing of the coflow over the bottleneck was under way, under a policy that holds flows back. serialisation: the coflow's own bytes on the bottleneck. queueing: others' bytes on links of the path. retransmission: a lost segment held the flow up. host: nothing under way without such a policy, or the receiver's window was closed. latency: the rest.",
		"slowdown: the completion time over the time that the coflow's own bytes take on the link that they load longest.",
		"Where the time went, of a block write: the critical path back from the last acknowledgement. network: bytes or acknowledgements under way on a hop. disk: a host has a packet, and the acknowledgement of those behind it, and has not acknowledged. host: the rest.",
		"Traffic: bytes of frames; control is acknowledgements and all else that is not sent for a transfer. Disk imbalance: coefficient of variation of the bytes that hosts stored. Makespan: from the first arrival to the last completion. Use: bytes over what the rate carries. Cv: standard deviation over mean of the use of links in the same interval."}
}

// Columns of coflows.csv and blocks.csv.
func coflowTimeHeader() []string {
	return append([]string{"skew", "slowest_flow", "bottleneck", "lone_us", "slowdown"}, usColumns(timing.CoflowCauses())...)
}

func usColumns(causes []timing.Cause) (out []string) {
	for _, c := range causes {
		out = append(out, string(c)+"_us")
	}
	return out
}

func usCells(shares []timing.Share, causes []timing.Cause) (out []string) {
	for _, c := range causes {
		out = append(out, Micros(timing.Total(shares, c)))
	}
	return out
}

func decimal(x float64) string { return strconv.FormatFloat(round6(x), 'f', -1, 64) }

// coflowTimes are the cells of coflowTimeHeader by coflow.
func coflowTimes(rep Repeat) map[workloads.CoflowID][]string {
	out := map[workloads.CoflowID][]string{}
	if rep.Timing == nil {
		return out
	}
	for _, c := range rep.Timing.Coflows {
		lone, slow := "", ""
		if c.Lone > 0 {
			lone, slow = Micros(c.Lone), decimal(c.Slowdown)
		}
		out[c.Coflow] = append([]string{decimal(c.Skew), strconv.Itoa(int(c.Slowest)), c.Bottleneck, lone, slow}, usCells(c.Shares, timing.CoflowCauses())...)
	}
	return out
}

// blockTimes are the cells of the columns by cause of blocks.csv, by block.
func blockTimes(rep Repeat) map[workloads.BlockID][]string {
	out := map[workloads.BlockID][]string{}
	if rep.Timing == nil {
		return out
	}
	for _, b := range rep.Timing.Blocks {
		out[b.Block] = usCells(b.Shares, timing.BlockCauses())
	}
	return out
}

// padded is cells, or as many empty ones.
func padded(cells []string, n int) []string {
	if cells == nil {
		return make([]string, n)
	}
	return cells
}

// BreakdownCSV writes every share of every coflow. The columns are in the package
// documentation.
func (r *Report) BreakdownCSV(w io.Writer) error {
	return r.rows(w, []string{"coflow", "cause", "link", "time_us"}, func(rep Repeat) (out [][]string) {
		if rep.Timing == nil {
			return nil
		}
		for _, c := range rep.Timing.Coflows {
			for _, s := range c.Shares {
				out = append(out, []string{strconv.Itoa(int(c.Coflow)), string(s.Cause), s.Link, Micros(s.Time)})
			}
		}
		return out
	})
}

// LinksCSV writes the loads of all links. The columns are in the package
// documentation.
func (r *Report) LinksCSV(w io.Writer) error {
	return r.rows(w, []string{"link", "rate_bps", "from_us", "interval_us", "bytes", "utilisation", "queue_bytes"}, func(rep Repeat) (out [][]string) {
		links, _ := r.in.binned(rep)
		for _, l := range links {
			use := metrics.Utilisation(l)
			for i, b := range l.Bytes {
				var queue units.Bytes
				if i < len(l.Queue) {
					queue = l.Queue[i]
				}
				out = append(out, []string{l.Name, strconv.FormatInt(int64(l.Rate), 10), Micros(time.Duration(i) * l.Interval), Micros(l.Interval),
					strconv.FormatInt(int64(b), 10), decimal(use[i]), strconv.FormatInt(int64(queue), 10)})
			}
		}
		return out
	})
}
