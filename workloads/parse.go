package workloads

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// TraceError is what is wrong with one line of a trace.
type TraceError struct {
	Name      string
	Line, Col int // from 1; Col counts bytes
	Text      string
}

func (e TraceError) Error() string {
	return fmt.Sprintf("%s:%d:%d: %s", e.Name, e.Line, e.Col, e.Text)
}

// TraceErrors are the mistakes of a trace, at most one a line.
type TraceErrors struct {
	First []TraceError // the first MaxTraceErrors of them
	Total int
}

// MaxTraceErrors is how many mistakes of one trace are told in full.
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
		fmt.Fprintf(&b, "\n%s: and %d more lines like these", e.First[0].Name, more)
	}
	return b.String()
}

// maxTraceLine is the longest line read, in bytes. The widest coflow of the
// Facebook trace takes 2 KB.
const maxTraceLine = 4 << 20

// ParseTrace reads a trace in the format of the public coflow-benchmark:
//
//	<ports> <coflows>
//	<id> <arrival ms> <m> <port> × m <r> <port>:<MB> × r       one line a coflow
//
// with ids ascending, arrivals not going back, and no port twice among a
// coflow's mappers or among its reducers. MB is what the reducer fetches from
// all mappers together, a decimal above 0. Fields are separated by spaces or
// tabs. The error is a *TraceErrors with the first mistake of every bad line, or
// that of reading r; name stands for the file in it.
func ParseTrace(name string, r io.Reader) (*Trace, error) {
	p := traceParser{trace: &Trace{Name: name, Ports: MaxTracePorts}, errs: &TraceErrors{}, lastID: -1}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxTraceLine)
	blank := 0 // line number of a blank line, to be blamed if anything follows it
	n := 0
	for lines.Scan() {
		n++
		l := &traceLine{name: name, number: n, text: lines.Text()}
		if strings.TrimSpace(l.text) == "" && n > 1 {
			if blank == 0 {
				blank = n
			}
			continue
		}
		if blank > 0 {
			p.add(TraceError{name, blank, 1, "blank line: want a coflow"})
			blank = 0
		}
		if n == 1 {
			p.header(l)
		} else {
			p.coflow(l)
		}
		if l.err != nil {
			p.add(*l.err)
		}
	}
	if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
		p.add(TraceError{name, n + 1, 1, fmt.Sprintf("line longer than %d bytes: want one coflow a line; the rest is not read", maxTraceLine)})
		p.announced = nil
	} else if err != nil {
		return nil, fmt.Errorf("%s: line %d: %w", name, n+1, err)
	}
	if n == 0 {
		p.add(TraceError{name, 1, 1, `empty file: want a first line with the number of ports and of coflows, such as "150 526"`})
	}
	if a := p.announced; a != nil && a.coflows != p.seen {
		p.add(TraceError{name, 1, a.col, fmt.Sprintf("%d coflows announced, %d lines follow: want one line a coflow", a.coflows, p.seen)})
	}
	if p.errs.Total > 0 {
		return nil, p.errs
	}
	return p.trace, nil
}

type traceParser struct {
	trace     *Trace
	errs      *TraceErrors
	announced *announced // nil where the header could not be read
	seen      int        // lines that stand for a coflow, good or bad
	lastID    CoflowID   // of the last line whose id could be read
	lastAt    time.Duration
	size      Megabytes
	flows     int
}

type announced struct{ coflows, col int }

func (p *traceParser) add(e TraceError) {
	p.errs.Total++
	if len(p.errs.First) < MaxTraceErrors {
		p.errs.First = append(p.errs.First, e)
	}
}

func (p *traceParser) header(l *traceLine) {
	ports := l.whole("number of ports", 1, MaxTracePorts)
	if l.err == nil {
		p.trace.Ports = int(ports)
	}
	coflows := l.whole("number of coflows", 1, MaxTraceCoflows)
	if l.err == nil {
		p.announced = &announced{int(coflows), l.col}
	}
	l.end("the number of coflows")
}

