package pcap

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"time"

	"testbed/topo/units"
)

// ErrTruncated is matched by the error of Next at the end of a capture that was
// not closed, as when its writer was killed: all that comes before the cut has
// been returned.
var ErrTruncated = errors.New("capture is cut off")

// ErrDamaged is matched by the error of Next, Open and NewReader on bytes that
// are not a capture as this package understands it.
var ErrDamaged = errors.New("not a readable capture")

// Error says where a capture ends early or stops making sense. It matches
// ErrTruncated or ErrDamaged.
type Error struct {
	Kind   error  // ErrTruncated or ErrDamaged
	Path   string // as Open was given it; "" where NewReader was called
	Offset int64  // of the block or record concerned, in bytes from the start of the file
	Reason string

	format string // "pcapng" or "pcap"
}

func (e *Error) Error() string {
	if e.Path == "" {
		return e.Local()
	}
	return e.Path + ": " + e.Local()
}

// Local is the error without the path of the file, for what must read the same
// wherever the file is.
func (e *Error) Local() string {
	return fmt.Sprintf("%s: %v at byte %d: %s", e.format, e.Kind, e.Offset, e.Reason)
}

func (e *Error) Unwrap() error { return e.Kind }

// Limits of what is read. A damaged file states any length, so none is allocated
// for: the buffer alone holds packets.
const (
	// readBuffer is the buffer of a Reader in bytes: large enough that system calls
	// cost little, small enough to stay in a processor's cache.
	readBuffer = 256 << 10
	// maxBlock is the longest block or record that is read, bytes. Ethernet frames
	// have at most 64 KiB, and programs capture at most 256 KiB of what offloads make
	// of them; a comment has at most 64 KiB. Blocks that do not concern us are
	// skipped, however long.
	maxBlock = 1 << 20
	// maxInterfaces is the most interfaces of one file: those of a thousand sections
	// of a switch each.
	maxInterfaces = 1 << 16
	// maxLength is the longest packet, bytes on the wire.
	maxLength = 1 << 30
)

// linkEthernet is the link type of Ethernet.
const linkEthernet = 1

// linkTypes are the names of those that are met most often
// (https://www.tcpdump.org/linktypes.html).
var linkTypes = map[uint32]string{0: "BSD loopback", 9: "PPP", 101: "raw IP", 105: "IEEE 802.11", 113: "Linux cooked", 127: "radiotap",
	228: "raw IPv4", 229: "raw IPv6", 276: "Linux cooked v2"}

// Packet is one packet of a capture. Its stamp is a number because millions of
// them are read.
type Packet struct {
	Interface int    // index into Reader.Interfaces
	Stamp     int64  // Unix nanoseconds
	Data      []byte // what was kept of it; valid until the next call of Next
	Len       int    // its length on the wire
}

// Time is the packet's stamp.
func (p *Packet) Time() time.Time { return time.Unix(0, p.Stamp) }

// Skip is packets that Next passed over.
type Skip struct {
	Why     string // such as "of link type 113 (Linux cooked)"
	Packets uint64
}

// Reasons of skips that do not depend on the link type.
const (
	skipSimple = "in simple packet blocks, which have no time stamp"
	skipStamp  = "with a time stamp outside of the years 1970 to 2262"
)

// interfaceState is an interface and how to read its packets.
type interfaceState struct {
	Interface
	clock
	plain  bool   // Ethernet, nanoseconds, no offset
	skip   string // why its packets are skipped; "" for not at all
	ours   bool   // of a section with Meta
	closed bool   // has a statistics block
	facts  Facts
}

// clock says what stamps count in.
type clock struct {
	times  uint64 // nanoseconds in one unit; 0 where that is no whole number
	per    uint64 // units in a nanosecond, where times is 0; 0 where binary
	binary uint   // units are 2^-binary s, where both are 0
	offset int64  // seconds to add
}

