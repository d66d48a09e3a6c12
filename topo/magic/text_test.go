package magic

import (
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"unicode/utf16"
)

func TestText(t *testing.T) {
	wide := func(order binary.AppendByteOrder, text string) string {
		var b []byte
		for _, u := range utf16.Encode([]rune(text)) {
			b = order.AppendUint16(b, u)
		}
		return string(b)
	}
	const chinese = "# 两个任务\n# 第二\nname: tiny\nseed: 1\n"
	for _, tt := range []struct {
		name, text, want string // want is the text that is read, or the beginning of the error
	}{
		{"text", "a: 1\n", "a: 1\n"},
		{"nothing", "", ""},
		{"a mark", byteOrderMark + "a: 1\n", "a: 1\n"},
		{"Chinese", chinese, chinese},
		{"one wrong byte", "4 1\n\x00\xff 0\n", "4 1\n\x00\xff 0\n"},
		{"gzip", "\x1f\x8b\b", "it is a gzip file: decompress it with gzip -dc"},
		{"UTF-16", wide(binary.LittleEndian, byteOrderMark+chinese), "it is text in UTF-16: save it as UTF-8"},
		{"UTF-16 without a mark, little endian", wide(binary.LittleEndian, chinese), "it is text in UTF-16"},
		{"UTF-16 without a mark, big endian", wide(binary.BigEndian, chinese), "it is text in UTF-16"},
		{"a capture", "\xd4\xc3\xb2\xa1\x02\x00\x04\x00", "it is a capture in the pcap format: read it with testbed pcap"},
		{"a web page", "<!DOCTYPE html>\n<html>", "it is a web page: download the file itself"},
		{"random bytes", "\x07\x00\x93\xf1a\x01\x02\x9c\xe1\x00\x00\x05\x88\x97\xaa\xbb", "it is binary data: expected text in UTF-8"},
	} {
		read := func(r io.Reader) string {
			text, err := Text(r)
			if err != nil {
				if notText := (*NotTextError)(nil); !errors.As(err, &notText) {
					t.Errorf("%s: error %T", tt.name, err)
				}
				return err.Error()
			}
			data, err := io.ReadAll(text)
			if err != nil {
				t.Errorf("%s: %v", tt.name, err)
			}
			return string(data)
		}
		for _, r := range []io.Reader{strings.NewReader(tt.text), iotest.OneByteReader(strings.NewReader(tt.text))} {
			if got := read(r); got != tt.want && !(strings.HasPrefix(tt.want, "it is") && strings.HasPrefix(got, tt.want)) {
				t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
			}
		}
		data, err := Plain([]byte(tt.text))
		if got := string(data); err == nil && got != tt.want || err != nil && !strings.HasPrefix(err.Error(), tt.want) {
			t.Errorf("%s: Plain %q, %v, want %q", tt.name, got, err, tt.want)
		}
	}
}
