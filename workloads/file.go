package workloads

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"time"

	"testbed/topo"
	"testbed/topo/units"
)

// A workload file holds a Workload as lines of text, each a word, what it is of, and
// keys with their values, in any order:
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
// ID. The ids of what reads send are those of NumberReads. Racks and hosts, of each rack, are those
// of the fabric that it was made for. Lines that begin with # and blank ones say nothing.
const workloadHeader = "testbed-workload"

const workloadVersion = 1

// maxWorkloadLine is the longest line of a workload file, in bytes.
const maxWorkloadLine = 4096

// WriteWorkload writes a workload on a fabric as a file, with remarks as comments
// ahead of it.
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

// WorkloadFile is a workload file that was read.
type WorkloadFile struct {
	Name         string
	Racks, Hosts int      // hosts of each rack
	Workload     Workload // host i of rack r is HostID r × Hosts + i
}

// On is the workload on a fabric, with sizes of flows, blocks and packets multiplied by
// one factor, rounded up to a byte, and times by another, rounded down to a nanosecond.
// Hosts keep their names, so a fabric of more hosts will do.
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
			bad = cmp.Or(bad, fmt.Errorf("it uses host h%d-%02d, and the fabric has %d racks of %d hosts: want %d of %d, for which it was made", r, i, f.Racks(), f.Hosts()/f.Racks(), w.Racks, w.Hosts))
			return 0
		}
		return f.HostIn(topo.RackID(r), i)
	}
	bytes := func(n units.Bytes) units.Bytes {
		by := size.orOne()
		p := new(big.Int).Mul(big.NewInt(int64(n)), big.NewInt(by.Num))
		out, ok := ceilBytes(p, big.NewInt(by.Den))
		if !ok || out > maxBlockSize {
			bad = cmp.Or(bad, fmt.Errorf("%v times %v: want at most %v", n, size, units.Bytes(maxBlockSize)))
		}
		return out
	}
	at := func(d time.Duration) time.Duration {
		out, ok := times.Duration(d)
		if !ok || out > maxWorkloadTime {
			bad = cmp.Or(bad, fmt.Errorf("%v times %v: want at most %v", d, times, maxWorkloadTime))
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
				bad = cmp.Or(bad, fmt.Errorf("block %d has %d replicas, and the fabric %d hosts: want at most one a host", b.ID, b.Replicas, f.Hosts()))
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

// IsWorkload tells from the first bytes of a file whether it is a workload file,
// of whatever version.
func IsWorkload(head []byte) bool {
	return strings.HasPrefix(string(head), workloadHeader+" ")
}

// ReadWorkload reads a workload file. The error is a *TraceErrors with the first
// mistake of every bad line, or that of reading r; name stands for the file in it.
func ReadWorkload(name string, r io.Reader) (*WorkloadFile, error) {
	p := workloadParser{
		file: &WorkloadFile{Name: name}, errs: &TraceErrors{},
		jobs: map[JobID]*jobLines{}, coflows: map[CoflowID]bool{}, flows: map[FlowID]bool{}, writers: map[WriterID]bool{}, blocks: map[BlockID]bool{}, readers: map[ReaderID]bool{}, written: map[BlockID]Block{},
	}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxWorkloadLine)
	n := 0
	for lines.Scan() {
		n++
		if p.line(n, lines.Text()); p.over {
			return nil, p.errs
		}
	}
	if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
		p.fail(n+1, 1, "line longer than %d bytes: want a workload file; the rest is not read", maxWorkloadLine)
	} else if err != nil {
		return nil, fmt.Errorf("%s: line %d: %w", name, n+1, err)
	}
	p.end(n)
	if p.errs.Total > 0 {
		return nil, p.errs
	}
	return p.file, nil
}

// jobLines is where a job and what belongs to it was met.
type jobLines struct {
	at      int // line
	arrival time.Duration
	coflow  int           // line of its coflow, 0 without
	first   time.Duration // start of its first writer
	writers int
}

type workloadParser struct {
	file   *WorkloadFile
	errs   *TraceErrors
	header bool // was met
	over   bool // nothing more can be made of it
	stage  int  // the furthest of stages that was met

	jobs    map[JobID]*jobLines
	coflows map[CoflowID]bool
	flows   map[FlowID]bool
	writers map[WriterID]bool
	blocks  map[BlockID]bool
	readers map[ReaderID]bool
	written map[BlockID]Block // by good lines

	open     string // "coflow", "writer" or "reader" that has no flows, blocks or reads so far
	openLine int
	skip     bool    // the coflow, writer or reader was bad: what is of it is read without it
	total    float64 // bytes
	badJob   bool    // a job could not be read: jobs that are missing are not told of
	badBlock bool    // the same of blocks
}

