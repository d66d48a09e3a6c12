package workloads

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"testbed/topo/magic"
	"testbed/topo/units"
)

// TraceError is an error on one line of a trace.
type TraceError struct {
	Name      string
	Line, Col int // from 1; Col counts bytes
	Text      string
}

func (e TraceError) Error() string {
	return fmt.Sprintf("%s:%d:%d: %s", e.Name, e.Line, e.Col, e.Text)
}

// TraceErrors are the errors of a trace or a workload.
type TraceErrors struct {
	First []TraceError // the first MaxTraceErrors of them
	Total int
}

// MaxTraceErrors is the maximum number of errors of a trace that are printed in full.
const MaxTraceErrors = 20

func (e *TraceErrors) Error() string {
	var b strings.Builder
	for i, t := range e.First {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(t.Error())
	}
	if more := e.Total - len(e.First); more > 0 {
		fmt.Fprintf(&b, "\n%s: and %d more errors like these", e.First[0].Name, more)
	}
	return b.String()
}

// Add counts an error, and keeps it if it is among the first.
func (e *TraceErrors) Add(t TraceError) {
	e.Total++
	if len(e.First) < MaxTraceErrors {
		e.First = append(e.First, t)
	}
}

// Scan calls each for every line of r, which must be text (see magic.Text), until it returns false. A line of more than longest bytes is
// an error and the last that is read. Scan returns the number of lines before it, whether all were
// read, and the error of reading r.
func (e *TraceErrors) Scan(name string, r io.Reader, longest int, expected string, each func(n int, text string) bool) (n int, whole bool, _ error) {
	plain, err := magic.Text(r)
	if err != nil {
		return 0, false, fmt.Errorf("%s: %w", name, err)
	}
	lines := bufio.NewScanner(plain)
	lines.Buffer(nil, longest)
	for lines.Scan() {
		if n++; !each(n, lines.Text()) {
			return n, false, nil
		}
	}
	err = lines.Err()
	if errors.Is(err, bufio.ErrTooLong) {
		e.Add(TraceError{name, n + 1, 1, fmt.Sprintf("line longer than %d bytes: expected %s; the rest is not read", longest, expected)})
		return n, false, nil
	} else if err != nil {
		return n, false, fmt.Errorf("%s: line %d: %w", name, n+1, err)
	}
	return n, true, nil
}

// maxTraceLine is the longest line read or written, in bytes. The widest coflow of
// the Facebook trace takes 2 KB, and 240 KB with the bytes of every flow.
const maxTraceLine = 16 << 20

// ParseTrace reads a trace in the format of the public coflow-benchmark:
//
//	<ports> <coflows>
//	<id> <arrival ms> <m> <port> × m <r> <port>:<MB> × r       one line a coflow
//
// with ascending ids, arrivals that do not decrease, and no duplicate port among the
// mappers or among the reducers of a coflow. MB is the amount that the reducer fetches
// from all mappers together, a decimal above 0. Fields are separated by spaces or tabs.
// The error is a *TraceErrors with the first error of every invalid line, or the error of
// reading r; name is the name of the file in it.
func ParseTrace(name string, r io.Reader) (*Trace, error) {
	return parseLines(name, r, false)
}

