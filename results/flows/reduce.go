package flows

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"testbed/hosts/wire"
	"testbed/results/pcap"
	"testbed/topo"
)

// DefaultMarkBound is the default of Options.MarkBound.
const DefaultMarkBound = time.Second

// Defaults of Options.
const (
	DefaultPoints    = 64
	DefaultSpans     = 64
	DefaultIntervals = 20_000
	DefaultReorder   = 3 * time.Millisecond
	// DefaultConversations is the default of Options.Conversations.
	DefaultConversations = 64
)

// Suffix follows the host's name in the file name of an uncompressed capture.
// pcap.CompressedSuffix is its counterpart for compressed captures.
const Suffix = pcap.Suffix

// Direction is a direction of a host's link, as seen by the host.
type Direction uint8

// Out is away from the host, In toward it.
const (
	Out Direction = iota
	In
)

// Options are the settings of a reduction. The zero value selects the defaults.
type Options struct {
	// Run is the run whose transfers count; 0 selects the run of most captures.
	Run uint64
	// Hosts are the hosts whose captures are required. Without it, a missing capture is
	// noticed only if another host's capture has a transfer with that host.
	Hosts []string
	// Skip reports whether Reduce leaves out a file; nil leaves out none.
	Skip func(path string) bool
	// MarkBound is the maximum time between the time that a mark states and its capture.
	// If it is exceeded, the capture's timestamp counts. 0 is DefaultMarkBound.
	MarkBound time.Duration
	// Spacing returns the expected spacing of the packets on a host's link. If it is nil
	// or returns a Rate of 0, spacing is not measured. It is called from several
	// goroutines.
	Spacing func(host string, d Direction) SpacingSpec
	// Parallel is the number of captures that Reduce reads concurrently; 0 is the number of processors. If there are
	// fewer captures, each is read ahead by a goroutine of its own.
	Parallel int
	// Points is the approximate number of checkpoints of a Trail, and of its Acks; 0 is
	// DefaultPoints.
	Points int
	// Spans is the maximum number of spans of each kind in a Trail; 0 is DefaultSpans.
	Spans int
	// Intervals is the maximum length of a LinkSeries, at least 2; 0 is DefaultIntervals.
	Intervals int
	// Reorder is the maximum delay of a packet after a later one that still counts as
	// reordering, if IP identifications do not show which was sent first; 0 is
	// DefaultReorder.
	Reorder time.Duration
	// Conversations is the maximum number of foreign conversations that are counted in each
	// direction of a link; 0 is DefaultConversations. The largest one is found if it has more
	// than 1/Conversations of the foreign bytes.
	Conversations int
	// Opened reports whether a host of the run opened a connection. Connections that none opened are foreign, also without
	// payload. If it is nil, only the contents of connections decide. It is called from several goroutines.
	Opened func(client, server netip.AddrPort) bool
	// NoErrors states that no switch had a reason to send an ICMP error about packets of the run: all are foreign.
	NoErrors bool
	// Read reports progress: it is called for about every MiB of each capture with the
	// number of bytes read since its last call. The numbers add up to the sizes of all
	// captures. It may be nil, is called from several goroutines and must not block.
	Read func(n int64)
}

// Result is the result of reducing the captures of one repeat of an arm.
type Result struct {
	Records
	// Zero is the zero of the times in Records: the first mark of the run.
	Zero time.Time
	// Meta is the description of the run that the captures contain, without the host.
	Meta pcap.Meta
	// Groups are what the marks of coflows and blocks state about their jobs and writers.
	Groups wire.Notes
	// Consumed are the ends of reads of input blocks, by the hosts of their attempts, in order of time.
	Consumed []Consumed
	Captures []Capture       // sorted by host name
	Switches []SwitchCapture // sorted by name; empty if no switch was captured
	// MarkWait is the longest time between the time that a mark states and its capture,
	// and MarkWaitHost the host of that mark.
	MarkWait     time.Duration
	MarkWaitHost string
	Connections  Connections
	// Trails is the progress of the transfers of this run, complete or not, in order of time.
	Trails []Trail
	// Links are the loads of the fabric's links, sorted by LinkID; nil if the captures do
	// not state the fabric.
	Links []LinkSeries
	// Notes are observations that do not make a record doubtful.
	Notes []string
}

