package pcap

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
)

// connections returns a capture of packets of a few connections, with comments and flags, and
// some frames of no connection.
func connections(t testing.TB, n int) []byte {
	t.Helper()
	var buf bytes.Buffer
	w, err := NewWriter(&buf, sampleMeta(), []Interface{{Name: "eth0", SnapLen: 160}, {Name: "lo", SnapLen: 160}})
	if err != nil {
		t.Fatal(err)
	}
	now := int64(1_700_000_000_999_999_000)
	for i := range n {
		b := make([]byte, 66+i%3*4)
		binary.BigEndian.PutUint16(b[12:], 0x0800)
		b[14], b[23], b[46] = 0x45, protoTCP, 0x80
		binary.BigEndian.PutUint16(b[18:], uint16(i))
		b[29], b[33] = byte(i%5), 9
		binary.BigEndian.PutUint32(b[38:], uint32(i)*1448)
		binary.BigEndian.PutUint16(b[50:], uint16(i*40503))
		p := Packet{Interface: i % 2, Stamp: now, Data: b, Len: 1514}
		if i%97 == 0 {
			p.Data, p.Len = b[:1+i%40], 60
		}
		now += int64(i%1000) - 100 // stamps are not ascending
		comment := ""
		if i%50 == 0 {
			comment = "a comment"
		}
		if err := w.WriteNoted(p, Flags(i%3), comment); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(Stats{Received: uint64(n)}); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func pack(t testing.TB, plain []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := Pack(&out, bytes.NewReader(plain)); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func unpack(packed []byte) ([]byte, error) {
	z, err := decompress(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	defer z.z.Close()
	return io.ReadAll(z)
}

// Unpacking restores every byte: of whole captures, of captures cut off or damaged, of both
// byte orders, of the older format, and of files that are no captures.
func TestPackedRoundTrip(t *testing.T) {
	whole := connections(t, 3*groupPackets)
	random, _ := capture(t, 500)
	damaged := bytes.Clone(whole)
	for i := 5000; i < len(damaged); i += 9973 {
		damaged[i] ^= 0x55
	}
	inputs := map[string][]byte{"connections": whole, "random data": random, "damaged": damaged, "cut off": whole[:len(whole)/3+1],
		"two sections": append(bytes.Clone(random), whole...), "empty": {}, "text": []byte("not a capture"), "zeros": make([]byte, 3*maxRaw)}
	for _, v := range variants(t) {
		inputs["variant "+v.name] = v.file
	}
	for name, plain := range inputs {
		packed := pack(t, plain)
		if got, err := unpack(packed); err != nil || !bytes.Equal(got, plain) {
			t.Errorf("%s: unpacked to %d bytes (%v), want the %d bytes that were packed", name, len(got), err, len(plain))
		}
	}
	if packed := pack(t, whole); len(packed) > len(whole)/14 {
		t.Errorf("%d bytes are packed into %d: want less than a 14th", len(whole), len(packed))
	}
}

// A Reader returns the same of a packed capture, of one that zstd compressed, and of the
// plain one.
func TestReadsCompressed(t *testing.T) {
	plain := connections(t, groupPackets+100)
	var zst bytes.Buffer
	z, err := zstd.NewWriter(&zst)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := z.Write(plain); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	type result struct {
		Packets    []kept
		Meta       Meta
		Interfaces []Interface
		Stats      Stats
		Err        string
	}
	read := func(b []byte) (out result, r *Reader) {
		r, err := NewReader(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		out.Packets, err = readAll(r)
		out.Err = err.Error()
		out.Meta, _ = r.Meta()
		out.Interfaces = r.Interfaces()
		out.Stats, _ = r.Stats()
		return out, r
	}
	want, r := read(plain)
	if r.Compressed() || want.Err != io.EOF.Error() || len(want.Packets) != groupPackets+100 {
		t.Fatalf("plain: compressed %v, %d packets, %s", r.Compressed(), len(want.Packets), want.Err)
	}
	for name, b := range map[string][]byte{"packed": pack(t, plain), "zstd": zst.Bytes()} {
		got, r := read(b)
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s (-plain +%[1]s):\n%s", name, d)
		}
		if !r.Compressed() || r.Offset() != int64(len(b)) {
			t.Errorf("%s: compressed %v, read up to %d of %d bytes", name, r.Compressed(), r.Offset(), len(b))
		}
	}
}

// A packed capture that is cut off anywhere is read as far as whole groups are there, and
// reported as cut off; one with a changed byte is reported as damaged, and what is returned
// before is what was captured.
func TestPackedIsCutOffOrDamaged(t *testing.T) {
	plain := connections(t, 2*groupPackets)
	r, err := NewReader(bytes.NewReader(plain))
	if err != nil {
		t.Fatal(err)
	}
	want, err := readAll(r)
	if err != io.EOF {
		t.Fatal(err)
	}
	packed := pack(t, plain)
	check := func(b []byte, kinds ...error) (n int) {
		t.Helper()
		r, err := NewReader(bytes.NewReader(b))
		var got []kept
		if err == nil {
			got, err = readAll(r)
		}
		var bad *Error
		if !errors.As(err, &bad) {
			t.Fatalf("error %v, want one that names the place", err)
		}
		for _, k := range kinds {
			if errors.Is(err, k) {
				kinds = nil
			}
		}
		if kinds != nil {
			t.Fatalf("error %v, want %v", err, kinds)
		}
		if len(got) > len(want) || len(got) > 0 && !cmp.Equal(got, want[:len(got)]) {
			for i := range got {
				if i == len(want) || got[i] != want[i] {
					t.Fatalf("packet %d of %d is not that of the capture: %+v (%v)", i, len(got), got[i], err)
				}
			}
		}
		return len(got)
	}
	most := 0
	for cut := 0; cut < len(packed); cut += 1 + len(packed)/50 {
		n := check(packed[:cut], ErrTruncated)
		if n < most {
			t.Errorf("%d packets of the first %d bytes, %d of fewer", n, cut, most)
		}
		most = n
	}
	if most < groupPackets {
		t.Errorf("%d packets of a capture that lacks its end, want the first group at least", most)
	}
	if _, err := NewReader(bytes.NewReader(packed[:len(packed)/2])); err != nil {
		t.Error(err)
	}
	for at := 8; at < len(packed); at += 1 + len(packed)/100 {
		b := bytes.Clone(packed)
		b[at] ^= 1 << (at % 8)
		if got, err := unpack(b); err == nil && bytes.Equal(got, plain) {
			continue // a bit that means nothing
		}
		check(b, ErrDamaged, ErrTruncated)
	}
}

// full fails as a full disk does.
type full struct{ left int }

func (f *full) Write(b []byte) (int, error) {
	if len(b) > f.left {
		n := f.left
		f.left = 0
		return n, syscall.ENOSPC
	}
	f.left -= len(b)
	return len(b), nil
}

func TestPackOnAFullDisk(t *testing.T) {
	plain := connections(t, 2*groupPackets)
	for _, room := range []int{0, 100, len(pack(t, plain)) - 1} {
		if err := Pack(&full{room}, bytes.NewReader(plain)); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("room for %d bytes: %v, want that there is no space", room, err)
		}
	}
}

// put writes a file of a test.
func put(t *testing.T, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
}

func names(t *testing.T, dir string) (out []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

func TestPackFile(t *testing.T) {
	plain := connections(t, 3*groupPackets)
	dir := t.TempDir()
	path := filepath.Join(dir, "h0-00.pcapng")
	put(t, path, plain)
	packed, err := PackFile(t.Context(), path)
	if err != nil || packed != filepath.Join(dir, "h0-00.pcapng.packed") {
		t.Fatalf("PackFile = %s, %v", packed, err)
	}
	if got := names(t, dir); !cmp.Equal(got, []string{"h0-00.pcapng.packed"}) {
		t.Errorf("files %q, want the packed one alone", got)
	}
	r, err := OpenPlain(packed)
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(r)
	if err := errors.Join(err, r.Close()); err != nil || !bytes.Equal(got, plain) {
		t.Errorf("%d bytes (%v), want those that were packed", len(got), err)
	}
	if _, err := PackFile(t.Context(), packed); err == nil || !strings.Contains(err.Error(), "must end in .pcapng") {
		t.Errorf("PackFile of a packed file: %v", err)
	}
}

// An interrupt at any moment leaves the plain file as it was, and nothing else.
func TestInterruptedPackingLosesNothing(t *testing.T) {
	plain := connections(t, 3*groupPackets)
	dir := t.TempDir()
	path := filepath.Join(dir, "h0-00.pcapng")
	interrupted := 0
	for wait := time.Duration(0); wait < 3*time.Second; wait = wait*3/2 + 100*time.Microsecond {
		put(t, path, plain)
		ctx, cancel := context.WithTimeout(t.Context(), wait)
		_, err := PackFile(ctx, path)
		cancel()
		if err == nil {
			break
		}
		interrupted++
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("after %v: %v", wait, err)
		}
		got, err := os.ReadFile(path)
		if err != nil || !bytes.Equal(got, plain) {
			t.Fatalf("after %v the plain file is not what it was: %d bytes, %v", wait, len(got), err)
		}
		if got := names(t, dir); !cmp.Equal(got, []string{"h0-00.pcapng"}) {
			t.Fatalf("after %v there are %q", wait, got)
		}
	}
	if interrupted == 0 {
		t.Error("packing was never interrupted")
	}
}

// A packed file that does not read back as what was packed does not replace the plain one.
func TestPackedFileIsReadBack(t *testing.T) {
	dir := t.TempDir()
	packed := filepath.Join(dir, "h0-00.pcapng.packed")
	put(t, packed, pack(t, connections(t, 100)))
	other := connections(t, 101)
	sum := newHash()
	sum.Write(other)
	if err := readBack(t.Context(), packed, sum); err == nil || !strings.Contains(err.Error(), "the plain file is kept") {
		t.Errorf("readBack of another capture: %v", err)
	}
}

func TestList(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"h0-01.pcapng", "h0-00.pcapng.packed", "h0-00.pcapng", "h0-02.pcapng.packed", "notes.txt", ".new-x"} {
		put(t, filepath.Join(dir, name), nil)
	}
	got, err := List(dir)
	want := []File{{"h0-00", filepath.Join(dir, "h0-00.pcapng")}, {"h0-01", filepath.Join(dir, "h0-01.pcapng")}, {"h0-02", filepath.Join(dir, "h0-02.pcapng.packed")}}
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Errorf("List: %v\n%s", err, d)
	}
	for _, w := range want {
		if got := Find(dir, w.Name); got != w.Path {
			t.Errorf("Find(%s) = %s, want %s", w.Name, got, w.Path)
		}
	}
	if got := Find(dir, "h9-99"); got != filepath.Join(dir, "h9-99.pcapng") {
		t.Errorf("Find of none = %s", got)
	}
}

func FuzzPacked(f *testing.F) {
	f.Add(connections(f, 50))
	random, _ := capture(f, 5)
	f.Add(random)
	f.Add([]byte("\x00\x01\x00\x01\x00\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if got, err := unpack(pack(t, b)); err != nil || !bytes.Equal(got, b) {
			t.Fatalf("%d bytes became %d: %v", len(b), len(got), err)
		}
		// As the content of a packed capture, anything ends with an error or without, and within
		// bounds of memory.
		u := &unpacker{in: bufio.NewReader(bytes.NewReader(b))}
		_, _ = io.Copy(io.Discard, io.LimitReader(u, 64<<20))
	})
}

// BenchmarkPacked reports what packing and unpacking take of one processor.
func BenchmarkPacked(b *testing.B) {
	const n = 200_000
	plain := connections(b, n)
	packed := pack(b, plain)
	b.Run("pack", func(b *testing.B) {
		for b.Loop() {
			pack(b, plain)
		}
		b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "packets/s")
		b.ReportMetric(float64(len(packed))/n, "B/packet")
	})
	b.Run("unpack", func(b *testing.B) {
		for b.Loop() {
			if _, err := unpack(packed); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "packets/s")
	})
}
