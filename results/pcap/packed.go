package pcap

import (
	"bufio"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"

	"github.com/klauspost/compress/zstd"
)

// A packed capture is a zstd stream (RFC 8878) of a pcapng file whose packet blocks are
// rearranged: consecutive packets of a connection differ in a few bytes, which zstd
// finds only if they are next to each other. Unpacking restores the file byte for byte.
//
// The content of the zstd stream, integers as in encoding/binary's uvarint:
//
//	packedMagic
//	groups: length of raw bytes, raw bytes, number of packets, columns of the packets,
//		CRC-32 (Castagnoli, little endian) of the unpacked group
//
// No byte of a group is returned before its checksum is verified.
//
// Raw bytes are blocks other than enhanced packet blocks, and all bytes after the last
// little-endian block. The packets of a group are stored by column:
//
//	references: 2 planes, the low bytes and the high bytes
//	stamps: 8 planes of the zigzag-encoded difference to the previous packet, low byte first
//	length of literals, literals
//	one plane for each byte position of a block, low positions first
//
// A reference is the index of an earlier block with the same lengths, interface, addresses and
// ports. The index after the last one makes the block a new reference; the block is then a
// literal. Other blocks are stored as the difference to their reference, which they
// replace: see subtract. A plane is a byte of 0 if all its bytes are 0, else a byte of 1
// and its bytes: one for each packet that has the position.
const packedMagic = "testbed packed capture 1\n"

// Limits of groups and references; both sides must agree on them.
const (
	groupPackets  = 1 << 14
	groupBytes    = 8 << 20 // of blocks, unless a single one is longer
	maxRaw        = 1 << 20
	maxReferences = 1 << 14 // at the start of a group; above, all references are dropped
)

// maxWindow is the largest zstd window that is decoded, bytes: that of zstd -19 --long.
const maxWindow = 128 << 20

// packedWindow is the zstd window of packed captures, bytes. Columns have no repetitions
// over longer distances.
const packedWindow = 1 << 20

// zstdMagic are the first bytes of a zstd stream, little endian.
const zstdMagic = 0xFD2FB528

// Offsets in an enhanced packet block.
const (
	stampAt = 12
	dataAt  = 28
)

// Pack writes the packed form of a capture. The capture may be truncated or damaged,
// because any sequence of bytes can be restored.
func Pack(to io.Writer, from io.Reader) (err error) {
	z, err := zstd.NewWriter(to, zstd.WithEncoderLevel(zstd.SpeedDefault), zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(packedWindow))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, z.Close()) }()
	if _, err := io.WriteString(z, packedMagic); err != nil {
		return err
	}
	p := packer{in: bufio.NewReaderSize(from, 2*maxBlock), out: z, references: references{index: map[reference]int{}}}
	for {
		more, err := p.group()
		if err != nil || !more {
			return err
		}
	}
}

// reference identifies blocks that are stored relative to each other.
type reference struct {
	size, at, kept uint32
	ends           [12]byte // addresses and ports of IPv4
}

// references are the latest blocks by index.
type references struct {
	blocks [][]byte
	index  map[reference]int // used for packing only
}

func (r *references) limit() {
	if len(r.blocks) > maxReferences {
		r.blocks = nil
		if r.index != nil {
			r.index = map[reference]int{}
		}
	}
}

type packer struct {
	references
	in    *bufio.Reader
	out   *zstd.Encoder
	raw   bool  // no more blocks are expected
	stamp int64 // of the previous packet

	// Of the group being packed:
	refs     []uint16
	stamps   []uint64
	literals []byte
	diffs    []byte // of the packets that have a reference, one after the other
	sizes    []int  // of these
	column   []byte
	sum      uint32 // CRC-32 of the bytes read
}

