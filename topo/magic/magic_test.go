package magic

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/klauspost/compress/zstd"
)

func TestOf(t *testing.T) {
	var gz bytes.Buffer
	w := gzip.NewWriter(&gz)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	z, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	wide := func(order binary.AppendByteOrder, text string) string {
		var b []byte
		for _, u := range utf16.Encode([]rune(text)) {
			b = order.AppendUint16(b, u)
		}
		return string(b)
	}
	for _, tt := range []struct {
		name, head string
		want       Kind
	}{
		{"nothing", "", Unknown},
		{"text", "seed: 1\n", Unknown},
		{"text that begins as a name of a format", "snoop 1\n", Unknown},
		{"JSON", `{"seed": 1}`, Unknown},
		{"UTF-8 with a byte order mark", "\xef\xbb\xbfseed: 1\n", Unknown},
		{"Chinese in UTF-8", "种子: 1\n", Unknown},
		{"gzip", gz.String(), Gzip},
		{"zstd", string(z.EncodeAll([]byte("seed: 1\n"), nil)), Zstd},
		{"zstd, a frame of metadata first", "\x5a\x2a\x4d\x18\x04\x00\x00\x00abcd", Zstd},
		{"UTF-16, little endian", wide(binary.LittleEndian, "\ufeffseed: 1\n"), UTF16},
		{"UTF-16, big endian", wide(binary.BigEndian, "\ufeffseed: 1\n"), UTF16},
		{"UTF-16 without a mark, little endian", wide(binary.LittleEndian, "seed: 1\r\n"), UTF16},
		{"UTF-16 without a mark, big endian", wide(binary.BigEndian, "2 1\n"), UTF16},
		{"UTF-32", "\xff\xfe\x00\x00s\x00\x00\x00", UTF32},
		{"zeros", strings.Repeat("\x00", Len), Unknown},
		{"pcap, big endian, nanoseconds", "\xa1\xb2\x3c\x4d\x00\x02\x00\x04", Pcap},
		{"pcapng", "\n\r\r\n\x1c\x00\x00\x00", Pcapng},
		{"snoop", "snoop\x00\x00\x00\x00\x00\x00\x02", Snoop},
	} {
		if got := Of([]byte(tt.head)); got != tt.want {
			t.Errorf("%s: Of(%q) = %v, want %v", tt.name, tt.head, got, tt.want)
		}
	}
}

func TestEveryKindHasAName(t *testing.T) {
	for k := Unknown; k <= PDF; k++ {
		if strings.HasPrefix(k.String(), "kind ") {
			t.Errorf("%v has no name", k)
		}
	}
}
