package workloads

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"time"

	"testbed/topo"
	"testbed/topo/units"
)

// A workload file contains a Workload as lines of text. A line has a word, identifiers,
// and keys with values in any order:
//
//	testbed-workload 1
//	fabric racks=4 hosts=5
//	job 1 arrival=1.5s bin=3
//	coflow 0 arrival=1.5s job=1
//	flow 0 h0-00>h1-02 size=4MB
//	coflow 1 arrival=2s background
//	flow 1 h2-01>h1-00 size=1MB
//	writer 0 h1-02 start=0s job=1
//	block 0 size=8MB replicas=3 packet=64KB window=8
//	reader 0 h0-03 start=4s
//	read block=0
//
// Jobs come first, by ID, then coflows, by arrival, each with its flows, then writers,
// by start, each with its blocks, then readers, by start, each with its reads; ties by
// ID. Racks, and hosts of each rack, are those of the fabric that the file was made for. Lines that begin with # and blank lines
// are ignored.
const workloadHeader = "testbed-workload"

const workloadVersion = 1

// maxWorkloadLine is the longest line of a workload file, in bytes.
const maxWorkloadLine = 4096

// WriteWorkload writes a workload on a fabric as a workload file, with remarks as comments
// at its beginning.
func WriteWorkload(to io.Writer, f *topo.Fabric, wl Workload, remarks ...string) error {
	w := bufio.NewWriter(to)
	fmt.Fprintf(w, "%s %d\n", workloadHeader, workloadVersion)
	for _, r := range remarks {
		fmt.Fprintf(w, "# %s\n", strings.Join(strings.Fields(r), " "))
	}
	fmt.Fprintf(w, "fabric racks=%d hosts=%d\n", f.Racks(), f.Hosts()/f.Racks())
	for _, j := range wl.Jobs {
		fmt.Fprintf(w, "job %d arrival=%v", j.ID, j.Arrival)
		if j.Bin > 0 {
			fmt.Fprintf(w, " bin=%d", j.Bin)
		}
		fmt.Fprintln(w)
	}
	for _, c := range wl.Coflows {
		fmt.Fprintf(w, "coflow %d arrival=%v", c.ID, c.Arrival)
		if c.Job > 0 {
			fmt.Fprintf(w, " job=%d", c.Job)
		}
		if c.Background {
			fmt.Fprint(w, " background")
		}
		fmt.Fprintln(w)
		for _, fl := range c.Flows {
			fmt.Fprintf(w, "flow %d %s>%s size=%v\n", fl.ID, f.HostName(fl.Src), f.HostName(fl.Dst), fl.Size)
		}
	}
	for _, wr := range wl.Writers {
		fmt.Fprintf(w, "writer %d %s start=%v", wr.ID, f.HostName(wr.Client), wr.Start)
		if wr.Job > 0 {
			fmt.Fprintf(w, " job=%d", wr.Job)
		}
		fmt.Fprintln(w)
		for _, b := range wr.Blocks {
			fmt.Fprintf(w, "block %d size=%v replicas=%d packet=%v window=%d\n", b.ID, b.Size, b.Replicas, b.Packet, b.Window)
		}
	}
	for _, r := range wl.Readers {
		fmt.Fprintf(w, "reader %d %s start=%v\n", r.ID, f.HostName(r.Client), r.Start)
		for _, x := range r.Reads {
			fmt.Fprintf(w, "read block=%d\n", x.Block)
		}
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("write workload: %w", err)
	}
	return nil
}

// WorkloadFile is a parsed workload file.
type WorkloadFile struct {
	Name         string
	Racks, Hosts int      // hosts per rack
	Workload     Workload // host i of rack r is HostID r × Hosts + i
}

