package alloc

import (
	"fmt"
	"math"
	"math/bits"
	"slices"

	"testbed/policies"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// Flow is one flow of a coflow, as passed to NewDemand.
type Flow struct {
	ID    workloads.FlowID
	Size  units.Bytes
	Links []topo.LinkID // path
}

// Demand holds the flows of one coflow for the computation of rates. A flow is identified by
// its place: its index when flows are sorted by ID. Places stay the same when flows end.
type Demand struct {
	// Left is the number of bits still to be received, by place; 0 for an ended flow. For a
	// Joint demand it is divided by Scale. The rules that need sizes read it. It is
	// read-only: Advance and SetLeft change it.
	Left []float64

	first workloads.FlowID   // first of consecutive IDs
	ids   []workloads.FlowID // nil if IDs are consecutive

	// path holds stride links per flow. Shorter paths are padded with none, a fictitious
	// link of infinite capacity.
	path   []int32
	stride int
	none   int32
	paths  []topo.LinkID // copy of path for Path, after its first use

	links   []int32   // links that flows cross or have crossed, sorted
	slot    []int32   // by link: its index in links, len(links) for others
	count   []int32   // by slot: number of unfinished flows
	pilots  []int32   // by slot: number of unfinished pilot flows
	bits    []float64 // by slot: remaining bits of unfinished flows, after the first use
	sized   bool      // bits are maintained
	states  []policies.LinkState
	listed  bool    // the links and flow counts of states are current
	filled  bool    // states include Remaining
	stateOf []int32 // by slot: index of the link in states, -1 for none
	slotOf  []int32 // parallel to states
	onLinks []int32 // see on; nil if unknown
	onFrom  []int32 // by slot: first index into onLinks

	joint // rates of MADD, if kept for all flows together

	lefts [others + pilots + 1]lefts // by parts

	live, pilot []uint64 // sets of places: unfinished flows; pilot flows, nil for none
	chosen      []int32  // pilot flows in order of choice, some of them ended
	sent        []uint64 // set of places: flows that have delivered bytes
	silent      int      // number of unfinished flows that have not
	begun       []bool   // by link: a flow that crosses or crossed it has delivered bytes
	progress    bool     // Links shows it
	fresh       bool     // Advance has not used these rates yet
	unfinished  int
	piloting    int // number of unfinished pilot flows
	unlimited   int // number of unfinished flows that cross no link
	grid        *grid

	crossed      []uint64 // set of links that unfinished flows cross
	flowsVersion int      // number of changes of the flows and their parts
	memos        []*memo  // of steps that serve the demand, in order
	steps        int      // that serve it in this decision
	gifts        int      // the rates are the gifts of that many memos; -1 for other rates
	shares       int      // see Shares

	layers []layer // rates that are not in rate and moving yet

	rate     []float64 // see Rates; without layers
	moving   []int32   // flows with a rate, and some ended ones that had one
	unsorted bool      // moving is not sorted
	aside    []int32   // see raiseAll
	ended    bool      // moving contains ended flows

	invalid error // first error in the arguments of NewDemand or SetPath
}

// NewDemand returns the demand of flows, which must be sorted by ID and not empty. links is
// the number of links of the fabric. The next Share returns an error in the flows.
func NewDemand(flows []Flow, links int) *Demand {
	n := len(flows)
	d := &Demand{
		Left: make([]float64, n), rate: make([]float64, n),
		none: int32(links), unfinished: n, silent: n,
		live: make([]uint64, words(n)), sent: make([]uint64, words(n)), begun: make([]bool, links+1),
		slot: make([]int32, links+1),
	}
	if n > 0 {
		d.first = flows[0].ID
	}
	d.stride = 1
	for i, f := range flows {
		if i > 0 && f.ID <= flows[i-1].ID {
			d.setInvalid(fmt.Errorf("flow %d follows flow %d: flows must be sorted by ID, each once", f.ID, flows[i-1].ID))
		}
		if f.ID != d.first+workloads.FlowID(i) && d.ids == nil {
			d.ids = make([]workloads.FlowID, n)
		}
		if f.Size <= 0 {
			d.setInvalid(fmt.Errorf("flow %d: size %d bytes: must be at least 1", f.ID, f.Size))
		}
		d.Left[i] = max(0, 8*float64(f.Size))
		d.stride = max(d.stride, len(f.Links))
		d.live[i/64] |= 1 << (i % 64)
	}
	for i := range d.ids {
		d.ids[i] = flows[i].ID
	}
	d.path = make([]int32, n*d.stride)
	crossed := make([]bool, links+1)
	for i, f := range flows {
		for j, l := range d.fill(i, f.ID, f.Links) {
			if j < len(f.Links) {
				crossed[l] = true
			}
		}
	}
	for l, c := range crossed[:links] {
		if c {
			d.links = append(d.links, int32(l))
		}
	}
	d.number()
	if d.invalid == nil {
		d.grid = newGrid(d)
	}
	return d
}

func words(n int) int { return (n + 63) / 64 }

// setInvalid stores the first error.
func (d *Demand) setInvalid(err error) {
	if d.invalid == nil {
		d.invalid = err
	}
}

// fill stores a flow's path and returns it. An invalid path is stored as an empty one.
func (d *Demand) fill(place int, id workloads.FlowID, links []topo.LinkID) []int32 {
	p := d.path[place*d.stride : (place+1)*d.stride]
	for j := range p {
		p[j] = d.none
	}
	for j, l := range links {
		if l < 0 || int(l) >= int(d.none) {
			d.setInvalid(fmt.Errorf("flow %d crosses link %d: the fabric has links 0 to %d", id, l, d.none-1))
			links = nil
			break
		}
		if slices.Contains(links[:j], l) {
			d.setInvalid(fmt.Errorf("flow %d crosses link %d twice: the path must have no loops", id, l))
			links = nil
			break
		}
	}
	for j, l := range links {
		p[j] = int32(l)
	}
	return p
}

// Begin records that a flow has delivered bytes. SetLeft and Advance do so themselves when
// they lower the flow's remaining bits.
func (d *Demand) Begin(place int) {
	if !d.Ended(place) && d.sent[place/64]>>(place%64)&1 == 0 {
		d.begin(place)
	}
}

func (d *Demand) begin(place int) {
	d.sent[place/64] |= 1 << (place % 64)
	d.silent--
	for _, l := range d.path[place*d.stride : (place+1)*d.stride] {
		if !d.begun[l] {
			d.begun[l], d.listed = true, false
		}
	}
}

// begins records that every flow with a rate delivers bytes.
func (d *Demand) begins() {
	if !d.fresh {
		return
	}
	d.fresh = false
	switch {
	case d.silent == 0:
	case d.is && d.pace > 0:
		for w, live := range d.live {
			for set := live &^ d.sent[w]; set != 0; set &= set - 1 {
				d.begin(w*64 + bits.TrailingZeros64(set))
			}
		}
	default:
		for _, i := range d.moving {
			if d.sent[i/64]>>(i%64)&1 == 0 && d.rate[i] > 0 {
				d.begin(int(i))
			}
		}
	}
}

// changed records that remaining bits or the set of flows have changed.
func (d *Demand) changed() {
	for p := range d.lefts {
		d.lefts[p].valid = false
	}
}

// each calls f for the unfinished flows of some parts, in order.
func (d *Demand) each(p parts, f func(place int)) {
	for w, set := range d.live {
		switch {
		case d.pilot == nil || p == pilots|others:
		case p == pilots:
			set &= d.pilot[w]
		default:
			set &^= d.pilot[w]
		}
		for ; set != 0; set &= set - 1 {
			f(w*64 + bits.TrailingZeros64(set))
		}
	}
}

// Flows returns the number of flows at the start.
func (d *Demand) Flows() int { return len(d.Left) }

// Unfinished returns the number of flows that have not ended.
func (d *Demand) Unfinished() int { return d.unfinished }

// ID returns the ID of the flow at a place.
func (d *Demand) ID(place int) workloads.FlowID {
	if d.ids != nil {
		return d.ids[place]
	}
	return d.first + workloads.FlowID(place)
}

// Place returns the place of the flow with an ID, -1 for an unknown one.
func (d *Demand) Place(id workloads.FlowID) int {
	if d.ids != nil {
		if place, ok := slices.BinarySearch(d.ids, id); ok {
			return place
		}
		return -1
	}
	if id < d.first || id-d.first >= workloads.FlowID(len(d.Left)) {
		return -1
	}
	return int(id - d.first)
}

// Ended reports whether the flow has ended: End was called for it.
func (d *Demand) Ended(place int) bool { return d.live[place/64]>>(place%64)&1 == 0 }

// Path returns a flow's path. It is valid until the next SetPath.
func (d *Demand) Path(place int) []topo.LinkID {
	if d.paths == nil {
		d.paths = make([]topo.LinkID, len(d.path))
		for i, l := range d.path {
			d.paths[i] = topo.LinkID(l)
		}
	}
	p := d.paths[place*d.stride : (place+1)*d.stride]
	n := len(p)
	for n > 0 && p[n-1] == topo.LinkID(d.none) {
		n--
	}
	return p[:n:n]
}

// SetPath changes the path of a flow, from the next Share on.
func (d *Demand) SetPath(place int, l []topo.LinkID) {
	d.write()
	d.changed()
	d.memos, d.steps, d.gifts = nil, 0, -1
	d.onLinks = nil
	stride := d.stride
	if len(l) > d.stride {
		wider := make([]int32, len(d.Left)*len(l))
		for i := range wider {
			wider[i] = d.none
		}
		for i := range d.Left {
			copy(wider[i*len(l):], d.path[i*d.stride:(i+1)*d.stride])
		}
		d.path, d.stride = wider, len(l)
	}
	d.paths = nil
	ended := d.Ended(place)
	first, last := d.ends(place)
	if !ended {
		d.load(place, -1)
		d.take(place, d.Left[place])
	}
	newLink := false
	for _, l := range d.fill(place, d.ID(place), l) {
		if d.sent[place/64]>>(place%64)&1 != 0 && !d.begun[l] {
			d.begun[l], d.listed = true, false
		}
		newLink = newLink || l != d.none && int(d.slot[l]) == len(d.links)
	}
	if newLink {
		for _, l := range d.path[place*d.stride : (place+1)*d.stride] {
			if l != d.none && !slices.Contains(d.links, l) {
				d.links = append(d.links, l)
			}
		}
		slices.Sort(d.links)
		d.number()
		d.regrid()
		return
	}
	if !ended {
		d.load(place, 1)
		d.take(place, -d.Left[place])
	}
	if f, l := d.ends(place); f != first || l != last {
		d.regrid()
	} else if g := d.grid; g != nil {
		switch g.core = d.stride > 2; {
		case d.stride != stride:
			g.index(d)
		default:
			g.cross(d, place)
		}
	}
}

// regrid rebuilds the grid, if the order of the flows still allows one.
func (d *Demand) regrid() {
	d.grid = nil
	if d.invalid != nil {
		return
	}
	g := newGrid(d)
	if g == nil {
		return
	}
	for i := range d.Left {
		if d.Pilot(i) {
			g.makePilot(d, i)
		}
		if d.Ended(i) {
			g.end(d, i)
		}
	}
	d.grid = g
}

// MakePilot makes a flow a pilot flow, permanently.
func (d *Demand) MakePilot(place int) {
	if d.Pilot(place) {
		return
	}
	d.write()
	d.changed()
	if d.pilot == nil {
		d.pilot = make([]uint64, len(d.live))
	}
	d.flowsVersion++
	d.gifts = -1 // they are those of other flows now
	d.pilot[place/64] |= 1 << (place % 64)
	d.chosen = append(d.chosen, int32(place))
	if d.grid != nil {
		d.grid.makePilot(d, place)
	}
	if d.Ended(place) {
		return
	}
	d.piloting++
	for _, l := range d.path[place*d.stride : (place+1)*d.stride] {
		d.pilots[d.slot[l]]++
		if l != d.none {
			d.recount(d.slot[l])
		}
	}
}

// Pilot reports whether a flow is a pilot flow.
func (d *Demand) Pilot(place int) bool {
	return d.pilot != nil && d.pilot[place/64]>>(place%64)&1 != 0
}

// End ends a flow: it no longer has a rate or counts on any link. Repeated calls have no
// effect.
func (d *Demand) End(place int) {
	if d.Ended(place) {
		return
	}
	d.changed()
	d.flowsVersion++
	d.load(place, -1)
	d.take(place, d.Left[place])
	d.live[place/64] &^= 1 << (place % 64)
	d.unfinished--
	if d.sent[place/64]>>(place%64)&1 == 0 {
		d.silent--
	}
	if d.grid != nil {
		d.grid.end(d, place)
	}
	d.ended = d.ended || d.rate[place] > 0
	d.Left[place], d.rate[place] = 0, 0
}

// SetLeft sets the number of bits of an unfinished flow still to be received. Values that
// are not above 0 count as 0.
func (d *Demand) SetLeft(place int, bits float64) {
	if d.Ended(place) {
		return
	}
	if !(bits > 0) {
		bits = 0
	}
	bits /= d.Scale()
	if bits == d.Left[place] {
		return
	}
	d.changed()
	if bits < d.Left[place] {
		d.Begin(place)
	}
	d.take(place, d.Left[place]-bits)
	d.Left[place] = bits
}

// parts is a set of policies.Pilots and policies.Others.
type parts uint8

const (
	pilots parts = 1 << iota
	others
)

func of(p policies.Part) parts {
	switch p {
	case policies.Pilots, policies.Chosen:
		return pilots
	case policies.Others:
		return others
	}
	return pilots | others
}

// serves returns the number of unfinished flows of some parts.
func (d *Demand) serves(p parts) int {
	switch p {
	case pilots:
		return d.piloting
	case others:
		return d.unfinished - d.piloting
	}
	return d.unfinished
}

// places returns the sorted places of the unfinished flows of some parts, in the memory of
// to.
func (d *Demand) places(p parts, to []int32) []int32 {
	n := d.serves(p)
	if cap(to) < n {
		to = make([]int32, n, n+n/2)
	}
	to = to[:n]
	i := 0
	for w, set := range d.live {
		if i == n {
			break
		}
		if p != pilots|others && d.pilot != nil {
			if p == pilots {
				set &= d.pilot[w]
			} else {
				set &^= d.pilot[w]
			}
		}
		if set == math.MaxUint64 {
			full := to[i : i+64]
			for j := range full {
				full[j] = int32(w*64 + j)
			}
			i += 64
			continue
		}
		for ; set != 0; set &= set - 1 {
			to[i] = int32(w*64 + bits.TrailingZeros64(set))
			i++
		}
	}
	return to
}
