package flows

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"testbed/results/pcap"
	"testbed/topo"
)

// DefaultMarkBound is the longest a mark may wait in its host's queue before
// its own statement of when it was made is no longer believed.
const DefaultMarkBound = time.Second

// Defaults of Options.
const (
	DefaultPoints    = 64
	DefaultSpans     = 64
	DefaultIntervals = 20_000
	DefaultReorder   = 3 * time.Millisecond
)

// Suffix is how the files of captures end; what comes before is the host's name.
const Suffix = ".pcapng"

// Direction is a direction of a host's link.
type Direction uint8

// Out is away from the host, In toward it.
const (
	Out Direction = iota
	In
)

// Options are the settings of a reduction. The zero value is ready to use.
type Options struct {
	// Run is the run whose transfers count; 0 takes the one that most captures are of.
	Run uint64
	// Hosts are the hosts whose captures must be there. Without it, a capture is
	// missed only where a transfer of another host points at it.
	Hosts []string
	// MarkBound is the longest wait of a mark that is believed; 0 is
	// DefaultMarkBound.
	MarkBound time.Duration
	// Spacing says how the packets of a host's link should be spaced. Without it,
	// or where its Rate is 0, spacing is not measured. It is called from several
	// goroutines.
	Spacing func(host string, d Direction) SpacingSpec
	// Parallel is how many captures Reduce reads at a time; 0 is 2.
	Parallel int
	// Points is about how many checkpoints a Trail has, and pipeline packets; 0 is
	// DefaultPoints.
	Points int
	// Spans is the most spans of each kind that a Trail has; 0 is DefaultSpans.
	Spans int
	// Intervals is the most elements of a LinkSeries, at least 2; 0 is DefaultIntervals.
	Intervals int
	// Reorder is the longest that a packet may come behind a later one and count as
	// reordered where IP identifications do not tell which was sent first; 0 is
	// DefaultReorder.
	Reorder time.Duration
	// Read is told how many more bytes of captures were read, for every MiB or so of
	// each: in the end, the sizes of all. It may be nil, is called from several
	// goroutines and must not wait.
	Read func(n int64)
}

// Result is what the captures of one arm and repeat amount to.
type Result struct {
	Records
	// Zero is the moment from which the times in Records count: the first mark
	// of the run.
	Zero time.Time
	// Meta is what the captures say they are of, without the host.
	Meta     pcap.Meta
	Captures []Capture       // in order of host name
	Switches []SwitchCapture // in order of name, where switches' ports were captured
	// MarkWait is the longest time a mark spent between being made and being on
	// the wire, MarkWaitHost where that was.
	MarkWait     time.Duration
	MarkWaitHost string
	Connections  Connections
	// Trails are how the transfers of this run went, in order of time: complete ones
	// and others.
	Trails []Trail
	// Links are the loads of the fabric's links, in order of LinkID; nothing where the
	// captures do not state the fabric.
	Links []LinkSeries
	// Notes are things worth knowing that cast no doubt on a record.
	Notes []string
}

// Connections counts the TCP connections to the emulated services, each once
// however many captures show it.
type Connections struct {
	Ours     int // of this run
	OtherRun int
	Foreign  int // no transfer header
	Empty    int // no payload: a dial that failed, or a transfer that never started
	// Of those of this run:
	SYNResent    int // at least one SYN was sent again
	HeaderSplit  int // the transfer header came in more than one segment
	HeaderResent int // some of the transfer header was sent again
	Resets       int // a packet with RST
	// Packets of those of this run:
	Resent      int // with bytes sent before
	Reordered   int // see Trail.Reordered
	ZeroWindows int // that announced a window of zero
}

// Reducer takes captures one by one, in any order.
type Reducer struct {
	opt Options

	mu       sync.Mutex
	captures []*hostCapture
	problems []string
	notes    []string
	run      uint64 // 0 until known
	meta     pcap.Meta
	hasMeta  bool
	built    bool         // fabric and paths are what meta states
	fabric   *topo.Fabric // nil where it is not known
	paths    *paths
	loads    []*fabricLoad // that no capture is using
	switches []*switchCapture
	taken    map[string]bool // hosts and switches whose capture is used
}

// NewReducer returns a Reducer that has seen nothing.
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
	return &Reducer{opt: opt, run: opt.Run, taken: map[string]bool{}}
}

