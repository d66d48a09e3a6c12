// Package wire is the header that begins every transfer and fills every mark, so
// that captures alone tell what each packet belongs to. It is fixed in size and
// sits in the first payload bytes of a connection or datagram, which captures
// keep.
//
// It does no I/O.
package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"time"
)

// Size is the length of an encoded Header in bytes.
const Size = 64

// Version is the layout this package writes. Readers refuse any other.
const Version = 2

// Ports of the emulated services, as Hadoop has them.
const (
	BlockPort   = 50010 // block pipeline
	ShufflePort = 50060 // flows of coflows
	MarkPort    = 50099 // arrival marks (UDP)
)

// Kind tells what the header begins.
type Kind uint8

// The kinds of transfer and mark.
const (
	KindFlow       Kind = 1 + iota // a flow of a coflow: Group is the coflow, Member the flow
	KindBlock                      // a hop of a block write: Group is the block, Member the hop from 0
	KindCoflowMark                 // arrival of a coflow: Group is the coflow, Parts its flows
	KindWriteMark                  // a write request: Group is the block, Parts its replicas
	// Marks of what a fault ended. They tell a failed transfer from an unfinished one.
	KindFlowFailed  // a flow that will not complete: Group is the coflow, Member the flow
	KindBlockFailed // a block that will not be written: Group is the block, Parts its replicas
	KindReplicaLost // a target that left its pipeline: Group is the block, Member the host's number, Generation the one it broke; the host's name follows (AppendName)
)

func (k Kind) String() string {
	switch k {
	case KindFlow:
		return "flow"
	case KindBlock:
		return "block"
	case KindCoflowMark:
		return "coflow-mark"
	case KindWriteMark:
		return "write-mark"
	case KindFlowFailed:
		return "flow-failed"
	case KindBlockFailed:
		return "block-failed"
	case KindReplicaLost:
		return "replica-lost"
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// Header is what is known of a transfer at its first byte.
type Header struct {
	Kind   Kind
	Read   bool   // a flow that carries a stored block to a reader
	Run    uint64 // of this arm and repeat: tells stray packets apart
	Group  uint32
	Member uint32
	Parts  uint32
	Size   uint64 // payload bytes after the header (flows, blocks); total of the group (marks)
	Packet uint32 // pipeline packet size in bytes (blocks)
	// Generation counts the pipelines of a block from 0: one more for each that
	// broke. Offset is the payload byte with which this one goes on: all before it
	// is acknowledged, and Size - Offset bytes follow. Of a write mark, Offset is for how
	// long its request had waited to be placed: see Waited.
	Generation uint32
	Offset     uint64
	// Sent is when the header was handed to the kernel, by the clock that stamps
	// captures. On marks it is the moment of arrival: the datagram itself may
	// wait in the queue of its host's link.
	Sent time.Time
}

var magic = [4]byte{'T', 'B', 'E', 'D'}

// Layout, big endian: magic 0, version 4, kind 5, 1 for Read 6, reserved 7, run 8, group 16,
// member 20, parts 24, packet 28, size 32, sent (Unix ns) 40, generation 48,
// offset 52 (of a write mark: waited, in ns), CRC-32 (IEEE) of the first 60 bytes 60.
const crcAt = Size - 4

// Append appends the encoded header to b.
func (h Header) Append(b []byte) []byte {
	start := len(b)
	b = append(b, magic[:]...)
	read := byte(0)
	if h.Read {
		read = 1
	}
	b = append(b, Version, byte(h.Kind), read, 0)
	b = binary.BigEndian.AppendUint64(b, h.Run)
	b = binary.BigEndian.AppendUint32(b, h.Group)
	b = binary.BigEndian.AppendUint32(b, h.Member)
	b = binary.BigEndian.AppendUint32(b, h.Parts)
	b = binary.BigEndian.AppendUint32(b, h.Packet)
	b = binary.BigEndian.AppendUint64(b, h.Size)
	b = binary.BigEndian.AppendUint64(b, uint64(h.Sent.UnixNano()))
	b = binary.BigEndian.AppendUint32(b, h.Generation)
	b = binary.BigEndian.AppendUint64(b, h.Offset)
	return binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b[start:]))
}

// ErrNotHeader tells bytes that are not ours from a header that is damaged.
var ErrNotHeader = errors.New("not a testbed header")

// Parse reads a header from the first Size bytes of b.
func Parse(b []byte) (Header, error) {
	if len(b) < Size || [4]byte(b[:4]) != magic {
		return Header{}, ErrNotHeader
	}
	if b[4] != Version {
		return Header{}, fmt.Errorf("testbed header version %d: this program reads version %d", b[4], Version)
	}
	if crc32.ChecksumIEEE(b[:crcAt]) != binary.BigEndian.Uint32(b[crcAt:]) {
		return Header{}, errors.New("testbed header with a bad checksum")
	}
	h := Header{
		Kind:   Kind(b[5]),
		Run:    binary.BigEndian.Uint64(b[8:]),
		Group:  binary.BigEndian.Uint32(b[16:]),
		Member: binary.BigEndian.Uint32(b[20:]),
		Parts:  binary.BigEndian.Uint32(b[24:]),
		Packet: binary.BigEndian.Uint32(b[28:]),
		Size:   binary.BigEndian.Uint64(b[32:]),
		Sent:   time.Unix(0, int64(binary.BigEndian.Uint64(b[40:]))),

		Generation: binary.BigEndian.Uint32(b[48:]),
		Offset:     binary.BigEndian.Uint64(b[52:]),
		Read:       b[6] == 1,
	}
	if h.Kind < KindFlow || h.Kind > KindReplicaLost {
		return Header{}, fmt.Errorf("testbed header of unknown kind %d", h.Kind)
	}
	return h, nil
}

// Wait makes a write mark that of a request that waited to be placed.
func (h *Header) Wait(waited time.Duration) { h.Offset = uint64(max(0, waited)) }

// Waited is for how long the request of a write mark had waited to be placed when it
// was: it came so long before Sent. It is 0 for all else, and at most the longest
// duration.
func (h Header) Waited() time.Duration {
	if h.Kind != KindWriteMark {
		return 0
	}
	return time.Duration(min(h.Offset, math.MaxInt64))
}

// Mark tells whether k is of a datagram that marks something.
func (k Kind) Mark() bool { return k >= KindCoflowMark && k <= KindReplicaLost }

// MaxName is the most bytes of a host's name that a mark carries: captures keep
// them with the header.
const MaxName = 32

// AppendName appends the name of a host to a mark's header.
func AppendName(b []byte, name string) []byte { return append(b, name[:min(len(name), MaxName)]...) }

// Sizes of the acknowledgements of a block pipeline, which flow against the
// data: AckSize for the pipeline's set-up, then AckSize for each packet. Between
// them a host that is busy sends keep-alives of AckSize (Ack.Alive).
const AckSize = 8

// Packets is the number of pipeline packets of a block.
func Packets(size, packet uint64) uint64 {
	if packet == 0 {
		return 0
	}
	return (size + packet - 1) / packet
}

// AckBytes is the length of the whole acknowledgement stream of a block without
// keep-alives.
func AckBytes(size, packet uint64) uint64 { return AckSize * (1 + Packets(size, packet)) }
