package cli

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
	"time"

	"testbed/results/conversations"
	"testbed/results/pcap"
	tables "testbed/results/table"
	"testbed/topo/units"
)

func (l *looker) show(captures []*conversations.Capture, names []string, list []listed) error {
	if l.csv || l.json {
		if l.capped && l.limit > 0 {
			list = list[:min(l.limit, len(list))]
		}
		rows := func(yield func(conversations.Row) bool) {
			for _, v := range list {
				if !yield(v.Row(captures[v.capture].Path)) {
					return
				}
			}
		}
		if l.csv {
			return conversations.WriteCSV(l.stdout, rows)
		}
		return l.writeJSON(captures, rows)
	}
	var b strings.Builder
	for i, c := range captures {
		if len(captures) == 1 {
			if err := drawCapture(&b, names[i], c); err != nil {
				return err
			}
		}
	}
	if len(captures) > 1 {
		if err := l.drawCaptures(&b, captures, names); err != nil {
			return err
		}
	}
	if len(captures) > 0 {
		if err := l.drawConversations(&b, captures, names, list); err != nil {
			return err
		}
	}
	_, err := io.WriteString(l.stdout, b.String())
	return err
}

// writeJSON writes captures and rows as print would, without keeping all rows.
func (l *looker) writeJSON(captures []*conversations.Capture, rows iter.Seq[conversations.Row]) error {
	list := []captureJSON{}
	for _, c := range captures {
		list = append(list, captureOf(c))
	}
	head, err := json.MarshalIndent(list, "  ", "  ")
	if err != nil {
		return err
	}
	out := bufio.NewWriter(l.stdout)
	fmt.Fprintf(out, "{\n  \"captures\": %s,\n  \"conversations\": [", head)
	var row bytes.Buffer
	enc := json.NewEncoder(&row)
	enc.SetIndent("    ", "  ")
	separator, end := "\n    ", "]\n}\n"
	for r := range rows {
		row.Reset()
		if err := enc.Encode(r); err != nil {
			return err
		}
		fmt.Fprintf(out, "%s%s", separator, bytes.TrimSuffix(row.Bytes(), []byte("\n")))
		separator, end = ",\n    ", "\n  ]\n}\n"
	}
	fmt.Fprint(out, end)
	return out.Flush()
}

// drawCapture writes the facts of one capture.
func drawCapture(w io.Writer, name string, c *conversations.Capture) error {
	var errs []error
	fact := func(what, format string, args ...any) {
		errs = append(errs, plainStyle(0).Paragraph(w, fmt.Sprintf("%-11s ", what), strings.Repeat(" ", 12), fmt.Sprintf(format, args...)))
	}
	fact("capture", "%s", name)
	if m := c.Meta; m != nil {
		fact("of", "host %s, arm %s, repeat %d", m.Host, m.Arm, m.Repeat)
		fact("run", "%s, by %s %s", m.RunID, m.Tool, m.Version)
	}
	fact("format", "%s, %s", c.Format, wholeness(c))
	fact("packets", "%d, %d bytes of frames", c.Packets, c.Bytes)
	if c.Packets > 0 {
		fact("first", "%s", stamp(c.First))
		fact("last", "%s, %s s later", stamp(c.Last), seconds(c.Last-c.First))
	}
	if c.HasStats {
		fact("kernel", "%d packets received, %d dropped", c.Stats.Received, c.Stats.Dropped)
	} else {
		fact("kernel", "the capture does not say what was dropped")
	}
	for _, i := range c.Interfaces {
		fact("interface", "%s", interfaceLine(i))
	}
	for _, line := range others([]*conversations.Capture{c}) {
		fact("other", "%s", line)
	}
	if c.Lengthened > 0 {
		fact("lengths", "%d packets are longer by their IP header than by their record, which states no more than it has: the IP header's length counts", c.Lengthened)
	}
	for _, s := range c.Skipped {
		fact("skipped", "%d packets %s", s.Packets, s.Why)
	}
	_, err := fmt.Fprintln(w)
	return errors.Join(append(errs, err)...)
}

func interfaceLine(i conversations.Interface) string {
	parts := []string{fmt.Sprintf("%s (%s): %d packets, %d bytes", cmp.Or(i.Name, "unnamed"), i.LinkType, i.Packets, i.Bytes)}
	if i.HasDropped {
		parts = append(parts, fmt.Sprintf("%d dropped", i.Stats.Dropped))
	}
	if i.SnapLen > 0 {
		parts = append(parts, fmt.Sprintf("snaplen %d", i.SnapLen))
	}
	if i.Description != "" {
		parts = append(parts, i.Description)
	}
	return strings.Join(parts, ", ")
}

