package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"strings"
)

// MaxTargets is the maximum number of hosts after the first in a block pipeline: a
// block has at most MaxTargets+1 replicas.
const MaxTargets = 8

// TargetsSize is the length of the list of targets that follows the Header of a
// block hop, independent of the number of targets. The payload begins after it.
const TargetsSize = 8*MaxTargets + 8

// Target is a host further down a block pipeline, with the hash that selects the path
// of the hop to it.
type Target struct{ Host, Hash uint32 }

// AppendTargets appends the fixed-size list: MaxTargets pairs of host and hash
// (unused ones 0), their number at byte 64, the CRC-32 (IEEE) of all before it
// at byte 68, big endian.
func AppendTargets(b []byte, targets []Target) ([]byte, error) {
	if len(targets) > MaxTargets {
		return b, fmt.Errorf("block pipeline with %d further targets: must be at most %d", len(targets), MaxTargets)
	}
	start := len(b)
	for i := range MaxTargets {
		var t Target
		if i < len(targets) {
			t = targets[i]
		}
		b = binary.BigEndian.AppendUint32(b, t.Host)
		b = binary.BigEndian.AppendUint32(b, t.Hash)
	}
	b = binary.BigEndian.AppendUint32(b, uint32(len(targets)))
	return binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b[start:])), nil
}

// ParseTargets reads a list of targets from the first TargetsSize bytes of b.
func ParseTargets(b []byte) ([]Target, error) {
	if len(b) < TargetsSize {
		return nil, fmt.Errorf("list of pipeline targets of %d bytes: must be %d", len(b), TargetsSize)
	}
	const sum = TargetsSize - 4
	if crc32.ChecksumIEEE(b[:sum]) != binary.BigEndian.Uint32(b[sum:]) {
		return nil, errors.New("list of pipeline targets: wrong checksum")
	}
	n := binary.BigEndian.Uint32(b[8*MaxTargets:])
	if n > MaxTargets {
		return nil, fmt.Errorf("list of %d pipeline targets: must be at most %d", n, MaxTargets)
	}
	targets := make([]Target, n)
	for i := range targets {
		targets[i] = Target{
			Host: binary.BigEndian.Uint32(b[8*i:]),
			Hash: binary.BigEndian.Uint32(b[8*i+4:]),
		}
	}
	return targets, nil
}

// Ack is an acknowledgement in a block pipeline. It is AckSize bytes; if Failed, the
// host at fault and the reason follow, and the stream ends.
type Ack struct {
	Seq uint32 // 0 for the pipeline's set-up, then the packets from 1
	// Alive marks a keep-alive: it acknowledges nothing.
	Alive  bool
	Failed bool
	Full   bool   // if Failed: the host has no space for the block
	Host   uint32 // if Failed: the host at fault
	Reason string // if Failed; at most MaxReason bytes are sent
}

// MaxReason is the maximum length of a failure's reason on the wire, in bytes.
const MaxReason = 4096

const (
	ackMark   = 0xAC
	ackOK     = 0
	ackFailed = 1
	ackAlive  = 2
	ackFull   = 3 // failed because the host has no space
)

// Append appends the encoded acknowledgement to b. Layout, big endian: mark 0,
// status 1, length of what follows 2, sequence 4; then host 8, reason 12.
func (a Ack) Append(b []byte) []byte {
	if !a.Failed {
		status := byte(ackOK)
		if a.Alive {
			status = ackAlive
		}
		b = append(b, ackMark, status, 0, 0)
		return binary.BigEndian.AppendUint32(b, a.Seq)
	}
	reason := a.Reason
	if len(reason) > MaxReason {
		reason = strings.ToValidUTF8(reason[:MaxReason], "")
	}
	status := byte(ackFailed)
	if a.Full {
		status = ackFull
	}
	b = append(b, ackMark, status)
	b = binary.BigEndian.AppendUint16(b, uint16(4+len(reason)))
	b = binary.BigEndian.AppendUint32(b, a.Seq)
	b = binary.BigEndian.AppendUint32(b, a.Host)
	return append(b, reason...)
}

// ParseAck reads the first AckSize bytes of an acknowledgement. For a failed one, more
// is the number of bytes that follow, for ParseFailure.
func ParseAck(b []byte) (a Ack, more int, err error) {
	if len(b) < AckSize || b[0] != ackMark {
		return Ack{}, 0, errors.New("not an acknowledgement of a block pipeline")
	}
	a.Seq = binary.BigEndian.Uint32(b[4:])
	more = int(binary.BigEndian.Uint16(b[2:]))
	switch {
	case b[1] == ackOK && more == 0:
		return a, 0, nil
	case b[1] == ackAlive && more == 0:
		a.Alive = true
		return a, 0, nil
	case (b[1] == ackFailed || b[1] == ackFull) && more >= 4 && more <= 4+MaxReason:
		a.Failed, a.Full = true, b[1] == ackFull
		return a, more, nil
	}
	return Ack{}, 0, fmt.Errorf("acknowledgement with invalid status %d and %d further bytes", b[1], more)
}

// ParseFailure completes a failed acknowledgement with the bytes that follow it.
func (a Ack) ParseFailure(rest []byte) (Ack, error) {
	if !a.Failed || len(rest) < 4 {
		return Ack{}, fmt.Errorf("failure of a block pipeline in %d bytes: must be at least 4", len(rest))
	}
	a.Host = binary.BigEndian.Uint32(rest)
	a.Reason = string(rest[4:])
	return a, nil
}
