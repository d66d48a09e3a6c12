package pcap

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
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
	Kind   error // ErrTruncated or ErrDamaged
	Offset int64 // of the block concerned, in bytes from the start of the file
	Reason string
}

func (e *Error) Error() string {
	return fmt.Sprintf("pcapng: %v at byte %d: %s", e.Kind, e.Offset, e.Reason)
}

func (e *Error) Unwrap() error { return e.Kind }

// Block types and option codes of the format.
const (
	sectionHeader  = 0x0A0D0D0A
	interfaceBlock = 1
	oldPacket      = 2
	simplePacket   = 3
	statistics     = 5
	enhancedPacket = 6

	byteOrderMagic = 0x1A2B3C4D

	optEnd         = 0
	optComment     = 1
	optName        = 2  // of an interface
	optResolution  = 9  // of an interface's stamps
	optOffset      = 14 // of an interface's stamps, seconds
	optReceived    = 4  // by an interface
	optDropped     = 5  // by an interface
	linkEthernet   = 1
	noNumber       = ^uint64(0)
	maxBlock       = 1 << 20 // longest block read, bytes; a comment has at most 64 KiB
	readBuffer     = maxBlock
	minBlock       = 12
	maxInterfaces  = 1 << 10
	fixedPacketLen = 20 // of an enhanced packet block, before its data
)

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

type interfaceState struct {
	Interface
	perSecond uint64 // stamps count in this fraction of a second
	offset    int64  // seconds to add
	closed    bool   // has a statistics block
}

// Reader reads one capture. It is for one goroutine.
type Reader struct {
	r          *bufio.Reader
	closer     io.Closer
	order      binary.ByteOrder
	big        bool
	meta       Meta
	hasMeta    bool
	interfaces []interfaceState
	stats      Stats
	hasStats   bool
	offset     int64 // of the block being read
	pending    int   // bytes of the block last returned, not yet discarded
	err        error // what Next goes on returning
}

// Open opens the capture at path. The caller must call Close.
func Open(path string) (*Reader, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open capture: %w", err)
	}
	r, err := NewReader(f)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open capture %s: %w", path, err), f.Close())
	}
	r.closer = f
	return r, nil
}

