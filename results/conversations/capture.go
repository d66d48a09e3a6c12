package conversations

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"testbed/results/pcap"
)

// DefaultHoles is the default number of gaps kept per direction: more than a window of 64 KB
// has segments.
const DefaultHoles = 64

// Options bound the analysis.
type Options struct {
	// Holes is the maximum number of gaps per direction, which determine the bytes that were
	// seen. Beyond it, the oldest gap counts as filled. 0 is DefaultHoles.
	Holes int
}

func (o Options) check() (Options, error) {
	if o.Holes == 0 {
		o.Holes = DefaultHoles
	}
	if o.Holes < 1 {
		return o, fmt.Errorf("holes %d: must be at least 1, or 0 for the default of %d", o.Holes, DefaultHoles)
	}
	return o, nil
}

// Interface is one interface of a capture.
type Interface struct {
	pcap.Interface
	pcap.Facts
	Counts // packets that could be read
}

// Capture is the summary of one capture.
type Capture struct {
	Path       string // as it was opened
	Format     string // as in pcap.Reader.Format
	Interfaces []Interface
	Counts     // all packets that could be read
	// First and Last are the earliest and latest timestamp, Unix nanoseconds; 0 without
	// packets.
	First, Last int64
	Stats       pcap.Stats // counts of the kernel, if HasStats
	HasStats    bool
	Meta        *pcap.Meta // nil in captures of other programs
	// Other has the packets that belong to no conversation, by kind.
	Other map[string]*Group
	// Lengthened are packets whose record states fewer bytes than their IP header, and no more
	// than it has. Their length is that of the IP header.
	Lengthened int
	// Skipped counts the packets that could not be decoded, such as those of link types that
	// package conversations does not decode. No other count includes them.
	Skipped []pcap.Skip
	// Conversations are in order of their first packets.
	Conversations []*Conversation
	// Err is why the capture could not be read to its end; nil if it was.
	Err error
}

// Group counts packets that belong to no conversation for one reason.
type Group struct {
	Counts
	First string // what is wrong with the first, in detail; "" if the kind says it
}

// ends are two endpoints in an order that is independent of the direction.
type ends struct {
	low, high netip.AddrPort
	tcp       bool
}

func endsOf(s *segment) ends {
	if s.src.Compare(s.dst) < 0 {
		return ends{s.src, s.dst, s.tcp}
	}
	return ends{s.dst, s.src, s.tcp}
}

// ReadFile reads the capture at path. For a damaged capture it returns the readable part,
// and the error in both results. The capture is nil only if nothing could be read.
func ReadFile(ctx context.Context, path string, o Options) (*Capture, error) {
	r, err := pcap.Open(path)
	if err != nil {
		return nil, err
	}
	c, err := Read(ctx, r, o)
	if c != nil {
		c.Path = path
	}
	return c, errors.Join(err, r.Close())
}

// Read reads a capture to its end or to the first error, which it returns together with the
// packets before it. It also returns the cause of a cancelled ctx.
func Read(ctx context.Context, r *pcap.Reader, o Options) (*Capture, error) {
	o, err := o.check()
	if err != nil {
		return nil, err
	}
	r.Accept(links...)
	c := &Capture{Format: r.Format(), Other: map[string]*Group{}}
	var (
		d       decoder
		s       segment
		current = map[ends]*Conversation{}
		key     ends
		at      *Conversation // conversation of key
		streams = map[string]int{}
		per     []Counts // counts per interface
	)
	for {
		p, err := r.Next()
		if err == nil && c.Packets%4096 == 0 {
			err = context.Cause(ctx)
		}
		if err != nil {
			if err != io.EOF {
				c.Err = err
			}
			break
		}
		if c.Packets == 0 {
			c.First, c.Last = p.Stamp, p.Stamp
		}
		c.First, c.Last = min(c.First, p.Stamp), max(c.Last, p.Stamp)
		other := d.decode(&s, r.LinkType(p.Interface), p.Data, p.Len)
		c.Counts.add(d.frame)
		for p.Interface >= len(per) {
			per = append(per, Counts{})
		}
		per[p.Interface].add(d.frame)
		if d.frame > p.Len {
			c.Lengthened++
		}
		if other != "" {
			if c.Other[other] == nil {
				c.Other[other] = &Group{}
				if d.contradiction != nil {
					c.Other[other].First = d.contradiction()
				}
			}
			c.Other[other].add(d.frame)
			continue
		}
		if k := endsOf(&s); at == nil || k != key {
			key, at = k, current[k]
		}
		if at == nil || at.superseded(&s) {
			at = begin(&s, p.Stamp, streams)
			current[key] = at
			c.Conversations = append(c.Conversations, at)
		}
		at.add(&s, p.Stamp, d.frame, o)
	}
	c.Skipped = r.Skipped()
	facts := r.Facts()
	for i, f := range r.Interfaces() {
		c.Interfaces = append(c.Interfaces, Interface{Interface: f, Facts: facts[i]})
		if i < len(per) {
			c.Interfaces[i].Counts = per[i]
		}
	}
	c.Stats, c.HasStats = r.Stats()
	if m, ok := r.Meta(); ok {
		c.Meta = &m
	}
	return c, c.Err
}

// begin returns the conversation that s begins.
func begin(s *segment, stamp int64, streams map[string]int) *Conversation {
	c := &Conversation{Protocol: UDP, A: s.src, B: s.dst, From: stamp, To: stamp}
	if s.tcp {
		c.Protocol = TCP
		if s.flags&(flagSYN|flagACK) == flagSYN|flagACK {
			c.A, c.B = s.dst, s.src
		}
	}
	c.Stream = streams[c.Protocol]
	streams[c.Protocol]++
	return c
}

// Others returns the kinds of Other, most packets first.
func (c *Capture) Others() []string {
	return slices.SortedFunc(maps.Keys(c.Other), func(a, b string) int {
		return cmp.Or(c.Other[b].Packets-c.Other[a].Packets, strings.Compare(a, b))
	})
}
