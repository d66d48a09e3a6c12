package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"strings"
)

// Note is what a mark states in addition to its Header. Each field is about marks of some kinds; its
// zero value is not sent.
type Note struct {
	Host          string // the lost host of a KindReplicaLost; the host of the attempt or moment of a KindTaskMark and a KindConsumed
	User, Profile string // of the job, at JobSubmitted
	Why           string // reason of a failure, stop or kill

	// Of a KindCoflowMark and a KindWriteMark: the job that the coflow, writer or task belongs to, its bin
	// from 1, and the number of its writers; 0 for none.
	Job, Bin, Writers uint32
	Background        bool // of a KindCoflowMark: the coflow only loads the network
	// Of a KindWriteMark: the writer, the place of the block among its blocks, from 0, and the number
	// of these blocks; 0 blocks for no writer.
	Writer, Place, Blocks uint32
	// Of a KindWriteMark without a writer, of the output of a task of Job: the stage, the index of the task and the number of the
	// attempt that writes it, from 0.
	Stage, Index, Attempt uint32
}

// Notes are what marks of arrivals state about the groups of a workload: the notes of KindCoflowMark
// by coflow, and of KindWriteMark by block.
type Notes struct{ Coflows, Blocks map[uint32]Note }

const (
	// MaxWhy is the maximum length of Note.Why, and MaxName that of its other texts, in bytes. Longer
	// ones are cut.
	MaxWhy  = 200
	MaxName = 64
	// MaxMark is the maximum length of a mark with its Note, in bytes. It fits in one packet of the
	// smallest MTU (576), and captures keep it.
	MaxMark = 548
)

// WhyFull is Note.Why of a KindReplicaLost of a host that had no room for the block.
const WhyFull = "its disks are full"

// Tags of the fields of a note. An unknown tag is skipped: a later version may add fields.
const (
	tagHost = 1 + iota
	tagUser
	tagProfile
	tagWhy
	tagJob
	tagBin
	tagWriters
	tagBackground
	tagWriter
	tagPlace
	tagBlocks
	tagStage
	tagIndex
	tagAttempt
	tagEnd // one more than the last tag
)

// texts returns the texts of n by tag.
func (n *Note) texts() map[byte]*string {
	return map[byte]*string{tagHost: &n.Host, tagUser: &n.User, tagProfile: &n.Profile, tagWhy: &n.Why}
}

// numbers returns the numbers of n by tag.
func (n *Note) numbers() map[byte]*uint32 {
	return map[byte]*uint32{tagJob: &n.Job, tagBin: &n.Bin, tagWriters: &n.Writers, tagWriter: &n.Writer, tagPlace: &n.Place, tagBlocks: &n.Blocks,
		tagStage: &n.Stage, tagIndex: &n.Index, tagAttempt: &n.Attempt}
}

// AppendMark appends a mark: the header and what n states. Layout of the note, from the end of the
// header: for each field a tag 0, the length of its value 1, and the value 2, in order of tags; at the
// end the CRC-32 (IEEE) of the whole mark before it. Numbers are big endian, in 4 bytes.
func (h Header) AppendMark(b []byte, n Note) []byte {
	if n == (Note{}) {
		return h.Append(b)
	}
	start := len(b)
	b = h.append(b, VersionNote)
	texts, numbers := n.texts(), n.numbers()
	for tag := byte(tagHost); tag < tagEnd; tag++ {
		switch text, number := texts[tag], numbers[tag]; {
		case text != nil && *text != "":
			s, most := *text, MaxName
			if tag == tagWhy {
				most = MaxWhy
			}
			if len(s) > most {
				s = strings.ToValidUTF8(s[:most], "")
			}
			b = append(append(b, tag, byte(len(s))), s...)
		case number != nil && *number != 0:
			b = binary.BigEndian.AppendUint32(append(b, tag, 4), *number)
		case tag == tagBackground && n.Background:
			b = append(b, tag, 0)
		}
	}
	return binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b[start:]))
}

// ParseNote reads the note of a mark, whose header is valid. Marks of older versions may have the name
// of a host in its place.
func ParseNote(mark []byte) (n Note, err error) {
	length, ok := Len(mark)
	if !ok || len(mark) < length {
		return Note{}, fmt.Errorf("mark of %d bytes: its header is not complete", len(mark))
	}
	rest := mark[length:]
	if mark[4] != VersionNote {
		n.Host = string(rest[:min(len(rest), MaxName)])
		return n, nil
	}
	end := len(mark) - 4
	if end < length || crc32.ChecksumIEEE(mark[:end]) != binary.BigEndian.Uint32(mark[end:]) {
		return Note{}, errors.New("note of a mark: wrong checksum")
	}
	texts, numbers := n.texts(), n.numbers()
	for rest = mark[length:end]; len(rest) > 0; {
		if len(rest) < 2 || len(rest) < 2+int(rest[1]) {
			return Note{}, errors.New("note of a mark: its last field is cut off")
		}
		tag, value := rest[0], rest[2:2+rest[1]]
		rest = rest[2+len(value):]
		switch text, number := texts[tag], numbers[tag]; {
		case text != nil:
			*text = string(value)
		case number != nil && len(value) != 4:
			return Note{}, fmt.Errorf("note of a mark: field %d has %d bytes: must be 4", tag, len(value))
		case number != nil:
			*number = binary.BigEndian.Uint32(value)
		case tag == tagBackground:
			n.Background = true
		}
	}
	return n, nil
}
