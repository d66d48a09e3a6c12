package wire

import (
	"errors"
	"math"
	"testing"
	"time"
)

func sample() Header {
	return Header{Kind: KindBlock, Run: 1 << 60, Group: 7, Member: 2, Parts: 3, Size: 8 << 20, Packet: 16384, Generation: 3, Offset: 1 << 33, Sent: time.Unix(1700000000, 123456789)}
}

func TestRoundTrip(t *testing.T) {
	b := sample().Append([]byte("x"))
	if len(b) != 1+Size {
		t.Fatalf("length %d, want %d", len(b), 1+Size)
	}
	got, err := Parse(b[1:])
	if err != nil || got != sample() {
		t.Errorf("Parse = %+v, %v, want %+v", got, err, sample())
	}
}

// A write mark has its wait in the field that is the offset of other kinds.
func TestWriteMarkWaited(t *testing.T) {
	h := Header{Kind: KindWriteMark, Run: 5, Group: 7, Parts: 3, Size: 8 << 20, Sent: time.Unix(1700000000, 5)}
	h.Wait(1234567 * time.Microsecond)
	if got, err := Parse(h.Append(nil)); err != nil || got != h || got.Waited() != 1234567*time.Microsecond {
		t.Errorf("Parse = %+v, %v, want %+v", got, err, h)
	}
	h.Wait(-time.Second)
	if h.Waited() != 0 {
		t.Errorf("%v, want no wait", h.Waited())
	}
	h.Offset = 1 << 63
	if h.Waited() != math.MaxInt64 {
		t.Errorf("%v, want the longest", h.Waited())
	}
	if got := sample().Waited(); got != 0 {
		t.Errorf("%v of a hop, want none", got)
	}
}

// A flow's header has its release time in the field that is the offset of other kinds.
func TestFlowReleased(t *testing.T) {
	h := Header{Kind: KindFlow, Run: 5, Group: 7, Member: 2, Size: 10, Sent: time.Unix(1700000000, 5)}
	if at, ok := h.Released(); ok {
		t.Errorf("released at %v, which its header does not state", at)
	}
	for _, ago := range []time.Duration{time.Minute, 1} {
		h.Release(h.Sent.Add(-ago))
		got, err := Parse(h.Append(nil))
		if err != nil || got != h {
			t.Fatalf("Parse = %+v, %v, want %+v", got, err, h)
		}
		if at, ok := got.Released(); !ok || !at.Equal(h.Sent.Add(-ago)) || got.Resumes() != 0 {
			t.Errorf("released %v ago: %v, %v before Sent, goes on at %d", ago, ok, h.Sent.Sub(at), got.Resumes())
		}
	}
	h.Release(h.Sent.Add(time.Second)) // as after the clock was set back
	if at, ok := h.Released(); !ok || h.Sent.Sub(at) != 1 {
		t.Errorf("released after it was sent: %v, %v before", ok, h.Sent.Sub(at))
	}
	if _, ok := sample().Released(); ok || sample().Resumes() != sample().Size {
		t.Errorf("a hop is released, or goes on at %d of %d", sample().Resumes(), sample().Size)
	}
}

func TestParseRefusesDamage(t *testing.T) {
	whole := sample().Append(nil)
	for i := range whole {
		b := append([]byte(nil), whole...)
		b[i] ^= 0x40
		if _, err := Parse(b); err == nil {
			t.Errorf("byte %d damaged and not noticed", i)
		}
	}
	if _, err := Parse(whole[:Size-1]); !errors.Is(err, ErrNotHeader) {
		t.Errorf("short header: %v", err)
	}
}

func TestAckBytes(t *testing.T) {
	for _, tt := range []struct{ size, packet, want uint64 }{{8_000_000, 16_000, 8 * 501}, {1, 16_000, 16}, {16_001, 16_000, 24}} {
		if got := AckBytes(tt.size, tt.packet); got != tt.want {
			t.Errorf("AckBytes(%d, %d) = %d, want %d", tt.size, tt.packet, got, tt.want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(sample().Append(nil))
	f.Add([]byte("TBED"))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := Parse(b)
		if err != nil {
			return
		}
		back, err := Parse(h.Append(nil))
		if err != nil || back != h {
			t.Errorf("%+v comes back as %+v, %v", h, back, err)
		}
	})
}
