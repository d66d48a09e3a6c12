package workloads

import (
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"time"

	"testbed/topo/units"
)

// FitOptions say how a trace is made to fit a format. The zero value changes as
// little as the format allows.
type FitOptions struct {
	// MB is the megabyte of sizes that are not known in bytes, units.MB or
	// units.MiB, where bytes become MB or the other way round. 0 is units.MiB, as in
	// ReplayOptions, and leaves MB in a format that has both.
	MB units.Bytes
	// Even spreads each reducer's size evenly over the mappers. Without it,
	// coflow-benchmark, which cannot say anything else, is an error for others.
	Even bool
}

// Fit is a trace that WriteTraceAs can write in the format: t where that holds all of
// it. The remarks tell what was rounded or lost.
func Fit(t *Trace, format TraceFormat, o FitOptions) (_ *Trace, remarks []string, _ error) {
	if o.MB != 0 && o.MB != units.MB && o.MB != units.MiB {
		return nil, nil, fmt.Errorf("trace %s: an MB of %d bytes: want 10⁶ or 2²⁰", t.Name, o.MB)
	}
	mb := o.MB
	if mb == 0 {
		mb = units.MiB
	}
	tell := func(n int, format string, args ...any) {
		if n > 0 {
			remarks = append(remarks, fmt.Sprintf(format, args...))
		}
	}
	if o.Even {
		n := 0
		t, n = t.evened()
		tell(n, "spread the bytes of %d coflows evenly over their mappers", n)
	}
	var rounded int
	switch format {
	case FormatBenchmark:
		if n := t.uneven(); n > 0 {
			return nil, nil, fmt.Errorf("trace %s: in %d coflows a reducer does not fetch the same from every mapper, which %s cannot say: spread sizes evenly, or choose another format", t.Name, n, format)
		}
		if t.InBytes {
			t, rounded = t.unstated(mb)
			tell(rounded, "rounded the sizes of %d reducers up, by less than two bytes each", rounded)
		}
		n := 0
		t, n = t.wholeMilliseconds()
		tell(n, "rounded the arrivals of %d coflows down to a millisecond", n)
	case FormatFlows:
		if o.MB != 0 && !t.InBytes {
			t, rounded = t.inBytes(mb)
			tell(rounded, "rounded the sizes of %d flows up to a byte", rounded)
		}
	case FormatHTSim:
		t, rounded = t.inBytes(mb)
		tell(rounded, "rounded the sizes of %d flows up to a byte", rounded)
		local, large := 0, 0
		for _, c := range t.Coflows {
			n, _ := c.local()
			local += n
			large += count(c.Length() > htsimInt)
		}
		tell(local, "%d connections of a node with itself, which htsim may refuse: filter --no-local leaves them out", local)
		tell(large, "%d coflows have flows above %d bytes, of which htsim cannot read the size: scale --size makes them smaller", large, htsimInt)
	default:
		_, err := ParseTraceFormat(string(format))
		return nil, nil, err
	}
	return t, remarks, t.check()
}

// uneven is how many coflows have a reducer that does not fetch the same from all.
func (t *Trace) uneven() (n int) {
	for _, c := range t.Coflows {
		n += count(!c.even())
	}
	return n
}

// changed is t with every coflow replaced by what change makes of a copy of it, which
// shares no list with it.
func (t *Trace) changed(change func(c *TraceCoflow)) *Trace {
	out := t.with(slices.Clone(t.Coflows))
	for i := range out.Coflows {
		c := &out.Coflows[i]
		c.Mappers = slices.Clone(c.Mappers)
		c.Reducers = slices.Clone(c.Reducers)
		for j := range c.Reducers {
			c.Reducers[j].Flows = slices.Clone(c.Reducers[j].Flows)
		}
		change(c)
	}
	return out
}

func (t *Trace) evened() (_ *Trace, n int) {
	out := t.changed(func(c *TraceCoflow) {
		n += count(!c.even())
		for j := range c.Reducers {
			c.Reducers[j].Flows = nil
		}
	})
	return out, n
}

func (t *Trace) wholeMilliseconds() (_ *Trace, n int) {
	out := t.changed(func(c *TraceCoflow) {
		n += count(c.Arrival%time.Millisecond != 0)
		c.Arrival = c.Arrival.Truncate(time.Millisecond)
	})
	return out, n
}

// ceil is size times num over den, rounded up and at most one more than a reducer may
// have; exact tells that nothing was rounded.
func ceil(size Megabytes, num, den int64) (_ Megabytes, exact bool) {
	n := big.NewInt(int64(size))
	var rest big.Int
	n.QuoRem(n.Mul(n, big.NewInt(num)), big.NewInt(den), &rest)
	exact = rest.Sign() == 0
	if !exact {
		n.Add(n, big.NewInt(1))
	}
	if !n.IsInt64() || n.Int64() > int64(maxReducerSize) {
		return maxReducerSize + 1, exact
	}
	return Megabytes(n.Int64()), exact
}

