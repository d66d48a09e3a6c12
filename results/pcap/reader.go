package pcap

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"testbed/results/safefile"
	"testbed/topo/units"
)

// ErrTruncated is matched by the error of Next at the end of a capture that was not
// closed, for example because its writer was killed. Next has returned all packets before
// that point.
var ErrTruncated = errors.New("capture is cut off")

// ErrDamaged is matched by the error of Next, Open and NewReader for bytes that are not a
// capture in a supported format.
var ErrDamaged = errors.New("not a readable capture")

// Error reports the place at which a capture is truncated or damaged. It matches
// ErrTruncated or ErrDamaged.
type Error struct {
	Kind   error  // ErrTruncated or ErrDamaged
	Path   string // argument of Open; "" if NewReader was called
	Offset int64  // of the block or record, in bytes from the start of the file
	Reason string

	format string // "pcapng" or "pcap"
}

func (e *Error) Error() string {
	if e.Path == "" {
		return e.Local()
	}
	return e.Path + ": " + e.Local()
}

// Local returns the error text without the path of the file, for output that must not
// depend on where the file is.
func (e *Error) Local() string {
	return fmt.Sprintf("%s: %v at byte %d: %s", e.format, e.Kind, e.Offset, e.Reason)
}

func (e *Error) Unwrap() error { return e.Kind }

// Limits of the reader. A damaged file may state any length, so memory is never allocated
// by stated lengths: only the buffer holds packets.
const (
	// readBuffer is the size of a Reader's buffer in bytes: large enough for few system
	// calls, small enough for a processor's cache.
	readBuffer = 256 << 10
	// maxBlock is the longest block or record that is read, bytes. Ethernet frames
	// have at most 64 KiB, programs capture at most 256 KiB of frames merged by offloads,
	// and a comment has at most 64 KiB. Blocks of other types are skipped at any length.
	maxBlock = 1 << 20
	// maxInterfaces is the maximum number of interfaces of a file, enough for a thousand
	// sections of one switch each.
	maxInterfaces = 1 << 16
	// maxLength is the longest packet, bytes on the wire.
	maxLength = 1 << 30
)

// Packet is one packet of a capture. Its timestamp is a number and not a time.Time for
// speed, because captures have millions of packets.
type Packet struct {
	Interface int    // index into Reader.Interfaces
	Stamp     int64  // Unix nanoseconds
	Data      []byte // captured bytes; valid until the next call of Next
	// Len is the length on the wire as the record states it, bytes, without the frame check
	// sequence. It may be less than that of Data: some programs write such records.
	Len int
}

// Time returns the packet's timestamp.
func (p *Packet) Time() time.Time { return time.Unix(0, p.Stamp) }

// Skip counts packets that Next skipped for one reason.
type Skip struct {
	Why     string // such as "of link type 113 (Linux cooked)"
	Packets uint64
}

// Reasons of skips that do not depend on the link type.
const (
	skipSimple = "in simple packet blocks, which have no time stamp"
	skipStamp  = "with a time stamp outside of the years 1970 to 2262"
)

// interfaceState is an interface with the state for reading its packets.
type interfaceState struct {
	Interface
	clock
	plain  bool   // accepted, nanoseconds, no offset, no check sequence
	fcs    int    // length of the frame check sequence in its packets, bytes
	skip   string // reason why its packets are skipped; "" if they are not
	ours   bool   // in a section with Meta
	closed bool   // has a statistics block
	facts  Facts
}

// clock is the time unit of timestamps.
type clock struct {
	times  uint64 // nanoseconds per unit; 0 if that is not a whole number
	per    uint64 // units per nanosecond if times is 0; 0 for binary units
	binary uint   // units are 2^-binary s if times and per are 0
	offset int64  // seconds to add
}

// nanos converts a timestamp to Unix nanoseconds. ok is false if that overflows or is
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

