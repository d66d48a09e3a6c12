package pcap

import (
	"io"
	"math/bits"

	"testbed/topo/magic"
)

// Magic numbers of the older format (draft-ietf-opsawg-pcap) and its variants, in the byte
// order of the file. Kuznetzov's variant has longer record headers.
const (
	magicMicros    = 0xA1B2C3D4
	magicNanos     = 0xA1B23C4D
	magicKuznetzov = 0xA1B2CD34

	classicHead   = 24 // bytes before the first record
	recordHead    = 16
	kuznetzovHead = 24 // recordHead, then interface, protocol, type and padding

	// fcsPresent is the bit of the link type field that states that bits 28 to 31 are the
	// length of the frame check sequence in 16-bit words.
	fcsPresent = 1 << 26
	fcsShift   = 28
)

// classic reads the file header of the older format. first is its first four bytes as a
// little-endian number.
func (p *Reader) classic(first uint32) error {
	switch swapped := bits.ReverseBytes32(first); {
	case first == magicMicros, first == magicNanos, first == magicKuznetzov:
	case swapped == magicMicros, swapped == magicNanos, swapped == magicKuznetzov:
		first, p.big = swapped, true
	default:
		if _, err := p.need(magic.Len); err != nil {
			return err
		}
		head := p.buf[:min(p.end, magic.Len)]
		switch kind := magic.Of(head); {
		case kind == magic.Unknown:
			return p.damaged("it begins with %x, which is neither a pcapng section header nor the magic number of a pcap file", head[:4])
		case p.packed != nil:
			return p.damaged("it is %v in a compressed file: %s once", kind, kind.Remedy())
		default:
			return p.damaged("it is %v: %s", kind, kind.Remedy())
		}
	}
	p.record = recordHead
	if first == magicKuznetzov {
		p.record = kuznetzovHead
	}
	ok, err := p.need(classicHead)
	if err != nil {
		return err
	}
	if !ok {
		return p.truncated("%d of the %d bytes of a pcap file's header are there", p.end-p.at, classicHead)
	}
	head := p.buf[p.at:]
	major, minor := p.uint16(head[4:]), p.uint16(head[6:])
	if major != 2 || minor > 4 {
		return p.damaged("pcap version %d.%d: this reader knows versions 2.0 to 2.4", major, minor)
	}
	p.exchanged = minor < 4
	field := p.uint32(head[20:])
	i := interfaceState{facts: Facts{LinkType: LinkType(field)}}
	if field&fcsPresent != 0 {
		i.fcs = int(field>>fcsShift) * 2
	}
	i.SnapLen = int(p.uint32(head[16:]))
	i.times = 1000
	if first == magicNanos {
		i.times = 1
	}
	p.setSkip(&i)
	p.interfaces = []interfaceState{i}
	p.at += classicHead
	return nil
}

// lengths returns the captured and the real length that a record header states. Before
// version 2.4 programs wrote them in either order.
func (p *Reader) lengths(head []byte) (kept, length uint32) {
	kept, length = p.uint32(head[8:]), p.uint32(head[12:])
	if p.exchanged {
		kept, length = min(kept, length), max(kept, length)
	}
	return kept, length
}

// nextRecord reads one record. ok is false if the record is skipped.
func (p *Reader) nextRecord() (pkt Packet, ok bool, err error) {
	if p.end-p.at < p.record {
		p.offset = p.base + int64(p.at)
		switch ok, err := p.need(p.record); {
		case err != nil:
			return Packet{}, false, err
		case !ok && p.at == p.end:
			return Packet{}, false, io.EOF
		case !ok:
			return Packet{}, false, p.truncated("%d of the %d bytes of the head of the last record are there", p.end-p.at, p.record)
		}
	}
	b := p.buf[p.at:]
	sec, part := p.uint32(b), p.uint32(b[4:])
	kept, length := p.lengths(b)
	if length > maxLength || kept > maxBlock-kuznetzovHead {
		p.offset = p.base + int64(p.at)
		return Packet{}, false, p.damaged("packet of %d captured bytes and a length of %d", kept, length)
	}
	size := p.record + int(kept)
	if p.end-p.at < size {
		p.offset = p.base + int64(p.at)
		ok, err := p.need(size)
		if err != nil {
			return Packet{}, false, err
		}
		if !ok {
			return Packet{}, false, p.truncated("%d of the %d captured bytes of the last packet are there", p.end-p.at-p.record, kept)
		}
		b = p.buf[p.at:]
	}
	p.at += size
	i := &p.interfaces[0]
	if i.skip != "" {
		p.skip(i.skip)
		return Packet{}, false, nil
	}
	// This cannot overflow: 32 bits of seconds need less than half the range of int64.
	ns := int64(sec)*1e9 + int64(part)*int64(i.times)
	return i.withoutFCS(Packet{Stamp: ns, Data: b[p.record:size:size], Len: int(length)}), true, nil
}