// others are what belongs to no conversation, and was skipped.
func others(captures []*conversations.Capture) []string {
	sum := map[string]conversations.Group{}
	var kinds, lines []string
	for _, c := range captures {
		for _, kind := range c.Others() {
			if _, ok := sum[kind]; !ok {
				kinds = append(kinds, kind)
			}
			n, more := sum[kind], c.Other[kind]
			n.Packets, n.Bytes, n.First = n.Packets+more.Packets, n.Bytes+more.Bytes, cmp.Or(n.First, more.First)
			sum[kind] = n
		}
	}
	slices.SortStableFunc(kinds, func(a, b string) int { return sum[b].Packets - sum[a].Packets })
	for _, kind := range kinds {
		line := fmt.Sprintf("%s: %d packets, %d bytes", kind, sum[kind].Packets, sum[kind].Bytes)
		if first := sum[kind].First; first != "" {
			line += fmt.Sprintf(" (the first: %s)", first)
		}
		lines = append(lines, line)
	}
	return lines
}

// wholeness returns whether a capture is complete, in one or two words.
func wholeness(c *conversations.Capture) string {
	switch {
	case c.Err == nil:
		return "whole"
	case errors.Is(c.Err, pcap.ErrTruncated):
		return "cut off"
	}
	return "damaged"
}

func stamp(ns int64) string {
	return time.Unix(0, ns).UTC().Format("2006-01-02 15:04:05.000000000 UTC")
}

// seconds is exact, to the nanosecond.
func seconds(ns int64) string { return fmt.Sprintf("%d.%09d", ns/1e9, ns%1e9) }

func (l *looker) drawCaptures(w io.Writer, captures []*conversations.Capture, names []string) error {
	t := tables.Table{Head: []string{"capture", "format", "packets", "bytes", "first packet (UTC)", "seconds", "dropped", "conv.", "state"}, Columns: []tables.Column{tables.Names()}}
	rows := captures
	if l.limit > 0 {
		rows = rows[:min(l.limit, len(rows))]
	}
	for i, c := range rows {
		drops := "?"
		if c.HasStats {
			drops = units.Compact(float64(c.Stats.Dropped), "")
		}
		first, took := "–", "–"
		if c.Packets > 0 {
			first, took = time.Unix(0, c.First).UTC().Format("2006-01-02 15:04:05.000"), fmt.Sprintf("%.3f", float64(c.Last-c.First)/1e9)
		}
		t.Rows = append(t.Rows, []string{names[i], c.Format, units.Compact(float64(c.Packets), ""), units.Compact(float64(c.Bytes), "B"), first, took, drops,
			units.Compact(float64(len(c.Conversations)), ""), wholeness(c)})
	}
	fmt.Fprintf(w, "%d captures\n", len(captures))
	return drawRows(w, t, len(captures)-len(rows))
}

func (l *looker) drawConversations(w io.Writer, captures []*conversations.Capture, names []string, list []listed) error {
	var sum struct{ conversations.Counts }
	var payload, resent int64
	again, late := 0, 0
	start := captures[0].First
	for _, c := range captures {
		if c.Packets > 0 {
			start = min(start, c.First)
		}
	}
	name, figure := tables.Column{Left: true, Fold: leastName}, tables.Column{}
	t := tables.Table{Head: []string{"stream", "from", "to", "pkts", "bytes", "resent", "start", "time", "goodput", "carries"},
		Columns: []tables.Column{{Left: true}, name, name, figure, figure, figure, figure, figure, figure, name}}
	if len(captures) > 1 { // the capture instead of the start
		t.Head = []string{"capture", "stream", "from", "to", "pkts", "bytes", "resent", "time", "goodput", "carries"}
		t.Columns = []tables.Column{name, {Left: true}, name, name, figure, figure, figure, figure, figure, name}
	}
	for i, v := range list {
		sum.Packets, sum.Bytes = sum.Packets+v.Packets(), sum.Bytes+v.Bytes()
		payload += int64(v.AB.Payload + v.BA.Payload)
		resent += int64(v.AB.ResentBytes + v.BA.ResentBytes)
		again += v.Retransmissions()
		late += v.AB.OutOfOrder + v.BA.OutOfOrder
		if l.limit > 0 && i >= l.limit {
			continue
		}
		carries := ""
		if v.Transfer != nil {
			carries = v.Transfer.Short()
		}
		goodput := "–"
		if r := max(v.AB.Goodput(), v.BA.Goodput()); r > 0 {
			goodput = units.Compact(float64(r), "bps")
		}
		row := []string{
			fmt.Sprintf("%s %d", v.Protocol(), v.Stream), v.A().String(), v.B().String(),
			units.Compact(float64(v.Packets()), ""), units.Compact(float64(v.Bytes()), "B"),
			units.Compact(float64(v.Retransmissions()), ""),
			shortTime(time.Duration(v.From - start)), shortTime(v.Duration()), goodput, carries,
		}
		if len(captures) > 1 {
			row = append([]string{names[v.capture]}, slices.Delete(row, 6, 7)...)
		}
		t.Rows = append(t.Rows, row)
	}
	if len(captures) > 1 {
		fmt.Fprintln(w)
	}
	total := 0
	for _, c := range captures {
		total += len(c.Conversations)
	}
	title := fmt.Sprintf("%d conversations", total)
	if len(l.filter) > 0 {
		title = fmt.Sprintf("%d of %s match", len(list), title)
	}
	fmt.Fprintf(w, "%s, by %s\n", title, l.order)
	if len(list) > 0 {
		if err := drawRows(w, t, len(list)-len(t.Rows)); err != nil {
			return err
		}
	}
	fmt.Fprintf(w, "total: %d packets, %d bytes; payload %d bytes, of which %d again in %d packets; %d late\n",
		sum.Packets, sum.Bytes, payload, resent, again, late)
	if len(captures) > 1 {
		for _, line := range others(captures) {
			fmt.Fprintf(w, "other: %s\n", line)
		}
		for i, c := range captures {
			for _, s := range c.Skipped {
				fmt.Fprintf(w, "skipped in %s: %d packets %s\n", names[i], s.Packets, s.Why)
			}
		}
	}
	return nil
}