// On returns the workload on a fabric. It multiplies sizes of flows, blocks and packets by
// one factor, rounded up to a byte, and times by another, rounded down to a nanosecond.
// Hosts keep their names, so the fabric may have more hosts than the file.
func (w *WorkloadFile) On(f *topo.Fabric, size, times Factor) (Workload, error) {
	fail := func(format string, args ...any) (Workload, error) {
		return Workload{}, fmt.Errorf("workload %s: "+format, append([]any{w.Name}, args...)...)
	}
	if err := errors.Join(size.check(), times.check()); err != nil {
		return fail("%w", err)
	}
	var bad error
	host := func(h topo.HostID) topo.HostID {
		r, i := int(h)/w.Hosts, int(h)%w.Hosts
		if r >= f.Racks() || i >= f.Hosts()/f.Racks() {
			bad = cmp.Or(bad, fmt.Errorf("it uses host h%d-%02d, and the fabric has %d racks of %d hosts: expected %d of %d, as in the file", r, i, f.Racks(), f.Hosts()/f.Racks(), w.Racks, w.Hosts))
			return 0
		}
		return f.HostIn(topo.RackID(r), i)
	}
	bytes := func(n units.Bytes) units.Bytes {
		by := size.orOne()
		p := new(big.Int).Mul(big.NewInt(int64(n)), big.NewInt(by.Num))
		out, ok := ceilBytes(p, big.NewInt(by.Den))
		if !ok || out > maxBlockSize {
			bad = cmp.Or(bad, fmt.Errorf("%v times %v: must be at most %v", n, size, units.Bytes(maxBlockSize)))
		}
		return out
	}
	at := func(d time.Duration) time.Duration {
		out, ok := times.Duration(d)
		if !ok || out > maxWorkloadTime {
			bad = cmp.Or(bad, fmt.Errorf("%v times %v: must be at most %v", d, times, maxWorkloadTime))
		}
		return out
	}
	out := Workload{Jobs: slices.Clone(w.Workload.Jobs), Coflows: slices.Clone(w.Workload.Coflows), Writers: slices.Clone(w.Workload.Writers), Readers: slices.Clone(w.Workload.Readers)}
	for i := range out.Jobs {
		out.Jobs[i].Arrival = at(out.Jobs[i].Arrival)
	}
	for i := range out.Coflows {
		c := &out.Coflows[i]
		c.Arrival, c.Flows = at(c.Arrival), slices.Clone(c.Flows)
		for j := range c.Flows {
			fl := &c.Flows[j]
			fl.Src, fl.Dst, fl.Size = host(fl.Src), host(fl.Dst), bytes(fl.Size)
		}
	}
	for i := range out.Writers {
		wr := &out.Writers[i]
		wr.Client, wr.Start, wr.Blocks = host(wr.Client), at(wr.Start), slices.Clone(wr.Blocks)
		for j := range wr.Blocks {
			b := &wr.Blocks[j]
			b.Client, b.Size, b.Packet = wr.Client, bytes(b.Size), bytes(b.Packet)
			if b.Replicas > f.Hosts() {
				bad = cmp.Or(bad, fmt.Errorf("block %d has %d replicas, and the fabric %d hosts: expected at most one replica per host", b.ID, b.Replicas, f.Hosts()))
			}
		}
	}
	for i := range out.Readers {
		r := &out.Readers[i]
		r.Client, r.Start, r.Reads = host(r.Client), at(r.Start), slices.Clone(r.Reads)
		for j := range r.Reads {
			r.Reads[j].Size = bytes(r.Reads[j].Size)
		}
	}
	if bad != nil {
		return fail("%w", bad)
	}
	return out, nil
}

// IsWorkload reports whether the first bytes of a file are those of a workload file, of
// any version.
func IsWorkload(head []byte) bool {
	return bytes.HasPrefix(head, []byte(workloadHeader+" "))
}

// ReadWorkload reads a workload file. The error is a *TraceErrors with the first
// error of every invalid line, or the error of reading r; name is the name of the file in
// it.
func ReadWorkload(name string, r io.Reader) (*WorkloadFile, error) {
	p := workloadParser{
		file: &WorkloadFile{Name: name}, errs: &TraceErrors{},
		jobs: map[JobID]*jobLines{}, written: map[BlockID]Block{}, taken: map[lineID]bool{}, last: map[string]moment{},
	}
	n, _, err := p.errs.Scan(name, r, maxWorkloadLine, "a workload file", func(n int, text string) bool {
		p.line(n, text)
		return !p.over
	})
	if err != nil {
		return nil, err
	}
	if p.over {
		return nil, p.errs
	}
	p.end(n)
	if p.errs.Total > 0 {
		return nil, p.errs
	}
	return p.file, nil
}

// jobLines are the positions of a job and of its coflow and writers.
type jobLines struct {
	at      int // line
	arrival time.Duration
	coflow  int           // line of its coflow, 0 if none
	first   time.Duration // start of its first writer
	writers int
}

