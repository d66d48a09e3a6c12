// Package wire defines the header that begins every transfer and mark, so that
// captures identify the transfer of each packet. It is fixed in size and occupies the
// first payload bytes of a connection or datagram, which captures keep.
//
// The package does no I/O.
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

// Version is the version of the layout. Parse refuses any other.
const Version = 2

// Ports of the emulated services, as in Hadoop.
const (
	BlockPort   = 50010 // block pipeline
	ShufflePort = 50060 // flows of coflows
	MarkPort    = 50099 // arrival marks (UDP)
)

// Kind is the kind of transfer or mark that the header begins.
type Kind uint8

// The kinds of transfer and mark.
const (
	KindFlow       Kind = 1 + iota // a flow of a coflow: Group is the coflow, Member the flow
	KindBlock                      // a hop of a block write: Group is the block, Member the hop from 0
	KindCoflowMark                 // arrival of a coflow: Group is the coflow, Parts its flows
	KindWriteMark                  // a write request: Group is the block, Parts its replicas
	// Marks of transfers that a fault ended. They distinguish failed from unfinished transfers.
	KindFlowFailed  // a flow that will not complete: Group is the coflow, Member the flow
	KindBlockFailed // a block that will not be written: Group is the block, Parts its replicas
	// A target that left its pipeline: Group is the block, Member the host's number, Generation
	// the generation of the broken pipeline; the host's name follows (AppendName).
	KindReplicaLost
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

// Header describes a transfer at its first byte, or a mark.
type Header struct {
	Kind   Kind
	Read   bool   // a flow that carries a stored block to a reader
	Run    uint64 // identifies the arm and repeat, to detect stray packets
	Group  uint32
	Member uint32
	Parts  uint32 // of a flow: see Hash
	Size   uint64 // payload bytes after the header (flows, blocks); total of the group (marks)
	Packet uint32 // pipeline packet size in bytes (blocks)
	// Generation numbers the pipelines of a block from 0; each broken pipeline adds 1.
	// For a block, Offset is the payload byte at which this pipeline resumes: all before
	// it is acknowledged, and Size - Offset bytes follow. For a write mark, Offset is the
	// time in ns that its request waited to be placed: see Waited. For a flow it is the
	// time in ns from its release by the coflow policy to Sent: see Released.
	Generation uint32
	Offset     uint64
	// Sent is the time at which the header was handed to the kernel, by the clock that
	// stamps captures. On marks it is the arrival time: the datagram itself may wait in
	// the queue of its host's link.
	Sent time.Time
}

var magic = [4]byte{'T', 'B', 'E', 'D'}

// Layout, big endian: magic 0, version 4, kind 5, 1 for Read 6, reserved 7, run 8, group 16,
// member 20, parts 24, packet 28, size 32, sent (Unix ns) 40, generation 48,
// offset 52 (for a write mark the time waited, for a flow the time since its release, in ns),
// CRC-32 (IEEE) of the first 60 bytes 60.
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

// ErrNotHeader is the error of Parse for bytes that do not begin with a testbed header. A
// damaged header returns another error.
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
		return Header{}, errors.New("testbed header: wrong checksum")
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
		return Header{}, fmt.Errorf("testbed header: unknown kind %d", h.Kind)
	}
	return h, nil
}

// Wait sets the time that the request of a write mark waited to be placed.
func (h *Header) Wait(waited time.Duration) { h.Offset = uint64(max(0, waited)) }

// Waited returns the time from the arrival of a write request to its placement, which
// ended at Sent. It is 0 for other kinds, and at most the longest duration.
func (h Header) Waited() time.Duration {
	if h.Kind != KindWriteMark {
		return 0
	}
	return time.Duration(min(h.Offset, math.MaxInt64))
}

// Hash returns the hash by which routing selects the path of a flow. ok is false for other
// kinds, and for flows whose header does not carry it, as in captures of older versions.
func (h Header) Hash() (hash uint32, ok bool) { return h.Parts, h.Kind == KindFlow && h.Parts != 0 }

// Release sets the time at which the coflow policy released the flow: the latest decision
// that raised its rate above 0. Sent must be set before.
func (h *Header) Release(at time.Time) { h.Offset = uint64(max(1, h.Sent.Sub(at))) }

// Released returns the time at which the coflow policy released a flow, by the clock of Sent.
// ok is false for other kinds, and for flows whose header does not carry it, as in captures of
// older versions.
func (h Header) Released() (at time.Time, ok bool) {
	if h.Kind != KindFlow || h.Offset == 0 {
		return time.Time{}, false
	}
	return h.Sent.Add(-time.Duration(min(h.Offset, math.MaxInt64))), true
}

// Resumes returns the payload byte at which a block's hop begins, or 0 for other kinds.
func (h Header) Resumes() uint64 {
	if h.Kind != KindBlock {
		return 0
	}
	return min(h.Offset, h.Size)
}

// Mark reports whether k is the kind of a mark, which is a datagram.
func (k Kind) Mark() bool { return k >= KindCoflowMark && k <= KindReplicaLost }

// MaxName is the maximum length of a host's name in a mark, in bytes: captures keep
// them with the header.
const MaxName = 32

// AppendName appends the name of a host to a mark's header.
func AppendName(b []byte, name string) []byte { return append(b, name[:min(len(name), MaxName)]...) }

// AckSize is the size of an acknowledgement of a block pipeline in bytes. They travel in
// the opposite direction to the data: one for the pipeline's set-up, then one for each
// packet. Between them a busy host sends keep-alives of AckSize (Ack.Alive).
const AckSize = 8

// Packets returns the number of pipeline packets of a block.
func Packets(size, packet uint64) uint64 {
	if packet == 0 {
		return 0
	}
	return (size + packet - 1) / packet
}

// AckBytes returns the length of the complete acknowledgement stream of a block,
// without keep-alives.
func AckBytes(size, packet uint64) uint64 { return AckSize * (1 + Packets(size, packet)) }
