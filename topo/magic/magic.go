// Package magic recognises what a file is by its first bytes: compressed files, text in
// other encodings than UTF-8, captures and tables. Names of files are not trusted: captures
// are often saved compressed under the name of plain ones.
//
// Every reader of text begins with Text or Plain.
//
// The package does not open files, and does not distinguish formats of text.
package magic

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// Len is the number of first bytes of a file that Of needs.
const Len = 16

// Kind is what a file is.
type Kind int

// Kinds of files.
const (
	Unknown Kind = iota // none of the others: text, or a file that Of does not know
	Gzip
	Zstd
	Bzip2
	XZ
	LZ4
	Zip
	UTF16
	UTF32
	Pcap
	Pcapng
	Snoop
	NetMon
	Parquet
	ELF
	PDF
	HTML
	LFS
	Binary // none of the others, and no text
)

// properties are the name of a kind with its article, and what to do if it cannot be read.
var properties = map[Kind]struct{ name, remedy string }{
	Unknown: {"a file of an unknown format", ""},
	Gzip:    {"a gzip file", "decompress it with gzip -dc"},
	Zstd:    {"a zstd file", "decompress it with zstd -dc"},
	Bzip2:   {"a bzip2 file", "decompress it with bzip2 -dc"},
	XZ:      {"an xz file", "decompress it with xz -dc"},
	LZ4:     {"an lz4 file", "decompress it with lz4 -dc"},
	Zip:     {"a zip archive", "extract it with unzip"},
	UTF16:   {"text in UTF-16", "save it as UTF-8, or convert it with iconv -f UTF-16 -t UTF-8"},
	UTF32:   {"text in UTF-32", "save it as UTF-8, or convert it with iconv -f UTF-32 -t UTF-8"},
	Pcap:    {"a capture in the pcap format", "read it with testbed pcap"},
	Pcapng:  {"a capture in the pcapng format", "read it with testbed pcap"},
	Snoop:   {"a capture in the format of snoop", "convert it with editcap -F pcapng"},
	NetMon:  {"a capture in the format of Microsoft Network Monitor", "convert it with editcap -F pcapng"},
	Parquet: {"a Parquet file", ""},
	ELF:     {"a program", ""},
	PDF:     {"a PDF file", ""},
	HTML:    {"a web page", "download the file itself"},
	LFS:     {"a pointer of Git LFS", "fetch the file with git lfs pull"},
	Binary:  {"binary data", ""},
}

// String returns a noun with its article, such as "a gzip file".
func (k Kind) String() string {
	if p, ok := properties[k]; ok {
		return p.name
	}
	return fmt.Sprintf("kind %d", int(k))
}

// Remedy returns what to do with a file that should have been of another kind, without the
// name of the file, such as "decompress it with gzip -dc"; "" if nothing helps.
func (k Kind) Remedy() string { return properties[k].remedy }

// Filter returns the command that decompresses the file to standard output; "" for other kinds.
func (k Kind) Filter() string {
	if !k.Compressed() {
		return ""
	}
	_, command, _ := strings.Cut(k.Remedy(), " with ")
	return command
}

// Compressed reports whether the file contains another, compressed.
func (k Kind) Compressed() bool { return k >= Gzip && k <= LZ4 }

// Capture reports whether the file is a capture of packets.
func (k Kind) Capture() bool { return k >= Pcap && k <= NetMon }

// prefixes are the first bytes of files of each kind. Longer ones come first if another
// begins in the same way.
var prefixes = []struct {
	first string
	kind  Kind
}{
	{"\x1f\x8b", Gzip},
	{"\x28\xb5\x2f\xfd", Zstd},
	{"BZh", Bzip2},
	{"\xfd7zXZ\x00", XZ},
	{"\x04\x22\x4d\x18", LZ4},
	{"PK\x03\x04", Zip},
	{"PK\x05\x06", Zip}, // empty
	{"\xff\xfe\x00\x00", UTF32},
	{"\x00\x00\xfe\xff", UTF32},
	{"\xff\xfe", UTF16},
	{"\xfe\xff", UTF16},
	{"\xa1\xb2\xc3\xd4", Pcap}, // microseconds, in both byte orders
	{"\xd4\xc3\xb2\xa1", Pcap},
	{"\xa1\xb2\x3c\x4d", Pcap}, // nanoseconds
	{"\x4d\x3c\xb2\xa1", Pcap},
	{"\xa1\xb2\xcd\x34", Pcap}, // Kuznetzov's variant
	{"\x34\xcd\xb2\xa1", Pcap},
	{"\x0a\x0d\x0d\x0a", Pcapng},
	{"snoop\x00\x00\x00", Snoop},
	{"RTSS", NetMon},
	{"GMBU", NetMon},
	{"PAR1", Parquet},
	{"\x7fELF", ELF},
	{"%PDF-", PDF},
	{"<!DOCTYPE ", HTML},
	{"<!doctype ", HTML},
	{"<html", HTML},
	{"version https://", LFS},
}

// Of returns the kind of a file that begins with head: its first Len bytes, or all of it if
// it is shorter.
func Of(head []byte) Kind {
	for _, p := range prefixes {
		if bytes.HasPrefix(head, []byte(p.first)) {
			return p.kind
		}
	}
	if len(head) >= 4 && head[0]&0xf0 == 0x50 && bytes.Equal(head[1:4], []byte("\x2a\x4d\x18")) {
		return Zstd // begins with a frame of metadata
	}
	if wideText(head[:min(len(head), Len)]) {
		return UTF16
	}
	return Unknown
}

// wideText reports whether head is printable ASCII in UTF-16 without a byte order mark: every
// second byte is 0.
func wideText(head []byte) bool {
	head = head[:len(head)&^1]
	if len(head) < 4 {
		return false
	}
	for _, zero := range []int{0, 1} {
		text := true
		for pair := range slices.Chunk(head, 2) {
			c := pair[1-zero]
			printable := c >= ' ' && c < 0x7f || c == '\t' || c == '\n' || c == '\r'
			text = text && pair[zero] == 0 && printable
		}
		if text {
			return true
		}
	}
	return false
}
