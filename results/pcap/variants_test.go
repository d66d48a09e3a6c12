package pcap

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/gopacket/pcapgo"
	"github.com/klauspost/compress/gzip"
	"pgregory.net/rapid"

	"testbed/emu/longtest"
	"testbed/topo/magic"
)

var update = flag.Bool("update", false, "rewrite the seeds in testdata/fuzz")

// built is a pcapng file that is put together block by block.
type built struct {
	order binary.AppendByteOrder
	b     []byte
}

func (f *built) block(kind uint32, body []byte) *built {
	body = append(body, make([]byte, -len(body)&3)...)
	f.b = f.order.AppendUint32(f.b, kind)
	f.b = f.order.AppendUint32(f.b, uint32(12+len(body)))
	f.b = append(f.b, body...)
	f.b = f.order.AppendUint32(f.b, uint32(12+len(body)))
	return f
}

func (f *built) section(order binary.AppendByteOrder, length int64) *built {
	f.order = order
	b := order.AppendUint32(nil, byteOrderMagic)
	b = order.AppendUint16(b, 1)
	b = order.AppendUint16(b, 0)
	return f.block(sectionHeader, order.AppendUint64(b, uint64(length)))
}

type opt struct {
	code  uint16
	value []byte
}

func (f *built) options(b []byte, opts []opt) []byte {
	for _, o := range opts {
		b = f.order.AppendUint16(b, o.code)
		b = f.order.AppendUint16(b, uint16(len(o.value)))
		b = append(b, o.value...)
		b = append(b, make([]byte, -len(o.value)&3)...)
	}
	if len(opts) > 0 {
		b = append(b, 0, 0, 0, 0)
	}
	return b
}

func (f *built) nic(link uint16, opts ...opt) *built {
	b := f.order.AppendUint16(nil, link)
	b = f.order.AppendUint16(b, 0)
	b = f.order.AppendUint32(b, 96)
	return f.block(interfaceBlock, f.options(b, opts))
}

func (f *built) offset(seconds int64) opt {
	return opt{optOffset, f.order.AppendUint64(nil, uint64(seconds))}
}

func resolution(v byte) opt { return opt{optResolution, []byte{v}} }

func (f *built) packet(nic uint32, stamp uint64, data string, length uint32, opts ...opt) *built {
	b := f.order.AppendUint32(nil, nic)
	b = f.order.AppendUint32(b, uint32(stamp>>32))
	b = f.order.AppendUint32(b, uint32(stamp))
	b = f.order.AppendUint32(b, uint32(len(data)))
	b = f.order.AppendUint32(b, length)
	b = append(append(b, data...), make([]byte, -len(data)&3)...)
	return f.block(enhancedPacket, f.options(b, opts))
}

func (f *built) old(nic uint16, stamp uint64, data string, length uint32) *built {
	b := f.order.AppendUint16(nil, nic)
	b = f.order.AppendUint16(b, 0xffff) // drops are not known
	b = f.order.AppendUint32(b, uint32(stamp>>32))
	b = f.order.AppendUint32(b, uint32(stamp))
	b = f.order.AppendUint32(b, uint32(len(data)))
	b = f.order.AppendUint32(b, length)
	return f.block(oldPacket, append(b, data...))
}

func (f *built) simple(data string) *built {
	return f.block(simplePacket, append(f.order.AppendUint32(nil, uint32(len(data))), data...))
}

// classicFile is a file in the older format with two packets.
func classicFile(order binary.AppendByteOrder, magic, link uint32) []byte {
	return classicVersion(order, magic, link, 4, false)
}

// classicVersion is classicFile of version 2.minor, with the two lengths of each record
// exchanged or not.
func classicVersion(order binary.AppendByteOrder, magic, link uint32, minor uint16, exchanged bool) []byte {
	b := order.AppendUint32(nil, magic)
	b = order.AppendUint16(b, 2)
	b = order.AppendUint16(b, minor)
	for _, v := range []uint32{0, 0, 65535, link} {
		b = order.AppendUint32(b, v)
	}
	for _, p := range []struct{ part, length uint32 }{{7, 3}, {999_999, 1514}} {
		kept, length := uint32(3), p.length
		if exchanged {
			kept, length = length, kept
		}
		for _, v := range []uint32{1_700_000_000, p.part, kept, length} {
			b = order.AppendUint32(b, v)
		}
		if magic == magicKuznetzov {
			b = append(b, 1, 2, 3, 4, 5, 6, 7, 8)
		}
		b = append(b, "abc"...)
	}
	return b
}