// inBytes is t with every flow of a whole number of bytes, each rounded up, and how
// many were rounded. mb is the MB of sizes that are not in bytes yet.
func (t *Trace) inBytes(mb units.Bytes) (_ *Trace, rounded int) {
	num := int64(t.MB(mb))
	out := t.changed(func(c *TraceCoflow) {
		m := int64(len(c.Mappers))
		for j := range c.Reducers {
			r := &c.Reducers[j]
			if r.Flows == nil {
				f, exact := ceil(r.Size, num, m*int64(megabyte))
				r.Size = min(f, (maxReducerSize+1+Megabytes(m)-1)/Megabytes(m)) * Megabytes(m)
				rounded += count(!exact) * int(m)
				continue
			}
			r.Size = 0
			for i, f := range r.Flows {
				f, exact := ceil(f, num, int64(megabyte))
				r.Flows[i] = f
				r.Size += f
				rounded += count(!exact)
			}
		}
	})
	out.InBytes = true
	return out, rounded
}

// unstated is t, which is in bytes and even, in MB of so many bytes, as a format has
// it that does not say which.
func (t *Trace) unstated(mb units.Bytes) (_ *Trace, rounded int) {
	out := t.changed(func(c *TraceCoflow) {
		for j := range c.Reducers {
			size, exact := ceil(c.Reducers[j].Size, int64(megabyte), int64(mb))
			c.Reducers[j] = TraceReducer{Port: c.Reducers[j].Port, Size: size}
			rounded += count(!exact)
		}
	})
	out.InBytes = false
	return out, rounded
}

// Scale is t with sizes and arrivals multiplied. Sizes, of reducers or, where they are
// stated, of flows, are rounded up to a millionth of a MB, which in bytes is a byte;
// arrivals down to a nanosecond, and to a millisecond if all of t's are whole ones.
func (t *Trace) Scale(size, times Factor) (*Trace, error) {
	if err := size.check(); err != nil {
		return nil, fmt.Errorf("scale of sizes: %w", err)
	}
	if err := times.check(); err != nil {
		return nil, fmt.Errorf("scale of times: %w", err)
	}
	size = size.orOne()
	unit := time.Millisecond
	for _, c := range t.Coflows {
		if c.Arrival%unit != 0 {
			unit = time.Nanosecond
		}
	}
	fits := true
	out := t.changed(func(c *TraceCoflow) {
		at, ok := times.Duration(c.Arrival)
		if !ok || int64(at.Milliseconds()) > maxTraceArrival-1 {
			fits = false
		}
		c.Arrival = at.Truncate(unit)
		for j := range c.Reducers {
			r := &c.Reducers[j]
			if r.Flows == nil {
				r.Size, _ = ceil(r.Size, size.Num, size.Den)
				continue
			}
			r.Size = 0
			for i := range r.Flows {
				r.Flows[i], _ = ceil(r.Flows[i], size.Num, size.Den)
				r.Size += r.Flows[i]
			}
		}
	})
	if !fits {
		return nil, fmt.Errorf("trace %s: arrivals times %v do not fit: want a smaller factor", t.Name, times)
	}
	return out, out.check()
}

// Fold is t on so many ports. On fewer than it has, port p becomes p modulo their
// number, and what of a coflow falls on one port adds up: its mappers there become
// one, which then may send more than others, and its reducers too. On more, the ports
// beyond its own stay unused. Flows that are no whole millionths of a MB are rounded
// up.
func (t *Trace) Fold(ports int) (*Trace, error) {
	if ports < 1 || ports > MaxTracePorts {
		return nil, fmt.Errorf("trace %s: %d ports: want 1 to %d", t.Name, ports, MaxTracePorts)
	}
	if ports >= t.Ports {
		out := t.with(t.Coflows)
		out.Ports = ports
		return out, nil
	}
	out := t.changed(func(c *TraceCoflow) {
		var mappers, reducers []portGroup
		for i, port := range c.Mappers {
			mappers = foldPort(mappers, port%ports, i)
		}
		for j, r := range c.Reducers {
			reducers = foldPort(reducers, r.Port%ports, j)
		}
		*c = c.regrouped(mappers, reducers)
	})
	out.Ports = ports
	return out, out.check()
}

// portGroup is mappers or reducers of a coflow, by index, that become one port.
type portGroup struct {
	port int
	of   []int
}