// NewReader reads the section header of the capture in r.
func NewReader(r io.Reader) (*Reader, error) {
	p := &Reader{r: bufio.NewReaderSize(r, readBuffer), order: binary.LittleEndian}
	head, err := p.r.Peek(12)
	if err != nil {
		if err == io.EOF {
			return nil, p.truncated("it is shorter than a section header; was the capture ever started?")
		}
		return nil, fmt.Errorf("pcapng: read section header: %w", err)
	}
	if binary.LittleEndian.Uint32(head) != sectionHeader {
		return nil, p.damaged("the first block is not a pcapng section header")
	}
	switch uint32(byteOrderMagic) {
	case binary.LittleEndian.Uint32(head[8:]):
	case binary.BigEndian.Uint32(head[8:]):
		p.order, p.big = binary.BigEndian, true
	default:
		return nil, p.damaged("the section header has no byte-order magic")
	}
	_, body, err := p.block()
	if err != nil {
		return nil, err
	}
	if len(body) < 16 {
		return nil, p.damaged("the section header is too short")
	}
	if major := p.order.Uint16(body[4:]); major != 1 {
		return nil, p.damaged("format version %d: this reader knows version 1", major)
	}
	err = p.options(body[16:], func(code uint16, value []byte) error {
		if code == optComment && !p.hasMeta && json.Unmarshal(value, &p.meta) == nil {
			p.hasMeta = true
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return p, nil
}

func (p *Reader) truncated(format string, args ...any) error {
	return &Error{Kind: ErrTruncated, Offset: p.offset, Reason: fmt.Sprintf(format, args...)}
}

func (p *Reader) damaged(format string, args ...any) error {
	return &Error{Kind: ErrDamaged, Offset: p.offset, Reason: fmt.Sprintf(format, args...)}
}

// Meta is what the capture says it is of; ok is false where it does not say, as
// in captures of other programs.
func (p *Reader) Meta() (m Meta, ok bool) { return p.meta, p.hasMeta }

// Interfaces are those described so far: all of them once Next has returned a
// packet of the last.
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

// Next returns the next packet; its Data are valid until the call after. At the
// end of a capture that was closed it returns io.EOF, otherwise an *Error that
// matches ErrTruncated or ErrDamaged, or the error of the underlying reader.
func (p *Reader) Next() (Packet, error) {
	if p.err != nil {
		return Packet{}, p.err
	}
	for {
		kind, body, err := p.block()
		if err != nil {
			p.err = err
			return Packet{}, err
		}
		switch kind {
		case enhancedPacket:
			pkt, err := p.packet(body)
			p.err = err
			return pkt, err
		case interfaceBlock:
			err = p.readInterface(body)
		case statistics:
			err = p.readStatistics(body)
		case sectionHeader:
			err = p.damaged("a second section: captures are read one host and one section at a time")
		case oldPacket, simplePacket:
			err = p.damaged("packet block of type %d: only enhanced packet blocks carry a full time stamp", kind)
		}
		if err != nil {
			p.err = err
			return Packet{}, err
		}
	}
}

// block returns the type and the body of the next block, without the lengths
// around it. The body is valid until the next call.
func (p *Reader) block() (kind uint32, body []byte, err error) {
	if p.pending > 0 {
		// Peeked whole, so it is in the buffer.
		if _, err := p.r.Discard(p.pending); err != nil {
			return 0, nil, fmt.Errorf("pcapng: %w", err)
		}
		p.offset += int64(p.pending)
		p.pending = 0
	}
	head, err := p.r.Peek(8)
	if err == io.EOF {
		return 0, nil, p.end(len(head))
	}
	if err != nil {
		return 0, nil, fmt.Errorf("pcapng: read at byte %d: %w", p.offset, err)
	}
	kind, size := p.uint32(head), p.uint32(head[4:])
	if size < minBlock || size%4 != 0 || size > maxBlock {
		return 0, nil, p.damaged("block of type %d states a length of %d bytes", kind, size)
	}
	whole, err := p.r.Peek(int(size))
	if err == io.EOF {
		return 0, nil, p.truncated("%d of the %d bytes of the last block are there", len(whole), size)
	}
	if err != nil {
		return 0, nil, fmt.Errorf("pcapng: read at byte %d: %w", p.offset, err)
	}
	if again := p.uint32(whole[size-4:]); again != size {
		return 0, nil, p.damaged("block of type %d states a length of %d bytes before and %d after its body", kind, size, again)
	}
	p.pending = int(size)
	return kind, whole[8 : size-4], nil
}

// end tells a capture that was closed from one that was not; left are the bytes
// after the last whole block.
func (p *Reader) end(left int) error {
	if left > 0 {
		return p.truncated("%d bytes of the head of a block are there", left)
	}
	for _, i := range p.interfaces {
		if !i.closed {
			return p.truncated("it ends without the statistics of interface %q: its writer did not close it", i.Name)
		}
	}
	if len(p.interfaces) == 0 {
		return p.truncated("it ends before the first interface")
	}
	return io.EOF
}

// uint32 and uint64 beat a call through binary.ByteOrder, which does not inline.
func (p *Reader) uint32(b []byte) uint32 {
	if p.big {
		return binary.BigEndian.Uint32(b)
	}
	return binary.LittleEndian.Uint32(b)
}

func (p *Reader) packet(body []byte) (Packet, error) {
	if len(body) < fixedPacketLen {
		return Packet{}, p.damaged("packet block of %d bytes", len(body))
	}
	index := p.uint32(body)
	if uint64(index) >= uint64(len(p.interfaces)) {
		return Packet{}, p.damaged("packet of interface %d; %d are described", index, len(p.interfaces))
	}
	kept, length := p.uint32(body[12:]), p.uint32(body[16:])
	if uint64(kept) > uint64(len(body)-fixedPacketLen) {
		return Packet{}, p.damaged("packet of %d captured bytes in a block that has room for %d", kept, len(body)-fixedPacketLen)
	}
	if kept > length || length > 1<<30 {
		return Packet{}, p.damaged("packet of %d captured bytes and a length of %d", kept, length)
	}
	stamp := uint64(p.uint32(body[4:]))<<32 | uint64(p.uint32(body[8:]))
	return Packet{
		Interface: int(index),
		Stamp:     p.interfaces[index].nanos(stamp),
		Data:      body[fixedPacketLen : fixedPacketLen+kept : fixedPacketLen+kept],
		Len:       int(length),
	}, nil
}

func (i *interfaceState) nanos(stamp uint64) int64 {
	const nanosecond = 1e9
	sec, rest := stamp/i.perSecond, stamp%i.perSecond
	return (int64(sec)+i.offset)*nanosecond + int64(rest*(nanosecond/i.perSecond))
}

func (p *Reader) readInterface(body []byte) error {
	if len(body) < 8 {
		return p.damaged("interface block of %d bytes", len(body))
	}
	if link := p.order.Uint16(body); link != linkEthernet {
		return p.damaged("interface of link type %d: only Ethernet (1) is read", link)
	}
	if len(p.interfaces) == maxInterfaces {
		return p.damaged("more than %d interfaces", maxInterfaces)
	}
	i := interfaceState{perSecond: 1e6} // what the format has where nothing is stated
	i.SnapLen = int(p.uint32(body[4:]))
	err := p.options(body[8:], func(code uint16, value []byte) error {
		switch code {
		case optName:
			i.Name = string(value)
		case optResolution:
			if len(value) != 1 || value[0] > 9 {
				return p.damaged("stamps of interface %q are not in a decimal fraction of a second down to nanoseconds", i.Name)
			}
			i.perSecond = 1
			for range value[0] {
				i.perSecond *= 10
			}
		case optOffset:
			if len(value) != 8 {
				return p.damaged("time offset of %d bytes, want 8", len(value))
			}
			i.offset = int64(p.order.Uint64(value))
		}
		return nil
	})
	if err != nil {
		return err
	}
	p.interfaces = append(p.interfaces, i)
	return nil
}

func (p *Reader) readStatistics(body []byte) error {
	if len(body) < 12 {
		return p.damaged("statistics block of %d bytes", len(body))
	}
	index := p.uint32(body)
	if uint64(index) >= uint64(len(p.interfaces)) {
		return p.damaged("statistics of interface %d; %d are described", index, len(p.interfaces))
	}
	received, dropped := uint64(noNumber), uint64(noNumber)
	err := p.options(body[12:], func(code uint16, value []byte) error {
		if code != optReceived && code != optDropped {
			return nil
		}
		if len(value) != 8 {
			return p.damaged("statistic of %d bytes, want 8", len(value))
		}
		if code == optReceived {
			received = p.order.Uint64(value)
		} else {
			dropped = p.order.Uint64(value)
		}
		return nil
	})
	if err != nil {
		return err
	}
	p.interfaces[index].closed = true
	if received != noNumber {
		p.stats.Received += received
	}
	if dropped != noNumber {
		p.stats.Dropped += dropped
		p.hasStats = true
	}
	return nil
}

// options calls f for each option of a block. value is valid during the call.
func (p *Reader) options(b []byte, f func(code uint16, value []byte) error) error {
	for len(b) >= 4 {
		code, size := p.order.Uint16(b), int(p.order.Uint16(b[2:]))
		if code == optEnd {
			return nil
		}
		padded := (size + 3) &^ 3
		if 4+padded > len(b) {
			return p.damaged("option %d of %d bytes does not fit into its block", code, size)
		}
		if err := f(code, b[4:4+size]); err != nil {
			return err
		}
		b = b[4+padded:]
	}
	if len(b) > 0 {
		return p.damaged("%d bytes after the last option of a block", len(b))
	}
	return nil
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