// Connections counts the TCP connections to the emulated services. A connection in
// several captures counts once.
type Connections struct {
	Ours     int // of this run
	OtherRun int
	Foreign  int // without transfer header
	Empty    int // without payload: a failed dial, or a transfer that never started
	// Connections of this run with:
	SYNResent    int // a retransmitted SYN
	HeaderSplit  int // a transfer header in more than one segment
	HeaderResent int // retransmitted bytes of the transfer header
	Resets       int // a packet with RST
	// Packets of the connections of this run:
	Resent      int // with bytes sent before
	Reordered   int // see Trail.Reordered
	ZeroWindows int // with a window of zero
}

// Reducer reduces captures, which are added in any order.
type Reducer struct {
	opt Options

	mu       sync.Mutex
	captures []*hostCapture
	problems []string
	notes    []string
	run      uint64 // 0 until known
	meta     pcap.Meta
	hasMeta  bool
	built    bool         // whether load has built fabric and paths from meta
	fabric   *topo.Fabric // nil if unknown
	paths    *paths
	loads    []*fabricLoad // not in use by a capture
	switches []*switchCapture
	taken    map[string]bool // hosts and switches that have a capture
}

// NewReducer returns a Reducer without captures.
func NewReducer(opt Options) *Reducer {
	if opt.MarkBound <= 0 {
		opt.MarkBound = DefaultMarkBound
	}
	if opt.Points <= 0 {
		opt.Points = DefaultPoints
	}
	if opt.Spans <= 0 {
		opt.Spans = DefaultSpans
	}
	if opt.Intervals <= 0 {
		opt.Intervals = DefaultIntervals
	}
	opt.Intervals = max(2, opt.Intervals)
	if opt.Reorder <= 0 {
		opt.Reorder = DefaultReorder
	}
	if opt.Conversations <= 0 {
		opt.Conversations = DefaultConversations
	}
	return &Reducer{opt: opt, run: opt.Run, taken: map[string]bool{}}
}

// Reduce reads the captures in dir, one file for each host and each captured switch, and
// returns their result. Faults of the captures or of their traffic are problems in the
// result. It returns an error only if there is no result.
func Reduce(ctx context.Context, dir string, opt Options) (Result, error) {
	list, err := pcap.List(dir)
	if err != nil {
		return Result{}, fmt.Errorf("read captures: %w", err)
	}
	if opt.Skip != nil {
		list = slices.DeleteFunc(list, func(f pcap.File) bool { return opt.Skip(f.Path) })
	}
	if len(list) == 0 {
		return Result{}, fmt.Errorf("no captures in %s: expected one <host>%s or <host>%s for each host: %w", dir, Suffix, pcap.CompressedSuffix, fs.ErrNotExist)
	}
	r := NewReducer(opt)
	if err := r.settleFrom(list); err != nil {
		return Result{}, err
	}
	work := make(chan pcap.File)
	var wg sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	readers := max(1, cmp.Or(opt.Parallel, runtime.GOMAXPROCS(0)))
	ahead := readers > len(list)
	for range min(readers, len(list)) {
		wg.Go(func() {
			for file := range work {
				if err := r.addFile(ctx, file, ahead); err != nil {
					mu.Lock()
					errs = append(errs, err)
					mu.Unlock()
				}
			}
		})
	}
	for _, file := range list {
		work <- file
	}
	close(work)
	wg.Wait()
	if err := context.Cause(ctx); err != nil {
		return Result{}, fmt.Errorf("reduce captures in %s: %w", dir, err)
	}
	if len(errs) > 0 {
		return Result{}, errors.Join(errs...)
	}
	return r.Result()
}