// stages are the kinds of lines in the order in which they come.
var stages = []string{"fabric", "job", "coflow", "writer", "reader"}

func (p *workloadParser) fail(line, col int, format string, args ...any) {
	p.errs.Total++
	if len(p.errs.First) < MaxTraceErrors {
		p.errs.First = append(p.errs.First, TraceError{p.file.Name, line, col, fmt.Sprintf(format, args...)})
	}
}

// words are the fields of a line, and where each begins, from 1.
func words(text string) (list []string, cols []int) {
	for at := 0; at < len(text); {
		if text[at] == ' ' || text[at] == '\t' {
			at++
			continue
		}
		end := at + strings.IndexAny(text[at:]+" ", " \t")
		list, cols = append(list, text[at:end]), append(cols, at+1)
		at = end
	}
	return list, cols
}

// fields reads the keys of a line and tells the first mistake.
type fields struct {
	words []string
	cols  []int
	keys  map[string]int // index of the word
	used  map[string]bool
	col   int // of the first mistake; 0 for none
	text  string
}

func (l *fields) fail(i int, format string, args ...any) {
	if l.col == 0 {
		l.col, l.text = l.cols[min(i, len(l.cols)-1)], fmt.Sprintf(format, args...)
	}
}

// positional is the i-th word after the first, which has no key.
func (l *fields) positional(i int, what string) string {
	if i+1 >= len(l.words) || strings.Contains(l.words[i+1], "=") {
		l.fail(i+1, "%s without %s: want one after %q", l.words[0], what, l.words[min(i, len(l.words)-1)])
		return ""
	}
	return l.words[i+1]
}

// begin reads the keys after n positional words.
func (l *fields) begin(n int) {
	l.keys, l.used = map[string]int{}, map[string]bool{}
	for i := n + 1; i < len(l.words); i++ {
		key, _, _ := strings.Cut(l.words[i], "=")
		if _, again := l.keys[key]; again {
			l.fail(i, "%s given again: want each key once", clip(key))
		}
		l.keys[key] = i
	}
}

func (l *fields) value(key string, required bool) (value string, at int, ok bool) {
	i, given := l.keys[key]
	if !given {
		if required {
			l.fail(0, "%s without %s=…: want it", l.words[0], key)
		}
		return "", 0, false
	}
	l.used[key] = true
	_, value, dotted := strings.Cut(l.words[i], "=")
	if !dotted {
		l.fail(i, "%s without a value: want %s=…", key, key)
		return "", i, false
	}
	return value, i, true
}

// flag is a key without a value.
func (l *fields) flag(key string) bool {
	i, given := l.keys[key]
	if given && l.words[i] != key {
		l.fail(i, "%q: want %s without a value", clip(l.words[i]), key)
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
		l.fail(i, "%s %q: want a whole number, %d to %d", what, clip(value), least, most)
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
		l.fail(i, "%s %v: want 1B to %v", key, n, units.Bytes(maxBlockSize))
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
		l.fail(i, `%s %q: want a time of 0s or more such as "1.5s", at most %v`, key, clip(value), maxWorkloadTime)
		return 0
	}
	return d
}

// end tells of keys that nothing asked for.
func (l *fields) end() {
	for i := range l.words {
		for key, at := range l.keys {
			if at == i && !l.used[key] {
				l.fail(i, "%s: no key of a %s line: want %s", clip(key), l.words[0], lineKeys[l.words[0]])
			}
		}
	}
}

// lineKeys are the keys of each kind of line.
var lineKeys = map[string]string{
	"fabric": "racks and hosts", "job": "arrival and bin", "coflow": "arrival, job and background", "flow": "size",
	"writer": "start and job", "block": "size, replicas, packet and window",
	"reader": "start", "read": "block",
}

