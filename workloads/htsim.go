package workloads

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"testbed/topo/units"
)

// htsimHeads are the first words of lines of an htsim header.
var htsimHeads = []string{"Nodes", "Connections", "Triggers", "Failures"}

// coflowMark begins a comment, after a #, that states which connections of an htsim matrix
// form a coflow:
//
//	# testbed-coflow <id> from <port> × m to <port> × r ids <first>-<last>
const coflowMark = "testbed-coflow"

// Limits of the htsim format as read here; htsim itself has ids of 32 bits.
const (
	maxHTSimID    = math.MaxUint32
	maxHTSimStart = math.MaxInt64 / 1000 // ns, so that ps do not overflow
	// maxHTSimCells limits the memory for a few connections, since a coflow has a matrix of
	// flows. It is 7 times a shuffle among 3,000 nodes, in half a GB.
	maxHTSimCells = 1 << 26
	// htsimInt is the largest size that htsim itself reads, a signed 32-bit number.
	htsimInt = math.MaxInt32
)

// connection is one line of an htsim matrix.
type connection struct {
	line, col int // of its size
	src, dst  int
	id        int64 // 0 for none
	start     int64 // ps
	barrier   int64 // recv_done_trigger; 0 for none
	size      Megabytes
}

// stated is a coflow that a comment declares.
type stated struct {
	line        int
	id          CoflowID
	from, to    []int
	first, last int64 // ids of its connections
	conns       []connection
}

type htsimParser struct {
	traceParser
	announced map[string]*announced
	seen      map[string]int // number of lines, by the word of the header that announces them
	conns     []connection
	stated    []stated
	cells     int // pairs of sender and receiver, over all coflows
}

// parseHTSim parses a connection matrix of htsim. Comments of this project group connections
// into coflows. Without such comments, connections with the same start and the same
// recv_done_trigger, if any, form a coflow. A connection that waits for a trigger has no
// arrival and is an error.
func parseHTSim(name string, r io.Reader) (_ *Trace, remarks []string, _ error) {
	p := &htsimParser{
		traceParser: traceParser{trace: &Trace{Name: name, Ports: MaxTracePorts, InBytes: true}, errs: &TraceErrors{}},
		announced:   map[string]*announced{}, seen: map[string]int{},
	}
	n, whole, err := p.errs.Scan(name, r, maxTraceLine, "one connection a line", func(n int, text string) bool {
		l := &traceLine{name: name, number: n, text: text}
		p.line(l)
		p.note(l)
		return true
	})
	if err != nil {
		return nil, nil, err
	}
	for _, word := range htsimHeads {
		switch a := p.announced[word]; {
		case !whole || a != nil && a.coflows < 0: // already reported
		case a == nil && (word == "Nodes" || word == "Connections"):
			p.errs.Add(TraceError{name, max(n, 1), 1, fmt.Sprintf(`no line %q: expected it before the connections, such as "%s 16"`, word, word)})
		case word != "Nodes" && a == nil && p.seen[word] > 0:
			p.errs.Add(TraceError{name, max(n, 1), 1, fmt.Sprintf(`%d of them, but no line %q: expected "%s %d" before them`, p.seen[word], word, word, p.seen[word])})
		case word != "Nodes" && a != nil && a.coflows != p.seen[word]:
			p.errs.Add(TraceError{name, a.line, a.col, fmt.Sprintf("%d %s announced, %d lines follow: expected one line each", a.coflows, strings.ToLower(word), p.seen[word])})
		}
	}
	if p.errs.Total > 0 {
		return nil, nil, p.errs
	}
	if len(p.stated) > 0 {
		p.fill()
	} else {
		remarks = p.group()
	}
	if p.errs.Total > 0 {
		return nil, nil, p.errs
	}
	// Limits of the whole trace.
	if err := p.trace.check(); err != nil {
		p.errs.Add(TraceError{name, 1, 1, strings.TrimPrefix(err.Error(), "trace "+name+": ")})
		return nil, nil, p.errs
	}
	if k := p.seen["Triggers"]; k > 0 {
		remarks = append(remarks, fmt.Sprintf("ignored %d triggers: a trace has none", k))
	}
	if k := p.seen["Failures"]; k > 0 {
		remarks = append(remarks, fmt.Sprintf("ignored %d failures: a trace has none (use faults of a scenario)", k))
	}
	return p.trace, remarks, nil
}

