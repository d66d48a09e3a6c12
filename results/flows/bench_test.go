package flows

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
	"github.com/google/gopacket/pcapgo"

	"testbed/emu/longtest"
	"testbed/results/pcap"
)

// Of the captures that benchmarks are run on.
const (
	benchFlows   = 10_000
	benchPackets = 3_000_000
	benchTshark  = 200_000 // for tshark
	benchMemory  = 10_000_000
)

// generatedFile writes a capture to a file and returns its path, and how many packets
// it has.
func generatedFile(b *testing.B, g generated) (string, int) {
	b.Helper()
	g.t = b
	path := filepath.Join(b.TempDir(), generatedHost+Suffix)
	f, err := os.Create(path)
	if err != nil {
		b.Fatal(err)
	}
	n := g.write(f)
	if err := f.Close(); err != nil {
		b.Fatal(err)
	}
	return path, n
}

// BenchmarkCapture reads a capture file to its end on one processor, the garbage
// collector included: without looking at packets, with packets taken apart by gopacket
// in two ways, with tshark's table of conversations, and with the whole reduction, which
// says how many times as fast as each of the others it is. tshark reads the beginning of
// the file. The last two read the same capture compressed.
func BenchmarkCapture(b *testing.B) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for _, snap := range []int{160, 96} {
		path, n := generatedFile(b, generated{flows: benchFlows, packets: benchPackets, snap: snap})
		rates := map[string]float64{}
		run := func(name string, n int, read func(b *testing.B) int) {
			b.Run(fmt.Sprintf("snap=%d/%s", snap, name), func(b *testing.B) {
				rates[name] = rate(b, n, read)
				if name != "testbed" {
					return
				}
				for other, metric := range map[string]string{"gopacket=NewPacket": "x-newpacket", "gopacket=DecodingLayerParser": "x-decodinglayerparser", "tshark": "x-tshark"} {
					if r := rates[other]; r > 0 { // it was asked for, and is installed
						b.ReportMetric(rates[name]/r, metric)
					}
				}
			})
		}
		run("reader", n, func(b *testing.B) int { return readOnly(b, path) })
		run("gopacket=NewPacket", n, func(b *testing.B) int { return withLayers(b, path) })
		run("gopacket=DecodingLayerParser", n, func(b *testing.B) int { return withParser(b, path) })
		run("tshark", benchTshark, func(b *testing.B) int { return withTshark(b, beginning(b, path, benchTshark)) })
		run("testbed", n, func(b *testing.B) int { return withReducer(b, path, benchFlows, n) })
		compressed, err := pcap.CompressFile(b.Context(), path)
		if err != nil {
			b.Fatal(err)
		}
		run("zst=reader", n, func(b *testing.B) int { return readOnly(b, compressed) })
		run("zst=testbed", n, func(b *testing.B) int { return withReducer(b, compressed, benchFlows, n) })
	}
	// What is left of it where the memory of connections does not matter.
	path, n := generatedFile(b, generated{flows: 1, packets: benchPackets, snap: 96})
	b.Run("snap=96/flows=1/testbed", func(b *testing.B) {
		rate(b, n, func(b *testing.B) int { return withReducer(b, path, 1, n) })
	})
}

// rate runs read, which is to count n packets, and returns how many it reads in a second.
func rate(b *testing.B, n int, read func(b *testing.B) int) float64 {
	b.ReportAllocs()
	runs := 0
	for b.Loop() {
		if got := read(b); got != n {
			b.Fatalf("%d packets, want %d", got, n)
		}
		runs++
	}
	r := float64(n) * float64(runs) / b.Elapsed().Seconds()
	b.ReportMetric(r, "packets/s")
	return r
}