func (p *workloadParser) line(n int, text string) {
	text = strings.TrimSuffix(text, "\r")
	for i := range len(text) {
		if c := text[i]; c < ' ' && c != '\t' || c >= 0x7f && !strings.HasPrefix(text, "#") {
			p.fail(n, i+1, "byte %#x: want plain text", c)
			p.over = !p.header
			return
		}
	}
	l := &fields{}
	if l.words, l.cols = words(text); !p.header {
		p.header = true
		version := ""
		if len(l.words) > 1 {
			version = l.words[1]
		}
		switch {
		case len(l.words) != 2 || l.words[0] != workloadHeader:
			p.fail(n, 1, "want a first line %q: this is no workload file", fmt.Sprint(workloadHeader, " ", workloadVersion))
			p.over = true
		case version != strconv.Itoa(workloadVersion):
			p.fail(n, l.cols[1], "version %q: this program reads version %d", clip(version), workloadVersion)
			p.over = true
		}
		return
	}
	if len(l.words) == 0 || strings.HasPrefix(l.words[0], "#") {
		return
	}
	kind := l.words[0]
	if lineKeys[kind] == "" {
		p.fail(n, l.cols[0], "%q: want fabric, job, coflow, flow, writer, block, reader or read", clip(kind))
		return
	}
	if at := slices.Index(stages, kind); at >= 0 {
		p.closeOpen()
		switch {
		case at < p.stage || at == 0 && p.file.Racks > 0:
			p.fail(n, l.cols[0], "%s after %s: want one fabric, then jobs, coflows with their flows, writers with their blocks, readers with their reads", kind, stages[p.stage])
			p.skip = true
			return
		case at > 0 && p.file.Racks == 0:
			p.fail(n, l.cols[0], "%s before the fabric: want a line such as \"fabric racks=4 hosts=5\" ahead", kind)
			p.over = true
			return
		}
		p.stage, p.skip = at, false
	}
	add := map[string]func(int, *fields) func(){
		"fabric": p.fabric, "job": p.job, "coflow": p.coflow, "flow": p.flow, "writer": p.writer, "block": p.block, "reader": p.reader, "read": p.read,
	}[kind](n, l)
	if l.keys != nil {
		l.end()
	}
	if l.col > 0 {
		p.fail(n, l.col, "%s", l.text)
		p.skip = p.skip || kind == "coflow" || kind == "writer" || kind == "reader"
		p.over = kind == "fabric" // no host could be known
		p.badJob = p.badJob || kind == "job"
		p.badBlock = p.badBlock || kind == "block"
		if kind == "flow" || kind == "block" || kind == "read" {
			p.open = "" // it has one, if a bad one
		}
		return
	}
	if add != nil {
		add()
	}
}

func (p *workloadParser) fabric(_ int, l *fields) func() {
	l.begin(0)
	racks, hosts := l.number("racks", true, 1, MaxTracePorts), l.number("hosts", true, 1, MaxTracePorts)
	if racks*hosts > MaxTracePorts {
		l.fail(0, "%d racks of %d hosts: want at most %d hosts in all", racks, hosts, MaxTracePorts)
	}
	return func() { p.file.Racks, p.file.Hosts = racks, hosts }
}

// id reads the number after the first word, which must be new.
func (l *fields) id(least int, taken func(id int) bool) int {
	id := l.whole(1, l.words[0], l.positional(0, "a number"), least, maxTraceID)
	if l.col == 0 && taken(id) {
		l.fail(1, "%s %d again: want each number once", l.words[0], id)
	}
	return id
}

func (p *workloadParser) job(n int, l *fields) func() {
	id := JobID(l.id(1, func(id int) bool { return p.jobs[JobID(id)] != nil }))
	l.begin(1)
	j := Job{ID: id, Arrival: l.time("arrival"), Bin: l.number("bin", false, 1, maxTraceID)}
	if jobs := p.file.Workload.Jobs; l.col == 0 && len(jobs) > 0 && jobs[len(jobs)-1].ID > id {
		l.fail(1, "job %d after job %d: want them by number", id, jobs[len(jobs)-1].ID)
	}
	return func() {
		p.jobs[id] = &jobLines{at: n, arrival: j.Arrival}
		p.file.Workload.Jobs = append(p.file.Workload.Jobs, j)
	}
}

// ofJob reads the job that a line belongs to.
func (p *workloadParser) ofJob(l *fields) (JobID, *jobLines) {
	id := JobID(l.number("job", false, 1, maxTraceID))
	j := p.jobs[id]
	if id > 0 && j == nil && !p.badJob {
		l.fail(l.keys["job"], "job %d: no such job: want a line of it ahead", id)
	}
	return id, j
}