func (p *htsimParser) line(l *traceLine) {
	word := l.next()
	switch {
	case word == "":
	case word[0] == '#':
		if l.pos = l.col; l.next() == coflowMark {
			p.comment(l)
		}
	case slices.Contains(htsimHeads, word):
		p.head(l, word)
	case strings.Contains(word, "->"):
		p.seen["Connections"]++
		p.connection(l, word)
	case word == "trigger":
		p.seen["Triggers"]++
	case word == "failure":
		p.seen["Failures"]++
	default:
		l.fail(`%q: expected a line that begins with %s, trigger, failure or src->dst, such as "0->13"`, units.Clip(word), strings.Join(htsimHeads, ", "))
	}
}

func (p *htsimParser) head(l *traceLine, word string) {
	if p.announced[word] != nil {
		l.fail("%s again: expected it once", word)
	}
	lo, hi := int64(1), int64(maxTraceFlows)
	switch word {
	case "Nodes":
		hi = MaxTracePorts
	case "Triggers", "Failures":
		lo = 0
	}
	n := l.whole("number of "+strings.ToLower(word), lo, hi)
	if l.err != nil {
		n = -1
	}
	if p.announced[word] == nil {
		p.announced[word] = &announced{int(n), l.number, l.col}
	}
	if word == "Nodes" && n > 0 {
		p.trace.Ports = int(n)
	}
	l.end("the number of " + strings.ToLower(word))
	if word == "Nodes" && len(p.conns) > 0 {
		l.col = 1
		l.fail("Nodes after connections: expected it before them")
	}
}

func (p *htsimParser) connection(l *traceLine, ends string) {
	last := int64(p.trace.Ports - 1)
	src, dst, _ := strings.Cut(ends, "->")
	c := connection{line: l.number, src: int(l.number64("source", src, 0, last))}
	at := l.col
	l.col += len(src) + 2
	c.dst = int(l.number64("destination", dst, 0, last))
	seen := map[string]bool{}
	for l.err == nil {
		word := l.next()
		if word == "" {
			break
		}
		if seen[word] {
			l.fail("%s again: expected it once", units.Clip(word))
			break
		}
		seen[word] = true
		switch word {
		case "start":
			c.start = l.picoseconds()
		case "size":
			c.size = Megabytes(l.whole("size in bytes, where 0 means an endless flow,", 1, int64(maxReducerSize)))
			c.col = l.col
		case "id":
			c.id = l.whole("id", 1, maxHTSimID)
		case "recv_done_trigger":
			c.barrier = l.whole("trigger", 1, maxHTSimID)
		case "send_done_trigger", "prio":
			l.whole(word, 0, maxHTSimID)
		case "addon":
		case "trigger":
			l.fail("the connection waits for a trigger, the end of other connections: a trace only has arrivals: specify a start in ps")
		default:
			l.fail("%q: expected start, size, id, prio, send_done_trigger or recv_done_trigger, each with a number", units.Clip(word))
		}
	}
	for _, word := range []string{"start", "size"} {
		if l.err == nil && !seen[word] {
			l.col = at
			l.fail("connection without %s: expected one", word)
		}
	}
	if l.err == nil {
		p.conns = append(p.conns, c)
	}
}

// picoseconds parses a start. Its decimals, if any, are below the resolution of htsim.
func (l *traceLine) picoseconds() int64 {
	field := l.next()
	whole, frac, dotted := strings.Cut(field, ".")
	if dotted && !digits(frac) {
		l.fail("start in ps %q: expected a number", units.Clip(field))
		return 0
	}
	return l.number64("start in ps", whole, 0, math.MaxInt64)
}

func (p *htsimParser) comment(l *traceLine) {
	s := stated{line: l.number}
	s.id = CoflowID(l.whole("coflow id", 0, maxTraceID))
	word := func(want string) bool {
		if got := l.next(); l.err == nil && got != want {
			l.fail("%q: expected %s", units.Clip(got), want)
		}
		return l.err == nil
	}
	if !word("from") {
		return
	}
	list := func(what, until string) (ports []int) {
		seen := map[int]bool{}
		for l.err == nil {
			field := l.next()
			if field == until && len(ports) > 0 {
				break
			}
			port := int(l.number64(what, field, 0, int64(p.trace.Ports-1)))
			if l.err == nil && seen[port] {
				l.fail("%s %d again: expected each port once", what, port)
			}
			seen[port] = true
			ports = append(ports, port)
		}
		return ports
	}
	s.from = list("mapper's port", "to")
	s.to = list("reducer's port", "ids")
	if l.err != nil {
		return
	}
	first, last, _ := strings.Cut(l.next(), "-")
	s.first = l.number64("first id", first, 1, maxHTSimID)
	s.last = l.number64("last id", last, s.first, maxHTSimID)
	l.end("the ids")
	if n := len(p.stated); l.err == nil && n > 0 {
		switch before := p.stated[n-1]; {
		case s.first <= before.last:
			l.fail("ids from %d, but coflow %d has ids up to %d: expected ids in ascending order of coflows", s.first, before.id, before.last)
		case s.id <= before.id:
			l.col = 1
			l.fail("coflow id %d after %d: expected ascending ids", s.id, before.id)
		}
	}
	if l.err == nil {
		p.stated = append(p.stated, s)
	}
}