// variant is a whole file and what is in it. oracle is gopacket's reader of it, nil
// where that reads it otherwise, with the reason in why.
type variant struct {
	name   string
	file   []byte
	want   []kept
	skip   []Skip
	oracle func(b []byte) (packetReader, error)
	why    string
}

type packetReader interface{ next() (kept, error) }

type ngOracle struct {
	*pcapgo.NgReader
	before *int // interfaces of the sections before
}

func (o ngOracle) next() (kept, error) {
	data, ci, err := o.ReadPacketData()
	return kept{*o.before + ci.InterfaceIndex, ci.Timestamp.UnixNano(), string(data), ci.Length}, err
}

func ng(b []byte) (packetReader, error) {
	before := 0
	opt := pcapgo.DefaultNgReaderOptions
	opt.SectionEndCallback = func(all []pcapgo.NgInterface, _ pcapgo.NgSectionInfo) { before += len(all) }
	r, err := pcapgo.NewNgReader(bytes.NewReader(b), opt)
	return ngOracle{r, &before}, err
}

type classicOracle struct{ *pcapgo.Reader }

func (o classicOracle) next() (kept, error) {
	data, ci, err := o.ReadPacketData()
	return kept{0, ci.Timestamp.UnixNano(), string(data), ci.Length}, err
}

func old(b []byte) (packetReader, error) {
	r, err := pcapgo.NewReader(bytes.NewReader(b))
	return classicOracle{r}, err
}

const otherLink = "gopacket takes it for another link type"

const second = 1_700_000_000 * 1e9