func (p *workloadParser) coflow(n int, l *fields) func() {
	id := CoflowID(l.id(0, func(id int) bool { return p.coflows[CoflowID(id)] }))
	l.begin(1)
	c := Coflow{ID: id, Arrival: l.time("arrival"), Background: l.flag("background")}
	var j *jobLines
	c.Job, j = p.ofJob(l)
	switch all := p.file.Workload.Coflows; {
	case l.col > 0:
	case j != nil && c.Background:
		l.fail(l.keys["background"], "background of a job: want one of them")
	case j != nil && j.coflow > 0:
		l.fail(l.keys["job"], "job %d has a coflow already, on line %d: want one at most", c.Job, j.coflow)
	case j != nil && j.arrival != c.Arrival:
		l.fail(l.keys["arrival"], "arrival %v, and that of job %d is %v: want the same", c.Arrival, c.Job, j.arrival)
	case len(all) > 0 && after(all[len(all)-1].Arrival, int(all[len(all)-1].ID), c.Arrival, int(id)):
		l.fail(1, "coflow %d at %v after coflow %d at %v: want them by arrival, ties by number", id, c.Arrival, all[len(all)-1].ID, all[len(all)-1].Arrival)
	}
	p.open, p.openLine = "coflow", n
	return func() {
		p.coflows[id] = true
		if j != nil {
			j.coflow = n
		}
		p.file.Workload.Coflows = append(p.file.Workload.Coflows, c)
	}
}

func after(at time.Duration, id int, next time.Duration, nextID int) bool {
	return at > next || at == next && id > nextID
}

func (p *workloadParser) host(l *fields, i int, name string) topo.HostID {
	r, in, ok := topo.ParseHostName(name)
	if !ok || int(r) >= p.file.Racks || in >= p.file.Hosts {
		l.fail(i, "host %q: want h0-00 to h%d-%02d", clip(name), p.file.Racks-1, p.file.Hosts-1)
	}
	return topo.HostID(int(r)*p.file.Hosts + in)
}

// count adds to the bytes of the workload.
func (p *workloadParser) count(l *fields, n units.Bytes) {
	if p.total += float64(n); p.total > maxWorkloadSize {
		l.fail(0, "more than %v up to here: want less", units.Bytes(maxWorkloadSize))
	}
}

func (p *workloadParser) flow(_ int, l *fields) func() {
	if p.stage != slices.Index(stages, "coflow") {
		l.fail(0, "flow outside a coflow: want a coflow's line ahead")
		return nil
	}
	id := FlowID(l.id(0, func(id int) bool { return p.flows[FlowID(id)] }))
	ends := l.positional(1, "its hosts")
	src, dst, ok := strings.Cut(ends, ">")
	if !ok {
		l.fail(2, "%q: want two hosts such as h0-00>h1-02", clip(ends))
	}
	l.begin(2)
	fl := Flow{ID: id, Src: p.host(l, 2, src), Dst: p.host(l, 2, dst), Size: l.size("size")}
	if fl.Src == fl.Dst {
		l.fail(2, "%q: a flow from a host to itself: want two", clip(ends))
	}
	p.count(l, fl.Size)
	return func() {
		p.open = ""
		p.flows[id] = true
		if all := p.file.Workload.Coflows; !p.skip && len(all) > 0 {
			c := &all[len(all)-1]
			c.Flows = append(c.Flows, fl)
		}
	}
}

func (p *workloadParser) writer(n int, l *fields) func() {
	id := WriterID(l.id(0, func(id int) bool { return p.writers[WriterID(id)] }))
	name := l.positional(1, "its host")
	l.begin(2)
	wr := Writer{ID: id, Client: p.host(l, 2, name), Start: l.time("start")}
	var j *jobLines
	wr.Job, j = p.ofJob(l)
	switch all := p.file.Workload.Writers; {
	case l.col > 0:
	case len(all) > 0 && after(all[len(all)-1].Start, int(all[len(all)-1].ID), wr.Start, int(id)):
		l.fail(1, "writer %d at %v after writer %d at %v: want them by start, ties by number", id, wr.Start, all[len(all)-1].ID, all[len(all)-1].Start)
	case j != nil && j.coflow == 0 && wr.Start < j.arrival:
		l.fail(l.keys["start"], "start %v before the arrival of job %d at %v, which has no coflow: want it then or later", wr.Start, wr.Job, j.arrival)
	}
	p.open, p.openLine = "writer", n
	return func() {
		p.writers[id] = true
		if j != nil {
			if j.writers++; j.writers == 1 {
				j.first = wr.Start
			}
		}
		p.file.Workload.Writers = append(p.file.Workload.Writers, wr)
	}
}