// parseLines parses a trace with one line per coflow: the flows format or
// coflow-benchmark.
func parseLines(name string, r io.Reader, flows bool) (*Trace, error) {
	p := traceParser{form: flows, trace: &Trace{Name: name, Ports: MaxTracePorts, InBytes: flows}, errs: &TraceErrors{}, lastID: -1}
	blank := 0 // line number of a blank line, an error if a line follows
	headed := false
	n, whole, err := p.errs.Scan(name, r, maxTraceLine, "one coflow a line", func(n int, text string) bool {
		l := &traceLine{name: name, number: n, text: text}
		if flows && strings.HasPrefix(strings.TrimLeft(l.text, " \t"), "#") {
			if !headed {
				p.version(l)
			}
		} else if strings.TrimSpace(l.text) == "" && headed {
			blank = cmp.Or(blank, n)
		} else {
			if blank > 0 {
				p.errs.Add(TraceError{name, blank, 1, "blank line: expected a coflow"})
				blank = 0
			}
			if !headed {
				headed = true
				p.header(l)
			} else {
				p.coflow(l)
			}
		}
		p.note(l)
		return true
	})
	if err != nil {
		return nil, err
	}
	if !whole {
		p.announced, headed = nil, true
	}
	if !headed {
		p.errs.Add(TraceError{name, max(n, 1), 1, `empty file: expected a first line with the number of ports and of coflows, such as "150 526"`})
	}
	if a := p.announced; a != nil && a.coflows != p.seen {
		p.errs.Add(TraceError{name, a.line, a.col, fmt.Sprintf("%d coflows announced, %d lines follow: expected one line a coflow", a.coflows, p.seen)})
	}
	if p.errs.Total > 0 {
		return nil, p.errs
	}
	return p.trace, nil
}

type traceParser struct {
	form      bool // the flows format: one line per coflow, with the size of every flow
	versioned bool
	trace     *Trace
	errs      *TraceErrors
	announced *announced // nil if the header is invalid
	seen      int        // lines of coflows, valid or not
	lastID    CoflowID   // of the last line with a valid id
	lastAt    time.Duration
	size      Megabytes
	flows     int
}

type announced struct{ coflows, line, col int }

// note adds the error of a line, if it has one.
func (p *traceParser) note(l *traceLine) {
	if l.err != nil {
		p.errs.Add(*l.err)
	}
}

func (p *traceParser) header(l *traceLine) {
	ports := l.whole("number of ports", 1, MaxTracePorts)
	if l.err == nil {
		p.trace.Ports = int(ports)
	}
	coflows := l.whole("number of coflows", 1, MaxTraceCoflows)
	if l.err == nil {
		p.announced = &announced{int(coflows), l.number, l.col}
	}
	l.end("the number of coflows")
}

func (p *traceParser) coflow(l *traceLine) {
	p.seen++
	c := TraceCoflow{ID: CoflowID(l.whole("coflow id", 0, maxTraceID))}
	if l.err == nil {
		if c.ID == p.lastID {
			l.fail("coflow id %d again: expected ascending ids without duplicates", c.ID)
		} else if c.ID < p.lastID {
			l.fail("coflow id %d after %d: expected ascending ids", c.ID, p.lastID)
		}
		p.lastID = max(p.lastID, c.ID)
	}
	if p.form {
		c.Arrival = l.milliseconds("arrival in ms")
	} else {
		c.Arrival = time.Duration(l.whole("arrival in ms", 0, maxTraceArrival)) * time.Millisecond
	}
	if l.err == nil {
		if c.Arrival < p.lastAt {
			l.fail("arrival %s ms after one at %s ms: expected arrivals in ascending order", milliseconds(c.Arrival), milliseconds(p.lastAt))
		}
		p.lastAt = max(p.lastAt, c.Arrival)
	}
	last := int64(p.trace.Ports - 1)
	seen := map[int]bool{}
	for range l.whole("number of mappers", 1, int64(p.trace.Ports)) {
		port := int(l.whole("mapper's port", 0, last))
		if l.err == nil && seen[port] {
			l.fail("mapper's port %d again: expected each port once", port)
		}
		if l.err != nil {
			return
		}
		seen[port] = true
		c.Mappers = append(c.Mappers, port)
	}
	clear(seen)
	var size Megabytes
	for range l.whole("number of reducers", 1, int64(p.trace.Ports)) {
		var r TraceReducer
		if p.form {
			r = l.fetches(last, len(c.Mappers), p.trace.InBytes)
		} else {
			r = l.reducer(last)
		}
		if l.err == nil && seen[r.Port] {
			l.fail("reducer's port %d again: expected each port once", r.Port)
		}
		if l.err != nil {
			return
		}
		seen[r.Port] = true
		size += r.Size // at most MaxTracePorts × maxReducerSize, which fits
		c.Reducers = append(c.Reducers, r)
	}
	l.end("the last reducer")
	if l.err != nil {
		return
	}
	if i := c.idleMapper(); i >= 0 {
		l.col = 1
		l.fail("mapper's port %d sends nothing: expected a flow from every mapper", c.Mappers[i])
		return
	}
	if p.size += size; p.size > maxTraceSize {
		l.col = 1
		l.fail("more than %v MB up to this line: the limit of a trace", maxTraceSize)
		p.size = 0
		return
	}
	if p.flows += c.Width(); p.flows > maxTraceFlows {
		l.col = 1
		l.fail("more than %d flows up to this line: the limit of a trace", maxTraceFlows)
		p.flows = 0
		return
	}
	p.trace.Coflows = append(p.trace.Coflows, c)
}

