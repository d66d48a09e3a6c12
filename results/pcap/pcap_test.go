package pcap

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/gopacket/pcapgo"
)

func sampleMeta() Meta {
	return Meta{Tool: "testbed", Version: "1.2", RunID: "fig9-001", Run: 1<<63 + 5, Arm: "sebf", ArmIndex: 2,
		Repeat: 1, Host: "h0-03", Scenario: "figure 9", Workload: "9f3a"}
}

type kept struct {
	Interface int
	Time      int64
	Data      string
	Len       int
}

// capture is a closed capture of n packets of random sizes, and what is in it.
func capture(t testing.TB, n int) ([]byte, []kept) { return captureOf(t, n, 160) }

func captureOf(t testing.TB, n, snap int) ([]byte, []kept) {
	t.Helper()
	var buf bytes.Buffer
	w, err := NewWriter(&buf, sampleMeta(), []Interface{{Name: "eth0", SnapLen: snap}, {Name: "lo", SnapLen: snap}})
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	var all []kept
	now := time.Unix(1_700_000_000, 999_999_990)
	for i := range n {
		now = now.Add(time.Duration(1 + i%7)) // single nanoseconds apart
		length := 40 + rng.IntN(1475)
		data := make([]byte, min(length, snap))
		for k := range data {
			data[k] = byte(rng.Uint32())
		}
		if err := w.Write(i%2, now, data, length); err != nil {
			t.Fatal(err)
		}
		all = append(all, kept{i % 2, now.UnixNano(), string(data), length})
	}
	if err := w.Close(Stats{Received: uint64(n) + 3, Dropped: 3}); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes(), all
}

func readAll(r *Reader) (all []kept, err error) {
	for {
		p, err := r.Next()
		if err != nil {
			return all, err
		}
		all = append(all, kept{p.Interface, p.Stamp, string(p.Data), p.Len})
	}
}

// readBatches does the same by up to size packets at a time, whose Data are looked at
// when all of them are there.
func readBatches(r *Reader, size int) (all []kept, err error) {
	list := make([]Packet, size)
	for {
		n, err := r.Batch(list)
		if err != nil {
			if n != 0 {
				return nil, fmt.Errorf("%d packets and %w", n, err)
			}
			return all, err
		}
		for _, p := range list[:n] {
			all = append(all, kept{p.Interface, p.Stamp, string(p.Data), p.Len})
		}
	}
}

// chunks returns at most a number of bytes for each call.
type chunks struct {
	src  io.Reader
	most int
}

func (c chunks) Read(b []byte) (int, error) { return c.src.Read(b[:min(len(b), c.most)]) }

// sameInBatches checks that Batch returns what Next does, and comes as far.
func sameInBatches(t *testing.T, file []byte, sizes, chunk []int) {
	t.Helper()
	one, err := NewReader(bytes.NewReader(file))
	if err != nil {
		return
	}
	want, wantErr := readAll(one)
	for _, size := range sizes {
		for _, most := range chunk {
			r, err := NewReader(chunks{bytes.NewReader(file), most})
			if err != nil {
				t.Fatal(err)
			}
			got, err := readBatches(r, size)
			if !cmp.Equal(got, want) || err.Error() != wantErr.Error() || r.Offset() != one.Offset() || !cmp.Equal(r.Skipped(), one.Skipped()) {
				t.Errorf("batches of %d, %d bytes at a time: %d packets, %v up to byte %d, want %d, %v up to %d", size, most, len(got), err, r.Offset(), len(want), wantErr, one.Offset())
			}
			if n, again := r.Batch(make([]Packet, 1)); n != 0 || again.Error() != wantErr.Error() {
				t.Errorf("after the end: %d packets and %v, want 0 and %v", n, again, wantErr)
			}
		}
	}
}