// group packs the next group; more is false at the end of the capture.
func (p *packer) group() (more bool, err error) {
	p.sum = 0
	p.refs, p.stamps, p.literals, p.diffs, p.sizes = p.refs[:0], p.stamps[:0], p.literals[:0], p.diffs[:0], p.sizes[:0]
	raw, err := p.readRaw()
	if err != nil {
		return false, err
	}
	if p.sum = crc32.Checksum(raw, castagnoli); len(raw) > 0 { // in a group of its own, so that opening a capture decodes little
		return true, p.write(raw)
	}
	p.limit()
	for !p.raw && len(p.refs) < groupPackets && len(p.literals)+len(p.diffs) < groupBytes {
		size, packet, err := p.next()
		if err != nil {
			return false, err
		}
		if !packet {
			break
		}
		b, err := p.in.Peek(size)
		if err != nil {
			return false, err
		}
		p.sum = crc32.Update(p.sum, castagnoli, b)
		p.packet(b)
		if _, err := p.in.Discard(size); err != nil {
			return false, err
		}
	}
	if len(p.refs) == 0 {
		return false, nil
	}
	return true, p.write(nil)
}

// next returns the size of the next block, or 0 if there is none, and whether the block is a
// packet.
func (p *packer) next() (size int, packet bool, err error) {
	head, err := p.in.Peek(8)
	if err != nil && err != io.EOF {
		return 0, false, err
	}
	if len(head) < 8 {
		return 0, false, nil
	}
	n := binary.LittleEndian.Uint32(head[4:])
	if n < minBlock || n%4 != 0 || n > maxBlock {
		return 0, false, nil
	}
	b, err := p.in.Peek(int(n))
	if err != nil && err != io.EOF {
		return 0, false, err
	}
	if len(b) < int(n) || binary.LittleEndian.Uint32(b[n-4:]) != n {
		return 0, false, nil
	}
	return int(n), binary.LittleEndian.Uint32(head) == enhancedPacket && n >= minPacketBlock, nil
}

// readRaw reads up to the next packet block.
func (p *packer) readRaw() (raw []byte, err error) {
	for len(raw) < maxRaw {
		size, packet := 0, false
		if !p.raw {
			if size, packet, err = p.next(); err != nil {
				return nil, err
			}
		}
		switch {
		case packet, size > 0 && len(raw)+size > maxRaw && len(raw) > 0:
			return raw, nil
		case size == 0:
			p.raw = true
			size = maxRaw - len(raw)
		}
		b := make([]byte, size)
		n, err := io.ReadFull(p.in, b)
		raw = append(raw, b[:n]...)
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			return raw, nil
		} else if err != nil {
			return nil, err
		}
	}
	return raw, nil
}

func (p *packer) packet(b []byte) {
	stamp := stampOf(b)
	delta := stamp - p.stamp
	p.stamp = stamp
	p.stamps = append(p.stamps, uint64(delta)<<1^uint64(delta>>63))
	key := reference{size: uint32(len(b)), at: binary.LittleEndian.Uint32(b[8:]), kept: binary.LittleEndian.Uint32(b[20:])}
	if len(b) >= dataAt+38 {
		copy(key.ends[:], b[dataAt+26:])
	}
	i, known := p.index[key]
	if !known {
		i = len(p.blocks)
		p.index[key] = i
		p.blocks = append(p.blocks, append([]byte(nil), b...))
		p.refs, p.literals = append(p.refs, uint16(i)), append(p.literals, b...)
		return
	}
	p.refs, p.sizes = append(p.refs, uint16(i)), append(p.sizes, len(b))
	start := len(p.diffs)
	p.diffs = append(p.diffs, b...)
	subtract(p.diffs[start:], p.blocks[i])
	copy(p.blocks[i], b)
}

// stampOf returns the timestamp of a packet block, which stores the high half first.
func stampOf(b []byte) int64 {
	return int64(binary.LittleEndian.Uint32(b[stampAt:]))<<32 | int64(binary.LittleEndian.Uint32(b[stampAt+4:]))
}

// Offsets of the fields that are subtracted as big-endian integers, in frames of TCP over
// IPv4 over Ethernet without IP options: length, identification and checksum of IP;
// sequence and acknowledgement number, window and timestamps of TCP. Other frames are
// treated alike and restored exactly, but packed less effectively.
var (
	fields16 = [...]int{dataAt + 16, dataAt + 18, dataAt + 24, dataAt + 48}
	fields32 = [...]int{dataAt + 38, dataAt + 42, dataAt + 58, dataAt + 62}
)

