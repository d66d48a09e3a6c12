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

// DefaultHoles is how many gaps of a direction are kept where Options say nothing:
// more than a window of 64 KB has segments.
const DefaultHoles = 64

// Options bound the analysis.
type Options struct {
	// Holes is the most gaps in a direction that are kept apart, to tell which bytes
	// were seen. Beyond, the oldest is taken for filled. 0 is DefaultHoles.
	Holes int
}

func (o Options) check() (Options, error) {
	if o.Holes == 0 {
		o.Holes = DefaultHoles
	}
	if o.Holes < 1 {
		return o, fmt.Errorf("holes: %d, want at least 1, or 0 for %d", o.Holes, DefaultHoles)
	}
	return o, nil
}

// Interface is one interface of a capture.
type Interface struct {
	pcap.Interface
	pcap.Facts
	Counts // of packets that could be read
}

// Capture is what one capture holds.
type Capture struct {
	Path       string // as it was opened
	Format     string // as pcap.Reader.Format has it
	Interfaces []Interface
	Counts     // of all packets that could be read
	// First and Last are the earliest and latest stamp, Unix nanoseconds; 0 without
	// packets.
	First, Last int64
	Stats       pcap.Stats // what the kernel counted, where HasStats
	HasStats    bool
	Meta        *pcap.Meta // nil in captures of other programs
	// Other are the packets that belong to no conversation, by what they are.
	Other map[string]*Counts
	// Skipped are the packets that could not be looked into, such as those of other
	// links than Ethernet. They are in none of the counts.
	Skipped []pcap.Skip
	// Conversations are in order of their first packets.
	Conversations []*Conversation
	// Err is why the capture could not be read to its end, nil if it could.
	Err error
}

// ends are two endpoints in an order that does not depend on direction.
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

// ReadFile reads the capture at path. Where it is damaged, what could be read is in
// the answer, and the error in both. The answer is nil only where there was nothing
// to read.
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

// Read reads a capture to its end, or to where it cannot be read on: that error is
// returned beside what came before, and so is the cause of a cancelled ctx.
func Read(ctx context.Context, r *pcap.Reader, o Options) (*Capture, error) {
	o, err := o.check()
	if err != nil {
		return nil, err
	}
	c := &Capture{Format: r.Format(), Other: map[string]*Counts{}}
	var (
		d       = newDecoder()
		s       segment
		current = map[ends]*Conversation{}
		key     ends
		at      *Conversation // of key
		streams = map[string]int{}
		per     []Counts // of interfaces
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
		c.Counts.add(p.Len)
		for p.Interface >= len(per) {
			per = append(per, Counts{})
		}
		per[p.Interface].add(p.Len)
		if other := d.decode(&s, p.Data, p.Len); other != "" {
			if c.Other[other] == nil {
				c.Other[other] = &Counts{}
			}
			c.Other[other].add(p.Len)
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
		at.add(&s, p.Stamp, p.Len, o)
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

// begin is the conversation that s begins.
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

// Others are the kinds of Other, most packets first.
func (c *Capture) Others() []string {
	return slices.SortedFunc(maps.Keys(c.Other), func(a, b string) int {
		return cmp.Or(c.Other[b].Packets-c.Other[a].Packets, strings.Compare(a, b))
	})
}