// settleFrom selects the run of most captures (the first of equally frequent ones), so that
// neither the order of reading nor a stray capture of another run matters.
func (r *Reducer) settleFrom(list []pcap.File) error {
	count := map[uint64]int{}
	var of []pcap.Meta // the first of each run
	for _, file := range list {
		p, err := pcap.Open(file.Path)
		if errors.Is(err, pcap.ErrTruncated) || errors.Is(err, pcap.ErrDamaged) {
			continue // addFile reports it
		}
		if err != nil {
			return err
		}
		m, ok := p.Meta()
		if err := p.Close(); err != nil {
			return err
		}
		if !ok || r.run != 0 && m.Run != r.run {
			continue
		}
		if m.Host = ""; count[m.Run] == 0 {
			of = append(of, m)
		}
		count[m.Run]++
	}
	for _, m := range of {
		if !r.hasMeta || count[m.Run] > count[r.run] {
			r.run, r.meta, r.hasMeta = m.Run, m, true
		}
	}
	return nil
}

func (r *Reducer) addFile(ctx context.Context, file pcap.File, ahead bool) error {
	if ctx.Err() != nil {
		return nil // Reduce reports it
	}
	host := file.Name
	p, err := pcap.Open(file.Path)
	read := reading{report: r.opt.Read, ahead: ahead}
	var bad *pcap.Error
	if errors.As(err, &bad) {
		if why := fmt.Sprintf("%s: nothing of its capture can be read: %s", host, bad.Local()); topo.IsSwitch(host) {
			r.note(why)
		} else {
			r.problem("%s", why)
		}
		return read.done(file.Path)
	}
	if err != nil {
		return err
	}
	if err := errors.Join(r.add(ctx, host, p, &read), p.Close()); err != nil {
		return err
	}
	return read.done(file.Path)
}

// reading reports the progress within one capture to Options.Read.
type reading struct {
	ahead    bool          // whether a goroutine reads the next packets
	report   func(n int64) // nil for none
	reported int64         // bytes
}

// readStep is the number of bytes of a capture between two calls of Options.Read.
const readStep = 1 << 20

// reached reports the progress at an offset of the capture, if it is at least readStep bytes.
func (r *reading) reached(offset int64) {
	if offset-r.reported >= readStep {
		r.rest(offset)
	}
}

// rest reports all bytes up to an offset that are not reported yet.
func (r *reading) rest(offset int64) {
	if n := offset - r.reported; r.report != nil && n > 0 {
		r.reported = offset
		r.report(n)
	}
}

// done reports the rest of the file, whether it was read or not.
func (r *reading) done(path string) error {
	if r.report == nil {
		return nil
	}
	info, err := os.Stat(path)
	if err == nil {
		r.rest(info.Size())
	}
	return err
}

func (r *Reducer) problem(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.problems = append(r.problems, fmt.Sprintf(format, args...))
}

// note adds a note: an observation that does not make a record doubtful.
func (r *Reducer) note(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.notes = append(r.notes, what)
}

// Add reads the capture of one host or switch to its end. It may be called from several
// goroutines. It returns errors of the underlying reader and of the context; a truncated
// or damaged capture is a problem in the result.
func (r *Reducer) Add(ctx context.Context, host string, p *pcap.Reader) error {
	read := reading{report: r.opt.Read}
	defer func() { read.rest(p.Offset()) }()
	return r.add(ctx, host, p, &read)
}