type workloadParser struct {
	file   *WorkloadFile
	errs   *TraceErrors
	header bool // was read
	over   bool // further lines cannot be parsed
	stage  int  // the last of stages that was read

	jobs    map[JobID]*jobLines
	written map[BlockID]Block // from valid lines
	taken   map[lineID]bool
	last    map[string]moment // of the last valid line, by kind

	open     string // "coflow", "writer" or "reader" without flows, blocks or reads so far
	openLine int
	skip     bool    // the coflow, writer or reader is invalid: its lines are parsed and dropped
	total    float64 // bytes
	badJob   bool    // a job is invalid: missing jobs are not reported
	badBlock bool    // the same for blocks
}

// lineID is the number of a line among those of its kind.
type lineID struct {
	kind string
	id   int
}

// moment orders the lines of a kind: by time, ties by number.
type moment struct {
	at time.Duration
	id int
}

// stages are the kinds of lines in their order in a file.
var stages = []string{"fabric", "job", "coflow", "writer", "reader"}

func (p *workloadParser) fail(line, col int, format string, args ...any) {
	p.errs.Add(TraceError{p.file.Name, line, col, fmt.Sprintf(format, args...)})
}

// words returns the fields of a line and the column of each, from 1.
func words(text string) (list []string, cols []int) {
	l := traceLine{text: text}
	for w := l.next(); w != ""; w = l.next() {
		list, cols = append(list, w), append(cols, l.col)
	}
	return list, cols
}

// fields parses the keys of a line and keeps the first error.
type fields struct {
	line  int
	words []string
	cols  []int
	keys  map[string]int // index of the word
	used  map[string]bool
	col   int // of the first error; 0 for none
	text  string
	is    lineID // of a line with a number
	at    moment // of a line with a time
}

func (l *fields) fail(i int, format string, args ...any) {
	if l.col == 0 {
		l.col, l.text = l.cols[min(i, len(l.cols)-1)], fmt.Sprintf(format, args...)
	}
}

// positional returns the i-th word after the first, which has no key.
func (l *fields) positional(i int, what string) string {
	if i+1 >= len(l.words) || strings.Contains(l.words[i+1], "=") {
		l.fail(i+1, "%s without %s: expected one after %q", l.words[0], what, l.words[min(i, len(l.words)-1)])
		return ""
	}
	return l.words[i+1]
}

// begin parses the keys after n positional words.
func (l *fields) begin(n int) {
	l.keys, l.used = map[string]int{}, map[string]bool{}
	for i := n + 1; i < len(l.words); i++ {
		key, _, _ := strings.Cut(l.words[i], "=")
		if _, again := l.keys[key]; again {
			l.fail(i, "%s: duplicate key", units.Clip(key))
		}
		l.keys[key] = i
	}
}

func (l *fields) value(key string, required bool) (value string, at int, ok bool) {
	i, given := l.keys[key]
	if !given {
		if required {
			l.fail(0, "%s without %s=…: missing key", l.words[0], key)
		}
		return "", 0, false
	}
	l.used[key] = true
	_, value, dotted := strings.Cut(l.words[i], "=")
	if !dotted {
		l.fail(i, "%s without a value: expected %s=…", key, key)
		return "", i, false
	}
	return value, i, true
}

// flag reports whether a key without a value is present.
func (l *fields) flag(key string) bool {
	i, given := l.keys[key]
	if given && l.words[i] != key {
		l.fail(i, "%q: expected %s without a value", units.Clip(l.words[i]), key)
	}
	l.used[key] = true
	return given
}

func (l *fields) number(key string, required bool, least, most int) int {
	value, i, ok := l.value(key, required)
	if !ok {
		return 0
	}
	return l.whole(i, key, value, least, most)
}

func (l *fields) whole(i int, what, value string, least, most int) int {
	n, err := strconv.Atoi(value)
	if err != nil || !digits(value) || strconv.Itoa(n) != value || n < least || n > most {
		l.fail(i, "%s %q: expected a whole number, %d to %d", what, units.Clip(value), least, most)
		return 0
	}
	return n
}

func (l *fields) size(key string) units.Bytes {
	value, i, ok := l.value(key, true)
	if !ok {
		return 0
	}
	n, err := units.ParseBytes(value)
	if err != nil {
		l.fail(i, "%s: %v", key, err)
	} else if n < 1 || n > maxBlockSize {
		l.fail(i, "%s %v: must be 1B to %v", key, n, units.Bytes(maxBlockSize))
	}
	return n
}

