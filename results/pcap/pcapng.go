package pcap

import (
	"encoding/json"
	"io"
	"math/bits"
)

// Block types and option codes of the format.
const (
	sectionHeader  = 0x0A0D0D0A // the same in both byte orders
	interfaceBlock = 1
	oldPacket      = 2
	simplePacket   = 3
	statistics     = 5
	enhancedPacket = 6

	byteOrderMagic = 0x1A2B3C4D

	optEnd         = 0
	optComment     = 1 // of any block
	optHardware    = 2 // of a section
	optOS          = 3
	optApplication = 4
	optName        = 2 // of an interface
	optDescription = 3
	optSpeed       = 8  // bit/s
	optResolution  = 9  // of its timestamps
	optFCS         = 13 // length of its frame check sequence
	optSystem      = 12 // operating system
	optOffset      = 14 // of its timestamps, seconds
	optReceived    = 4  // by an interface
	optDropped     = 5
	optFlags       = 2 // of a packet

	noNumber       = ^uint64(0)
	minBlock       = 12
	fixedPacketLen = 20 // of a packet block's body, before its data
	minPacketBlock = minBlock + fixedPacketLen
)

// nextBlock reads one block. ok is false if it is not a packet or the packet is skipped.
func (p *Reader) nextBlock() (pkt Packet, ok bool, err error) {
	kind, body, err := p.block()
	if err != nil {
		return Packet{}, false, err
	}
	switch kind {
	case enhancedPacket, oldPacket:
		return p.packet(kind, body)
	case simplePacket:
		p.skip(skipSimple)
	case interfaceBlock:
		err = p.readInterface(body)
	case statistics:
		err = p.readStatistics(body)
	}
	return Packet{}, false, err
}

// block returns the type and the body of the next block, without its two length fields.
// The body is valid until the next call. It processes section headers itself, because they
// state the byte order of lengths, and skips the bodies of blocks of other types.
func (p *Reader) block() (kind uint32, body []byte, err error) {
	p.offset = p.base + int64(p.at)
	ok, err := p.need(8)
	if err != nil {
		return 0, nil, err
	}
	if !ok {
		return 0, nil, p.finish(p.end - p.at)
	}
	kind = p.uint32(p.buf[p.at:])
	if kind == sectionHeader {
		if err := p.readOrder(); err != nil {
			return 0, nil, err
		}
	}
	size := p.uint32(p.buf[p.at+4:])
	if size < minBlock || size%4 != 0 {
		return 0, nil, p.damaged("block of type %d states a length of %d bytes", kind, size)
	}
	switch kind {
	case sectionHeader, interfaceBlock, oldPacket, simplePacket, statistics, enhancedPacket:
	default:
		return kind, nil, p.passOver(kind, size)
	}
	if size > maxBlock {
		return 0, nil, p.damaged("block of type %d states a length of %d bytes: at most %d are read", kind, size, maxBlock)
	}
	if ok, err = p.need(int(size)); err != nil {
		return 0, nil, err
	}
	whole := p.buf[p.at:p.end]
	if !ok {
		return 0, nil, p.truncated("%d of the %d bytes of the last block are there", len(whole), size)
	}
	whole = whole[:size]
	if again := p.uint32(whole[size-4:]); again != size {
		return 0, nil, p.damaged("block of type %d states a length of %d bytes before and %d after its body", kind, size, again)
	}
	p.at += int(size)
	body = whole[8 : size-4]
	if kind == sectionHeader {
		err = p.readSection(body)
	}
	return kind, body, err
}

// passOver skips a block of any length.
func (p *Reader) passOver(kind, size uint32) error {
	ok, err := p.discard(int64(size) - 4)
	if ok && err == nil {
		ok, err = p.need(4)
	}
	if err != nil {
		return err
	}
	if !ok {
		return p.truncated("%d of the %d bytes of the last block are there", p.base+int64(p.end)-p.offset, size)
	}
	if again := p.uint32(p.buf[p.at:]); again != size {
		return p.damaged("block of type %d states a length of %d bytes before and %d after its body", kind, size, again)
	}
	p.at += 4
	return nil
}