// Reader reads one capture. It is for use by one goroutine.
type Reader struct {
	src    io.Reader
	packed *compressed // src if the file is compressed, else nil
	closer io.Closer
	path   string
	buf    []byte // buf[at:end] is read and not yet consumed
	at     int
	end    int
	base   int64 // of buf[0], in bytes from the start of the file
	offset int64 // of the block being read
	srcErr error // error that src returned, including io.EOF
	err    error // error that Next keeps returning

	big        bool // byte order
	record     int  // length of a record header in the older format; 0 for pcapng
	exchanged  bool // whether records may state the captured length after the real one
	accepted   []LinkType
	interfaces []interfaceState
	meta       Meta
	hasMeta    bool
	stats      Stats
	hasStats   bool
	skipped    []Skip
	skipAt     map[string]int

	// Of the section of pcapng being read:
	first      int   // index of its first interface
	sectionEnd int64 // offset of its end; 0 if not stated
	ours       bool  // whether it has Meta
}

// Open opens the capture at path. The caller must call Close.
func Open(path string) (*Reader, error) {
	f, err := safefile.Open(path)
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

// NewReader returns a Reader of the capture in r, whose file header it reads.
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
	if ok, err = p.decompress(); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	if !ok {
		return nil, errors.Join(p.truncated("it holds less than a file header"), p.Close())
	}
	if first := binary.LittleEndian.Uint32(p.buf); first == sectionHeader {
		_, _, err = p.block()
	} else {
		err = p.classic(first)
	}
	if err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// decompress switches to the content of the file if it is compressed. The buffer has its
// beginning. ok is false if the content has fewer than 4 bytes.
func (p *Reader) decompress() (ok bool, err error) {
	head, rest := bytes.Clone(p.buf[:p.end]), p.src
	if p.srcErr != nil {
		rest = failing{p.srcErr}
	}
	if p.packed, err = decompress(head, io.MultiReader(bytes.NewReader(head), rest)); err != nil || p.packed == nil {
		return true, err
	}
	p.src, p.srcErr, p.end = p.packed, nil, 0
	return p.need(4)
}

// failing is a reader that returns an error.
type failing struct{ error }

func (f failing) Read([]byte) (int, error) { return 0, f.error }

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

// need fills the buffer with at least n unread bytes, n ≤ maxBlock. ok is false if the file
// ends before.
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
	case p.packed != nil && p.packed.file.err == nil:
		p.offset = p.base + int64(p.end)
		if errors.Is(p.srcErr, io.ErrUnexpectedEOF) {
			return false, p.truncated("its compressed file ends after %d bytes (offsets count bytes of the uncompressed capture)", p.packed.file.n)
		}
		return false, p.damaged("its compressed file cannot be decoded after %d bytes: %s (offsets count bytes of the uncompressed capture)", p.packed.file.n, p.packed.reason())
	}
	if p.path != "" {
		return false, fmt.Errorf("read capture %s at byte %d: %w", p.path, p.base+int64(p.end), p.srcErr)
	}
	return false, fmt.Errorf("read capture at byte %d: %w", p.base+int64(p.end), p.srcErr)
}

// discard skips n bytes, which may be more than the buffer holds. ok is false if the file
// ends before.
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

// Meta returns the description of the run in the capture. ok is false if it has none, as in
// captures of other programs.
func (p *Reader) Meta() (m Meta, ok bool) { return p.meta, p.hasMeta }

// Interfaces returns the interfaces described so far in all sections, which is all of them
// once Next has returned a packet of the last one. The older format has one interface,
// without a name.
func (p *Reader) Interfaces() []Interface {
	out := make([]Interface, len(p.interfaces))
	for i := range p.interfaces {
		out[i] = p.interfaces[i].Interface
	}
	return out
}

// Stats returns the sums over the statistics blocks. known is false until Next has passed a
// statistics block with counts, which writers put at the end.
func (p *Reader) Stats() (s Stats, known bool) { return p.stats, p.hasStats }

// Drops returns the number of packets that the kernel lost; known is as in Stats.
func (p *Reader) Drops() (n uint64, known bool) { return p.stats.Dropped, p.hasStats }

