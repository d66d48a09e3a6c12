package wire

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
)

func sample() Header {
	return Header{Kind: KindBlock, Run: 1 << 60, Group: 7, Member: 2, Parts: 3, Size: 8 << 20, Packet: 16384, Generation: 3, Offset: 1 << 33, Sent: time.Unix(1700000000, 123456789)}
}

// fetch is the header of a flow of a task, and moment that of a mark of one.
func fetch() Header {
	return Header{Kind: KindFlow, Run: 1 << 60, Group: 7, Member: 2, Parts: 0xabcd, Size: 8 << 20, Sent: time.Unix(1700000000, 123456789),
		Task: Task{Job: 3, Index: 70_000, Stage: 1, Attempt: 2, FromStage: 4, FromAttempt: 5, FromIndex: 80_000, Outputs: 90_000}}
}

func moment() Header {
	return Header{Kind: KindTaskMark, Read: true, Run: 5, Group: 3, Size: 8 << 20, Sent: time.Unix(1700000000, 5),
		Task: Task{Job: 3, Index: 17, Attempt: 1, Moment: JobFailed, Reduce: true, Locality: OffRack}}
}

func consumed() Header {
	h := Header{Kind: KindConsumed, Read: true, Run: 5, Group: 3, Member: 9, Size: 8 << 20, Sent: time.Unix(1700000000, 5), Task: Task{Job: 3, Index: 17, Attempt: 1}}
	h.SetLag(time.Second)
	return h
}

func TestRoundTrip(t *testing.T) {
	for _, h := range []Header{sample(), fetch(), moment(), consumed()} {
		b := h.Append([]byte("x"))
		n, ok := Len(b[1:])
		if len(b) != 1+h.Len() || n != h.Len() || !ok || (n == MaxSize) != (h.Task.Job > 0) {
			t.Fatalf("length %d, Header.Len %d, Len %d, %v", len(b)-1, h.Len(), n, ok)
		}
		got, err := Parse(append(b[1:], "rest"...))
		if err != nil || got != h {
			t.Errorf("Parse = %+v, %v, want %+v", got, err, h)
		}
	}
}

// The layout without extension stays that of captures of older versions.
func TestOldLayout(t *testing.T) {
	const want = "54424544020200001000000000000000000000070000000200000003000040000000000000800000" +
		"17979cfe3d85cd15000000030000000200000000"
	if got := fmt.Sprintf("%x", sample().Append(nil)[:crcAt]); got != want {
		t.Errorf("header %s, want %s", got, want)
	}
}

func TestParseRefusesTasks(t *testing.T) {
	for _, tt := range []struct {
		edit func(*Header)
		want string
	}{
		{func(h *Header) { h.Task.Job = 0 }, "job 0"},
		{func(h *Header) { h.Task.Moment = lastMoment + 1 }, "unknown moment 12"},
		{func(h *Header) { h.Task.Moment = 0 }, "unknown moment 0"},
		{func(h *Header) { h.Kind = KindFlow }, "only a task-mark has one"},
		{func(h *Header) { h.Task.Locality = OffRack + 1 }, "unknown locality 3"},
		{func(h *Header) { h.Task = Task{} }, "must be of version 3"},
	} {
		h := moment()
		tt.edit(&h)
		if _, err := Parse(h.Append(nil)); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: %v, want %q", h, err, tt.want)
		}
	}
	if _, err := Parse(moment().Append(nil)[:MaxSize-1]); err == nil || !strings.Contains(err.Error(), "91 of its 92 bytes") {
		t.Errorf("cut extension: %v", err)
	}
	for b, want := range map[string]int{"TBED": 0, "TBED\x02": 0, "TBED\x02\x01": Size, "TBED\x03\x01": MaxSize, "TBED\x04\x01": 0, "TBED\x04\x04": Size, "TBED\x04\x0b": MaxSize, "TBED\x05\x04": 0, "TBEX\x02\x01": 0} {
		if n, ok := Len([]byte(b)); n != want || ok != (want > 0) {
			t.Errorf("Len(%q) = %d, %v, want %d", b, n, ok, want)
		}
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
	for _, h := range []Header{sample(), fetch(), moment(), consumed()} {
		whole := h.Append(nil)
		for i := range whole {
			b := append([]byte(nil), whole...)
			b[i] ^= 0x40
			if _, err := Parse(b); err == nil {
				t.Errorf("%v: byte %d damaged and not noticed", h.Kind, i)
			}
		}
	}
	whole := sample().Append(nil)
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
	for _, h := range []Header{sample(), fetch(), moment(), consumed()} {
		b := h.Append(nil)
		f.Add(b)
		f.Add(b[:len(b)-1])
	}
	f.Add([]byte("TBED"))
	f.Add([]byte("TBED\x03"))
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