func (r *Reducer) add(ctx context.Context, host string, p *pcap.Reader, read *reading) error {
	meta, hasMeta := p.Meta()
	if hasMeta && meta.Host != "" && meta.Host != host {
		r.problem("%s: its capture states that it is of host %s, and counts as such", host, meta.Host)
		host = meta.Host
	}
	rack, place, ok := topo.ParseHostName(host)
	if !ok && !topo.IsSwitch(host) {
		r.problem("%s: not the name of a host or a switch: its capture is not used", host)
		return nil
	}
	run, used := r.settleRun(host, meta, hasMeta)
	if !used {
		return nil
	}
	if !ok {
		return r.addSwitch(ctx, host, p, read)
	}
	load, paths := r.load()
	defer r.unload(load)
	h := newHostReducer(host, rack, place, settings{run: run, points: r.opt.Points, spans: r.opt.Spans, reorder: int64(r.opt.Reorder), paths: paths, conversations: r.opt.Conversations, opened: r.opt.Opened, noErrors: r.opt.NoErrors}, load, r.opt.Intervals)
	h.meta, h.hasMeta = meta, hasMeta
	end, err := readAll(ctx, host, p, read, func(list []pcap.Packet, interfaces []pcap.Interface) {
		if interfaces != nil {
			r.describe(h, interfaces)
		}
		h.packets(list)
	})
	if err != nil {
		return err
	}
	h.Stats, h.HasStats, h.Whole, h.skipped, h.broken = end.stats, end.hasStats, end.whole, end.skipped, end.problem
	r.describe(h, p.Interfaces())
	c := h.finish()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.captures = append(r.captures, c)
	return nil
}

// settleRun returns the run that counts. ok is false if the capture is not used: it is from
// another run, or its host already has a capture.
func (r *Reducer) settleRun(host string, m pcap.Meta, hasMeta bool) (run uint64, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	no := func(format string, args ...any) (uint64, bool) {
		r.problems = append(r.problems, host+": "+fmt.Sprintf(format, args...))
		return 0, false
	}
	switch {
	case hasMeta && r.run == 0:
		r.run = m.Run
	case hasMeta && m.Run != r.run:
		return no("its capture is of run %#x, not of run %#x: it is not used", m.Run, r.run)
	case !hasMeta && r.run == 0:
		return no("its capture does not state its run, and none was given: it is not used")
	}
	if r.taken[host] {
		return no("two captures of it: the second is not used")
	}
	r.taken[host] = true
	if !hasMeta {
		return r.run, true
	}
	m.Host = ""
	if r.hasMeta && !m.Equal(r.meta) {
		r.problems = append(r.problems, fmt.Sprintf("%s: its capture states %+v, another one %+v", host, m, r.meta))
	} else {
		r.meta, r.hasMeta = m, true
	}
	return r.run, true
}

// load returns link counters for the exclusive use of one capture until unload. Both
// results are nil if the fabric is unknown.
func (r *Reducer) load() (*fabricLoad, *paths) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.built && r.hasMeta && r.meta.Fabric != nil {
		r.built = true
		f, err := r.meta.Fabric.Build()
		if err != nil {
			r.problems = append(r.problems, fmt.Sprintf("captures state a fabric that cannot be built, so the load of its links is not known: %v", strings.ReplaceAll(err.Error(), "\n", "; ")))
			return nil, nil
		}
		r.fabric, r.paths = f, &paths{f, r.meta.Seed}
	}
	if r.fabric == nil {
		return nil, nil
	}
	if n := len(r.loads); n > 0 {
		l := r.loads[n-1]
		r.loads = r.loads[:n-1]
		return l, r.paths
	}
	return newFabricLoad(r.fabric, r.opt.Intervals), r.paths
}

func (r *Reducer) unload(l *fabricLoad) {
	if l == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.loads = append(r.loads, l)
}

// describe adds the interfaces that the file has described since the last call.
func (r *Reducer) describe(h *hostReducer, interfaces []pcap.Interface) {
	for _, i := range interfaces[len(h.Interfaces):] {
		var out, in SpacingSpec
		if r.opt.Spacing != nil && i.Name != loopback {
			out, in = r.opt.Spacing(h.Host, Out), r.opt.Spacing(h.Host, In)
		}
		h.addInterface(i.Name, out, in)
	}
}

// end is the result of reading a capture's file.
type end struct {
	stats    pcap.Stats
	hasStats bool
	skipped  []pcap.Skip
	whole    bool
	problem  string // reason why it could not be read to its end; "" if it could
}