func TestBatchesAreThePackets(t *testing.T) {
	sizes, chunk := []int{1, 2, 7, 128}, []int{1, 100, 1 << 20}
	for _, v := range variants(t) {
		t.Run(v.name, func(t *testing.T) { sameInBatches(t, v.file, sizes, chunk) })
	}
	file, _ := capture(t, 5000) // more than the buffer holds
	if len(file) < 2*readBuffer {
		t.Fatalf("%d bytes do not fill the buffer twice", len(file))
	}
	for _, end := range []int{len(file), len(file) - 1, len(file) / 2, len(file)/2 + 13} {
		t.Run(fmt.Sprintf("%d bytes", end), func(t *testing.T) { sameInBatches(t, file[:end], sizes, chunk) })
	}
	r, err := NewReader(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	if n, err := r.Batch(nil); n != 0 || err != nil {
		t.Errorf("Batch(nil) = %d, %v, want 0, nil", n, err)
	}
	// As many as there is room for, where they are there.
	if n, err := r.Batch(make([]Packet, 100)); n != 100 || err != nil {
		t.Errorf("Batch of 100 = %d, %v, want 100", n, err)
	}
}

func TestRoundTrip(t *testing.T) {
	file, want := capture(t, 500)
	r, err := NewReader(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	if m, ok := r.Meta(); !ok || !m.Equal(sampleMeta()) {
		t.Errorf("Meta() = %+v, %v, want %+v", m, ok, sampleMeta())
	}
	if _, known := r.Drops(); known {
		t.Error("Drops() are known before the end")
	}
	got, err := readAll(r)
	if err != io.EOF {
		t.Errorf("at the end: %v, want io.EOF", err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("packets (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]Interface{{Name: "eth0", SnapLen: 160}, {Name: "lo", SnapLen: 160}}, r.Interfaces()); diff != "" {
		t.Errorf("Interfaces() (-want +got):\n%s", diff)
	}
	if s, known := r.Stats(); !known || s != (Stats{503, 3}) {
		t.Errorf("Stats() = %+v, %v, want {503 3}, true", s, known)
	}
	if _, err := r.Next(); err != io.EOF {
		t.Errorf("Next after the end: %v, want io.EOF", err)
	}
}

// gopacket's reader is the oracle for files that are whole.
func TestReaderAgreesWithGopacket(t *testing.T) {
	file, want := capture(t, 500)
	ng, err := pcapgo.NewNgReader(bytes.NewReader(file), pcapgo.DefaultNgReaderOptions)
	if err != nil {
		t.Fatal(err)
	}
	var got []kept
	for {
		data, ci, err := ng.ReadPacketData()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, kept{ci.InterfaceIndex, ci.Timestamp.UnixNano(), string(data), ci.Length})
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("packets (-want +got):\n%s", diff)
	}
	if i, err := ng.Interface(0); err != nil || i.Name != "eth0" || i.Statistics.PacketsDropped != 3 {
		t.Errorf("interface 0 = %+v, %v, want eth0 with 3 drops", i, err)
	}
}

// The reasons why the reader is not gopacket's: a file cut inside a block looks
// whole to it, and a damaged time resolution makes it panic. When this fails,
// its reader has become usable.
func TestGopacketNeedsWholeFiles(t *testing.T) {
	file, _ := capture(t, 10)
	ng, err := pcapgo.NewNgReader(bytes.NewReader(file[:len(file)-150]), pcapgo.DefaultNgReaderOptions)
	for err == nil {
		_, _, err = ng.ReadPacketData()
	}
	if err != io.EOF {
		t.Errorf("gopacket reports %v", err)
	}
	damaged := bytes.Replace(file, []byte{optResolution, 0, 1, 0, 9}, []byte{optResolution, 0, 1, 0, 64}, 1)
	defer func() {
		if recover() == nil {
			t.Error("gopacket does not panic")
		}
	}()
	_, err = pcapgo.NewNgReader(bytes.NewReader(damaged), pcapgo.DefaultNgReaderOptions)
	t.Errorf("gopacket reports %v", err)
}

func TestCutAnywhere(t *testing.T) {
	file, want := capture(t, 6)
	whole := 0
	for cut := range file {
		r, err := NewReader(bytes.NewReader(file[:cut]))
		var got []kept
		if err == nil {
			got, err = readAll(r)
		}
		if !errors.Is(err, ErrTruncated) {
			t.Fatalf("cut at %d of %d: %v, want ErrTruncated", cut, len(file), err)
		}
		var where *Error
		if !errors.As(err, &where) || where.Offset > int64(cut) {
			t.Fatalf("cut at %d: offset %d", cut, where.Offset)
		}
		if len(got) < whole || len(got) > 0 && !cmp.Equal(want[:len(got)], got) {
			t.Fatalf("cut at %d: %d packets, of which one is wrong or lost", cut, len(got))
		}
		whole = len(got)
	}
	if whole != len(want) {
		t.Errorf("last cut leaves %d packets, want all %d", whole, len(want))
	}
}

func TestDamage(t *testing.T) {
	file, _ := capture(t, 3)
	first := bytes.Index(file, []byte{enhancedPacket, 0, 0, 0})
	edit := func(f func(b []byte)) []byte {
		b := bytes.Clone(file)
		f(b)
		return b
	}
	put := func(at int, v uint32) []byte {
		return edit(func(b []byte) { binary.LittleEndian.PutUint32(b[at:], v) })
	}
	for _, tt := range []struct {
		name string
		file []byte
		want string
	}{
		{"not a capture", []byte("<!DOCTYPE html>"), "it is a web page"},
		{"of no known format", []byte{1, 2, 3, 4, 5, 6, 7, 8}, "begins with 01020304, which is neither"},
		{"xz", []byte("\xfd7zXZ\x00"), "it is an xz file: decompress it with xz -dc"},
		{"zstd twice", compress(t, compress(t, []byte("x"))), "zstd -d"},
		{"zstd magic alone", []byte("\x28\xb5\x2f\xfd<!DOCTYPE html><html>"), "cannot be decoded"},
		{"zstd of no capture", compress(t, []byte("<!DOCTYPE html>")), "it is a web page in a compressed file"},
		{"pcap version", []byte("\xd4\xc3\xb2\xa1\x02\x00\x05\x0012345678901234567890"), "pcap version 2.5"},
		{"magic", put(8, 7), "no byte-order magic"},
		{"version", put(12, 9), "format version 9"},
		{"huge block", put(first+4, 1<<31), "states a length of 2147483648"},
		{"odd block", put(first+4, 33), "states a length of 33"},
		{"trailer", put(first+4, 36), "before and"},
		{"interface", put(first+8, 2), "packet of interface 2; 2 are described"},
		{"capture length", put(first+20, 5000), "packet of 5000 captured bytes"},
		{"length", put(first+24, 1), "and a length of 1"},
		{"resolution", bytes.Replace(file, []byte{optResolution, 0, 1, 0, 9}, []byte{optResolution, 0, 1, 0, 64}, 1), "resolution 40 of the stamps"},
		{"binary resolution", bytes.Replace(file, []byte{optResolution, 0, 1, 0, 9}, []byte{optResolution, 0, 1, 0, 0x80 + 64}, 1), "resolution c0 of the stamps"},
		{"interface of the section before", append(bytes.Clone(file), foreign(binary.BigEndian, nil, 1)...), "packet of interface 1; 1 are described"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, err := NewReader(bytes.NewReader(tt.file))
			if err == nil {
				_, err = readAll(r)
			}
			if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want ErrDamaged with %q", err, tt.want)
			}
		})
	}
}

// foreign is a capture by another program: one section, one interface with
// options, one packet of a number of interface.
func foreign(order binary.AppendByteOrder, options []byte, index uint32) []byte {
	b := order.AppendUint32(nil, sectionHeader)
	b = order.AppendUint32(b, 28)
	b = order.AppendUint32(b, byteOrderMagic)
	b = order.AppendUint16(b, 1)
	b = order.AppendUint16(b, 0)
	b = append(b, bytes.Repeat([]byte{0xff}, 8)...)
	b = order.AppendUint32(b, 28)
	size := uint32(20 + len(options))
	b = order.AppendUint32(b, interfaceBlock)
	b = order.AppendUint32(b, size)
	b = order.AppendUint16(b, uint16(LinkEthernet))
	b = order.AppendUint16(b, 0)
	b = order.AppendUint32(b, 0)
	b = append(b, options...)
	b = order.AppendUint32(b, size)
	const stamp = 1_700_000_000_123_456 // µs
	for _, v := range []uint32{enhancedPacket, 36, index, uint32(uint64(stamp) >> 32), uint32(uint64(stamp) & 0xffffffff), 2, 60} {
		b = order.AppendUint32(b, v)
	}
	b = append(b, 'h', 'i', 0, 0)
	return order.AppendUint32(b, 36)
}

func TestForeignStamps(t *testing.T) {
	for _, tt := range []struct {
		name string
		file []byte
		want time.Time
	}{
		{"microseconds by default", foreign(binary.LittleEndian, nil, 0), time.Unix(1_700_000_000, 123_456_000)},
		{"big endian", foreign(binary.BigEndian, nil, 0), time.Unix(1_700_000_000, 123_456_000)},
		{"resolution and offset", foreign(binary.LittleEndian, []byte{9, 0, 1, 0, 9, 0, 0, 0, 14, 0, 8, 0, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, 0),
			time.Unix(1_700_010, 123_456)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, err := NewReader(bytes.NewReader(tt.file))
			if err != nil {
				t.Fatal(err)
			}
			p, err := r.Next()
			if err != nil || !p.Time().Equal(tt.want) || string(p.Data) != "hi" || p.Len != 60 {
				t.Errorf("Next() = %v %q %d, %v, want %v \"hi\" 60", p.Time().UTC(), p.Data, p.Len, err, tt.want.UTC())
			}
			if _, err := r.Next(); err != io.EOF {
				t.Errorf("end of a capture without Meta: %v, want io.EOF", err)
			}
		})
	}
}

func TestOpenNamesTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "h0-00.pcapng")
	if _, err := Open(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Open of nothing: %v", err)
	}
	if err := os.WriteFile(path, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path); !errors.Is(err, ErrTruncated) || !strings.Contains(err.Error(), path) {
		t.Errorf("Open of one byte: %v, want ErrTruncated and the path", err)
	}
	file, _ := capture(t, 1)
	if err := os.WriteFile(path, file, 0o644); err != nil {
		t.Fatal(err)
	}
	r, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := readAll(r); err != io.EOF {
		t.Error(err)
	}
	if err := errors.Join(r.Close(), r.Close()); err != nil {
		t.Error(err)
	}
}

