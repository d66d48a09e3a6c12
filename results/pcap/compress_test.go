package pcap

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// manyPackets is a number of packets that fills several blocks of zstd.
const manyPackets = 20_000

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

func compress(t testing.TB, plain []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := Compress(&out, bytes.NewReader(plain)); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func uncompress(compressed []byte) ([]byte, error) {
	z, err := decompress(compressed[:min(len(compressed), 4)], bytes.NewReader(compressed))
	if err != nil || z == nil {
		return nil, errors.Join(err, errors.New("not compressed"))
	}
	defer z.close()
	return io.ReadAll(z)
}

// Decompressing restores every byte: of whole captures, of captures cut off or damaged, and of
// files that are no captures.
func TestCompressRoundTrip(t *testing.T) {
	whole := connections(t, manyPackets)
	damaged := bytes.Clone(whole)
	for i := 5000; i < len(damaged); i += 9973 {
		damaged[i] ^= 0x55
	}
	inputs := map[string][]byte{
		"whole": whole, "damaged": damaged, "cut off": whole[:len(whole)/3+1],
		"empty": {}, "text": []byte("not a capture"), "zeros": make([]byte, 3<<20),
	}
	for name, plain := range inputs {
		if got, err := uncompress(compress(t, plain)); err != nil || !bytes.Equal(got, plain) {
			t.Errorf("%s: %d bytes (%v), want the %d bytes that were compressed", name, len(got), err, len(plain))
		}
	}
	if n := len(compress(t, whole)); n > len(whole)/4 {
		t.Errorf("%d bytes are compressed to %d: want less than a fourth", len(whole), n)
	}
}

// A Reader returns the same of a compressed capture, of one in several frames, and of the
// plain one.
func TestReadsCompressed(t *testing.T) {
	plain := connections(t, manyPackets)
	half := len(plain) / 2
	frames := append(compress(t, plain[:half]), compress(t, plain[half:])...)
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
	if r.Compressed() || want.Err != io.EOF.Error() || len(want.Packets) != manyPackets {
		t.Fatalf("plain: compressed %v, %d packets, %s", r.Compressed(), len(want.Packets), want.Err)
	}
	for name, b := range map[string][]byte{"one frame": compress(t, plain), "two frames": frames} {
		got, r := read(b)
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s (-plain +%[1]s):\n%s", name, d)
		}
		if !r.Compressed() || r.Offset() != int64(len(b)) {
			t.Errorf("%s: compressed %v, read up to %d of %d bytes", name, r.Compressed(), r.Offset(), len(b))
		}
	}
}

// A compressed capture that is cut off is read up to there and reported as cut off.
func TestCompressedIsCutOff(t *testing.T) {
	plain := connections(t, manyPackets)
	want, err := readPackets(plain)
	if err != io.EOF {
		t.Fatal(err)
	}
	compressed := compress(t, plain)
	most := 0
	for cut := 0; cut < len(compressed); cut += 1 + (len(compressed)-1)/50 {
		got, err := readPackets(compressed[:cut])
		var bad *Error
		if !errors.As(err, &bad) || !errors.Is(err, ErrTruncated) {
			t.Fatalf("cut at byte %d: %v, want that it is cut off, and where", cut, err)
		}
		if len(got) < most || !slices.Equal(got, want[:len(got)]) {
			t.Fatalf("cut at byte %d: %d packets after %d, want the first packets of the capture", cut, len(got), most)
		}
		most = len(got)
	}
	if most < manyPackets*9/10 {
		t.Errorf("%d of %d packets of a capture that lacks a fiftieth", most, manyPackets)
	}
}

// A changed byte of a compressed capture is reported, unless it changes no packet.
func TestCompressedIsDamaged(t *testing.T) {
	plain := connections(t, 3000)
	compressed := compress(t, plain)
	checksums := 0
	const changes = 300
	for i := range changes {
		b := bytes.Clone(compressed)
		at := i * len(b) / changes
		b[at] ^= 1 << (i % 8)
		if got, err := uncompress(b); err == nil && bytes.Equal(got, plain) {
			continue // a bit that means nothing
		}
		_, err := readPackets(b)
		var bad *Error
		if !errors.As(err, &bad) {
			t.Fatalf("byte %d changed: %v, want an error that names the place", at, err)
		}
		if strings.Contains(err.Error(), "any packet may be wrong") {
			checksums++
		}
	}
	if checksums < changes/10 {
		t.Errorf("%d of %d changes were found by the checksum, want more: the others break the coding", checksums, changes)
	}
	if _, err := readPackets(append(bytes.Clone(compressed), "more"...)); !errors.Is(err, ErrDamaged) {
		t.Errorf("other bytes after the end: %v", err)
	}
}