func (l *fields) time(key string) time.Duration {
	value, i, ok := l.value(key, true)
	if !ok {
		return 0
	}
	d, err := time.ParseDuration(value)
	if err != nil || d < 0 || d > maxWorkloadTime {
		l.fail(i, `%s %q: expected a time of 0s or more such as "1.5s", at most %v`, key, units.Clip(value), maxWorkloadTime)
		return 0
	}
	return d
}

// end reports unknown keys.
func (l *fields) end() {
	for i := range l.words {
		for key, at := range l.keys {
			if at == i && !l.used[key] {
				l.fail(i, "%s: unknown key of a %s line: expected %s", units.Clip(key), l.words[0], lineKeys[l.words[0]])
			}
		}
	}
}

// lineKeys lists the keys of each kind of line, for errors.
var lineKeys = map[string]string{
	"fabric": "racks and hosts", "job": "arrival and bin", "coflow": "arrival, job and background", "flow": "size",
	"writer": "start and job", "block": "size, replicas, packet and window",
	"reader": "start", "read": "block",
}

// partOf is the kind of line to which a part belongs.
var partOf = map[string]string{"flow": "coflow", "block": "writer", "read": "reader"}

func (p *workloadParser) line(n int, text string) {
	text = strings.TrimSuffix(text, "\r")
	for i, c := range text {
		if c < ' ' && c != '\t' || c >= 0x7f && c != 'µ' && !strings.HasPrefix(text, "#") { // durations print as 328µs
			p.fail(n, i+1, "byte %#x: expected ASCII text", text[i])
			p.over = !p.header
			return
		}
	}
	l := &fields{line: n}
	if l.words, l.cols = words(text); !p.header {
		p.header = true
		version := ""
		if len(l.words) > 1 {
			version = l.words[1]
		}
		switch {
		case len(l.words) != 2 || l.words[0] != workloadHeader:
			p.fail(n, 1, "not a workload file: expected a first line %q", fmt.Sprint(workloadHeader, " ", workloadVersion))
			p.over = true
		case version != strconv.Itoa(workloadVersion):
			p.fail(n, l.cols[1], "version %q: expected version %d", units.Clip(version), workloadVersion)
			p.over = true
		}
		return
	}
	if len(l.words) == 0 || strings.HasPrefix(l.words[0], "#") {
		return
	}
	kind := l.words[0]
	if lineKeys[kind] == "" {
		p.fail(n, l.cols[0], "%q: expected fabric, job, coflow, flow, writer, block, reader or read", units.Clip(kind))
		return
	}
	if at := slices.Index(stages, kind); at >= 0 {
		p.closeOpen()
		switch {
		case at < p.stage || at == 0 && p.file.Racks > 0:
			p.fail(n, l.cols[0], "%s after %s: expected one fabric, then jobs, coflows with their flows, writers with their blocks, readers with their reads", kind, stages[p.stage])
			p.skip = true
			return
		case at > 0 && p.file.Racks == 0:
			p.fail(n, l.cols[0], "%s before the fabric: expected a line such as \"fabric racks=4 hosts=5\" first", kind)
			p.over = true
			return
		}
		p.stage, p.skip = at, false
		if slices.Contains(slices.Collect(maps.Values(partOf)), kind) {
			p.open, p.openLine = kind, n
		}
	}
	var add func()
	if owner := partOf[kind]; owner != "" && stages[p.stage] != owner {
		l.fail(0, "%s outside a %s: expected the line of a %s first", kind, owner, owner)
	} else {
		add = map[string]func(*fields) func(){
			"fabric": p.fabric, "job": p.job, "coflow": p.coflow, "flow": p.flow, "writer": p.writer, "block": p.block, "reader": p.reader, "read": p.read,
		}[kind](l)
		l.end()
	}
	if partOf[kind] != "" {
		p.open = "" // it has one, even an invalid one
	}
	if l.col > 0 {
		p.fail(n, l.col, "%s", l.text)
		p.skip = p.skip || p.open == kind
		p.over = kind == "fabric" // hosts are unknown
		p.badJob = p.badJob || kind == "job"
		p.badBlock = p.badBlock || kind == "block"
		return
	}
	p.taken[l.is], p.last[kind] = true, l.at
	add()
}