func foldPort(groups []portGroup, port, index int) []portGroup {
	for i := range groups {
		if groups[i].port == port {
			groups[i].of = append(groups[i].of, index)
			return groups
		}
	}
	return append(groups, portGroup{port, []int{index}})
}

// regrouped is c with each group of mappers and of reducers as one.
func (c TraceCoflow) regrouped(mappers, reducers []portGroup) TraceCoflow {
	out := TraceCoflow{ID: c.ID, Arrival: c.Arrival}
	for _, g := range mappers {
		out.Mappers = append(out.Mappers, g.port)
	}
	alike := !slices.ContainsFunc(mappers, func(g portGroup) bool { return len(g.of) != len(mappers[0].of) })
	for _, g := range reducers {
		r := TraceReducer{Port: g.port}
		var even Megabytes // of its reducers that fetch evenly
		stated := false
		for _, j := range g.of {
			r.Size += c.Reducers[j].Size
			if c.Reducers[j].Flows == nil {
				even += c.Reducers[j].Size
			} else {
				stated = true
			}
		}
		if stated || !alike {
			r.Size = 0
			r.Flows = make([]Megabytes, len(mappers))
			for k, from := range mappers {
				r.Flows[k], _ = ceil(even, int64(len(from.of)), int64(len(c.Mappers)))
				for _, j := range g.of {
					for _, i := range from.of {
						if flows := c.Reducers[j].Flows; flows != nil {
							r.Flows[k] += flows[i]
						}
					}
				}
				r.Size += r.Flows[k]
			}
			if slices.Min(r.Flows) == slices.Max(r.Flows) {
				r.Flows = nil
			}
		}
		out.Reducers = append(out.Reducers, r)
	}
	return out
}

// TraceFilter chooses coflows of a trace. The zero value keeps all.
type TraceFilter struct {
	// NoLocal leaves out flows from a port to itself, ahead of all else, and coflows
	// that have no others.
	NoLocal            bool
	IDs                []IDRange // nil is all
	Bins               []Bin     // nil is all
	MinWidth, MaxWidth int       // flows; MaxWidth 0 is no bound
	MinSize, MaxSize   Megabytes // MaxSize 0 is no bound
	From, Until        time.Duration
	First              int // only so many of those that are left; 0 is all
	// Rebase takes the first arrival that is left from all.
	Rebase bool
}

// IDRange is the coflows from one id to another, both of them too.
type IDRange struct{ From, To CoflowID }

// ParseIDs reads ids and ranges of them, such as "1,5,10..20".
func ParseIDs(s string) ([]IDRange, error) {
	var out []IDRange
	for part := range strings.SplitSeq(s, ",") {
		from, to, ranged := strings.Cut(part, "..")
		if !ranged {
			to = from
		}
		var r IDRange
		for _, x := range []struct {
			text string
			id   *CoflowID
		}{{from, &r.From}, {to, &r.To}} {
			n, err := parseID(x.text)
			if err != nil {
				return nil, fmt.Errorf(`ids %q: %w: want ids and ranges of them, such as "1,5,10..20"`, clip(s), err)
			}
			*x.id = n
		}
		if r.To < r.From {
			return nil, fmt.Errorf("ids %q: %d..%d goes down: want the lower id first", clip(s), r.From, r.To)
		}
		out = append(out, r)
	}
	return out, nil
}

func parseID(s string) (CoflowID, error) {
	n, ok := new(big.Int).SetString(s, 10)
	if !digits(s) || !ok || !n.IsInt64() || n.Int64() > maxTraceID {
		return 0, fmt.Errorf("%q is no id of 0 to %d", clip(s), maxTraceID)
	}
	return CoflowID(n.Int64()), nil
}

// ParseBin finds a bin by its short name, such as SN.
func ParseBin(s string) (Bin, error) {
	for b := ShortNarrow; b <= LongWide; b++ {
		if strings.EqualFold(s, b.String()) {
			return b, nil
		}
	}
	return 0, fmt.Errorf("no bin %q: have SN, LN, SW and LW (short or long, narrow or wide)", clip(s))
}

// ParseMegabytes reads a decimal number of MB above 0.
func ParseMegabytes(s string) (Megabytes, error) {
	if m, ok := parseMegabytes(s); ok {
		return m, nil
	}
	return 0, fmt.Errorf("%q MB: want a decimal above 0 and at most %v", clip(s), maxReducerSize)
}