type fullDisk struct{}

var errFull = errors.New("no space left")

func (fullDisk) Write([]byte) (int, error) { return 0, errFull }

func TestWriterErrors(t *testing.T) {
	if _, err := NewWriter(io.Discard, Meta{}, nil); err == nil {
		t.Error("no interface: no error")
	}
	if _, err := NewWriter(io.Discard, Meta{Arm: strings.Repeat("x", 1<<16)}, []Interface{{Name: "eth0", SnapLen: 0}}); err == nil || !strings.Contains(err.Error(), "section comment") {
		t.Errorf("long comment: %v", err)
	}
	w, err := NewWriter(fullDisk{}, Meta{}, []Interface{{Name: "eth0", SnapLen: 0}})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Write(0, time.Unix(0, 0), []byte("x"), 1); err != nil {
		t.Fatal(err)
	}
	first := w.Close(Stats{})
	if !errors.Is(first, errFull) || w.Close(Stats{}) != first || w.Write(0, time.Unix(0, 0), nil, 0) != first {
		t.Errorf("full disk: %v, and not the same again", first)
	}
	w, err = NewWriter(io.Discard, Meta{}, []Interface{{Name: "eth0", SnapLen: 0}})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Close(Stats{}), w.Close(Stats{})); err != nil {
		t.Error(err)
	}
	if err := w.Write(0, time.Unix(0, 0), nil, 0); err == nil {
		t.Error("Write after Close: no error")
	}
}