// Skipped returns the packets that Next has skipped so far, by reason, in the order of the
// first packet. Captures written by this package have none.
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

// setSkip sets whether packets of an interface are skipped and how they are read.
func (p *Reader) setSkip(i *interfaceState) {
	i.skip = ""
	if i.facts.LinkType != LinkEthernet && !slices.Contains(p.accepted, i.facts.LinkType) {
		i.skip = i.facts.LinkType.skip()
	}
	i.plain = i.skip == "" && i.times == 1 && i.offset == 0 && i.fcs == 0
}

// withoutFCS removes the frame check sequence from a packet.
func (i *interfaceState) withoutFCS(p Packet) Packet {
	if i.fcs > 0 {
		p.Data = p.Data[:min(len(p.Data), max(p.Len-i.fcs, len(p.Data)-i.fcs, 0))]
		p.Len = max(p.Len-i.fcs, 0)
	}
	return p
}

// Next returns the next packet, whose Data are valid until the next call. At the end of a
// complete capture it returns io.EOF, otherwise an *Error that matches ErrTruncated or
// ErrDamaged, or the error of the underlying reader. A capture with Meta is complete if it
// was closed, any other if it does not end within a block.
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

// Batch fills to with the next packets, as far as the reader's buffer has them, and returns
// their number: at least one, unless to is empty or there is an error. Their Data are valid
// until the next call of Batch or Next. It returns the errors of Next, after the packets
// before them.
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
		// Reading more would overwrite the packets to return.
		if n > 0 && !p.holds() {
			break
		}
		if ok, _ := p.step(&to[n]); ok {
			n++
		}
	}
	return n, nil
}

// Exchange replaces the reader's buffer with spare, or a new one if spare is too short, and returns the buffer
// that has the Data of the packets returned so far: they are valid until the caller changes it.
func (p *Reader) Exchange(spare []byte) []byte {
	if len(spare) < len(p.buf) {
		spare = make([]byte, len(p.buf))
	}
	held := p.buf
	p.base += int64(p.at)
	p.buf, p.at, p.end = spare, 0, copy(spare, held[p.at:p.end])
	return held
}

// Offset returns the number of bytes of the file that Next and Batch have read. For a
// compressed file it counts compressed bytes.
func (p *Reader) Offset() int64 {
	if p.packed != nil {
		return p.packed.file.n
	}
	return p.base + int64(p.at)
}

// Compressed reports whether the file is compressed.
func (p *Reader) Compressed() bool { return p.packed != nil }

// plain is the fast path of Batch: it reads the next packets from the buffer, up to the
// first that is incomplete, unusual or damaged, and returns their number.
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

// step reads one block or record into to. ok is false if it is not a packet or is skipped.
// Next keeps returning an error of step.
func (p *Reader) step(to *Packet) (ok bool, err error) {
	if p.record > 0 {
		*to, ok, err = p.nextRecord()
	} else {
		*to, ok, err = p.nextBlock()
	}
	p.err = err
	return ok, err
}

// holds reports whether the buffer has the whole next block or record, so that step does
// not overwrite the buffer.
func (p *Reader) holds() bool {
	b := p.buf[p.at:p.end]
	switch {
	case p.record > 0:
		if len(b) < p.record {
			return false
		}
		kept, _ := p.lengths(b)
		return uint64(len(b)) >= uint64(p.record)+uint64(kept)
	case len(b) < 12 || p.uint32(b) == sectionHeader: // which may change the byte order
		return false
	}
	return uint64(len(b)) >= uint64(p.uint32(b[4:]))
}

// uint16, uint32 and uint64 are faster than binary.ByteOrder, whose calls are not inlined.
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
	if p.packed != nil {
		p.packed.close()
	}
	if p.closer == nil {
		return nil
	}
	c := p.closer
	p.closer = nil
	return c.Close()
}

// speed returns a number of bits per second as a Rate, or 0 if it overflows.
func speed(bits uint64) units.Rate {
	if bits > math.MaxInt64 {
		return 0
	}
	return units.Rate(bits)
}
