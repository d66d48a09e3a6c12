package pcap

import (
	"bytes"
	"encoding/binary"
	"io"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/gopacket/layers"
	"github.com/google/gopacket/pcapgo"
)

// A later statistics block of an interface takes the place of the first.
func TestFacts(t *testing.T) {
	var b bytes.Buffer
	w, err := NewWriter(&b, sampleMeta(), []Interface{{Name: "eth0", SnapLen: 160}, {Name: "lo", SnapLen: 160}})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Write(0, time.Unix(5, 0), []byte("x"), 60); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(Stats{Received: 10, Dropped: 3}); err != nil {
		t.Fatal(err)
	}
	le := binary.LittleEndian
	block := []byte{statistics, 0, 0, 0, 52, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
	for _, o := range []struct {
		code  uint16
		value uint64
	}{{optReceived, 14}, {optDropped, 4}} {
		block = le.AppendUint64(le.AppendUint16(le.AppendUint16(block, o.code), 8), o.value)
	}
	block = le.AppendUint32(le.AppendUint32(block, optEnd), 52)
	b.Write(block)
	r, err := NewReader(&b)
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = r.Next()
	}
	if err != io.EOF {
		t.Fatal(err)
	}
	want := []Facts{{LinkType: LinkEthernet, Stats: Stats{14, 4}, HasReceived: true, HasDropped: true}, {LinkType: LinkEthernet}}
	if diff := cmp.Diff(want, r.Facts()); diff != "" {
		t.Errorf("Facts() (-want +got):\n%s", diff)
	}
	if s, ok := r.Stats(); !ok || s != (Stats{14, 4}) || r.Format() != "pcapng" {
		t.Errorf("Stats() = %v, %v of %s", s, ok, r.Format())
	}
}

func TestFormats(t *testing.T) {
	for _, tt := range []struct {
		w          func(io.Writer) *pcapgo.Writer
		link       layers.LinkType
		want, name string
	}{
		{pcapgo.NewWriter, layers.LinkTypeEthernet, "pcap", "Ethernet"},
		{pcapgo.NewWriterNanos, layers.LinkTypeLinuxSLL, "pcap (ns)", "Linux cooked"},
		{pcapgo.NewWriter, 250, "pcap", "link type 250"},
	} {
		var b bytes.Buffer
		if err := tt.w(&b).WriteFileHeader(100, tt.link); err != nil {
			t.Fatal(err)
		}
		r, err := NewReader(&b)
		if err != nil {
			t.Fatal(err)
		}
		if f := r.Facts(); r.Format() != tt.want || len(f) != 1 || f[0] != (Facts{LinkType: LinkType(tt.link)}) || f[0].LinkType.String() != tt.name {
			t.Errorf("%s, %+v, want %s of %s", r.Format(), f, tt.want, tt.name)
		}
	}
}