// finish distinguishes a complete capture from an incomplete one; left are the bytes
// after the last whole block.
func (p *Reader) finish(left int) error {
	if left > 0 {
		return p.truncated("%d bytes of the head of a block are there", left)
	}
	if p.sectionEnd > p.offset {
		return p.truncated("its last section goes on to byte %d", p.sectionEnd)
	}
	for i := range p.interfaces {
		if s := &p.interfaces[i]; s.ours && !s.closed {
			return p.truncated("it ends without the statistics of interface %q: its writer did not close it, or another program copied it without them", s.Name)
		}
	}
	if p.ours && p.first == len(p.interfaces) {
		return p.truncated("it ends before the first interface")
	}
	return io.EOF
}

// readOrder sets the byte order from the section header in the buffer.
func (p *Reader) readOrder() error {
	ok, err := p.need(12)
	if err != nil {
		return err
	}
	if !ok {
		return p.truncated("%d bytes of a section header are there", p.end-p.at)
	}
	for _, p.big = range []bool{false, true} {
		if p.uint32(p.buf[p.at+8:]) == byteOrderMagic {
			return nil
		}
	}
	return p.damaged("the section header has no byte-order magic")
}

func (p *Reader) readSection(body []byte) error {
	if len(body) < 16 {
		return p.damaged("the section header is too short")
	}
	if major := p.uint16(body[4:]); major != 1 {
		return p.damaged("format version %d: this reader knows version 1", major)
	}
	p.first, p.sectionEnd, p.ours = len(p.interfaces), 0, false
	start := p.base + int64(p.at)
	if length := int64(p.uint64(body[8:])); length > 0 && length <= 1<<62 && start <= 1<<62 {
		p.sectionEnd = start + length // -1 is unknown, other negative values are invalid
	}
	return p.options(body[16:], func(code uint16, value []byte) error {
		var m Meta
		if code != optComment || p.ours || json.Unmarshal(value, &m) != nil || m.Equal(Meta{}) {
			return nil
		}
		p.ours = true
		if !p.hasMeta {
			p.meta, p.hasMeta = m, true
		}
		return nil
	})
}

// packet reads an enhanced packet block or an obsolete packet block, which differ in the
// size of the interface number.
func (p *Reader) packet(kind uint32, body []byte) (pkt Packet, ok bool, err error) {
	if len(body) < fixedPacketLen {
		return Packet{}, false, p.damaged("packet block of %d bytes", len(body))
	}
	index := p.uint32(body)
	if kind == oldPacket {
		index = uint32(p.uint16(body))
	}
	described := len(p.interfaces) - p.first
	if uint64(index) >= uint64(described) {
		return Packet{}, false, p.damaged("packet of interface %d; %d are described", index, described)
	}
	kept, length := p.uint32(body[12:]), p.uint32(body[16:])
	if uint64(kept) > uint64(len(body)-fixedPacketLen) {
		return Packet{}, false, p.damaged("packet of %d captured bytes in a block that has room for %d", kept, len(body)-fixedPacketLen)
	}
	// Other programs write records with more captured bytes than the packet had.
	if kept > length && p.ours || length > maxLength {
		return Packet{}, false, p.damaged("packet of %d captured bytes and a length of %d", kept, length)
	}
	at := p.first + int(index)
	stamp := uint64(p.uint32(body[4:]))<<32 | uint64(p.uint32(body[8:]))
	pkt, ok = p.take(at, stamp, body[fixedPacketLen:fixedPacketLen+kept:fixedPacketLen+kept], int(length))
	return pkt, ok, nil
}

// take returns a packet of interface number at. If it skips the packet, it counts the reason
// and ok is false.
func (p *Reader) take(at int, stamp uint64, data []byte, length int) (pkt Packet, ok bool) {
	i := &p.interfaces[at]
	if i.skip != "" {
		p.skip(i.skip)
		return Packet{}, false
	}
	ns, ok := i.nanos(stamp)
	if !ok {
		p.skip(skipStamp)
		return Packet{}, false
	}
	return i.withoutFCS(Packet{Interface: at, Stamp: ns, Data: data, Len: length}), true
}