// nanos is a stamp in Unix nanoseconds; ok is false where that does not fit, or is
// before 1970.
func (c *clock) nanos(stamp uint64) (ns int64, ok bool) {
	const second = 1_000_000_000
	switch {
	case c.times > 0:
		if stamp > math.MaxInt64/c.times {
			return 0, false
		}
		ns = int64(stamp * c.times)
	case c.per > 0:
		ns = int64(stamp / c.per)
	default:
		sec, rest := stamp>>c.binary, stamp&(1<<c.binary-1)
		if sec >= math.MaxInt64/second {
			return 0, false
		}
		// rest is less than 2^binary, so its share of a second is less than one.
		ns = int64(sec*second) + shareOf(rest, second, c.binary)
	}
	if c.offset == 0 {
		return ns, ns >= 0
	}
	if c.offset > math.MaxInt64/second || c.offset < -math.MaxInt64/second {
		return 0, false
	}
	add := c.offset * second
	if add > 0 && ns > math.MaxInt64-add {
		return 0, false
	}
	ns += add
	return ns, ns >= 0
}

// Reader reads one capture. It is for one goroutine.
type Reader struct {
	src    io.Reader
	closer io.Closer
	path   string
	buf    []byte // what is read and not yet consumed is buf[at:end]
	at     int
	end    int
	base   int64 // of buf[0], in bytes from the start of the file
	offset int64 // of the block being read
	srcErr error // that src ended with, io.EOF included
	err    error // what Next goes on returning

	big        bool // byte order
	record     int  // length of a record's head in the older format; 0 for pcapng
	interfaces []interfaceState
	meta       Meta
	hasMeta    bool
	stats      Stats
	hasStats   bool
	skipped    []Skip
	skipAt     map[string]int

	// Of the section of pcapng being read:
	first      int   // its first interface
	sectionEnd int64 // as it states it; 0 where it does not
	ours       bool  // it has Meta
}

// Open opens the capture at path. The caller must call Close.
func Open(path string) (*Reader, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open capture: %w", err)
	}
	r, err := newReader(f, path)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open capture: %w", err), f.Close())
	}
	r.closer = f
	return r, nil
}

// NewReader reads the head of the capture in r.
func NewReader(r io.Reader) (*Reader, error) { return newReader(r, "") }

func newReader(r io.Reader, path string) (*Reader, error) {
	p := &Reader{src: r, path: path, buf: make([]byte, readBuffer)}
	ok, err := p.need(4)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, p.truncated("it is shorter than a file header; was the capture ever started?")
	}
	magic := binary.LittleEndian.Uint32(p.buf)
	if magic == sectionHeader {
		_, _, err = p.block()
	} else {
		err = p.classic(magic)
	}
	if err != nil {
		return nil, err
	}
	return p, nil
}

func (p *Reader) truncated(format string, args ...any) error {
	return p.bad(ErrTruncated, format, args)
}

func (p *Reader) damaged(format string, args ...any) error {
	return p.bad(ErrDamaged, format, args)
}

func (p *Reader) bad(kind error, format string, args []any) error {
	e := &Error{Kind: kind, Path: p.path, Offset: p.offset, Reason: fmt.Sprintf(format, args...), format: "pcapng"}
	if p.record > 0 {
		e.format = "pcap"
	}
	return e
}

