package pcap

import (
	"bytes"
	"encoding/binary"
	"testing"
	"time"

	"testbed/hosts/wire"
)

// Segments of transfers keep their headers, the transfer header and nothing else; all other
// frames are kept whole.
func TestTrim(t *testing.T) {
	const heads = 14 + 20 + 32
	head := header(wire.KindFlow).Append(nil)
	data := bytes.Repeat([]byte{7}, 94)
	frame := func(port uint16, seq uint32, flags byte, payload []byte) []byte {
		b := framed(t, false, port, payload, true)
		binary.BigEndian.PutUint32(b[38:], seq)
		b[47] = flags
		return b
	}
	const ack, syn, fin = 0x10, 0x02, 0x01
	answer := frame(40000, 1, ack, data)
	binary.BigEndian.PutUint16(answer[34:], wire.BlockPort)
	other := framed(t, true, wire.MarkPort, header(wire.KindCoflowMark).Append(nil), true)
	task := wire.Header{Kind: wire.KindFlow, Run: 7, Sent: time.Unix(1, 0), Task: wire.Task{Job: 3}}.Append(nil)
	padded := append(frame(wire.ShufflePort, 5000, ack, data), 0, 0, 0, 0)
	tr := NewTrimmer()
	for _, tt := range []struct {
		name  string
		frame []byte
		want  int // bytes kept; 0 for all
	}{
		{"data before any SYN", frame(wire.ShufflePort, 900, ack, data), heads},
		{"header without a SYN", frame(wire.ShufflePort, 900, ack, append(head, data...)), 0},
		{"SYN", frame(wire.ShufflePort, 999, syn, nil), 0},
		{"first part of the header", frame(wire.ShufflePort, 1000, ack, head[:20]), 0},
		{"the rest of it", frame(wire.ShufflePort, 1020, ack, append(head[20:], data...)), 0},
		{"part of the header sent again", frame(wire.ShufflePort, 1063, ack, data), 0},
		{"first data", frame(wire.ShufflePort, 1064, ack, data), heads},
		{"data", frame(wire.ShufflePort, 5000, ack|fin, data), heads},
		{"padded data", padded, heads},
		{"SYN of a flow of a task", frame(wire.ShufflePort, 8999, syn, nil), 0},
		{"first part of its header", frame(wire.ShufflePort, 9000, ack, task[:80]), 0},
		{"the rest of it", frame(wire.ShufflePort, 9080, ack, append(task[80:], data...)), 0},
		{"its first data", frame(wire.ShufflePort, 9092, ack, data), heads},
		{"a keep-alive probe", frame(wire.ShufflePort, 999, ack, data[:1]), 0},
		{"no payload", frame(wire.ShufflePort, 5000, ack, nil), 0},
		{"acknowledgements of a pipeline", answer, 0},
		{"data of another service", frame(22, 5000, ack, data), 0},
		{"block data", frame(wire.BlockPort, 5000, ack, data), heads},
		{"mark", other, 0},
		{"cut in its TCP header", frame(wire.ShufflePort, 5000, ack, data)[:50], 0},
		{"ARP", append(make([]byte, 12), 8, 6, 0, 1), 0},
		{"nothing", nil, 0},
	} {
		want := tt.want
		if want == 0 {
			want = len(tt.frame)
		}
		if got := tr.Trim(tt.frame); len(got) != want || !bytes.Equal(got, tt.frame[:want]) {
			t.Errorf("%s: %d of %d bytes kept, want %d", tt.name, len(got), len(tt.frame), want)
		}
	}
}

func TestTrimForgetsConnections(t *testing.T) {
	tr := NewTrimmer()
	b := framed(t, false, wire.ShufflePort, nil, true)
	b[47] = 0x02
	for i := range 3 * maxStarts {
		binary.BigEndian.PutUint32(b[26:], uint32(i))
		tr.Trim(b)
	}
	if n := len(tr.starts); n > maxStarts {
		t.Errorf("%d connections are remembered, want at most %d", n, maxStarts)
	}
}

func TestTrimDoesNotAllocate(t *testing.T) {
	tr := NewTrimmer()
	b := framed(t, false, wire.ShufflePort, make([]byte, 94), true)
	if n := testing.AllocsPerRun(100, func() { tr.Trim(b) }); n != 0 {
		t.Errorf("%v allocations for a packet", n)
	}
}