func (p *traceParser) coflow(l *traceLine) {
	p.seen++
	c := TraceCoflow{ID: CoflowID(l.whole("coflow id", 0, maxTraceID))}
	if l.err == nil {
		if c.ID == p.lastID {
			l.fail("coflow id %d again: want every id once, ascending", c.ID)
		} else if c.ID < p.lastID {
			l.fail("coflow id %d after %d: want ids ascending", c.ID, p.lastID)
		}
		p.lastID = max(p.lastID, c.ID)
	}
	c.Arrival = time.Duration(l.whole("arrival in ms", 0, maxTraceArrival)) * time.Millisecond
	if l.err == nil {
		if c.Arrival < p.lastAt {
			l.fail("arrival %d ms after one at %d ms: want arrivals not going back", c.Arrival.Milliseconds(), p.lastAt.Milliseconds())
		}
		p.lastAt = max(p.lastAt, c.Arrival)
	}
	last := int64(p.trace.Ports - 1)
	seen := map[int]bool{}
	for range l.whole("number of mappers", 1, int64(p.trace.Ports)) {
		port := int(l.whole("mapper's port", 0, last))
		if l.err == nil && seen[port] {
			l.fail("mapper's port %d again: want each once", port)
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
		r := l.reducer(last)
		if l.err == nil && seen[r.Port] {
			l.fail("reducer's port %d again: want each once", r.Port)
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
	if p.size += size; p.size > maxTraceSize {
		l.col = 1
		l.fail("more than %v MB up to here: want less in one trace", maxTraceSize)
		p.size = 0
		return
	}
	if p.flows += c.Width(); p.flows > maxTraceFlows {
		l.col = 1
		l.fail("more than %d flows up to here: want fewer in one trace", maxTraceFlows)
		p.flows = 0
		return
	}
	p.trace.Coflows = append(p.trace.Coflows, c)
}

// traceLine reads fields from one line. The first mistake sticks: after it
// every read gives zero.
type traceLine struct {
	name   string
	number int
	text   string
	pos    int // of the next byte
	col    int // of the field read last, from 1
	err    *TraceError
}

func (l *traceLine) fail(format string, args ...any) {
	if l.err == nil {
		l.err = &TraceError{l.name, l.number, l.col, fmt.Sprintf(format, args...)}
	}
}

func isBlank(b byte) bool { return b == ' ' || b == '\t' || b == '\r' }

// next is the next field, "" at the end of the line.
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

// whole reads a whole number between lo and hi.
func (l *traceLine) whole(what string, lo, hi int64) int64 {
	if l.err != nil {
		return 0
	}
	field := l.next()
	if field == "" {
		l.fail("line ends before the %s: want a whole number, %d to %d", what, lo, hi)
		return 0
	}
	return l.number64(what, field, lo, hi)
}

func (l *traceLine) number64(what, field string, lo, hi int64) int64 {
	n, err := strconv.ParseInt(field, 10, 64)
	if err != nil || n < lo || n > hi || field[0] == '+' || field[0] == '-' {
		l.fail("%s %q: want a whole number, %d to %d", what, clip(field), lo, hi)
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
		l.fail(`line ends before the next reducer: want port:MB, such as "65:1.0"`)
		return TraceReducer{}
	}
	port, size, ok := strings.Cut(field, ":")
	if !ok {
		l.fail(`reducer %q: want port:MB, such as "65:1.0"`, clip(field))
		return TraceReducer{}
	}
	r := TraceReducer{Port: int(l.number64("reducer's port", port, 0, lastPort))}
	if l.err != nil {
		return TraceReducer{}
	}
	if r.Size, ok = parseMegabytes(size); !ok {
		l.col += len(port) + 1
		l.fail("reducer's MB %q: want a decimal above 0 and at most %v", clip(size), maxReducerSize)
	}
	return r
}

// end wants nothing more on the line.
func (l *traceLine) end(after string) {
	if l.err != nil {
		return
	}
	if field := l.next(); field != "" {
		l.fail("%q after %s: want the end of the line", clip(field), after)
	}
}