// subtract replaces b by its difference to an earlier block of the same length. The
// timestamp, which has its own columns, becomes 0.
func subtract(b, from []byte) {
	var keep16 [len(fields16)]uint16
	var keep32 [len(fields32)]uint32
	for i, at := range fields16 {
		if at+2 <= len(b) {
			keep16[i] = binary.BigEndian.Uint16(b[at:]) - binary.BigEndian.Uint16(from[at:])
		}
	}
	for i, at := range fields32 {
		if at+4 <= len(b) {
			keep32[i] = binary.BigEndian.Uint32(b[at:]) - binary.BigEndian.Uint32(from[at:])
		}
	}
	for i := range b {
		b[i] -= from[i]
	}
	clear(b[stampAt : stampAt+8])
	for i, at := range fields16 {
		if at+2 <= len(b) {
			binary.BigEndian.PutUint16(b[at:], keep16[i])
		}
	}
	for i, at := range fields32 {
		if at+4 <= len(b) {
			binary.BigEndian.PutUint32(b[at:], keep32[i])
		}
	}
}

// restore is the inverse of subtract: it adds diff to b, which turns the earlier block into
// the later one. diff is nonzero only at the positions of used, which ascend.
func restore(b, diff []byte, used []int) {
	for i := 0; i < len(used); i++ {
		at := used[i]
		if at >= len(b) {
			return
		}
		switch size, start := fieldOf[min(at, len(fieldOf)-1)].size, fieldOf[min(at, len(fieldOf)-1)].at; {
		case size == 2 && start+2 <= len(b):
			binary.BigEndian.PutUint16(b[start:], binary.BigEndian.Uint16(b[start:])+binary.BigEndian.Uint16(diff[start:]))
			for i+1 < len(used) && used[i+1] < start+2 {
				i++
			}
		case size == 4 && start+4 <= len(b):
			binary.BigEndian.PutUint32(b[start:], binary.BigEndian.Uint32(b[start:])+binary.BigEndian.Uint32(diff[start:]))
			for i+1 < len(used) && used[i+1] < start+4 {
				i++
			}
		default:
			b[at] += diff[at]
		}
	}
}

// field is the integer that contains a position of a block. Most have size 1.
type field struct{ at, size int }

var fieldOf = func() (out [dataAt + 67]field) {
	for i := range out {
		out[i] = field{i, 1}
	}
	for _, at := range fields16 {
		out[at], out[at+1] = field{at, 2}, field{at, 2}
	}
	for _, at := range fields32 {
		for i := range 4 {
			out[at+i] = field{at, 4}
		}
	}
	return out
}()

// write writes the group that was read, with the given raw bytes.
func (p *packer) write(raw []byte) error {
	if err := p.columns(raw); err != nil {
		return err
	}
	_, err := p.out.Write(binary.LittleEndian.AppendUint32(nil, p.sum))
	return err
}

func (p *packer) columns(raw []byte) error {
	head := binary.AppendUvarint(nil, uint64(len(raw)))
	head = append(head, raw...)
	head = binary.AppendUvarint(head, uint64(len(p.refs)))
	if _, err := p.out.Write(head); err != nil {
		return err
	}
	if len(p.refs) == 0 {
		return nil
	}
	for shift := 0; shift < 16; shift += 8 {
		p.column = p.column[:0]
		for _, r := range p.refs {
			p.column = append(p.column, byte(r>>shift))
		}
		if err := p.plane(); err != nil {
			return err
		}
	}
	for shift := 0; shift < 64; shift += 8 {
		p.column = p.column[:0]
		for _, s := range p.stamps {
			p.column = append(p.column, byte(s>>shift))
		}
		if err := p.plane(); err != nil {
			return err
		}
	}
	if _, err := p.out.Write(append(binary.AppendUvarint(nil, uint64(len(p.literals))), p.literals...)); err != nil {
		return err
	}
	longest := 0
	for _, n := range p.sizes {
		longest = max(longest, n)
	}
	for at := range longest {
		p.column = p.column[:0]
		start := 0
		for _, n := range p.sizes {
			if at < n {
				p.column = append(p.column, p.diffs[start+at])
			}
			start += n
		}
		if err := p.plane(); err != nil {
			return err
		}
	}
	return nil
}

