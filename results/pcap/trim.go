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
	starts map[stream]start // of streams whose SYN was seen
}

// start is the beginning of a stream.
type start struct {
	seq  uint32 // of the first byte
	head int32  // length of the transfer header, wire.MaxSize while it is unknown
}

// stream is a direction of a TCP connection: addresses and ports as in the frame.
type stream [12]byte

// maxStarts is the maximum number of streams in starts. A Trimmer that has seen more
// connections discards all of them; it then keeps transfer headers only in segments that
// begin with one.
const maxStarts = 1 << 16

// HeaderSnaplen is the maximum snaplen, in bytes, at which captures are trimmed. It is the
// default, enough for all headers: Ethernet (14), IPv4 (20), TCP with time stamps (32) and
// wire.MaxSize. A larger snaplen keeps the data of transfers.
const HeaderSnaplen = 160

// MarkSnaplen is the length of the longest frame of a mark, in bytes: Ethernet (14), IPv4 (20), UDP (8)
// and wire.MaxMark. Captures keep marks whole, at any snaplen.
const MarkSnaplen = 14 + 20 + 8 + wire.MaxMark

// NewTrimmer returns a Trimmer that has seen no connection.
func NewTrimmer() *Trimmer { return &Trimmer{map[stream]start{}} }

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
			t.starts[f.stream()] = start{seq + 1, wire.MaxSize}
		}
		return frame
	}
	if len(f.payload) == 0 {
		return frame
	}
	if len(f.payload) >= 4 && [4]byte(f.payload) == wireMagic {
		if s, ok := t.starts[f.stream()]; ok && seq == s.seq {
			if n, ok := wire.Len(f.payload); ok {
				t.starts[f.stream()] = start{seq, int32(n)}
			}
		}
		return frame
	}
	if s, ok := t.starts[f.stream()]; ok && int32(seq-s.seq) < s.head {
		return frame
	}
	return frame[:len(frame)-len(f.payload)-f.padding]
}