func readPackets(b []byte) ([]kept, error) {
	r, err := NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	return readAll(r)
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

func TestCompressOnAFullDisk(t *testing.T) {
	plain := connections(t, manyPackets)
	for _, room := range []int{0, 100, len(compress(t, plain)) - 1} {
		if err := Compress(&full{room}, bytes.NewReader(plain)); !errors.Is(err, syscall.ENOSPC) {
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

func TestCompressFile(t *testing.T) {
	plain := connections(t, manyPackets)
	dir := t.TempDir()
	path := filepath.Join(dir, "h0-00.pcapng")
	put(t, path, plain)
	compressed, err := CompressFile(t.Context(), path)
	if err != nil || compressed != filepath.Join(dir, "h0-00.pcapng.zst") {
		t.Fatalf("CompressFile = %s, %v", compressed, err)
	}
	if got := names(t, dir); !cmp.Equal(got, []string{"h0-00.pcapng.zst"}) {
		t.Errorf("files %q, want the compressed one alone", got)
	}
	r, err := OpenPlain(compressed)
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(r)
	if err := errors.Join(err, r.Close()); err != nil || !bytes.Equal(got, plain) {
		t.Errorf("%d bytes (%v), want those that were compressed", len(got), err)
	}
	if _, err := CompressFile(t.Context(), compressed); err == nil || !strings.Contains(err.Error(), "must end in .pcapng") {
		t.Errorf("CompressFile of a compressed file: %v", err)
	}
}

// An interrupt at any moment leaves the plain file as it was, and nothing else.
func TestInterruptedCompressionLosesNothing(t *testing.T) {
	plain := connections(t, manyPackets)
	dir := t.TempDir()
	path := filepath.Join(dir, "h0-00.pcapng")
	interrupted := 0
	for wait := time.Duration(0); wait < 3*time.Second; wait = wait*3/2 + 100*time.Microsecond {
		put(t, path, plain)
		ctx, cancel := context.WithTimeout(t.Context(), wait)
		_, err := CompressFile(ctx, path)
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
		t.Error("compression was never interrupted")
	}
}

// A compressed file that does not read back as what was compressed does not replace the plain one.
func TestCompressedFileIsReadBack(t *testing.T) {
	dir := t.TempDir()
	compressed := filepath.Join(dir, "h0-00.pcapng.zst")
	put(t, compressed, compress(t, connections(t, 100)))
	other := connections(t, 101)
	sum := newHash()
	sum.Write(other)
	if err := readBack(t.Context(), compressed, sum); err == nil || !strings.Contains(err.Error(), "the plain file is kept") {
		t.Errorf("readBack of another capture: %v", err)
	}
}

func TestList(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"h0-01.pcapng", "h0-00.pcapng.zst", "h0-00.pcapng", "h0-02.pcapng.zst", "notes.txt", ".new-x"} {
		put(t, filepath.Join(dir, name), nil)
	}
	got, err := List(dir)
	want := []File{{"h0-00", filepath.Join(dir, "h0-00.pcapng")}, {"h0-01", filepath.Join(dir, "h0-01.pcapng")}, {"h0-02", filepath.Join(dir, "h0-02.pcapng.zst")}}
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

// Reading any compressed file ends with its end or an error that names the place.
func FuzzCompressed(f *testing.F) {
	f.Add(compress(f, connections(f, 50)))
	f.Add([]byte("\x28\xb5\x2f\xfd"))
	f.Fuzz(func(t *testing.T, b []byte) {
		_, err := readPackets(b)
		var where *Error
		if err != io.EOF && !errors.As(err, &where) {
			t.Fatalf("error %v is not typed", err)
		}
	})
}

// BenchmarkCompress reports what compressing and decompressing take of one processor.
func BenchmarkCompress(b *testing.B) {
	const n = 200_000
	plain := connections(b, n)
	compressed := compress(b, plain)
	b.Run("compress", func(b *testing.B) {
		for b.Loop() {
			compress(b, plain)
		}
		b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "packets/s")
		b.ReportMetric(float64(len(compressed))/n, "B/packet")
	})
	b.Run("decompress", func(b *testing.B) {
		for b.Loop() {
			if _, err := uncompress(compressed); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "packets/s")
	})
}

// Relabel changes the description of a capture and nothing else.
func TestRelabel(t *testing.T) {
	plain := connections(t, 500)
	path := filepath.Join(t.TempDir(), "h0-03"+Suffix)
	if err := os.WriteFile(path, plain, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Relabel(path, func(m *Meta) { m.Arm = "a much longer name of an arm" }); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	was, err := readPackets(plain)
	now, err2 := readPackets(b)
	if err != io.EOF || err2 != io.EOF {
		t.Fatal(err, err2)
	}
	if d := cmp.Diff(was, now); d != "" {
		t.Errorf("packets (-want +got):\n%s", d)
	}
	r, err := NewReader(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	want := sampleMeta()
	want.Arm = "a much longer name of an arm"
	if m, ok := r.Meta(); !ok || !m.Equal(want) {
		t.Errorf("description %+v", m)
	}
	if err := os.WriteFile(path, compress(t, plain), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Relabel(path, func(*Meta) {}); err == nil {
		t.Error("a compressed capture has another description")
	}
}