func variants(t testing.TB) []variant {
	var le, be binary.AppendByteOrder = binary.LittleEndian, binary.BigEndian
	ns := resolution(9)
	all := []variant{}
	add := func(name string, f *built, oracle func([]byte) (packetReader, error), want []kept, skip ...Skip) {
		all = append(all, variant{name: name, file: f.b, want: want, skip: skip, oracle: oracle})
	}
	one := []kept{{0, second + 5, "abc", 60}}
	for name, order := range map[string]binary.AppendByteOrder{"little": le, "big": be} {
		add(name+"-endian", new(built).section(order, -1).nic(1, ns).packet(0, second+5, "abc", 60), ng, one)
	}
	add("two-sections", new(built).section(le, -1).nic(1, ns).nic(1, ns).packet(1, second, "a", 60).
		section(be, -1).nic(1, ns).packet(0, second+1, "b", 61), ng, []kept{{1, second, "a", 60}, {2, second + 1, "b", 61}})
	body := new(built)
	body.order = be
	body.nic(1, ns).packet(0, second+5, "abc", 60)
	known := new(built).section(be, int64(len(body.b)))
	known.b = append(known.b, body.b...)
	add("section-length", known, ng, one)
	add("unknown-blocks", new(built).section(le, -1).block(4, []byte{0, 0, 0, 0}).nic(1, ns).block(0xBAD, []byte("vendor")).packet(0, second+5, "abc", 60).
		block(0x80000001, bytes.Repeat([]byte{7}, 3000)), ng, one)
	add("old-packets", new(built).section(be, -1).nic(1).nic(1, ns).old(1, second+5, "abcde", 60).packet(0, second/1000, "f", 1), ng,
		[]kept{{1, second + 5, "abcde", 60}, {0, second, "f", 1}})
	add("simple-packets", new(built).section(le, -1).nic(1, ns).simple("abcd").packet(0, second+5, "abc", 60).simple("e"), nil, one,
		Skip{skipSimple, 2})
	all[len(all)-1].why = "gopacket gives simple packets the year 1"
	add("link-types", new(built).section(le, -1).nic(1, ns).nic(113).nic(276, ns).packet(1, second, "x", 1).packet(0, second+5, "abc", 60).packet(1, 9, "y", 1).packet(2, 9, "z", 1), nil, one,
		Skip{"of link type 113 (Linux cooked)", 2}, Skip{"of link type 276 (Linux cooked v2)", 1})
	all[len(all)-1].why = "gopacket takes link type 276 for 20"
	add("flags-and-comment", new(built).section(le, -1).nic(1, ns, opt{optName, []byte("eth0")}, opt{optComment, []byte("?")}).
		packet(0, second+5, "abc", 60, opt{optFlags, []byte{1, 0, 0, 0}}, opt{optComment, []byte("hello")}), ng, one)
	f := new(built).section(be, -1)
	add("offset", f.nic(1, resolution(3), f.offset(1_700_000_000)).packet(0, 1_234, "abc", 60), ng, []kept{{0, second + 1_234_000_000, "abc", 60}})
	f = new(built).section(le, -1)
	add("offset-back", f.nic(1, ns, f.offset(-10)).packet(0, second+5, "abc", 60), ng, []kept{{0, second - 10e9 + 5, "abc", 60}})
	for _, p := range []byte{1, 6, 9, 12, 19} {
		units := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(p)), nil)
		stamp := new(big.Int).Add(units, new(big.Int).Div(units, big.NewInt(8))).Uint64() // 1.125 s
		want := int64(1_125_000_000)
		if p == 1 {
			want = 1_100_000_000
		}
		add(fmt.Sprintf("ten-to-minus-%d", p), new(built).section(le, -1).nic(1, resolution(p)).packet(0, stamp, "abc", 60), ng, []kept{{0, want, "abc", 60}})
	}
	add("two-to-minus-10", new(built).section(le, -1).nic(1, resolution(0x80+10)).packet(0, 3<<10+1, "abc", 60), nil, []kept{{0, 3e9 + 976_562, "abc", 60}})
	all[len(all)-1].why = "gopacket has 0 for 1e9 - 1024*976562"
	add("stamps-that-do-not-fit", new(built).section(le, -1).nic(1, ns).nic(1).packet(0, 1<<63, "a", 1).packet(1, 1<<62, "b", 1).packet(0, second+5, "abc", 60), nil, one, Skip{skipStamp, 2})
	all[len(all)-1].why = "gopacket wraps"
	for _, x := range []struct {
		name        string
		magic, unit uint32
	}{{"micros", magicMicros, 1000}, {"nanos", magicNanos, 1}, {"kuznetzov", magicKuznetzov, 1000}} {
		for name, order := range map[string]binary.AppendByteOrder{"little": le, "big": be} {
			v := variant{name: "pcap-" + x.name + "-" + name, file: classicFile(order, x.magic, 1), oracle: old,
				want: []kept{{0, second + 7*int64(x.unit), "abc", 3}, {0, second + 999_999*int64(x.unit), "abc", 1514}}}
			if x.magic == magicKuznetzov {
				v.oracle, v.why = nil, "gopacket does not know it"
			}
			all = append(all, v)
		}
	}
	all = append(all,
		variant{name: "pcap-cooked", file: classicFile(le, magicMicros, 113), skip: []Skip{{"of link type 113 (Linux cooked)", 2}}, why: "gopacket returns them"},
		variant{name: "pcap-frame-check-bit-missing", file: classicFile(le, magicMicros, 1<<28|1), want: []kept{{0, second + 7e3, "abc", 3}, {0, second + 999_999e3, "abc", 1514}}, why: otherLink},
		variant{name: "pcap-frame-check-2", file: classicFile(le, magicMicros, 1<<28|1<<26|1), want: []kept{{0, second + 7e3, "a", 1}, {0, second + 999_999e3, "abc", 1512}}, why: otherLink},
		variant{name: "pcap-frame-check-4", file: classicFile(be, magicNanos, 2<<28|1<<26|1), want: []kept{{0, second + 7, "", 0}, {0, second + 999_999, "abc", 1510}}, why: otherLink})
	for minor := range uint16(4) {
		for name, exchanged := range map[string]bool{"": false, "-exchanged": true} {
			all = append(all, variant{name: fmt.Sprintf("pcap-2.%d%s", minor, name), file: classicVersion(be, magicMicros, 1, minor, exchanged),
				want: []kept{{0, second + 7e3, "abc", 3}, {0, second + 999_999e3, "abc", 1514}}, why: "gopacket reads version 2.4 only"})
		}
	}
	more := classicFile(le, magicMicros, 1)
	binary.LittleEndian.PutUint32(more[classicHead+12:], 2)
	all = append(all, variant{name: "pcap-captured-more", file: more, want: []kept{{0, second + 7e3, "abc", 2}, {0, second + 999_999e3, "abc", 1514}},
		why: "gopacket refuses the record"})
	add("captured-more", new(built).section(be, -1).nic(1, ns).packet(0, second+5, "abc", 2).packet(0, second+6, "abc", 60), nil,
		[]kept{{0, second + 5, "abc", 2}, {0, second + 6, "abc", 60}})
	all[len(all)-1].why = "gopacket refuses the block"
	for name, v := range map[string]byte{"bytes": 2, "bits": 16} {
		add("frame-check-in-"+name, new(built).section(le, -1).nic(1, ns, opt{optFCS, []byte{v}}).packet(0, second+5, "abcde", 5).packet(0, second+6, "abcde", 6).packet(0, second+7, "abcde", 60), nil,
			[]kept{{0, second + 5, "abc", 3}, {0, second + 6, "abcd", 4}, {0, second + 7, "abcde", 58}})
		all[len(all)-1].why = "gopacket leaves the sequence in the packet"
	}
	ours, want := capture(t, 4)
	all = append(all, variant{name: "ours", file: ours, want: want, oracle: ng})
	slices.SortFunc(all, func(a, b variant) int { return strings.Compare(a.name, b.name) })
	return all
}