// openBench opens a capture, to be closed with the function.
func openBench(b *testing.B, path string) (*pcap.Reader, func()) {
	p, err := pcap.Open(path)
	if err != nil {
		b.Fatal(err)
	}
	return p, func() {
		if err := p.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

func readOnly(b *testing.B, path string) (n int) {
	p, done := openBench(b, path)
	defer done()
	list := make([]pcap.Packet, batch)
	for {
		got, err := p.Batch(list)
		if err == io.EOF {
			return n
		}
		if err != nil {
			b.Fatal(err)
		}
		n += got
	}
}

// withReducer checks the result besides: see reduceGenerated.
func withReducer(b *testing.B, path string, flows, n int) int {
	p, done := openBench(b, path)
	defer done()
	return reduceGenerated(b, p, flows, n).Captures[0].Captured
}

// beginning is a file with the first n packets of a capture. It is made once.
func beginning(b *testing.B, path string, n int) string {
	short := path + ".beginning"
	if _, err := os.Stat(short); err == nil {
		return short
	}
	p, done := openBench(b, path)
	defer done()
	for range n {
		if _, err := p.Next(); err != nil {
			b.Fatal(err)
		}
	}
	from, err := os.Open(path)
	if err != nil {
		b.Fatal(err)
	}
	defer from.Close()
	head := make([]byte, p.Offset())
	if _, err := io.ReadFull(from, head); err != nil {
		b.Fatal(err)
	}
	if err := os.WriteFile(short, head, 0o600); err != nil {
		b.Fatal(err)
	}
	return short
}

// withTshark counts the packets of the conversations that tshark found.
func withTshark(b *testing.B, path string) (n int) {
	if _, err := exec.LookPath("tshark"); err != nil {
		b.Skip("tshark is not installed")
	}
	out, err := exec.Command("tshark", "-n", "-q", "-z", "conv,tcp", "-r", path).Output()
	if err != nil {
		b.Fatalf("tshark: %v", err)
	}
	for line := range strings.Lines(string(out)) {
		// Both ends, then packets and bytes (with their unit) each way, and of both.
		if f := strings.Fields(line); len(f) > 9 && f[1] == "<->" {
			sum := 0
			for _, at := range []int{3, 6} {
				v, err := strconv.Atoi(f[at])
				if err != nil {
					b.Fatalf("tshark: %q: %v", line, err)
				}
				sum += v
			}
			n += sum
		}
	}
	return n
}

// openGopacket opens a capture with gopacket's reader.
func openGopacket(b *testing.B, path string) (*pcapgo.NgReader, func()) {
	f, err := os.Open(path)
	if err != nil {
		b.Fatal(err)
	}
	r, err := pcapgo.NewNgReader(bufio.NewReaderSize(f, 1<<20), pcapgo.DefaultNgReaderOptions)
	if err != nil {
		b.Fatal(err)
	}
	return r, func() {
		if err := f.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

// withLayers counts TCP packets and the bytes of their flows the way most programs do.
func withLayers(b *testing.B, path string) (n int) {
	r, done := openGopacket(b, path)
	defer done()
	bytes := map[gopacket.Flow]int{}
	for {
		data, info, err := r.ReadPacketData()
		if errors.Is(err, io.EOF) {
			return n
		}
		if err != nil {
			b.Fatal(err)
		}
		p := gopacket.NewPacket(data, layers.LayerTypeEthernet, gopacket.NoCopy)
		tcp, ok := p.Layer(layers.LayerTypeTCP).(*layers.TCP)
		if !ok {
			b.Fatal("no TCP")
		}
		bytes[tcp.TransportFlow()] += info.Length
		n++
	}
}

// withParser does the same with the fastest that gopacket has.
func withParser(b *testing.B, path string) (n int) {
	r, done := openGopacket(b, path)
	defer done()
	type key struct{ net, transport gopacket.Flow }
	bytes := map[key]int{}
	var eth layers.Ethernet
	var ip layers.IPv4
	var tcp layers.TCP
	parser := gopacket.NewDecodingLayerParser(layers.LayerTypeEthernet, &eth, &ip, &tcp)
	parser.IgnoreUnsupported = true
	var found []gopacket.LayerType
	for {
		data, info, err := r.ZeroCopyReadPacketData()
		if errors.Is(err, io.EOF) {
			return n
		}
		if err != nil {
			b.Fatal(err)
		}
		if err := parser.DecodeLayers(data, &found); err != nil || len(found) < 3 {
			b.Fatal(err, found)
		}
		bytes[key{ip.NetworkFlow(), tcp.TransportFlow()}] += info.Length
		n++
	}
}

// BenchmarkMemory reports what the heap holds when a long capture has been read, the
// result included, and how much of that is each flow's.
func BenchmarkMemory(b *testing.B) {
	for b.Loop() {
		held, n := heapOf(b, benchFlows, benchMemory)
		b.ReportMetric(float64(n), "packets")
		b.ReportMetric(float64(held)/1e6, "MB")
		b.ReportMetric(float64(held)/benchFlows, "B/flow")
	}
}

// heapOf is what the heap holds at the end of reading a capture, the result included.
func heapOf(t testing.TB, flows, packets int) (bytes, n int) {
	in, out := io.Pipe()
	done := make(chan int)
	go func() {
		n := generated{flows: flows, packets: packets, snap: 96, t: t}.write(out)
		out.Close() // never fails
		done <- n
	}()
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	p, err := pcap.NewReader(in)
	if err != nil {
		t.Fatal(err)
	}
	r := NewReducer(Options{})
	if err := r.Add(t.Context(), generatedHost, p); err != nil {
		t.Fatal(err)
	}
	n = <-done
	res, err := r.Result()
	if err != nil {
		t.Fatal(err)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if len(res.Trails) != flows || res.Captures[0].Captured != n {
		t.Fatalf("%d trails, %d packets, want %d and %d", len(res.Trails), res.Captures[0].Captured, flows, n)
	}
	runtime.KeepAlive(r)
	return int(after.HeapAlloc) - int(before.HeapAlloc), n
}

// reduceCost returns the number and bytes of allocations for reducing a capture, and its packets.
func reduceCost(t *testing.T, flows, packets int) (count, size, n int) {
	var file bytes.Buffer
	n = generated{flows: flows, packets: packets, snap: 96, t: t}.write(&file)
	p, err := pcap.NewReader(&file)
	if err != nil {
		t.Fatal(err)
	}
	r := NewReducer(Options{})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if err := r.Add(t.Context(), generatedHost, p); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	return int(after.Mallocs - before.Mallocs), int(after.TotalAlloc - before.TotalAlloc), n
}

// A packet is reduced without allocations, apart from the bounded records of its flow.
func TestAllocationsAreOfFlowsNotPackets(t *testing.T) {
	longtest.Computes(t) // and allocates more under the race detector
	const flows, maxSize, maxPerPacket = 200, 3000, 0.001
	few, size, n := reduceCost(t, flows, 40_000)
	many, _, more := reduceCost(t, flows, 120_000)
	if per := float64(many-few) / float64(more-n); per > maxPerPacket {
		t.Errorf("%.4f allocations a packet, want at most %g", per, maxPerPacket)
	}
	if per := size / flows; per > maxSize {
		t.Errorf("%d bytes a flow, want at most %d", per, maxSize)
	}
}

// What is kept grows with flows, and not with packets.
func TestMemoryIsOfFlowsNotPackets(t *testing.T) {
	longtest.Skip(t, "generates millions of packets, 2 s")
	const flows = 10_000
	few, _ := heapOf(t, flows, 1_000_000)
	many, _ := heapOf(t, flows, 3_000_000)
	t.Logf("%d bytes a flow of 100 packets, %d of 300", few/flows, many/flows)
	// The load of links over time is for all flows: it has a bound of its own.
	if extra := many - few; extra > flows*1000 {
		t.Errorf("%d more bytes a flow for three times the packets", extra/flows)
	}
	if many > 200e6 {
		t.Errorf("%d MB for %d flows, want at most 200", many/1e6, flows)
	}
}