// leastName is the columns to which names in pcap's tables are folded.
const leastName = 8

// drawRows draws a table and the number of rows left out. Shortened names are complete in
// --json and --csv.
func drawRows(w io.Writer, t tables.Table, left int) error {
	if _, err := t.Draw(w, plainStyle(0)); err != nil {
		return err
	}
	if left > 0 {
		fmt.Fprintf(w, "%s %d more: --limit 0 shows all\n", plainStyle(0).Text("…"), left)
	}
	return nil
}

// captureJSON is a capture as programs read it. Stamps are Unix nanoseconds.
type captureJSON struct {
	Path       string          `json:"path"`
	Format     string          `json:"format"`
	State      string          `json:"state"` // whole, cut off or damaged
	Error      string          `json:"error,omitempty"`
	Packets    int             `json:"packets"`
	Bytes      int64           `json:"bytes"`
	First      *int64          `json:"first_ns"` // null without packets
	Last       *int64          `json:"last_ns"`
	Lengthened int             `json:"lengthened"` // packets that are longer by their IP header than by their record
	Received   *uint64         `json:"received"`   // null where the capture does not say
	Dropped    *uint64         `json:"dropped"`
	Interfaces []interfaceJSON `json:"interfaces"`
	Other      []otherJSON     `json:"other"` // that belong to no conversation
	Skipped    []skippedJSON   `json:"skipped"`
	Of         *pcap.Meta      `json:"of"` // null for captures of other programs
}

type interfaceJSON struct {
	Name        string  `json:"name"`
	Description string  `json:"description"`
	LinkType    string  `json:"link_type"`
	SnapLen     int     `json:"snaplen"` // 0 for all
	Packets     int     `json:"packets"`
	Bytes       int64   `json:"bytes"`
	Received    *uint64 `json:"received"` // null where the capture does not say
	Dropped     *uint64 `json:"dropped"`
}

type skippedJSON struct {
	Why     string `json:"why"`
	Packets uint64 `json:"packets"`
}

type otherJSON struct {
	Kind    string `json:"kind"`
	Packets int    `json:"packets"`
	Bytes   int64  `json:"bytes"`
	First   string `json:"first,omitempty"` // what contradicts what in the first packet
}

func captureOf(c *conversations.Capture) captureJSON {
	out := captureJSON{Path: c.Path, Format: c.Format, State: wholeness(c), Packets: c.Packets, Bytes: int64(c.Bytes), Lengthened: c.Lengthened,
		Interfaces: []interfaceJSON{}, Other: []otherJSON{}, Skipped: []skippedJSON{}, Of: c.Meta}
	if c.Err != nil {
		out.Error = c.Err.Error()
	}
	if c.Packets > 0 {
		out.First, out.Last = &c.First, &c.Last
	}
	if c.HasStats {
		out.Received, out.Dropped = &c.Stats.Received, &c.Stats.Dropped
	}
	for _, i := range c.Interfaces {
		f := interfaceJSON{Name: i.Name, Description: i.Description, LinkType: i.LinkType.String(), SnapLen: i.SnapLen, Packets: i.Packets, Bytes: int64(i.Bytes)}
		if i.HasReceived {
			f.Received = &i.Stats.Received
		}
		if i.HasDropped {
			f.Dropped = &i.Stats.Dropped
		}
		out.Interfaces = append(out.Interfaces, f)
	}
	for _, s := range c.Skipped {
		out.Skipped = append(out.Skipped, skippedJSON(s))
	}
	for _, kind := range c.Others() {
		n := c.Other[kind]
		out.Other = append(out.Other, otherJSON{kind, n.Packets, int64(n.Bytes), n.First})
	}
	return out
}