func (p *workloadParser) block(_ int, l *fields) func() {
	if p.stage != slices.Index(stages, "writer") {
		l.fail(0, "block outside a writer: want a writer's line ahead")
		return nil
	}
	id := BlockID(l.id(0, func(id int) bool { return p.blocks[BlockID(id)] }))
	l.begin(1)
	b := Block{ID: id, Size: l.size("size"), Replicas: l.number("replicas", true, 1, p.file.Racks*p.file.Hosts), Packet: l.size("packet"), Window: l.number("window", true, 1, maxTraceID)}
	p.count(l, b.Size)
	return func() {
		p.open = ""
		p.blocks[id] = true
		p.written[id] = b
		if all := p.file.Workload.Writers; !p.skip && len(all) > 0 {
			wr := &all[len(all)-1]
			b.Writer, b.Client = wr.ID, wr.Client
			wr.Blocks = append(wr.Blocks, b)
		}
	}
}

func (p *workloadParser) reader(n int, l *fields) func() {
	id := ReaderID(l.id(0, func(id int) bool { return p.readers[ReaderID(id)] }))
	name := l.positional(1, "its host")
	l.begin(2)
	r := Reader{ID: id, Client: p.host(l, 2, name), Start: l.time("start")}
	if all := p.file.Workload.Readers; l.col == 0 && len(all) > 0 && after(all[len(all)-1].Start, int(all[len(all)-1].ID), r.Start, int(id)) {
		l.fail(1, "reader %d at %v after reader %d at %v: want them by start, ties by number", id, r.Start, all[len(all)-1].ID, all[len(all)-1].Start)
	}
	p.open, p.openLine = "reader", n
	return func() {
		p.readers[id] = true
		p.file.Workload.Readers = append(p.file.Workload.Readers, r)
	}
}

func (p *workloadParser) read(_ int, l *fields) func() {
	if p.stage != slices.Index(stages, "reader") {
		l.fail(0, "read outside a reader: want a reader's line ahead")
		return nil
	}
	l.begin(0)
	id := BlockID(l.number("block", true, 0, maxTraceID))
	b, written := p.written[id]
	if l.col == 0 && !written && !p.badBlock {
		l.fail(l.keys["block"], "block %d: no such block: want one that a writer writes", id)
	}
	return func() {
		p.open = ""
		if all := p.file.Workload.Readers; !p.skip && len(all) > 0 {
			r := &all[len(all)-1]
			r.Reads = append(r.Reads, readOf(b))
		}
	}
}

// closeOpen tells of a coflow without flows, a writer without blocks, or a reader
// without reads.
func (p *workloadParser) closeOpen() {
	if p.open != "" {
		p.fail(p.openLine, 1, "%s without %s: want one or more after it", p.open, map[string]string{"coflow": "flows", "writer": "blocks", "reader": "reads"}[p.open])
	}
	p.open = ""
}

// end tells what only the whole file shows.
func (p *workloadParser) end(lines int) {
	if !p.header {
		p.fail(1, 1, "empty file: want a first line %q", fmt.Sprint(workloadHeader, " ", workloadVersion))
		return
	}
	if p.closeOpen(); p.errs.Total > 0 {
		return
	}
	w := p.file.Workload
	if len(w.Coflows) == 0 && len(w.Writers) == 0 {
		p.fail(max(lines, 1), 1, "no coflow and no writer: want at least one")
	}
	for _, j := range w.Jobs {
		switch l := p.jobs[j.ID]; {
		case l.coflow == 0 && l.writers == 0:
			p.fail(l.at, 1, "job %d has no coflow and no writer: want one of them", j.ID)
		case l.coflow == 0 && l.first != l.arrival:
			p.fail(l.at, 1, "job %d arrives at %v, and its first writer starts at %v: want the same, or a coflow", j.ID, l.arrival, l.first)
		}
	}
	NumberReads(&p.file.Workload)
}