// plane writes a column as a separate zstd block, so that it has its own entropy code.
func (p *packer) plane() error {
	used := false
	for _, b := range p.column {
		if b != 0 {
			used = true
			break
		}
	}
	if !used {
		_, err := p.out.Write([]byte{0})
		return err
	}
	if _, err := p.out.Write([]byte{1}); err != nil {
		return err
	}
	if err := p.out.Flush(); err != nil {
		return err
	}
	if _, err := p.out.Write(p.column); err != nil {
		return err
	}
	return p.out.Flush()
}

// compressed is the source of a Reader whose file is compressed.
type compressed struct {
	io.Reader
	file *counted
	z    *zstd.Decoder
}

// counted counts the bytes read from a file and records the file's read error.
type counted struct {
	io.Reader
	n   int64
	err error // other than io.EOF
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	c.n += int64(n)
	if err != nil && err != io.EOF {
		c.err = err
	}
	return n, err
}

// sticky returns its first error from then on. A zstd.Decoder would continue after it with
// bytes whose checksum was wrong.
type sticky struct {
	io.Reader
	err error
}

func (s *sticky) Read(b []byte) (n int, err error) {
	if s.err == nil {
		n, s.err = s.Reader.Read(b)
	}
	return n, s.err
}

// decompress returns the content of a zstd stream, unpacked if it is a packed capture.
func decompress(from io.Reader) (*compressed, error) {
	file := &counted{Reader: from}
	// One goroutine per file decodes as fast as captures are analysed.
	z, err := zstd.NewReader(file, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow))
	if err != nil {
		return nil, err
	}
	in := bufio.NewReaderSize(&sticky{Reader: z}, 1<<16)
	out := &compressed{in, file, z}
	// The error of Peek is ignored here: reading returns it again.
	if head, _ := in.Peek(len(packedMagic)); string(head) == packedMagic {
		_, _ = in.Discard(len(packedMagic))
		out.Reader = &unpacker{in: in}
	}
	return out, nil
}

// unpacker restores a packed capture. It is an io.Reader.
type unpacker struct {
	references
	in    *bufio.Reader
	stamp int64
	out   []byte // restored bytes that were not read yet
	buf   []byte // memory of out
	err   error

	// Of the group being restored:
	refs   []uint16
	stamps []uint64
	column []byte
	diffs  []byte
	sizes  []int // of packets; negative for literals
	used   []int
}

func (u *unpacker) Read(b []byte) (int, error) {
	for len(u.out) == 0 {
		if u.err != nil {
			return 0, u.err
		}
		u.err = u.group()
	}
	n := copy(b, u.out)
	u.out = u.out[n:]
	return n, nil
}

var errPacked = errors.New("a group of packets is damaged")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// group restores the next group.
func (u *unpacker) group() error {
	n, err := binary.ReadUvarint(u.in)
	if err != nil {
		return err // io.EOF between groups
	}
	if n > maxRaw+maxBlock {
		return errPacked
	}
	u.buf = append(u.buf[:0], make([]byte, n)...)
	if _, err = io.ReadFull(u.in, u.buf); err != nil {
		return early(err)
	}
	packets, err := binary.ReadUvarint(u.in)
	if err != nil {
		return early(err)
	}
	if packets > groupPackets {
		return errPacked
	}
	if packets > 0 {
		u.limit()
		if err := u.packets(int(packets)); err != nil {
			return err
		}
	}
	u.join(int(packets))
	var sum [4]byte
	if _, err := io.ReadFull(u.in, sum[:]); err != nil {
		return early(err)
	}
	if binary.LittleEndian.Uint32(sum[:]) != crc32.Checksum(u.buf, castagnoli) {
		return errPacked
	}
	u.out = u.buf
	return nil
}