// need makes the buffer hold n unread bytes; ok is false where the file ends
// before. n is at most maxBlock.
func (p *Reader) need(n int) (ok bool, err error) {
	if p.end-p.at >= n {
		return true, nil
	}
	p.base += int64(p.at)
	if n > len(p.buf) {
		larger := make([]byte, maxBlock)
		copy(larger, p.buf[p.at:p.end])
		p.buf, p.at, p.end = larger, 0, p.end-p.at
	} else {
		p.at, p.end = 0, copy(p.buf, p.buf[p.at:p.end])
	}
	for idle := 0; p.end < n && p.srcErr == nil; {
		got, err := p.src.Read(p.buf[p.end:])
		if p.end += got; got > 0 {
			idle = 0
		} else if idle++; idle == 100 && err == nil {
			err = io.ErrNoProgress
		}
		p.srcErr = err
	}
	switch {
	case p.end >= n:
		return true, nil
	case p.srcErr == io.EOF:
		return false, nil
	}
	if p.path != "" {
		return false, fmt.Errorf("read capture %s at byte %d: %w", p.path, p.base+int64(p.end), p.srcErr)
	}
	return false, fmt.Errorf("read capture at byte %d: %w", p.base+int64(p.end), p.srcErr)
}

// discard passes over n bytes, which may be more than the buffer holds; ok is
// false where the file ends before.
func (p *Reader) discard(n int64) (ok bool, err error) {
	for n > int64(p.end-p.at) {
		n -= int64(p.end - p.at)
		p.base += int64(p.end)
		p.at, p.end = 0, 0
		if ok, err := p.need(1); !ok || err != nil {
			return false, err
		}
	}
	p.at += int(n)
	return true, nil
}

// Meta is what the capture says it is of; ok is false where it does not say, as
// in captures of other programs.
func (p *Reader) Meta() (m Meta, ok bool) { return p.meta, p.hasMeta }

// Interfaces are those described so far, of all sections: all of them once Next
// has returned a packet of the last. The older format has one, without a name.
func (p *Reader) Interfaces() []Interface {
	out := make([]Interface, len(p.interfaces))
	for i := range p.interfaces {
		out[i] = p.interfaces[i].Interface
	}
	return out
}

// Stats are the sums over the statistics blocks; known is false before Next has
// come past one that has numbers, which writers put at the end.
func (p *Reader) Stats() (s Stats, known bool) { return p.stats, p.hasStats }

// Drops is how many packets the kernel lost; known is as in Stats.
func (p *Reader) Drops() (n uint64, known bool) { return p.stats.Dropped, p.hasStats }

// Skipped are the packets that Next has passed over so far, by reason, in the
// order in which the reasons came up: captures of this package have none.
func (p *Reader) Skipped() []Skip { return append([]Skip(nil), p.skipped...) }

func (p *Reader) skip(why string) {
	i, ok := p.skipAt[why]
	if !ok {
		if p.skipAt == nil {
			p.skipAt = map[string]int{}
		}
		i = len(p.skipped)
		p.skipped = append(p.skipped, Skip{Why: why})
		p.skipAt[why] = i
	}
	p.skipped[i].Packets++
}

// skipType is why packets of a link type are skipped.
func skipType(link uint32) string {
	switch name, ok := linkTypes[link]; {
	case link == linkEthernet:
		return ""
	case ok:
		return fmt.Sprintf("of link type %d (%s)", link, name)
	}
	return fmt.Sprintf("of link type %d", link)
}

// Next returns the next packet; its Data are valid until the call after. At the
// end of a capture that is whole it returns io.EOF, otherwise an *Error that
// matches ErrTruncated or ErrDamaged, or the error of the underlying reader. A
// capture with Meta is whole when it was closed, any other when it does not
// end within a block.
func (p *Reader) Next() (Packet, error) {
	if p.err != nil {
		return Packet{}, p.err
	}
	var one [1]Packet
	for {
		if p.plain(one[:]) == 1 {
			return one[0], nil
		}
		if ok, err := p.step(&one[0]); ok || err != nil {
			return one[0], err
		}
	}
}

// Batch fills to with the packets that follow, as many as there is room for and the
// reader holds at once, and returns how many: at least one, unless there is an error
// or no room. Their Data are valid until the next call of Batch or Next. Errors are
// those of Next, after the packets that come before them.
func (p *Reader) Batch(to []Packet) (int, error) {
	n := 0
	for n < len(to) {
		if p.err != nil {
			if n > 0 {
				break
			}
			return 0, p.err
		}
		if got := p.plain(to[n:]); got > 0 {
			n += got
			continue
		}
		// Reading on would overwrite what is returned.
		if n > 0 && !p.holds() {
			break
		}
		if ok, _ := p.step(&to[n]); ok {
			n++
		}
	}
	return n, nil
}

