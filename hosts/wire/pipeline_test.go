package wire

import (
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTargetsRoundTrip(t *testing.T) {
	full := make([]Target, MaxTargets)
	for i := range full {
		full[i] = Target{Host: uint32(i), Hash: 1<<31 + uint32(i)}
	}
	for _, want := range [][]Target{{}, {{Host: 7, Hash: 1 << 30}}, full} {
		b, err := AppendTargets([]byte("x"), want)
		if err != nil || len(b) != 1+TargetsSize {
			t.Fatalf("AppendTargets(%v) is %d bytes, %v, want %d", want, len(b)-1, err, TargetsSize)
		}
		got, err := ParseTargets(b[1:])
		if err != nil || !cmp.Equal(got, want) {
			t.Errorf("ParseTargets = %v, %v, want %v", got, err, want)
		}
	}
	if _, err := AppendTargets(nil, make([]Target, MaxTargets+1)); err == nil {
		t.Error("too many targets and no error")
	}
}

func TestParseTargetsRefusesDamage(t *testing.T) {
	whole, err := AppendTargets(nil, []Target{{Host: 1, Hash: 2}})
	if err != nil {
		t.Fatal(err)
	}
	for i := range whole {
		b := append([]byte(nil), whole...)
		b[i] ^= 0x10
		if _, err := ParseTargets(b); err == nil {
			t.Errorf("byte %d damaged and not noticed", i)
		}
	}
	if _, err := ParseTargets(whole[:TargetsSize-1]); err == nil {
		t.Error("short list and no error")
	}
}

func TestAckRoundTrip(t *testing.T) {
	long := strings.Repeat("x", MaxReason+1)
	for _, tt := range []struct{ in, want Ack }{
		{Ack{}, Ack{}},
		{Ack{Seq: 1 << 31}, Ack{Seq: 1 << 31}},
		{Ack{Seq: 4, Alive: true}, Ack{Seq: 4, Alive: true}},
		{Ack{Seq: 3, Failed: true}, Ack{Seq: 3, Failed: true}},
		{Ack{Seq: 3, Failed: true, Host: 9, Reason: "disk full"}, Ack{Seq: 3, Failed: true, Host: 9, Reason: "disk full"}},
		{Ack{Failed: true, Full: true, Host: 9, Reason: "disk full"}, Ack{Failed: true, Full: true, Host: 9, Reason: "disk full"}},
		{Ack{Failed: true, Reason: long}, Ack{Failed: true, Reason: long[:MaxReason]}},
		{Ack{Failed: true, Reason: "x" + strings.Repeat("é", MaxReason)}, Ack{Failed: true, Reason: "x" + strings.Repeat("é", (MaxReason-1)/2)}}, // no half rune
	} {
		b := tt.in.Append(nil)
		if !tt.in.Failed && len(b) != AckSize {
			t.Errorf("%+v is %d bytes, want %d", tt.in, len(b), AckSize)
		}
		got, more, err := ParseAck(b)
		if err != nil || more != len(b)-AckSize {
			t.Fatalf("ParseAck(%x) = %+v, %d, %v", b, got, more, err)
		}
		if got.Failed {
			if got, err = got.ParseFailure(b[AckSize:]); err != nil {
				t.Fatal(err)
			}
		}
		if got != tt.want {
			t.Errorf("%+v comes back as %+v", tt.in, got)
		}
	}
}

func TestParseAckRefuses(t *testing.T) {
	for _, b := range [][]byte{nil, {ackMark, 0, 0, 0, 0, 0, 0}, {0, 0, 0, 0, 0, 0, 0, 0}, {ackMark, 3, 0, 0, 0, 0, 0, 0}, {ackMark, 2, 0, 1, 0, 0, 0, 0}, {ackMark, 0, 0, 1, 0, 0, 0, 0}, {ackMark, 1, 0, 3, 0, 0, 0, 0}, {ackMark, 1, 255, 255, 0, 0, 0, 0}} {
		if a, _, err := ParseAck(b); err == nil {
			t.Errorf("ParseAck(%x) = %+v, want an error", b, a)
		}
	}
	if _, err := (Ack{Failed: true}).ParseFailure([]byte("abc")); err == nil {
		t.Error("short failure and no error")
	}
}

func FuzzParseAck(f *testing.F) {
	f.Add(Ack{Seq: 3}.Append(nil))
	f.Add(Ack{Seq: 3, Alive: true}.Append(nil))
	f.Add(Ack{Seq: 3, Failed: true, Host: 9, Reason: "disk full"}.Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		a, more, err := ParseAck(b)
		if err != nil || len(b) < AckSize+more {
			return
		}
		if a.Failed {
			if a, err = a.ParseFailure(b[AckSize : AckSize+more]); err != nil {
				t.Fatal(err)
			}
		}
		if back := a.Append(nil); string(back) != string(b[:AckSize+more]) {
			t.Errorf("%x comes back as %x", b, back)
		}
	})
}

func FuzzParseTargets(f *testing.F) {
	b, _ := AppendTargets(nil, []Target{{Host: 1, Hash: 2}, {Host: 3, Hash: 4}})
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := ParseTargets(b)
		if err != nil {
			return
		}
		again, err := AppendTargets(nil, got)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := ParseTargets(again); err != nil || !reflect.DeepEqual(back, got) {
			t.Errorf("%v comes back as %v, %v", got, back, err)
		}
	})
}
