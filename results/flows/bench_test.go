package flows

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
	"github.com/google/gopacket/pcapgo"

	"testbed/results/pcap"
)

// Of the captures that benchmarks are run on.
const (
	benchFlows   = 10_000
	benchPackets = 1_000_000
	benchTshark  = 100_000 // of a smaller one, for tshark
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

// BenchmarkCapture reads a capture file to its end: the reduction, packets taken apart
// with gopacket in two ways, and tshark's table of conversations.
func BenchmarkCapture(b *testing.B) {
	for _, snap := range []int{160, 96} {
		path, n := generatedFile(b, generated{flows: benchFlows, packets: benchPackets, snap: snap})
		b.Run(fmt.Sprintf("snap=%d/testbed", snap), func(b *testing.B) {
			rate(b, n, func() {
				p, err := pcap.Open(path)
				if err != nil {
					b.Fatal(err)
				}
				reduceGenerated(b, p, benchFlows, n)
				if err := p.Close(); err != nil {
					b.Fatal(err)
				}
			})
		})
		b.Run(fmt.Sprintf("snap=%d/reader", snap), func(b *testing.B) {
			rate(b, n, func() {
				p, err := pcap.Open(path)
				if err != nil {
					b.Fatal(err)
				}
				for err == nil {
					_, err = p.Next()
				}
				if err := p.Close(); err != nil {
					b.Fatal(err)
				}
			})
		})
		b.Run(fmt.Sprintf("snap=%d/gopacket=NewPacket", snap), func(b *testing.B) {
			rate(b, n, func() { wantCount(b, n, withLayers(b, path)) })
		})
		b.Run(fmt.Sprintf("snap=%d/gopacket=DecodingLayerParser", snap), func(b *testing.B) {
			rate(b, n, func() { wantCount(b, n, withParser(b, path)) })
		})
		small, n := generatedFile(b, generated{flows: benchFlows / 10, packets: benchTshark, snap: snap})
		b.Run(fmt.Sprintf("snap=%d/tshark", snap), func(b *testing.B) {
			if _, err := exec.LookPath("tshark"); err != nil {
				b.Skip("tshark is not installed")
			}
			rate(b, n, func() {
				if out, err := exec.Command("tshark", "-n", "-q", "-z", "conv,tcp", "-r", small).CombinedOutput(); err != nil {
					b.Fatalf("tshark: %v: %s", err, out)
				}
			})
		})
	}
}

// rate runs f, which reads n packets.
func rate(b *testing.B, n int, f func()) {
	b.ReportAllocs()
	runs := 0
	for b.Loop() {
		f()
		runs++
	}
	b.ReportMetric(float64(n)*float64(runs)/b.Elapsed().Seconds(), "packets/s")
}

func wantCount(b *testing.B, want, got int) {
	if got != want {
		b.Fatalf("%d packets, want %d", got, want)
	}
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

// What is kept grows with flows, and not with packets.
func TestMemoryIsOfFlowsNotPackets(t *testing.T) {
	if testing.Short() {
		t.Skip("generates millions of packets")
	}
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