// Offset is how far into the capture Next and Batch have come, bytes.
func (p *Reader) Offset() int64 { return p.base + int64(p.at) }

// plain takes the packets at hand that the buffer holds and nothing is wrong or
// unusual with, which most are, and returns how many.
func (p *Reader) plain(to []Packet) (n int) {
	if p.record > 0 || p.big {
		return 0
	}
	first, interfaces := uint64(p.first), p.interfaces
	b := p.buf[p.at:p.end]
	for n < len(to) && len(b) >= minPacketBlock && binary.LittleEndian.Uint32(b) == enhancedPacket {
		size := uint(binary.LittleEndian.Uint32(b[4:]))
		if size < minPacketBlock || size%4 != 0 || size > uint(len(b)) || binary.LittleEndian.Uint32(b[size-4:]) != uint32(size) {
			break
		}
		i := first + uint64(binary.LittleEndian.Uint32(b[8:]))
		stamp := uint64(binary.LittleEndian.Uint32(b[12:]))<<32 | uint64(binary.LittleEndian.Uint32(b[16:]))
		kept, length := uint(binary.LittleEndian.Uint32(b[20:])), uint(binary.LittleEndian.Uint32(b[24:]))
		if i >= uint64(len(interfaces)) || !interfaces[i].plain || stamp > math.MaxInt64 || kept > size-minPacketBlock || kept > length || length > maxLength {
			break
		}
		to[n] = Packet{Interface: int(i), Stamp: int64(stamp), Data: b[28 : 28+kept : 28+kept], Len: int(length)}
		n++
		b = b[size:]
	}
	p.at = p.end - len(b)
	return n
}

// step reads one block or record into to; ok tells that it was a packet which is not
// skipped. An error is kept, for Next to go on returning.
func (p *Reader) step(to *Packet) (ok bool, err error) {
	if p.record > 0 {
		*to, ok, err = p.nextRecord()
	} else {
		*to, ok, err = p.nextBlock()
	}
	p.err = err
	return ok, err
}

// holds tells whether the buffer has all of the next block or record, so that step
// leaves the buffer as it is.
func (p *Reader) holds() bool {
	b := p.buf[p.at:p.end]
	switch {
	case p.record > 0:
		return len(b) >= p.record && uint64(len(b)) >= uint64(p.record)+uint64(p.uint32(b[8:]))
	case len(b) < 12 || p.uint32(b) == sectionHeader: // which may change the byte order
		return false
	}
	return uint64(len(b)) >= uint64(p.uint32(b[4:]))
}

// uint16, uint32 and uint64 beat a call through binary.ByteOrder, which does not
// inline.
func (p *Reader) uint16(b []byte) uint16 {
	if p.big {
		return binary.BigEndian.Uint16(b)
	}
	return binary.LittleEndian.Uint16(b)
}

func (p *Reader) uint32(b []byte) uint32 {
	if p.big {
		return binary.BigEndian.Uint32(b)
	}
	return binary.LittleEndian.Uint32(b)
}

func (p *Reader) uint64(b []byte) uint64 {
	if p.big {
		return binary.BigEndian.Uint64(b)
	}
	return binary.LittleEndian.Uint64(b)
}

// Close closes the file that Open opened. It can be called again.
func (p *Reader) Close() error {
	if p.closer == nil {
		return nil
	}
	c := p.closer
	p.closer = nil
	return c.Close()
}

// speed is a number of bits a second as a Rate; 0 where it does not fit.
func speed(bits uint64) units.Rate {
	if bits > math.MaxInt64 {
		return 0
	}
	return units.Rate(bits)
}