func gzipped(t testing.TB, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	if _, err := z.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// Of a gzip file that is cut off or damaged the packets before are read, as of a zstd file.
func TestDamagedGzip(t *testing.T) {
	plain, want := capture(t, 500)
	z := gzipped(t, plain)
	flipped := bytes.Clone(z)
	flipped[len(z)-6] ^= 1 // in the checksum
	for _, tt := range []struct {
		name  string
		file  []byte
		kind  error
		want  string
		least int
	}{
		{"cut off", z[:len(z)-2000], ErrTruncated, "its compressed file ends after", 1},
		{"cut in the header", z[:6], ErrTruncated, "its compressed file ends after", 0},
		{"checksum", flipped, ErrDamaged, "does not match its checksum", len(want)},
		{"of no capture", gzipped(t, []byte("<!DOCTYPE html>")), ErrDamaged, "it is a web page in a compressed file", 0},
		{"twice", gzipped(t, z), ErrDamaged, "it is a gzip file in a compressed file: decompress it with gzip -dc once", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, err := NewReader(bytes.NewReader(tt.file))
			var got []kept
			if err == nil {
				got, err = readAll(r)
			}
			if !errors.Is(err, tt.kind) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
			if len(got) < tt.least || len(got) > 0 && !cmp.Equal(got, want[:len(got)]) {
				t.Errorf("%d packets, want at least %d of %d", len(got), tt.least, len(want))
			}
		})
	}
	two := append(gzipped(t, plain[:5000]), gzipped(t, plain[5000:])...)
	r, err := NewReader(bytes.NewReader(two))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := readAll(r); err != io.EOF || !cmp.Equal(got, want) {
		t.Errorf("two members: %d packets, %v", len(got), err)
	}
}

func TestVariants(t *testing.T) {
	for _, v := range variants(t) {
		t.Run(v.name, func(t *testing.T) {
			for name, src := range map[string]io.Reader{"whole": bytes.NewReader(v.file), "compressed": bytes.NewReader(compress(t, v.file)), "gzip": bytes.NewReader(gzipped(t, v.file)), "byte by byte": iotest.OneByteReader(bytes.NewReader(v.file))} {
				r, err := NewReader(src)
				if err != nil {
					t.Fatal(err)
				}
				got, err := readAll(r)
				if err != io.EOF {
					t.Errorf("%s: ends with %v, want io.EOF", name, err)
				}
				if diff := cmp.Diff(v.want, got); diff != "" {
					t.Errorf("%s: packets (-want +got):\n%s", name, diff)
				}
				if diff := cmp.Diff(v.skip, r.Skipped()); diff != "" {
					t.Errorf("%s: Skipped() (-want +got):\n%s", name, diff)
				}
			}
			if (v.oracle == nil) == (v.why == "") {
				t.Fatal("no oracle and no reason why")
			}
			if v.oracle == nil {
				return
			}
			o, err := v.oracle(v.file)
			if err != nil {
				t.Fatal(err)
			}
			for i := 0; ; i++ {
				p, err := o.next()
				if err == io.EOF && i == len(v.want) {
					return
				}
				if err != nil || i == len(v.want) {
					t.Fatalf("gopacket at packet %d of %d: %v", i, len(v.want), err)
				}
				if p != v.want[i] {
					t.Errorf("gopacket at packet %d: %+v, want %+v", i, p, v.want[i])
				}
			}
		})
	}
}