func (f TraceFilter) check(t *Trace) error {
	switch {
	case f.First < 0:
		return fmt.Errorf("first %d coflows: want 1 or more", f.First)
	case f.MinWidth < 0 || f.MaxWidth < 0 || f.MaxWidth > 0 && f.MaxWidth < f.MinWidth:
		return fmt.Errorf("widths of %d to %d flows: want 1 or more, the lower first", f.MinWidth, f.MaxWidth)
	case f.MaxSize > 0 && f.MaxSize < f.MinSize:
		return fmt.Errorf("sizes of %v to %v MB: want the lower first", f.MinSize, f.MaxSize)
	case f.From < 0 || f.Until < 0 || f.Until > 0 && f.Until <= f.From:
		return fmt.Errorf("arrivals from %v until %v: want the earlier first", f.From, f.Until)
	}
	for _, r := range f.IDs {
		has := func(c TraceCoflow) bool { return r.From <= c.ID && c.ID <= r.To }
		if !slices.ContainsFunc(t.Coflows, has) {
			if r.From == r.To {
				return fmt.Errorf("no coflow %d: trace %s has %d to %d", r.From, t.Name, t.Coflows[0].ID, t.Coflows[len(t.Coflows)-1].ID)
			}
			return fmt.Errorf("no coflow of %d to %d: trace %s has %d to %d", r.From, r.To, t.Name, t.Coflows[0].ID, t.Coflows[len(t.Coflows)-1].ID)
		}
	}
	return nil
}

// keeps tells whether a coflow of the trace is chosen.
func (f TraceFilter) keeps(t *Trace, c TraceCoflow) bool {
	width, size := c.Width(), c.Size()
	return (f.IDs == nil || slices.ContainsFunc(f.IDs, func(r IDRange) bool { return r.From <= c.ID && c.ID <= r.To })) &&
		(f.Bins == nil || slices.Contains(f.Bins, t.Bin(c))) &&
		width >= f.MinWidth && (f.MaxWidth == 0 || width <= f.MaxWidth) &&
		size >= f.MinSize && (f.MaxSize == 0 || size <= f.MaxSize) &&
		c.Arrival >= f.From && (f.Until == 0 || c.Arrival < f.Until)
}

// Filter is what a filter leaves of t. Ports and ids stay what they are. That nothing
// is left is an error.
func (t *Trace) Filter(f TraceFilter) (*Trace, error) {
	if err := f.check(t); err != nil {
		return nil, err
	}
	if f.NoLocal {
		t = t.withoutLocal()
	}
	var kept []TraceCoflow
	for _, c := range t.Coflows {
		if f.keeps(t, c) && (f.First == 0 || len(kept) < f.First) {
			kept = append(kept, c)
		}
	}
	if len(kept) == 0 {
		return nil, fmt.Errorf("trace %s: %w", t.Name, errNoneLeft)
	}
	out := t.with(kept)
	if f.Rebase {
		base := kept[0].Arrival
		out = out.changed(func(c *TraceCoflow) { c.Arrival -= base })
	}
	return out, out.check()
}

var errNoneLeft = errors.New("no coflow passes the filter: want one or more")

// withoutLocal is t without the flows from a port to itself, mappers and reducers
// that have no others, and coflows that have none. The flows that stay, where they
// are no whole millionths of a MB, are rounded up.
func (t *Trace) withoutLocal() *Trace {
	out := t.changed(func(c *TraceCoflow) {
		m := len(c.Mappers)
		sends := make([]bool, m)
		for j := range c.Reducers {
			r := &c.Reducers[j]
			if i := slices.Index(c.Mappers, r.Port); i >= 0 && (r.Flows == nil || r.Flows[i] > 0) {
				if r.Flows == nil {
					f, _ := ceil(r.Size, 1, int64(m))
					r.Flows = slices.Repeat([]Megabytes{f}, m)
				}
				r.Flows[i] = 0
				r.Size = 0
				for _, f := range r.Flows {
					r.Size += f
				}
			}
			for i := range sends {
				sends[i] = sends[i] || r.Flows == nil || r.Flows[i] > 0
			}
		}
		c.Reducers = slices.DeleteFunc(c.Reducers, func(r TraceReducer) bool { return r.Size == 0 })
		var mappers []int
		for i, port := range c.Mappers {
			if sends[i] {
				mappers = append(mappers, port)
			}
		}
		for j := range c.Reducers {
			r := &c.Reducers[j]
			if r.Flows == nil {
				continue // then all mappers send
			}
			var flows []Megabytes
			for i, f := range r.Flows {
				if sends[i] {
					flows = append(flows, f)
				}
			}
			if r.Flows = flows; slices.Min(flows) == slices.Max(flows) {
				r.Flows = nil
			}
		}
		c.Mappers = mappers
	})
	out.Coflows = slices.DeleteFunc(out.Coflows, func(c TraceCoflow) bool { return len(c.Reducers) == 0 })
	return out
}