// fill builds the coflows that comments declare.
func (p *htsimParser) fill() {
	bad := func(c connection, format string, args ...any) {
		p.errs.Add(TraceError{p.trace.Name, c.line, 1, fmt.Sprintf(format, args...)})
	}
	ids := map[int64]bool{}
	for _, c := range p.conns {
		i, _ := slices.BinarySearchFunc(p.stated, c.id, func(s stated, id int64) int { return cmp.Compare(s.last, id) })
		switch {
		case c.id == 0:
			bad(c, "connection without an id: comments declare the coflows by ids")
		case ids[c.id]:
			bad(c, "id %d again: expected each once", c.id)
		case i == len(p.stated) || p.stated[i].first > c.id:
			bad(c, "id %d is in no %s: expected every connection in one", c.id, coflowMark)
		default:
			p.stated[i].conns = append(p.stated[i].conns, c)
		}
		ids[c.id] = true
	}
	var lastAt time.Duration
	for _, s := range p.stated {
		at := TraceError{p.trace.Name, s.line, 1, ""}
		if len(s.conns) == 0 {
			at.Text = fmt.Sprintf("coflow %d has no connection: expected one with an id of %d to %d", s.id, s.first, s.last)
			p.errs.Add(at)
			continue
		}
		if c, ok := p.coflow(s.id, s.from, s.to, s.conns, bad); ok {
			if i := c.idleMapper(); i >= 0 {
				at.Text = fmt.Sprintf("mapper's port %d of coflow %d sends nothing: expected a connection from every mapper", c.Mappers[i], s.id)
				p.errs.Add(at)
			}
			if c.Arrival < lastAt {
				at.Text = fmt.Sprintf("coflow %d starts before the previous one: expected coflows in order of start", s.id)
				p.errs.Add(at)
			}
			lastAt = max(lastAt, c.Arrival)
			p.trace.Coflows = append(p.trace.Coflows, c)
		}
	}
}

// group groups connections into coflows by their start and recv_done_trigger. IDs count
// from 1 in order of start, ties by the first line. Connections between the same two nodes
// become one flow.
func (p *htsimParser) group() (remarks []string) {
	type key struct{ start, barrier int64 }
	groups := map[key][]connection{}
	var order []key
	for _, c := range p.conns {
		k := key{c.start, c.barrier}
		if groups[k] == nil {
			order = append(order, k)
		}
		groups[k] = append(groups[k], c)
	}
	slices.SortStableFunc(order, func(a, b key) int { return cmp.Compare(a.start, b.start) })
	merged, rounded := 0, 0
	for i, k := range order {
		var conns []connection
		at := map[[2]int]int{}
		for _, c := range groups[k] {
			pair := [2]int{c.src, c.dst}
			if j, ok := at[pair]; ok {
				conns[j].size = min(conns[j].size+c.size, maxReducerSize+1)
				merged++
				continue
			}
			at[pair] = len(conns)
			conns = append(conns, c)
		}
		var from, to []int
		for _, c := range conns {
			from, to = append(from, c.src), append(to, c.dst)
		}
		slices.Sort(from)
		slices.Sort(to)
		rounded += count(k.start%1000 != 0)
		c, ok := p.coflow(CoflowID(i+1), slices.Compact(from), slices.Compact(to), conns, func(c connection, format string, args ...any) {
			p.errs.Add(TraceError{p.trace.Name, c.line, 1, fmt.Sprintf(format, args...)})
		})
		if ok {
			p.trace.Coflows = append(p.trace.Coflows, c)
		}
	}
	remarks = append(remarks, fmt.Sprintf("grouped connections with the same start into coflows: %d connections, %d coflows", len(p.conns), len(order)))
	if merged > 0 {
		remarks = append(remarks, fmt.Sprintf("merged %d connections into others between the same nodes", merged))
	}
	if rounded > 0 {
		remarks = append(remarks, fmt.Sprintf("rounded the starts of %d coflows down to a nanosecond", rounded))
	}
	return remarks
}