// Cut anywhere, any variant gives the packets before the cut and then says that it
// is cut, unless the cut is between two blocks.
func TestVariantsCutAnywhere(t *testing.T) {
	longtest.Skip(t, "cuts every variant at every byte, 4 s")
	for _, v := range variants(t) {
		last, bounds := 0, 0
		for cut := range v.file {
			r, err := NewReader(bytes.NewReader(v.file[:cut]))
			var got []kept
			if err == nil {
				got, err = readAll(r)
			}
			if err == io.EOF {
				bounds++
			} else if !errors.Is(err, ErrTruncated) {
				t.Fatalf("%s cut at %d of %d: %v", v.name, cut, len(v.file), err)
			}
			if len(got) < last || !cmp.Equal(got, v.want[:len(got):len(got)]) && len(got) > 0 {
				t.Fatalf("%s cut at %d: %d packets, of which one is wrong or lost", v.name, cut, len(got))
			}
			last = len(got)
		}
		if v.name == "ours" && bounds > 0 || v.name == "section-length" && bounds > 0 || v.name == "little-endian" && bounds != 2 {
			t.Errorf("%s: whole at %d cuts", v.name, bounds)
		}
	}
}

// Stamps of any resolution are what exact arithmetic says.
func TestClock(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := rapid.Byte().Draw(t, "resolution")
		var c clock
		power, base := int64(v&^0x80), int64(10)
		if v&0x80 != 0 {
			base = 2
		}
		if ok := c.setResolution(v); ok != (base == 10 && power <= 19 || base == 2 && power <= 63) {
			t.Fatalf("setResolution(%#x) = %v", v, ok)
		} else if !ok {
			return
		}
		c.offset = rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(-2e9, 2e9), rapid.Int64()).Draw(t, "offset")
		stamp := rapid.Uint64().Draw(t, "stamp")
		want := new(big.Int).Mul(new(big.Int).SetUint64(stamp), big.NewInt(1e9))
		want.Div(want, new(big.Int).Exp(big.NewInt(base), big.NewInt(power), nil))
		raw := new(big.Int).Set(want)
		want.Add(want, new(big.Int).Mul(big.NewInt(c.offset), big.NewInt(1e9)))
		got, ok := c.nanos(stamp)
		// The year 2262 is also the end of what a stamp without its offset may be.
		fits := want.IsInt64() && want.Sign() >= 0 && raw.IsInt64()
		switch {
		case ok && (!want.IsInt64() || got != want.Int64()):
			t.Fatalf("nanos(%d) = %d, want %v", stamp, got, want)
		case !ok && fits && raw.Cmp(big.NewInt(1<<63-2e9)) < 0:
			t.Fatalf("nanos(%d) does not fit, want %v", stamp, want)
		}
	})
}

