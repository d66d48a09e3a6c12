package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// Task states which attempt of a task a flow serves, or which one a mark is about.
type Task struct {
	Job     uint32 // from 1
	Index   uint32 // of the task in its stage
	Stage   uint16
	Attempt uint16
	// FromStage, FromIndex and FromAttempt are the attempt whose output a flow carries, the first
	// of Outputs. Outputs is 0 if it carries an input block.
	FromStage   uint16
	FromAttempt uint16
	FromIndex   uint32
	Outputs     uint32
	// The following are those of a mark. Reduce reports the kind of slot of the attempt. Locality is
	// one of the constants, of a mark whose Header.Read states that the attempt reads a block.
	Moment   Moment
	Reduce   bool
	Locality uint8
}

// Values of Task.Locality: the distance of the block that an attempt reads.
const (
	NodeLocal uint8 = iota // on the host itself
	RackLocal              // on another host of its rack
	OffRack                // elsewhere
)

// append appends the extension to a header that begins at start. Layout, big endian, from the start
// of the header: job 64, stage 68, attempt 70, index 72, source stage 76, source attempt 78, source
// index 80, outputs 84, CRC-32 (IEEE) of the first 88 bytes 88.
func (t Task) append(b []byte, start int) []byte {
	b = binary.BigEndian.AppendUint32(b, t.Job)
	b = binary.BigEndian.AppendUint16(b, t.Stage)
	b = binary.BigEndian.AppendUint16(b, t.Attempt)
	b = binary.BigEndian.AppendUint32(b, t.Index)
	b = binary.BigEndian.AppendUint16(b, t.FromStage)
	b = binary.BigEndian.AppendUint16(b, t.FromAttempt)
	b = binary.BigEndian.AppendUint32(b, t.FromIndex)
	b = binary.BigEndian.AppendUint32(b, t.Outputs)
	return binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b[start:]))
}

// parseTask reads the task of a header of MaxSize bytes, whose first Size bytes are valid.
func parseTask(b []byte, kind Kind) (Task, error) {
	const sum = MaxSize - 4
	if crc32.ChecksumIEEE(b[:sum]) != binary.BigEndian.Uint32(b[sum:]) {
		return Task{}, errors.New("testbed header of a task: wrong checksum")
	}
	t := Task{
		Job:         binary.BigEndian.Uint32(b[64:]),
		Stage:       binary.BigEndian.Uint16(b[68:]),
		Attempt:     binary.BigEndian.Uint16(b[70:]),
		Index:       binary.BigEndian.Uint32(b[72:]),
		FromStage:   binary.BigEndian.Uint16(b[76:]),
		FromAttempt: binary.BigEndian.Uint16(b[78:]),
		FromIndex:   binary.BigEndian.Uint32(b[80:]),
		Outputs:     binary.BigEndian.Uint32(b[84:]),
		Moment:      Moment(b[7]),
		Reduce:      b[6]&flagReduce != 0,
		Locality:    b[6] >> shiftLocality,
	}
	mark := kind == KindTaskMark
	switch {
	case t.Job == 0:
		return Task{}, errors.New("testbed header of a task: job 0: must be at least 1")
	case mark && (t.Moment < JobSubmitted || t.Moment > lastMoment):
		return Task{}, fmt.Errorf("testbed header: a %v with unknown moment %d", kind, t.Moment)
	case !mark && t.Moment != 0:
		return Task{}, fmt.Errorf("testbed header: a %v with moment %d: only a %v has one", kind, t.Moment, KindTaskMark)
	case t.Locality > OffRack:
		return Task{}, fmt.Errorf("testbed header: unknown locality %d", t.Locality)
	}
	return t, nil
}
