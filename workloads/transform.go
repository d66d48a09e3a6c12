package workloads

import (
	"cmp"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"time"

	"testbed/topo/units"
)

// FitOptions specify how to convert a trace to a format. The zero value changes as little
// as the format allows.
type FitOptions struct {
	// MB is the megabyte of sizes that are not known in bytes, units.MB or units.MiB, for
	// conversions between bytes and MB. 0 means DefaultMB, and keeps
	// MB in a format that has both.
	MB units.Bytes
	// Even spreads each reducer's size evenly over the mappers. Without it,
	// other traces are an error in coflow-benchmark, which cannot represent them.
	Even bool
}

// Fit returns a trace that WriteTraceAs can write in the format, t itself if possible. The
// remarks describe what was rounded or lost.
func Fit(t *Trace, format TraceFormat, o FitOptions) (_ *Trace, remarks []string, _ error) {
	if o.MB != 0 && o.MB != units.MB && o.MB != units.MiB {
		return nil, nil, fmt.Errorf("trace %s: a MB of %d bytes: must be 10⁶ or 2²⁰", t.Name, o.MB)
	}
	mb := cmp.Or(o.MB, DefaultMB)
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
			return nil, nil, fmt.Errorf("trace %s: in %d coflows a reducer fetches different amounts from mappers, which %s cannot represent: spread sizes evenly, or choose another format", t.Name, n, format)
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
		tell(local, "%d connections of a node with itself, which htsim may reject: filter --no-local removes them", local)
		tell(large, "%d coflows have flows above %d bytes, whose size htsim cannot read: scale --size-factor makes them smaller", large, htsimInt)
	default:
		_, err := ParseTraceFormat(string(format))
		return nil, nil, err
	}
	return t, remarks, t.check()
}

// uneven returns the number of coflows with a reducer that fetches different amounts.
func (t *Trace) uneven() (n int) {
	for _, c := range t.Coflows {
		n += count(!c.even())
	}
	return n
}

// changed returns t with change applied to a deep copy of every coflow.
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

// ceil returns size times num divided by den, rounded up, and at most one more than the
// limit of a reducer; exact reports that nothing was rounded.
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

// inBytes returns t with all flows rounded up to whole bytes, and the number of flows that
// were rounded. mb is the MB of sizes that are not in bytes yet.
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

// unstated returns t, which is in bytes and even, in MB of the given size, for a format
// that does not define its MB.
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

// Scale returns t with sizes and arrivals multiplied. It rounds sizes of reducers or, if
// present, of flows up to a millionth of a MB, which is a byte in a trace in bytes. It
// rounds arrivals down to a nanosecond, or to a millisecond if all arrivals of t are whole
// milliseconds.
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
		return nil, fmt.Errorf("trace %s: arrivals times %v are out of range: use a smaller factor", t.Name, times)
	}
	return out, out.check()
}

// Fold returns t mapped onto the given number of ports. If t has more ports, port p becomes
// p modulo the number, and mappers of a coflow on the same port become one mapper, as do
// its reducers; their flows add up, so mappers may send different amounts. If t has fewer,
// the additional ports are unused. Flows are rounded up to a millionth of a MB.
func (t *Trace) Fold(ports int) (*Trace, error) {
	if ports < 1 || ports > MaxTracePorts {
		return nil, fmt.Errorf("trace %s: %d ports: must be 1 to %d", t.Name, ports, MaxTracePorts)
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

// portGroup is the mappers or reducers of a coflow, by index, that become one port.
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

// regrouped returns c with each group of mappers and of reducers merged.
func (c TraceCoflow) regrouped(mappers, reducers []portGroup) TraceCoflow {
	out := TraceCoflow{ID: c.ID, Arrival: c.Arrival}
	for _, g := range mappers {
		out.Mappers = append(out.Mappers, g.port)
	}
	alike := !slices.ContainsFunc(mappers, func(g portGroup) bool { return len(g.of) != len(mappers[0].of) })
	for _, g := range reducers {
		r := TraceReducer{Port: g.port}
		var even Megabytes // of its reducers that fetch equal amounts
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

// TraceFilter selects coflows of a trace. The zero value keeps all.
type TraceFilter struct {
	// NoLocal removes flows from a port to itself, before all other filters, and coflows
	// without other flows.
	NoLocal            bool
	IDs                []IDRange // nil for all
	Bins               []Bin     // nil is all
	MinWidth, MaxWidth int       // flows; MaxWidth 0 for no limit
	MinSize, MaxSize   Megabytes // MaxSize 0 for no limit
	From, Until        time.Duration
	First              int // keep only the first ones that pass; 0 for all
	// Rebase subtracts the first remaining arrival from all arrivals.
	Rebase bool
}

// IDRange is a range of coflow ids, both ends inclusive.
type IDRange struct{ From, To CoflowID }

// ParseIDs parses ids and ranges of ids, such as "1,5,10..20".
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
				return nil, fmt.Errorf(`ids %q: %w: expected ids and ranges of ids, such as "1,5,10..20"`, units.Clip(s), err)
			}
			*x.id = n
		}
		if r.To < r.From {
			return nil, fmt.Errorf("ids %q: range %d..%d: the lower id must come first", units.Clip(s), r.From, r.To)
		}
		out = append(out, r)
	}
	return out, nil
}