func (p *workloadParser) fabric(l *fields) func() {
	l.begin(0)
	racks, hosts := l.number("racks", true, 1, MaxTracePorts), l.number("hosts", true, 1, MaxTracePorts)
	if racks*hosts > MaxTracePorts {
		l.fail(0, "%d racks of %d hosts: must be at most %d hosts in total", racks, hosts, MaxTracePorts)
	}
	return func() { p.file.Racks, p.file.Hosts = racks, hosts }
}

// id parses the number after the first word, which must be unique.
func (p *workloadParser) id(l *fields, least int) int {
	id := l.whole(1, l.words[0], l.positional(0, "a number"), least, maxTraceID)
	if l.is = (lineID{l.words[0], id}); l.col == 0 && p.taken[l.is] {
		l.fail(1, "%s %d again: expected each number once", l.words[0], id)
	}
	return id
}

// inOrder checks that the lines of a kind are in order of a time.
func (p *workloadParser) inOrder(l *fields, time string, at time.Duration) {
	kind, id := l.words[0], l.is.id
	l.at = moment{at, id}
	last, after := p.last[kind]
	if l.col == 0 && after && cmp.Or(cmp.Compare(last.at, at), cmp.Compare(last.id, id)) > 0 {
		l.fail(1, "%s %d at %v after %s %d at %v: expected %ss in order of %s, ties by number", kind, id, at, kind, last.id, last.at, kind, time)
	}
}

func (p *workloadParser) job(l *fields) func() {
	id := JobID(p.id(l, 1))
	l.begin(1)
	j := Job{ID: id, Arrival: l.time("arrival"), Bin: l.number("bin", false, 1, maxTraceID)}
	if jobs := p.file.Workload.Jobs; l.col == 0 && len(jobs) > 0 && jobs[len(jobs)-1].ID > id {
		l.fail(1, "job %d after job %d: expected jobs in order of their numbers", id, jobs[len(jobs)-1].ID)
	}
	return func() {
		p.jobs[id] = &jobLines{at: l.line, arrival: j.Arrival}
		p.file.Workload.Jobs = append(p.file.Workload.Jobs, j)
	}
}

// ofJob parses the job of a line.
func (p *workloadParser) ofJob(l *fields) (JobID, *jobLines) {
	id := JobID(l.number("job", false, 1, maxTraceID))
	j := p.jobs[id]
	if id > 0 && j == nil && !p.badJob {
		l.fail(l.keys["job"], "job %d: no such job: expected its line before this one", id)
	}
	return id, j
}

func (p *workloadParser) coflow(l *fields) func() {
	id := CoflowID(p.id(l, 0))
	l.begin(1)
	c := Coflow{ID: id, Arrival: l.time("arrival"), Background: l.flag("background")}
	var j *jobLines
	c.Job, j = p.ofJob(l)
	switch {
	case l.col > 0 || j == nil:
	case c.Background:
		l.fail(l.keys["background"], "background and job: mutually exclusive")
	case j.coflow > 0:
		l.fail(l.keys["job"], "job %d has a coflow on line %d: expected at most one", c.Job, j.coflow)
	case j.arrival != c.Arrival:
		l.fail(l.keys["arrival"], "arrival %v, but job %d arrives at %v: must be equal", c.Arrival, c.Job, j.arrival)
	}
	p.inOrder(l, "arrival", c.Arrival)
	return func() {
		if j != nil {
			j.coflow = l.line
		}
		p.file.Workload.Coflows = append(p.file.Workload.Coflows, c)
	}
}

func (p *workloadParser) host(l *fields, i int, name string) topo.HostID {
	r, in, ok := topo.ParseHostName(name)
	if !ok || int(r) >= p.file.Racks || in >= p.file.Hosts {
		l.fail(i, "host %q: expected h0-00 to h%d-%02d", units.Clip(name), p.file.Racks-1, p.file.Hosts-1)
	}
	return topo.HostID(int(r)*p.file.Hosts + in)
}

// count adds to the bytes of the workload.
func (p *workloadParser) count(l *fields, n units.Bytes) {
	if p.total += float64(n); p.total > maxWorkloadSize {
		l.fail(0, "more than %v up to this line: the limit of a workload", units.Bytes(maxWorkloadSize))
	}
}