// A block of which the length is a lie is not allocated for.
func TestLengthsAreNotBelieved(t *testing.T) {
	f := new(built).section(binary.LittleEndian, -1).nic(1)
	for _, kind := range []uint32{enhancedPacket, 0xBAD} {
		b := binary.LittleEndian.AppendUint32(bytes.Clone(f.b), kind)
		b = binary.LittleEndian.AppendUint32(b, 0xFFFFFFF0)
		b = append(b, make([]byte, 100)...)
		r, err := NewReader(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		var bad *Error
		if _, err := r.Next(); !errors.As(err, &bad) || bad.Offset != int64(len(f.b)) || len(r.buf) > maxBlock {
			t.Errorf("block of type %#x: %v, buffer of %d bytes", kind, err, len(r.buf))
		}
	}
}

// What does not concern us may be longer than any buffer, and a packet as long as
// the buffer grows.
func TestLongBlocks(t *testing.T) {
	long := strings.Repeat("x", maxBlock-minPacketBlock)
	f := new(built).section(binary.LittleEndian, -1).nic(1, resolution(9)).block(0xBAD, make([]byte, 3*maxBlock)).
		packet(0, 5, long, maxBlock).block(4, make([]byte, maxBlock+8)).packet(0, 6, "end", 3)
	r, err := NewReader(iotest.HalfReader(bytes.NewReader(f.b)))
	if err != nil {
		t.Fatal(err)
	}
	got, err := readAll(r)
	if want := []kept{{0, 5, long, maxBlock}, {0, 6, "end", 3}}; err != io.EOF || !cmp.Equal(got, want) {
		t.Errorf("%d packets, %v", len(got), err)
	}
}

// The error of the file underneath comes after what was read before it.
func TestReadErrors(t *testing.T) {
	file, want := capture(t, 10)
	r, err := NewReader(io.MultiReader(bytes.NewReader(file[:len(file)-200]), iotest.ErrReader(errFull)))
	if err != nil {
		t.Fatal(err)
	}
	got, err := readAll(r)
	if !errors.Is(err, errFull) || errors.Is(err, ErrTruncated) || len(got) == 0 || !cmp.Equal(got, want[:len(got)]) {
		t.Errorf("%d packets, then %v", len(got), err)
	}
	_, err = NewReader(iotest.ErrReader(errFull))
	if !errors.Is(err, errFull) {
		t.Errorf("NewReader: %v", err)
	}
}

func TestErrorsNameFileAndOffset(t *testing.T) {
	file, _ := capture(t, 3)
	path := filepath.Join(t.TempDir(), "h0-00.pcapng")
	if err := os.WriteFile(path, file[:len(file)-10], 0o644); err != nil {
		t.Fatal(err)
	}
	r, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	_, err = readAll(r)
	var bad *Error
	if !errors.As(err, &bad) || bad.Path != path || !strings.HasPrefix(err.Error(), path+": pcapng: capture is cut off at byte ") || strings.Contains(bad.Local(), path) {
		t.Errorf("error %v", err)
	}
}

// The seeds of FuzzPcapReader in testdata/fuzz are the variants: one file for each.
func TestSeedsAreTheVariants(t *testing.T) {
	dir := filepath.Join("testdata", "fuzz", "FuzzPcapReader")
	if *update {
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, v := range variants(t) {
		path, want := filepath.Join(dir, v.name), "go test fuzz v1\n[]byte("+strconv.Quote(string(v.file))+")\n"
		if *update {
			if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("seed %s differs from the variant (%v): run go test ./results/pcap -run Seeds -update", v.name, err)
		}
	}
}

func FuzzPcapReader(f *testing.F) {
	file, _ := capture(f, 3)
	f.Add(file[:len(file)-30])
	f.Add(gzipped(f, file))
	f.Add(gzipped(f, file)[:100])
	f.Add(compress(f, file))
	f.Fuzz(func(t *testing.T, b []byte) {
		read := func(src io.Reader) (all []kept, skip []Skip, err error) {
			r, err := NewReader(src)
			if err != nil {
				return nil, nil, err
			}
			all, err = readAll(r)
			if len(r.buf) > maxBlock {
				t.Fatalf("a buffer of %d bytes", len(r.buf))
			}
			return all, r.Skipped(), err
		}
		all, skip, err := read(bytes.NewReader(b))
		var where *Error
		if err != io.EOF && (!errors.As(err, &where) || where.Offset < 0 || where.Offset > int64(len(b)) && !magic.Of(b).Compressed()) {
			t.Fatalf("error %v is not typed, or beyond the %d bytes", err, len(b))
		}
		if magic.Of(b).Compressed() { // offsets, and errors, depend on how much was read ahead
			return
		}
		size := 0
		for _, p := range all {
			if size += len(p.Data); p.Len < 0 || p.Time < 0 {
				t.Fatalf("packet %+v", p)
			}
		}
		if size > len(b) {
			t.Fatalf("%d bytes of packets from %d", size, len(b))
		}
		// However the bytes come in.
		again, skipAgain, errAgain := read(iotest.OneByteReader(bytes.NewReader(b)))
		if !cmp.Equal(all, again) || !cmp.Equal(skip, skipAgain) || errAgain.Error() != err.Error() {
			t.Fatalf("%d packets, %v, %v; byte by byte %d, %v, %v", len(all), skip, err, len(again), skipAgain, errAgain)
		}
		sameInBatches(t, b, []int{3}, []int{7})
		// Written again, the packets are the same.
		if len(all) == 0 {
			return
		}
		for i := range all { // the writer refuses a length below that of the bytes
			all[i].Len = max(all[i].Len, len(all[i].Data))
		}
		var out bytes.Buffer
		nics := make([]Interface, 1+slices.MaxFunc(all, func(a, b kept) int { return a.Interface - b.Interface }).Interface)
		w, err := NewWriter(&out, sampleMeta(), nics)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range all {
			if err := w.Write(p.Interface, time.Unix(0, p.Time), []byte(p.Data), p.Len); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(Stats{}); err != nil {
			t.Fatal(err)
		}
		if copied, _, err := read(bytes.NewReader(out.Bytes())); err != io.EOF || !cmp.Equal(copied, all) {
			t.Fatalf("written again: %d packets of %d, %v", len(copied), len(all), err)
		}
	})
}