// traceLine reads the fields of one line. After the first error all reads return zero.
type traceLine struct {
	name   string
	number int
	text   string
	pos    int // of the next byte
	col    int // of the last field, from 1
	err    *TraceError
}

func (l *traceLine) fail(format string, args ...any) {
	if l.err == nil {
		l.err = &TraceError{l.name, l.number, l.col, fmt.Sprintf(format, args...)}
	}
}

func isBlank(b byte) bool { return b == ' ' || b == '\t' || b == '\r' }

// next returns the next field, "" at the end of the line.
func (l *traceLine) next() string {
	for l.pos < len(l.text) && isBlank(l.text[l.pos]) {
		l.pos++
	}
	start := l.pos
	l.col = start + 1
	for l.pos < len(l.text) && !isBlank(l.text[l.pos]) {
		l.pos++
	}
	return l.text[start:l.pos]
}

// whole parses a whole number between lo and hi.
func (l *traceLine) whole(what string, lo, hi int64) int64 {
	if l.err != nil {
		return 0
	}
	field := l.next()
	if field == "" {
		l.fail("line ends before the %s: expected a whole number, %d to %d", what, lo, hi)
		return 0
	}
	return l.number64(what, field, lo, hi)
}

func (l *traceLine) number64(what, field string, lo, hi int64) int64 {
	n, err := strconv.ParseInt(field, 10, 64)
	if err != nil || n < lo || n > hi || field[0] == '+' || field[0] == '-' {
		l.fail("%s %q: expected a whole number, %d to %d", what, units.Clip(field), lo, hi)
		return 0
	}
	return n
}

func (l *traceLine) reducer(lastPort int64) TraceReducer {
	if l.err != nil {
		return TraceReducer{}
	}
	field := l.next()
	if field == "" {
		l.fail(`line ends before the next reducer: expected port:MB, such as "65:1.0"`)
		return TraceReducer{}
	}
	port, size, ok := strings.Cut(field, ":")
	if !ok {
		l.fail(`reducer %q: expected port:MB, such as "65:1.0"`, units.Clip(field))
		return TraceReducer{}
	}
	r := TraceReducer{Port: int(l.number64("reducer's port", port, 0, lastPort))}
	if l.err != nil {
		return TraceReducer{}
	}
	if r.Size, ok = parseMegabytes(size); !ok {
		l.col += len(port) + 1
		l.fail("reducer's MB %q: expected a decimal above 0 and at most %v", units.Clip(size), maxReducerSize)
	}
	return r
}

// end checks that the line has no further field.
func (l *traceLine) end(after string) {
	if l.err != nil {
		return
	}
	if field := l.next(); field != "" {
		l.fail("%q after %s: expected the end of the line", units.Clip(field), after)
	}
}

// flowsMark begins the first line of the flows format, after a #. The version and the
// unit of sizes follow.
const (
	flowsMark    = "testbed-flows"
	flowsVersion = 1
	unitMB       = "MB"
	unitBytes    = "bytes"
)