func (p *Reader) readInterface(body []byte) error {
	if len(body) < 8 {
		return p.damaged("interface block of %d bytes", len(body))
	}
	if len(p.interfaces) == maxInterfaces {
		return p.damaged("more than %d interfaces", maxInterfaces)
	}
	i := interfaceState{ours: p.ours, facts: Facts{LinkType: LinkType(p.uint16(body))}}
	i.SnapLen = int(p.uint32(body[4:]))
	i.times = 1000 // the format's default is microseconds
	err := p.options(body[8:], func(code uint16, value []byte) error {
		switch code {
		case optName:
			i.Name = string(value)
		case optDescription:
			i.Description = string(value)
		case optComment:
			i.Comment = string(value)
		case optSpeed:
			if len(value) != 8 {
				return p.damaged("speed of %d bytes: must be 8", len(value))
			}
			i.Speed = speed(p.uint64(value))
		case optResolution:
			if len(value) != 1 || !i.setResolution(value[0]) {
				return p.damaged("resolution %x of the stamps of interface %q: must be 10 to the power of 0 to -19, or 2 to the power of 0 to -63", value, i.Name)
			}
		case optFCS:
			if len(value) != 1 {
				return p.damaged("length of a check sequence in %d bytes: must be 1", len(value))
			}
			i.fcs = fcsBytes(value[0])
		case optOffset:
			if len(value) != 8 {
				return p.damaged("time offset of %d bytes: must be 8", len(value))
			}
			i.offset = int64(p.uint64(value))
		}
		return nil
	})
	if err != nil {
		return err
	}
	p.setSkip(&i)
	p.interfaces = append(p.interfaces, i)
	return nil
}

// fcsBytes returns the length of a frame check sequence in bytes. The format counts bits, its
// own example bytes, and programs write either.
func fcsBytes(v byte) int {
	if v < 16 {
		return int(v)
	}
	return int(v) / 8
}

// setResolution sets the time unit from the option's value: a negative power of 10, or of
// 2 if the highest bit is set. It rejects units below 10^-19 or 2^-63 s, in which 64-bit
// timestamps wrap within two seconds.
func (c *clock) setResolution(v byte) bool {
	power := v &^ 0x80
	*c = clock{offset: c.offset}
	switch {
	case v&0x80 != 0:
		c.binary = uint(power)
		return power <= 63
	case power <= 9:
		c.times = tenTo(9 - power)
		return true
	}
	c.per = tenTo(min(power, 19) - 9)
	return power <= 19
}

func tenTo(n byte) uint64 {
	out := uint64(1)
	for range n {
		out *= 10
	}
	return out
}

// shareOf returns part·of / 2^shift, rounded down. It does not overflow if part is less
// than 2^shift and of is a number of nanoseconds.
func shareOf(part, of uint64, shift uint) int64 {
	hi, lo := bits.Mul64(part, of)
	return int64(lo>>shift | hi<<(64-shift))
}

func (p *Reader) readStatistics(body []byte) error {
	if len(body) < 12 {
		return p.damaged("statistics block of %d bytes", len(body))
	}
	index, described := p.uint32(body), len(p.interfaces)-p.first
	if uint64(index) >= uint64(described) {
		return p.damaged("statistics of interface %d; %d are described", index, described)
	}
	received, dropped := noNumber, noNumber
	err := p.options(body[12:], func(code uint16, value []byte) error {
		if code != optReceived && code != optDropped {
			return nil
		}
		if len(value) != 8 {
			return p.damaged("statistic of %d bytes: must be 8", len(value))
		}
		if code == optReceived {
			received = p.uint64(value)
		} else {
			dropped = p.uint64(value)
		}
		return nil
	})
	if err != nil {
		return err
	}
	i := &p.interfaces[p.first+int(index)]
	i.closed = true
	// Counts are cumulative, so a later block replaces an earlier one.
	if received != noNumber {
		p.stats.Received += received - i.facts.Stats.Received
		i.facts.Stats.Received, i.facts.HasReceived = received, true
	}
	if dropped != noNumber {
		p.stats.Dropped += dropped - i.facts.Stats.Dropped
		i.facts.Stats.Dropped, i.facts.HasDropped = dropped, true
		p.hasStats = true
	}
	return nil
}

// options calls f for each option of a block. value is valid during the call.
func (p *Reader) options(b []byte, f func(code uint16, value []byte) error) error {
	for len(b) >= 4 {
		code, size := p.uint16(b), int(p.uint16(b[2:]))
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