// early turns io.EOF within a group into io.ErrUnexpectedEOF.
func early(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

func (u *unpacker) packets(n int) error {
	u.refs, u.stamps, u.sizes, u.used = append(u.refs[:0], make([]uint16, n)...), append(u.stamps[:0], make([]uint64, n)...), u.sizes[:0], u.used[:0]
	for shift := 0; shift < 16; shift += 8 {
		used, err := u.plane(n)
		if err != nil {
			return err
		}
		for i := 0; used && i < n; i++ {
			u.refs[i] |= uint16(u.column[i]) << shift
		}
	}
	for shift := 0; shift < 64; shift += 8 {
		used, err := u.plane(n)
		if err != nil {
			return err
		}
		for i := 0; used && i < n; i++ {
			u.stamps[i] |= uint64(u.column[i]) << shift
		}
	}
	size, err := binary.ReadUvarint(u.in)
	if err != nil {
		return early(err)
	}
	if size > groupBytes+maxBlock {
		return errPacked
	}
	literals := make([]byte, size)
	if _, err := io.ReadFull(u.in, literals); err != nil {
		return early(err)
	}
	// Lengths of blocks, and so of the planes, follow from the references.
	total, stored, longest := 0, 0, 0
	for _, r := range u.refs {
		switch {
		case int(r) < len(u.blocks):
			size := len(u.blocks[r])
			u.sizes = append(u.sizes, size)
			total, stored, longest = total+size, stored+size, max(longest, size)
		case int(r) == len(u.blocks) && len(literals) >= minPacketBlock:
			size := int(binary.LittleEndian.Uint32(literals[4:]))
			if size < minPacketBlock || size > len(literals) {
				return errPacked
			}
			u.blocks = append(u.blocks, literals[:size:size])
			literals = literals[size:]
			u.sizes = append(u.sizes, -size)
			total += size
		default:
			return errPacked
		}
	}
	if len(literals) > 0 || total > groupBytes+maxBlock {
		return errPacked
	}
	return u.differences(stored, longest)
}

// differences reads the planes into the differences of packets, one after the other.
func (u *unpacker) differences(stored, longest int) error {
	u.diffs = append(u.diffs[:0], make([]byte, stored)...)
	ends := make([]int, longest+1) // blocks by length
	n := 0
	for _, size := range u.sizes {
		if size > 0 {
			n++
			ends[size]++
		}
	}
	for at := range longest {
		n -= ends[at]
		used, err := u.plane(n)
		if err != nil {
			return err
		}
		if !used {
			continue
		}
		u.used = append(u.used, at)
		start, i := 0, 0
		for _, size := range u.sizes {
			if size <= 0 {
				continue
			}
			if at < size {
				u.diffs[start+at] = u.column[i]
				i++
			}
			start += size
		}
	}
	return nil
}

// join restores the blocks of n packets after the raw bytes of their group.
func (u *unpacker) join(n int) {
	diffs := u.diffs
	for i, r := range u.refs[:n] {
		b := u.blocks[r]
		if size := u.sizes[i]; size > 0 {
			restore(b, diffs[:size], u.used)
			diffs = diffs[size:]
		}
		z := u.stamps[i]
		u.stamp += int64(z>>1) ^ -int64(z&1)
		binary.LittleEndian.PutUint32(b[stampAt:], uint32(u.stamp>>32))
		binary.LittleEndian.PutUint32(b[stampAt+4:], uint32(u.stamp))
		u.buf = append(u.buf, b...)
	}
}

// plane reads n bytes of a column; used is false if all are 0.
func (u *unpacker) plane(n int) (used bool, err error) {
	flag, err := u.in.ReadByte()
	if err != nil {
		return false, early(err)
	}
	if flag > 1 {
		return false, errPacked
	}
	if flag == 0 {
		return false, nil
	}
	if cap(u.column) < n {
		u.column = make([]byte, n)
	}
	u.column = u.column[:n]
	_, err = io.ReadFull(u.in, u.column)
	return true, early(err)
}