// coflow builds a coflow from connections between the ports.
func (p *htsimParser) coflow(id CoflowID, from, to []int, conns []connection, bad func(c connection, format string, args ...any)) (TraceCoflow, bool) {
	c := TraceCoflow{ID: id, Arrival: time.Duration(conns[0].start / 1000), Mappers: from}
	mapper, reducer := map[int]int{}, map[int]int{}
	for i, port := range from {
		mapper[port] = i
	}
	if p.cells += len(from) * len(to); p.cells > maxHTSimCells {
		bad(conns[0], "coflow %d, with %d senders and %d receivers, exceeds %d pairs of them in total: use fewer, or different starts", id, len(from), len(to), maxHTSimCells)
		p.cells = 0
		return c, false
	}
	for j, port := range to {
		reducer[port] = j
		c.Reducers = append(c.Reducers, TraceReducer{Port: port})
	}
	good := true
	fail := func(conn connection, format string, args ...any) {
		good = false
		bad(conn, format, args...)
	}
	for _, conn := range conns {
		i, ok := mapper[conn.src]
		j, ok2 := reducer[conn.dst]
		switch {
		case !ok || !ok2:
			fail(conn, "%d->%d is not between ports of coflow %d, to which id %d belongs", conn.src, conn.dst, id, conn.id)
			continue
		case conn.start != conns[0].start:
			fail(conn, "start %d ps, but coflow %d has connections with start %d: expected equal starts", conn.start, id, conns[0].start)
			continue
		}
		r := &c.Reducers[j]
		if r.Flows == nil {
			r.Flows = make([]Megabytes, len(from))
		}
		if r.Flows[i] > 0 {
			fail(conn, "%d->%d again in coflow %d: expected each pair of ports once", conn.src, conn.dst, id)
			continue
		}
		r.Flows[i] = conn.size
		if r.Size += conn.size; r.Size > maxReducerSize {
			fail(conn, "more than %d bytes to node %d in coflow %d", maxReducerSize, conn.dst, id)
			r.Size = 0
		}
	}
	for j := range c.Reducers {
		r := &c.Reducers[j]
		switch {
		case !good:
		case r.Size == 0:
			fail(conns[0], "no connection to port %d, which coflow %d declares", r.Port, id)
		case slices.Min(r.Flows) == slices.Max(r.Flows):
			r.Flows = nil
		}
	}
	return c, good
}

// htsimLines returns the function that writes the trace as a connection matrix of htsim,
// which allows comments only before the connections.
func (t *Trace) htsimLines() (func(out func(string, ...any)), error) {
	if !t.InBytes {
		return nil, fmt.Errorf("trace %s: sizes in an undefined MB: htsim requires bytes", t.Name)
	}
	flows := 0
	for _, c := range t.Coflows {
		if c.Arrival > maxHTSimStart {
			return nil, fmt.Errorf("trace %s: coflow %d: arrival %v exceeds 63 bits in ps", t.Name, c.ID, c.Arrival)
		}
		for _, r := range c.Reducers {
			if r.Flows == nil && r.Size%Megabytes(len(c.Mappers)) != 0 {
				return nil, fmt.Errorf("trace %s: coflow %d: flows to port %d are not whole bytes", t.Name, c.ID, r.Port)
			}
		}
		flows += c.Width()
	}
	return func(out func(string, ...any)) {
		out("Nodes %d\nConnections %d\n", t.Ports, flows)
		id := 1
		for _, c := range t.Coflows {
			out("# %s %d from", coflowMark, c.ID)
			for _, port := range c.Mappers {
				out(" %d", port)
			}
			out(" to")
			for _, r := range c.Reducers {
				out(" %d", r.Port)
			}
			out(" ids %d-%d\n", id, id+c.Width()-1)
			id += c.Width()
		}
		id = 1
		for _, c := range t.Coflows {
			start := strconv.FormatInt(int64(c.Arrival)*1000, 10)
			for i, src := range c.Mappers {
				for j, r := range c.Reducers {
					size, over := c.Flow(i, j)
					if size == 0 {
						continue
					}
					out("%d->%d id %d start %s size %d\n", src, r.Port, id, start, int64(size)/over)
					id++
				}
			}
		}
	}, nil
}
