package wire

import (
	"encoding/binary"
	"hash/crc32"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// notes are the full notes of each kind of mark, with the longest texts.
func notes() map[Kind]Note {
	name, why := strings.Repeat("n", MaxName), strings.Repeat("w", MaxWhy)
	return map[Kind]Note{
		KindTaskMark:    {Host: name, User: name, Profile: name, Why: why},
		KindConsumed:    {Host: name},
		KindReplicaLost: {Host: name, Why: WhyFull},
		KindCoflowMark:  {Job: 1, Bin: 2, Writers: 1<<32 - 1, Background: true},
		KindWriteMark:   {Job: 1, Bin: 2, Writers: 3, Writer: 1<<32 - 1, Place: 5, Blocks: 6, Stage: 8, Index: 9, Attempt: 10},
	}
}

// markOf returns a header for a mark of a kind.
func markOf(k Kind) Header {
	switch k {
	case KindTaskMark:
		return moment()
	case KindConsumed:
		return consumed()
	}
	return Header{Kind: k, Run: 5, Group: 7, Size: 10, Sent: time.Unix(1700000000, 5)}
}

// sealed is a mark with the bytes of a note and their checksum.
func sealed(head []byte, note ...byte) []byte {
	b := append(head, note...)
	return binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
}

func TestNoteRoundTrip(t *testing.T) {
	all := notes()
	for kind, want := range all {
		h := markOf(kind)
		b := h.AppendMark([]byte("x"), want)[1:]
		got, err := Parse(b)
		note, noteErr := ParseNote(b)
		if err != nil || noteErr != nil || got != h || note != want || len(b) > MaxMark {
			t.Errorf("%v: header %+v, %v, note %+v, %v, %d bytes", kind, got, err, note, noteErr, len(b))
		}
		for i := range b {
			bad := append([]byte(nil), b...)
			bad[i] ^= 0x40
			if _, err := Parse(bad); err != nil {
				continue
			}
			if note, err := ParseNote(bad); err == nil {
				t.Errorf("%v: byte %d damaged and not noticed: %+v", kind, i, note)
			}
		}
		for cut := range b {
			if _, err := ParseNote(b[:cut]); err == nil {
				t.Errorf("%v: cut off after %d bytes, and not noticed", kind, cut)
			}
		}
		if bare := h.AppendMark(nil, Note{}); string(bare) != string(h.Append(nil)) {
			t.Errorf("%v: an empty note is sent: %x", kind, bare)
		}
	}
}

// All texts and numbers together fit, and longer texts are cut between runes.
func TestNoteIsBounded(t *testing.T) {
	var full Note
	for _, text := range full.texts() {
		*text = "x" + strings.Repeat("é", MaxWhy)
	}
	for _, number := range full.numbers() {
		*number = 1<<32 - 1
	}
	full.Background = true
	b := moment().AppendMark(nil, full)
	got, err := ParseNote(b)
	if err != nil || len(b) > MaxMark || len(got.Host) != MaxName-1 || len(got.Why) != MaxWhy-1 || !utf8.ValidString(got.User+got.Profile+got.Why) || got.Blocks != full.Blocks || !got.Background {
		t.Errorf("%d bytes, %+v, %v", len(b), got, err)
	}
}

// Older marks have the name of a host after the header, or nothing. Fields of later versions are
// skipped.
func TestNotesOfOtherVersions(t *testing.T) {
	for _, h := range []Header{moment(), {Kind: KindReplicaLost, Run: 1, Sent: time.Unix(0, 5)}} {
		for _, name := range []string{"", "h1-00"} {
			if got, err := ParseNote(append(h.Append(nil), name...)); err != nil || got != (Note{Host: name}) {
				t.Errorf("%v: note %+v, %v, want the host %q", h.Kind, got, err, name)
			}
		}
	}
	if _, err := Parse(Header{Kind: KindFlow, Sent: time.Unix(0, 5)}.append(nil, VersionNote)); err == nil || !strings.Contains(err.Error(), "of marks, 4") {
		t.Errorf("a flow with a note: %v", err)
	}
	later := sealed(markOf(KindWriteMark).append(nil, VersionNote), 99, 2, 7, 7, tagJob, 4, 0, 0, 0, 9)
	if got, err := ParseNote(later); err != nil || got != (Note{Job: 9}) {
		t.Errorf("%+v, %v: want job 9", got, err)
	}
	for _, bad := range [][]byte{{tagJob, 3, 0, 0, 9}, {tagJob}, {tagHost, 5, 'h'}} {
		if got, err := ParseNote(sealed(markOf(KindWriteMark).append(nil, VersionNote), bad...)); err == nil {
			t.Errorf("%v is read as %+v", bad, got)
		}
	}
}

func FuzzParseNote(f *testing.F) {
	for kind, n := range notes() {
		f.Add(markOf(kind).AppendMark(nil, n))
		f.Add(append(markOf(kind).Append(nil), "h0-00"...))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := Parse(b)
		if err != nil {
			return
		}
		n, err := ParseNote(b)
		if err != nil || !h.Kind.Mark() || len(n.Host) > MaxName || len(n.User) > MaxName || len(n.Profile) > MaxName || len(n.Why) > MaxWhy {
			return
		}
		if !utf8.ValidString(n.Host + n.User + n.Profile + n.Why) {
			return // texts that are not cut are sent as they are
		}
		if again, err := ParseNote(h.AppendMark(nil, n)); err != nil || again != n {
			t.Errorf("%+v comes back as %+v, %v", n, again, err)
		}
	})
}