func parseID(s string) (CoflowID, error) {
	n, ok := new(big.Int).SetString(s, 10)
	if !digits(s) || !ok || !n.IsInt64() || n.Int64() > maxTraceID {
		return 0, fmt.Errorf("invalid id %q: must be 0 to %d", units.Clip(s), maxTraceID)
	}
	return CoflowID(n.Int64()), nil
}

// ParseBin returns the bin with the given short name, such as SN.
func ParseBin(s string) (Bin, error) {
	for b := ShortNarrow; b <= LongWide; b++ {
		if strings.EqualFold(s, b.String()) {
			return b, nil
		}
	}
	return 0, fmt.Errorf("unknown bin %q (available: SN, LN, SW, LW: short or long, narrow or wide)", units.Clip(s))
}

// ParseMegabytes parses a decimal number of MB above 0.
func ParseMegabytes(s string) (Megabytes, error) {
	if m, ok := parseMegabytes(s); ok {
		return m, nil
	}
	return 0, fmt.Errorf("%q MB: expected a decimal above 0 and at most %v", units.Clip(s), maxReducerSize)
}

func (f TraceFilter) check(t *Trace) error {
	switch {
	case f.First < 0:
		return fmt.Errorf("first %d coflows: must be 1 or more", f.First)
	case f.MinWidth < 0 || f.MaxWidth < 0 || f.MaxWidth > 0 && f.MaxWidth < f.MinWidth:
		return fmt.Errorf("widths of %d to %d flows: must be 1 or more, the lower first", f.MinWidth, f.MaxWidth)
	case f.MaxSize > 0 && f.MaxSize < f.MinSize:
		return fmt.Errorf("sizes of %v to %v MB: the lower must come first", f.MinSize, f.MaxSize)
	case f.From < 0 || f.Until < 0 || f.Until > 0 && f.Until <= f.From:
		return fmt.Errorf("arrivals from %v until %v: the earlier must come first", f.From, f.Until)
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

// keeps reports whether a coflow of the trace passes the filter.
func (f TraceFilter) keeps(t *Trace, c TraceCoflow) bool {
	width, size := c.Width(), c.Size()
	return (f.IDs == nil || slices.ContainsFunc(f.IDs, func(r IDRange) bool { return r.From <= c.ID && c.ID <= r.To })) &&
		(f.Bins == nil || slices.Contains(f.Bins, t.Bin(c))) &&
		width >= f.MinWidth && (f.MaxWidth == 0 || width <= f.MaxWidth) &&
		size >= f.MinSize && (f.MaxSize == 0 || size <= f.MaxSize) &&
		c.Arrival >= f.From && (f.Until == 0 || c.Arrival < f.Until)
}

// Filter returns the part of t that passes a filter. Ports and ids do not change. It is an
// error if nothing passes.
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

var errNoneLeft = errors.New("no coflow passes the filter")

// withoutLocal returns t without flows from a port to itself, without mappers and reducers
// that have no other flows, and without coflows that have none. Remaining flows are
// rounded up to a millionth of a MB.
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
