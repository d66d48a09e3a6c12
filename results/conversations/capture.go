package conversations

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

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
	// Lanes is the number of goroutines among which the conversations of a capture are shared;
	// at most 1 means none. The result does not depend on it.
	Lanes int
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
	lanes := make([]*lane, max(1, o.Lanes))
	for i := range lanes {
		lanes[i] = newLane(o)
	}
	if len(lanes) == 1 {
		c.Err = readAlone(ctx, r, lanes[0])
	} else {
		c.Err = readShared(ctx, r, lanes)
	}
	per := c.merge(lanes)
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

// Packets that are read at once: few, which stay in the processor's cache, or all in a reader's buffer.
const (
	aloneLen  = 128
	sharedLen = 4096
)

// readAlone reads a capture to its end or to the first error, which it returns.
func readAlone(ctx context.Context, r *pcap.Reader, l *lane) error {
	list := make([]pcap.Packet, aloneLen)
	for number := 0; ; {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		n, err := r.Batch(list)
		if err != nil {
			return ended(err)
		}
		for i := range list[:n] {
			l.packet(&list[i], r.LinkType(list[i].Interface), number)
			number++
		}
	}
}

// ended returns nil for the end of a complete capture, else err.
func ended(err error) error {
	if err == io.EOF {
		return nil
	}
	return err
}

// block is a part of a capture with its packets by lane.
type block struct {
	buf   []byte
	list  []pcap.Packet
	first int             // number of the first packet
	links []pcap.LinkType // of interfaces
	of    [][]uint16      // indexes of packets, by lane
	left  atomic.Int32    // lanes that have not processed their packets
}

// readShared does what readAlone does, with a goroutine for each lane.
func readShared(ctx context.Context, r *pcap.Reader, lanes []*lane) error {
	blocks := len(lanes) + 1 // one is being read
	free := make(chan *block, blocks)
	for range blocks {
		free <- &block{list: make([]pcap.Packet, sharedLen), of: make([][]uint16, len(lanes))}
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	queues := make([]chan *block, len(lanes))
	for i, l := range lanes {
		queue := make(chan *block, blocks)
		queues[i] = queue
		defer close(queue)
		wg.Go(func() {
			for b := range queue {
				for _, k := range b.of[i] {
					p := &b.list[k]
					l.packet(p, b.links[p.Interface], b.first+int(k))
				}
				if b.left.Add(-1) == 0 {
					free <- b
				}
			}
		})
	}
	by := sharer{lanes: len(lanes)}
	var links []pcap.LinkType
	for number := 0; ; {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		b := <-free
		n, err := r.Batch(b.list)
		if err != nil {
			return ended(err)
		}
		for i := range b.of {
			b.of[i] = b.of[i][:0]
		}
		for i := range b.list[:n] {
			p := &b.list[i]
			for len(links) <= p.Interface {
				links = append(links, r.LinkType(len(links)))
			}
			to := by.lane(p, links[p.Interface])
			b.of[to] = append(b.of[to], uint16(i))
		}
		b.first, b.links = number, links
		number += n
		b.buf = r.Exchange(b.buf)
		b.left.Store(int32(len(lanes)))
		for _, queue := range queues {
			queue <- b
		}
	}
}

// merge sets what the lanes have counted. It returns the counts by interface.
func (c *Capture) merge(lanes []*lane) (per []Counts) {
	first := map[string]int{} // numbers of the first packets of kinds
	count := 0
	for _, l := range lanes {
		count += l.count
		if l.Packets == 0 {
			continue
		}
		if c.Packets == 0 {
			c.First, c.Last = l.first, l.last
		}
		c.First, c.Last = min(c.First, l.first), max(c.Last, l.last)
		c.Counts.sum(l.Counts)
		c.Lengthened += l.lengthened
		for i, n := range l.per {
			if i == len(per) {
				per = append(per, Counts{})
			}
			per[i].sum(n)
		}
		for name, k := range l.other {
			g := c.Other[name]
			if g == nil {
				g = &Group{First: k.First}
				c.Other[name], first[name] = g, k.number
			}
			if k.number < first[name] {
				g.First, first[name] = k.First, k.number
			}
			g.sum(k.Counts)
		}
	}
	c.Conversations = make([]*Conversation, 0, count)
	streams := map[bool]int{}
	for next := make([]int, len(lanes)); len(c.Conversations) < count; {
		var v *Conversation
		of := 0
		for i, l := range lanes {
			if next[i] == l.count {
				continue
			}
			if w := l.at(next[i]); v == nil || w.Stream < v.Stream {
				v, of = w, i
			}
		}
		next[of]++
		v.Stream = streams[v.tcp]
		streams[v.tcp]++
		c.Conversations = append(c.Conversations, v)
	}
	return per
}

// Others returns the kinds of Other, most packets first.
func (c *Capture) Others() []string {
	return slices.SortedFunc(maps.Keys(c.Other), func(a, b string) int {
		return cmp.Or(c.Other[b].Packets-c.Other[a].Packets, strings.Compare(a, b))
	})
}