// readAll calls each with batches of packets, and the interfaces of the capture if there are new ones, up to the
// end of the capture or its first damage. It returns errors of the underlying reader and of the context. If the
// reader has its own goroutine, the next packets are read and decompressed while each runs.
func readAll(ctx context.Context, name string, p *pcap.Reader, read *reading, each func([]pcap.Packet, []pcap.Interface)) (e end, _ error) {
	packets := 0
	blocks, stop := readBlocks(p, read.ahead)
	defer stop()
	for {
		if ctx.Err() != nil {
			return e, context.Cause(ctx)
		}
		b := blocks()
		if b.err == nil {
			for list := b.packets; len(list) > 0; list = list[min(batch, len(list)):] {
				each(list[:min(batch, len(list))], b.interfaces)
				b.interfaces = nil
			}
			packets += len(b.packets)
			read.reached(b.offset)
			continue
		}
		e.stats, e.hasStats = p.Stats()
		e.skipped = p.Skipped()
		var bad *pcap.Error
		switch {
		case b.err == io.EOF:
			e.whole = true
		case errors.As(b.err, &bad):
			e.problem = fmt.Sprintf("%s: only the first %d packets of its capture can be read: %s", name, packets, bad.Local())
		default:
			return e, fmt.Errorf("capture of %s: %w", name, b.err)
		}
		return e, nil
	}
}

// block is what was read of a capture at once.
type block struct {
	packets    []pcap.Packet
	interfaces []pcap.Interface // nil if there are no new ones
	offset     int64            // in the file
	err        error            // then there are no packets
	buf        []byte           // of the packets
	list       []pcap.Packet    // the array of packets
}

// Of reading ahead.
const (
	blocksAhead = 3    // one being read, one waiting and one being processed
	blockLen    = 4096 // packets of a block, more than a reader's buffer has
)

// readBlocks returns a function that returns the next block of a capture, which is valid until its next call. With
// ahead, a goroutine reads the next ones. After an error, or after stop, p is no longer used.
func readBlocks(p *pcap.Reader, ahead bool) (next func() *block, stop func()) {
	known := 0 // interfaces
	fill := func(b *block) {
		n, err := p.Batch(b.list)
		b.packets, b.err, b.offset, b.interfaces = b.list[:n], err, p.Offset(), nil
		for i := range b.packets {
			if b.packets[i].Interface >= known {
				b.interfaces = p.Interfaces()
				known = len(b.interfaces)
			}
		}
	}
	if !ahead {
		b := &block{list: make([]pcap.Packet, batch)} // few, which stay in the processor's cache
		return func() *block { fill(b); return b }, func() {}
	}
	free, full := make(chan *block, blocksAhead), make(chan *block, blocksAhead)
	var wg sync.WaitGroup
	wg.Go(func() {
		for b := range free {
			fill(b)
			if b.err == nil {
				b.buf = p.Exchange(b.buf)
			}
			if full <- b; b.err != nil {
				return
			}
		}
	})
	for range blocksAhead {
		free <- &block{list: make([]pcap.Packet, blockLen)}
	}
	var last *block
	next = func() *block {
		if last != nil {
			free <- last
		}
		last = <-full
		return last
	}
	return next, func() { close(free); wg.Wait() }
}

// Result assembles the records from all captures that were added.
func (r *Reducer) Result() (Result, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.captures) == 0 {
		return Result{}, fmt.Errorf("no capture could be used: %s", strings.Join(r.problems, "; "))
	}
	slices.SortFunc(r.captures, func(a, b *hostCapture) int { return strings.Compare(a.Host, b.Host) })
	slices.SortFunc(r.switches, func(a, b *switchCapture) int { return strings.Compare(a.Switch, b.Switch) })
	slices.Sort(r.problems)
	slices.Sort(r.notes)
	a := newAssembly(r.opt, r.captures)
	a.problems = append(a.problems, r.problems...)
	a.Notes = append(a.Notes, r.notes...)
	a.fabric, a.paths, a.loads, a.switches = r.fabric, r.paths, r.loads, r.switches
	a.Meta = r.meta
	return a.assemble(), nil
}
