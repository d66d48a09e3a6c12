package pcap

import (
	"encoding/binary"

	"testbed/hosts/wire"
)

// Trimmer shortens captured frames to the bytes from which figures are computed. Of a
// transfer's segments it keeps the headers, with TCP options and the transfer header at the
// beginning of the stream, and removes the transferred data. It keeps all other frames
// unchanged, including marks and the acknowledgements of block pipelines. It is for use by
// one goroutine.
type Trimmer struct {
	// starts are the sequence numbers of the first byte of streams whose SYN was seen.
	starts map[stream]uint32
}

// stream is a direction of a TCP connection: addresses and ports as in the frame.
type stream [12]byte

// maxStarts is the maximum number of streams in starts. A Trimmer that has seen more
// connections discards all of them; it then keeps transfer headers only in segments that
// begin with one.
const maxStarts = 1 << 16

// HeaderSnaplen is the maximum snaplen, in bytes, at which captures are trimmed. It is the
// default, enough for all headers. A larger snaplen keeps the data of transfers.
const HeaderSnaplen = 160

// NewTrimmer returns a Trimmer that has seen no connection.
func NewTrimmer() *Trimmer { return &Trimmer{map[stream]uint32{}} }

// Trim returns the prefix of a frame to keep. It must be called with the frames of a host or
// port in order. It allocates only for new connections.
func (t *Trimmer) Trim(frame []byte) []byte {
	f, ok := parse(frame)
	if !ok || f.udp || f.dstPort != wire.ShufflePort && f.dstPort != wire.BlockPort {
		return frame
	}
	const seqAt, flagsAt, syn, ack = 4, 13, 0x02, 0x10
	seq := binary.BigEndian.Uint32(f.segment[seqAt:])
	if f.segment[flagsAt]&syn != 0 {
		if f.segment[flagsAt]&ack == 0 {
			if len(t.starts) >= maxStarts {
				clear(t.starts)
			}
			t.starts[f.stream()] = seq + 1
		}
		return frame
	}
	if len(f.payload) == 0 || len(f.payload) >= 4 && [4]byte(f.payload) == magic {
		return frame
	}
	if start, ok := t.starts[f.stream()]; ok && int32(seq-start) < wire.Size {
		return frame
	}
	return frame[:len(frame)-len(f.payload)-f.padding]
}