// Neither does Next, whatever the capture's length.
func TestNextDoesNotAllocate(t *testing.T) {
	file, _ := capture(t, 5000)
	for name, b := range map[string][]byte{"pcapng": file, "pcap": bytes.Join([][]byte{classicFile(binary.LittleEndian, magicNanos, 1), bytes.Repeat(classicFile(binary.LittleEndian, magicNanos, 1)[classicHead:], 2500)}, nil)} {
		r, err := NewReader(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		if n := testing.AllocsPerRun(4000, func() {
			if _, err := r.Next(); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("%s: Next allocates %v times a packet", name, n)
		}
	}
}

func TestWriteDoesNotAllocate(t *testing.T) {
	w, err := NewWriter(io.Discard, sampleMeta(), []Interface{{Name: "eth0", SnapLen: 160}})
	if err != nil {
		t.Fatal(err)
	}
	data, ts := make([]byte, 160), time.Unix(1_700_000_000, 1)
	if n := testing.AllocsPerRun(10_000, func() {
		if err := w.Write(0, ts, data, 1514); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("Write allocates %v times a packet", n)
	}
}

func BenchmarkWrite(b *testing.B) {
	data, stamp := make([]byte, 160), int64(second)
	for _, x := range []struct {
		name    string
		flags   Flags
		comment string
	}{{"plain", 0, ""}, {"flags", Outbound, ""}, {"flags and comment", Outbound, "coflow 3, flow 17: 1.2MB, h0-03 → h2-01"}} {
		b.Run(x.name, func(b *testing.B) {
			w, err := NewWriter(io.Discard, sampleMeta(), []Interface{{Name: "eth0", SnapLen: 160}})
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if err := w.WriteNoted(Packet{Stamp: stamp, Data: data, Len: 1514}, x.flags, x.comment); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// Our reader compared with gopacket's, on the same file in the page cache.
func BenchmarkNext(b *testing.B) {
	const packets = 500_000
	ours := func(path string) (n int, err error) {
		r, err := Open(path)
		if err != nil {
			return 0, err
		}
		for ; err == nil; n++ {
			_, err = r.Next()
		}
		return n, errors.Join(err, r.Close())
	}
	gopackets := func(read func(*pcapgo.NgReader) error) func(path string) (int, error) {
		return func(path string) (n int, err error) {
			f, err := os.Open(path)
			if err != nil {
				return 0, err
			}
			r, err := pcapgo.NewNgReader(f, pcapgo.DefaultNgReaderOptions)
			for ; err == nil; n++ {
				err = read(r)
			}
			return n, errors.Join(err, f.Close())
		}
	}
	for _, snap := range []int{96, 160} {
		file, _ := captureOf(b, packets, snap)
		path := filepath.Join(b.TempDir(), "h0-00.pcapng")
		if err := os.WriteFile(path, file, 0o644); err != nil {
			b.Fatal(err)
		}
		for _, x := range []struct {
			name string
			read func(path string) (int, error)
		}{
			{"ours", ours},
			{"gopacket-zero-copy", gopackets(func(r *pcapgo.NgReader) error { _, _, err := r.ZeroCopyReadPacketData(); return err })},
			{"gopacket", gopackets(func(r *pcapgo.NgReader) error { _, _, err := r.ReadPacketData(); return err })},
		} {
			b.Run(fmt.Sprintf("snaplen=%d/reader=%s", snap, x.name), func(b *testing.B) {
				b.ReportAllocs()
				b.SetBytes(int64(len(file)))
				n := 0
				for b.Loop() {
					read, err := x.read(path)
					if !errors.Is(err, io.EOF) || read != packets+1 {
						b.Fatalf("%d packets, %v", read-1, err)
					}
					n += read
				}
				b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "packets/s")
			})
		}
	}
}

func ExampleReader_Next() {
	var file bytes.Buffer
	w, err := NewWriter(&file, Meta{Host: "h0-00"}, []Interface{{Name: "eth0", SnapLen: 160}})
	if err != nil {
		fmt.Println(err)
		return
	}
	err = errors.Join(w.Write(0, time.Unix(1, 5), []byte("frame"), 1514), w.Close(Stats{Received: 1}))
	if err != nil {
		fmt.Println(err)
		return
	}
	r, err := NewReader(&file)
	for err == nil {
		var p Packet
		if p, err = r.Next(); err == nil {
			fmt.Println(r.Interfaces()[p.Interface].Name, p.Stamp, len(p.Data), p.Len)
		}
	}
	fmt.Println(err)
	// Output:
	// eth0 1000000005 5 1514
	// EOF
}