// version parses a comment before the header, which may be the first line of the format.
// Without it sizes are bytes.
func (p *traceParser) version(l *traceLine) {
	text := strings.TrimLeft(l.text, " \t")
	l.pos = len(l.text) - len(text) + 1
	if l.next() != flowsMark {
		return
	}
	if p.versioned {
		l.fail("%s again: expected it once", flowsMark)
		return
	}
	p.versioned = true
	if v := l.next(); v != strconv.Itoa(flowsVersion) {
		l.fail("version %q of the flows format: must be %d, the one this program knows", units.Clip(v), flowsVersion)
		return
	}
	switch unit := l.next(); unit {
	case unitMB:
		p.trace.InBytes = false
	case unitBytes:
		p.trace.InBytes = true
	default:
		l.fail("unit of sizes %q: expected %s or %s", units.Clip(unit), unitMB, unitBytes)
		return
	}
	l.end("the unit of sizes")
}

// milliseconds formats a time in ms, with the necessary decimals.
func milliseconds(d time.Duration) string {
	s := fmt.Sprintf("%d.%06d", d/time.Millisecond, d%time.Millisecond)
	return strings.TrimSuffix(strings.TrimRight(s, "0"), ".")
}

// milliseconds parses a decimal number of ms, to the nanosecond.
func (l *traceLine) milliseconds(what string) time.Duration {
	if l.err != nil {
		return 0
	}
	field := l.next()
	whole, frac, dotted := strings.Cut(field, ".")
	if !digits(whole) || dotted && !digits(frac) || len(frac) > 6 {
		l.fail("%s %q: expected a number, 0 to %d, of at most 6 decimals", what, units.Clip(field), maxTraceArrival)
		return 0
	}
	ms := l.number64(what, whole, 0, maxTraceArrival-1)
	ns, err := strconv.ParseInt(frac+strings.Repeat("0", 6-len(frac)), 10, 64)
	if err != nil && l.err == nil {
		l.fail("%s %q: expected a number", what, units.Clip(field))
	}
	return time.Duration(ms)*time.Millisecond + time.Duration(ns)
}

// fetches parses a reducer of the flows format: its port and the size of the flow from
// each mapper, or port:size if all flows are equal.
func (l *traceLine) fetches(lastPort int64, mappers int, inBytes bool) TraceReducer {
	if l.err != nil {
		return TraceReducer{}
	}
	field := l.next()
	port, all, even := strings.Cut(field, ":")
	if port == "" {
		l.fail("line ends before the next reducer: expected its port and the size of the flow from each mapper")
		return TraceReducer{}
	}
	r := TraceReducer{Port: int(l.number64("reducer's port", port, 0, lastPort))}
	if even {
		if l.err == nil {
			l.col += len(port) + 1
			r.Size = l.size("reducer's size", all, inBytes, 1)
		}
		return r
	}
	same := true
	at := l.col
	r.Flows = make([]Megabytes, 0, min(mappers, len(l.text)/2))
	for i := range mappers {
		field := l.next()
		if field == "" {
			l.fail("line ends before the flow from mapper %d of %d: expected its size", i+1, mappers)
		}
		r.Flows = append(r.Flows, l.size("flow's size", field, inBytes, 0))
		if l.err != nil {
			return TraceReducer{}
		}
		same = same && r.Flows[i] == r.Flows[0]
		r.Size += r.Flows[i] // at most MaxTracePorts × maxReducerSize, which fits
	}
	if l.col = at; r.Size == 0 || r.Size > maxReducerSize {
		l.fail("reducer's port %d fetches %v MB: must be more than 0 and at most %v", r.Port, r.Size, maxReducerSize)
	}
	if same {
		r.Flows = nil
	}
	return r
}

// size parses a size of at least least.
func (l *traceLine) size(what, field string, inBytes bool, least Megabytes) Megabytes {
	switch {
	case l.err != nil:
		return 0
	case inBytes:
		return Megabytes(l.number64(what+" in bytes", field, int64(least), int64(maxReducerSize)))
	}
	if least == 0 && field == "0" {
		return 0
	}
	size, ok := parseMegabytes(field)
	if !ok {
		from := "0, or above it"
		if least > 0 {
			from = "above 0"
		}
		l.fail("%s in MB %q: expected a decimal, %s and at most %v", what, units.Clip(field), from, maxReducerSize)
	}
	return size
}
