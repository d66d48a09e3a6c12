// Package wire defines the header that begins every transfer and mark, so that
// captures identify the transfer of each packet. It occupies the first payload bytes of a
// connection or datagram, which captures keep. Flows and marks of tasks have an extension.
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

// Size is the length of an encoded Header in bytes, without the extension of tasks.
const Size = 64

// TaskSize is the length of the extension, and MaxSize that of a header with it.
const (
	TaskSize = 28
	MaxSize  = Size + TaskSize
)

// Version is the version of the layout without extension, VersionTask of that with one. VersionNote is
// that of a mark with a Note, whose header has the extension if its kind is of tasks. Parse refuses
// any other.
const (
	Version     = 2
	VersionTask = 3
	VersionNote = 4
)

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
	// the generation of the broken pipeline.
	KindReplicaLost
	// Ends of transfers of tasks that no attempt needs any more: neither failed nor unfinished.
	KindFlowStopped  // like KindFlowFailed
	KindBlockStopped // like KindBlockFailed
	// The end of an open coflow, which flows joined while it ran: Group is the coflow, Parts its flows,
	// Size their sum. Its KindCoflowMark has Parts and Size 0.
	KindCoflowClosed
	// A moment of a job or an attempt: Group is the job, Task the attempt, Size its input. At
	// JobSubmitted, Parts are the tasks of the job.
	KindTaskMark
	// The end of a read of an input block, by the host of the attempt: it has consumed the last byte
	// at Sent. Group is the job, Member the flow or local read, Size the block, Task the attempt. See
	// Lag.
	KindConsumed
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
	case KindFlowStopped:
		return "flow-stopped"
	case KindBlockStopped:
		return "block-stopped"
	case KindCoflowClosed:
		return "coflow-closed"
	case KindTaskMark:
		return "task-mark"
	case KindConsumed:
		return "consumed"
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
	// time in ns from its release by the coflow policy to Sent: see Released. For a
	// KindConsumed see Lag.
	Generation uint32
	Offset     uint64
	// Sent is the time at which the header was handed to the kernel, by the clock that
	// stamps captures. On marks it is the arrival time: the datagram itself may wait in
	// the queue of its host's link.
	Sent time.Time
	// Task is the task of a flow or mark; the zero value means none. Its presence selects VersionTask.
	Task Task
}

var magic = [4]byte{'T', 'B', 'E', 'D'}

// Layout, big endian: magic 0, version 4, kind 5, flags 6, moment 7, run 8, group 16,
// member 20, parts 24, packet 28, size 32, sent (Unix ns) 40, generation 48,
// offset 52 (for a write mark the time waited, for a flow the time since its release, in ns),
// CRC-32 (IEEE) of the first 60 bytes 60. The flags are 1 for Read and, with the extension of tasks
// (task.go), 2 for Task.Reduce and 4 times Task.Locality. The moment is 0 without the extension.
const crcAt = Size - 4

const (
	flagRead   = 1
	flagReduce = 2
	// shiftLocality is the lowest bit of the locality.
	shiftLocality = 2
)

// Len returns the length of the encoded header.
func (h Header) Len() int {
	if h.Task == (Task{}) {
		return Size
	}
	return MaxSize
}

// Len returns the length of the header that begins with b. ok is false if b is too short for its
// version and kind, or begins with no header of a known version.
func Len(b []byte) (n int, ok bool) {
	if len(b) < 6 || [4]byte(b) != magic {
		return 0, false
	}
	switch version, kind := b[4], Kind(b[5]); {
	case version == Version, version == VersionNote && kind.Mark() && !kind.ofTask():
		return Size, true
	case version == VersionTask, version == VersionNote && kind.ofTask():
		return MaxSize, true
	}
	return 0, false
}

// Append appends the encoded header to b.
func (h Header) Append(b []byte) []byte {
	if h.Task == (Task{}) {
		return h.append(b, Version)
	}
	return h.append(b, VersionTask)
}

func (h Header) append(b []byte, version byte) []byte {
	start := len(b)
	b = append(b, magic[:]...)
	flags := byte(0)
	if h.Read {
		flags = flagRead
	}
	task := version == VersionTask || version == VersionNote && h.Kind.ofTask()
	if task {
		flags |= h.Task.Locality << shiftLocality
		if h.Task.Reduce {
			flags |= flagReduce
		}
	}
	b = append(b, version, byte(h.Kind), flags, byte(h.Task.Moment))
	b = binary.BigEndian.AppendUint64(b, h.Run)
	b = binary.BigEndian.AppendUint32(b, h.Group)
	b = binary.BigEndian.AppendUint32(b, h.Member)
	b = binary.BigEndian.AppendUint32(b, h.Parts)
	b = binary.BigEndian.AppendUint32(b, h.Packet)
	b = binary.BigEndian.AppendUint64(b, h.Size)
	b = binary.BigEndian.AppendUint64(b, uint64(h.Sent.UnixNano()))
	b = binary.BigEndian.AppendUint32(b, h.Generation)
	b = binary.BigEndian.AppendUint64(b, h.Offset)
	b = binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b[start:]))
	if task {
		b = h.Task.append(b, start)
	}
	return b
}

// ErrNotHeader is the error of Parse for bytes that do not begin with a testbed header. A
// damaged header returns another error.
var ErrNotHeader = errors.New("not a testbed header")

// Parse reads a header from the first bytes of b: Size, or MaxSize if it has the extension.
func Parse(b []byte) (Header, error) {
	if len(b) < Size || [4]byte(b[:4]) != magic {
		return Header{}, ErrNotHeader
	}
	n, ok := Len(b)
	if !ok {
		return Header{}, fmt.Errorf("testbed header of kind %d, version %d: this program reads versions %d and %d and, of marks, %d", b[5], b[4], Version, VersionTask, VersionNote)
	}
	if crc32.ChecksumIEEE(b[:crcAt]) != binary.BigEndian.Uint32(b[crcAt:]) {
		return Header{}, errors.New("testbed header: wrong checksum")
	}
	if len(b) < n {
		return Header{}, fmt.Errorf("testbed header of a task: %d of its %d bytes are present", len(b), n)
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
		Read:       b[6]&flagRead != 0,
	}
	if h.Kind < KindFlow || h.Kind > KindConsumed {
		return Header{}, fmt.Errorf("testbed header: unknown kind %d", h.Kind)
	}
	if n == MaxSize {
		var err error
		if h.Task, err = parseTask(b, h.Kind); err != nil {
			return Header{}, err
		}
	} else if h.Kind.ofTask() {
		return Header{}, fmt.Errorf("testbed header: a %v of version %d: must be of version %d", h.Kind, Version, VersionTask)
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

// SetLag sets the longest time from the last packet of a read to its end: the attempt consumes
// meanwhile what the kernel and its own buffer hold.
func (h *Header) SetLag(lag time.Duration) { h.Offset = uint64(max(0, lag)) }

// Lag returns the time that SetLag set, for a KindConsumed; 0 for other kinds.
func (h Header) Lag() time.Duration {
	if h.Kind != KindConsumed {
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

// ofTask reports whether k is the kind of a mark that has a Task.
func (k Kind) ofTask() bool { return k == KindTaskMark || k == KindConsumed }

// Mark reports whether k is the kind of a mark, which is a datagram.
func (k Kind) Mark() bool { return k >= KindCoflowMark && k <= KindConsumed }

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