// Reduce reads the captures in dir, one file a host and one for each switch whose ports
// were captured, and returns what they
// amount to. What is wrong with the captures or the traffic in them is a
// problem in the result; an error means that there is no result.
func Reduce(ctx context.Context, dir string, opt Options) (Result, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return Result{}, fmt.Errorf("read captures: %w", err)
	}
	var paths []string
	for _, e := range entries {
		if !e.IsDir() && strings.HasSuffix(e.Name(), Suffix) {
			paths = append(paths, filepath.Join(dir, e.Name()))
		}
	}
	if len(paths) == 0 {
		return Result{}, fmt.Errorf("no captures in %s: want one <host>%s for each host: %w", dir, Suffix, fs.ErrNotExist)
	}
	r := NewReducer(opt)
	if err := r.settleFrom(paths); err != nil {
		return Result{}, err
	}
	work := make(chan string)
	var wg sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	for range max(1, cmp.Or(opt.Parallel, 2)) {
		wg.Go(func() {
			for path := range work {
				if err := r.addFile(ctx, path); err != nil {
					mu.Lock()
					errs = append(errs, err)
					mu.Unlock()
				}
			}
		})
	}
	for _, path := range paths {
		work <- path
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

// settleFrom takes the run that most captures are of, so that neither the order in
// which they are read nor one that strayed in from another run matters; of equally
// many, the first.
func (r *Reducer) settleFrom(paths []string) error {
	count := map[uint64]int{}
	var of []pcap.Meta // the first of each run
	for _, path := range paths {
		p, err := pcap.Open(path)
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

func (r *Reducer) addFile(ctx context.Context, path string) error {
	if ctx.Err() != nil {
		return nil // Reduce reports it
	}
	host := strings.TrimSuffix(filepath.Base(path), Suffix)
	p, err := pcap.Open(path)
	read := reading{tell: r.opt.Read}
	var bad *pcap.Error
	if errors.As(err, &bad) {
		if why := fmt.Sprintf("%s: nothing of its capture can be read: %s", host, bad.Local()); topo.IsSwitch(host) {
			r.note(why)
		} else {
			r.problem("%s", why)
		}
		return read.done(path)
	}
	if err != nil {
		return err
	}
	if err := errors.Join(r.add(ctx, host, p, &read), p.Close()); err != nil {
		return err
	}
	return read.done(path)
}

// reading tells Options.Read how far the reading of one capture has come.
type reading struct {
	tell func(n int64) // nil where nobody is to be told
	told int64         // bytes
}

// readStep is how many bytes of a capture are read before Options.Read is told.
const readStep = 1 << 20

// reached takes the offset in a capture that was come to.
func (r *reading) reached(offset int64) {
	if offset-r.told >= readStep {
		r.rest(offset)
	}
}

// rest tells of all up to an offset.
func (r *reading) rest(offset int64) {
	if n := offset - r.told; r.tell != nil && n > 0 {
		r.told = offset
		r.tell(n)
	}
}

// done tells of what is left of a file, read or not.
func (r *reading) done(path string) error {
	if r.tell == nil {
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

// note keeps what casts no doubt on a record.
func (r *Reducer) note(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.notes = append(r.notes, what)
}

// Add reads the capture of one host or switch to its end. It may be called from several
// goroutines. The error is of the reader underneath or the context's; a capture
// that is cut off or damaged is a problem in the result.
func (r *Reducer) Add(ctx context.Context, host string, p *pcap.Reader) error {
	read := reading{tell: r.opt.Read}
	defer func() { read.rest(p.Offset()) }()
	return r.add(ctx, host, p, &read)
}

func (r *Reducer) add(ctx context.Context, host string, p *pcap.Reader, read *reading) error {
	meta, hasMeta := p.Meta()
	if hasMeta && meta.Host != "" && meta.Host != host {
		r.problem("%s: its capture says it is of %s; it is taken for that", host, meta.Host)
		host = meta.Host
	}
	rack, place, ok := topo.ParseHostName(host)
	if !ok && !topo.IsSwitch(host) {
		r.problem("%s: not a host's name, nor a switch's: its capture is not used", host)
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
	h := newHostReducer(host, rack, place, settings{run: run, points: r.opt.Points, spans: r.opt.Spans, reorder: int64(r.opt.Reorder), paths: paths}, load, r.opt.Intervals)
	h.meta, h.hasMeta = meta, hasMeta
	end, err := readAll(ctx, host, p, read, func(list []pcap.Packet) {
		for i := range list {
			if list[i].Interface >= len(h.Interfaces) {
				r.describe(h, p.Interfaces())
			}
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

// settleRun tells which run counts; ok is false where the capture is of another, or the
// host has one already.
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
		return no("its capture does not say which run it is of, and none was given: it is not used")
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
		r.problems = append(r.problems, fmt.Sprintf("%s: its capture says it is of %+v, another says %+v", host, m, r.meta))
	} else {
		r.meta, r.hasMeta = m, true
	}
	return r.run, true
}

// load lends the counts of the fabric's links, to be given back with unload: one set
// for each capture that is being read.
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

// describe makes room for interfaces that the file has described.
func (r *Reducer) describe(h *hostReducer, interfaces []pcap.Interface) {
	for _, i := range interfaces[len(h.Interfaces):] {
		var out, in SpacingSpec
		if r.opt.Spacing != nil && i.Name != loopback {
			out, in = r.opt.Spacing(h.Host, Out), r.opt.Spacing(h.Host, In)
		}
		h.addInterface(i.Name, out, in)
	}
}

// end is what a capture's file tells once it was read.
type end struct {
	stats    pcap.Stats
	hasStats bool
	skipped  []pcap.Skip
	whole    bool
	problem  string // why not all of it could be read
}

// readAll gives each the packets of a capture, many at a time, to its end or to where
// it is damaged. The error is of the reader underneath or the context's.
func readAll(ctx context.Context, name string, p *pcap.Reader, read *reading, each func([]pcap.Packet)) (e end, _ error) {
	list := make([]pcap.Packet, batch)
	packets := 0
	for {
		if ctx.Err() != nil {
			return e, context.Cause(ctx)
		}
		n, err := p.Batch(list)
		if err == nil {
			each(list[:n])
			packets += n
			read.reached(p.Offset())
			continue
		}
		e.stats, e.hasStats = p.Stats()
		e.skipped = p.Skipped()
		var bad *pcap.Error
		switch {
		case err == io.EOF:
			e.whole = true
		case errors.As(err, &bad):
			e.problem = fmt.Sprintf("%s: only the first %d packets of its capture can be read: %s", name, packets, bad.Local())
		default:
			return e, fmt.Errorf("capture of %s: %w", name, err)
		}
		return e, nil
	}
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
	res := a.assemble()
	res.Meta = r.meta
	return res, nil
}