func (p *workloadParser) flow(l *fields) func() {
	id := FlowID(p.id(l, 0))
	ends := l.positional(1, "its hosts")
	src, dst, ok := strings.Cut(ends, ">")
	if !ok {
		l.fail(2, "%q: expected two hosts such as h0-00>h1-02", units.Clip(ends))
	}
	l.begin(2)
	fl := Flow{ID: id, Src: p.host(l, 2, src), Dst: p.host(l, 2, dst), Size: l.size("size")}
	if fl.Src == fl.Dst {
		l.fail(2, "%q: a flow from a host to itself: expected two different hosts", units.Clip(ends))
	}
	p.count(l, fl.Size)
	return func() {
		if all := p.file.Workload.Coflows; !p.skip && len(all) > 0 {
			c := &all[len(all)-1]
			c.Flows = append(c.Flows, fl)
		}
	}
}

func (p *workloadParser) writer(l *fields) func() {
	id := WriterID(p.id(l, 0))
	name := l.positional(1, "its host")
	l.begin(2)
	wr := Writer{ID: id, Client: p.host(l, 2, name), Start: l.time("start")}
	var j *jobLines
	wr.Job, j = p.ofJob(l)
	p.inOrder(l, "start", wr.Start)
	if l.col == 0 && j != nil && j.coflow == 0 && wr.Start < j.arrival {
		l.fail(l.keys["start"], "start %v before the arrival of job %d at %v, which has no coflow: must not be earlier", wr.Start, wr.Job, j.arrival)
	}
	return func() {
		if j != nil {
			if j.writers++; j.writers == 1 {
				j.first = wr.Start
			}
		}
		p.file.Workload.Writers = append(p.file.Workload.Writers, wr)
	}
}

func (p *workloadParser) block(l *fields) func() {
	id := BlockID(p.id(l, 0))
	l.begin(1)
	b := Block{ID: id, Size: l.size("size"), Replicas: l.number("replicas", true, 1, p.file.Racks*p.file.Hosts), Packet: l.size("packet"), Window: l.number("window", true, 1, maxTraceID)}
	p.count(l, b.Size)
	return func() {
		p.written[id] = b
		if all := p.file.Workload.Writers; !p.skip && len(all) > 0 {
			wr := &all[len(all)-1]
			b.Writer, b.Client = wr.ID, wr.Client
			wr.Blocks = append(wr.Blocks, b)
		}
	}
}

func (p *workloadParser) reader(l *fields) func() {
	id := ReaderID(p.id(l, 0))
	name := l.positional(1, "its host")
	l.begin(2)
	r := Reader{ID: id, Client: p.host(l, 2, name), Start: l.time("start")}
	p.inOrder(l, "start", r.Start)
	return func() {
		p.file.Workload.Readers = append(p.file.Workload.Readers, r)
	}
}

func (p *workloadParser) read(l *fields) func() {
	l.begin(0)
	id := BlockID(l.number("block", true, 0, maxTraceID))
	b, written := p.written[id]
	if l.col == 0 && !written && !p.badBlock {
		l.fail(l.keys["block"], "block %d: no such block: expected a block of a writer", id)
	}
	return func() {
		if all := p.file.Workload.Readers; !p.skip && len(all) > 0 {
			r := &all[len(all)-1]
			r.Reads = append(r.Reads, Read{Block: b.ID, Size: b.Size})
		}
	}
}

// closeOpen reports a coflow without flows, a writer without blocks, or a reader without
// reads.
func (p *workloadParser) closeOpen() {
	if p.open != "" {
		p.fail(p.openLine, 1, "%s without %s: expected one or more after it", p.open, map[string]string{"coflow": "flows", "writer": "blocks", "reader": "reads"}[p.open])
	}
	p.open = ""
}

// end reports errors that only the whole file shows.
func (p *workloadParser) end(lines int) {
	if !p.header {
		p.fail(1, 1, "empty file: expected a first line %q", fmt.Sprint(workloadHeader, " ", workloadVersion))
		return
	}
	if p.closeOpen(); p.errs.Total > 0 {
		return
	}
	w := p.file.Workload
	if len(w.Coflows) == 0 && len(w.Writers) == 0 {
		p.fail(max(lines, 1), 1, "no coflow and no writer: expected at least one")
	}
	for _, j := range w.Jobs {
		switch l := p.jobs[j.ID]; {
		case l.coflow == 0 && l.writers == 0:
			p.fail(l.at, 1, "job %d has no coflow and no writer: expected one of them", j.ID)
		case l.coflow == 0 && l.first != l.arrival:
			p.fail(l.at, 1, "job %d arrives at %v, and its first writer starts at %v: expected equal times, or a coflow", j.ID, l.arrival, l.first)
		}
	}
}
