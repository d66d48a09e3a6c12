package tooltest

import (
	"bytes"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Output runs a program and returns its output. The test fails if the program does. The
// caller checks with Need that the program is installed.
func Output(t testing.TB, name string, args ...string) string {
	t.Helper()
	var stdout, stderr bytes.Buffer
	c := exec.CommandContext(t.Context(), name, args...)
	c.Stdout, c.Stderr = &stdout, &stderr
	if err := c.Run(); err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, &stderr)
	}
	return stdout.String()
}

// Stream is one tcp.stream or udp.stream of tshark, summed from its packets. Arrays are by
// direction: 0 is what A sent.
type Stream struct {
	Protocol    string // "tcp" or "udp"
	Number      int
	A, B        string // the first packet's source and destination: address, space, port
	First, Last int64  // Unix nanoseconds
	Packets     [2]int
	Bytes       [2]int64 // frame.len
	Payload     [2]int64 // tcp.len, or udp.length without the header
	// Data counts TCP packets with payload; FirstData and LastData are their timestamps.
	Data                [2]int
	FirstData, LastData [2]int64
	// Retransmissions counts packets with tcp.analysis.retransmission, OutOfOrder those with
	// tcp.analysis.out_of_order, ZeroWindows those with tcp.analysis.zero_window.
	Retransmissions, OutOfOrder, ZeroWindows [2]int
	// FINAgain counts packets with FIN after an earlier FIN, LoneFINAgain those of them without
	// payload.
	FINAgain, LoneFINAgain [2]int
	SYN, FIN, RST          [2]int
	RTT                    int64 // tcp.analysis.initial_rtt, ns; 0 for none
}

// Streams runs tshark on a capture. Fragments of IP packets and packets quoted in ICMP errors
// belong to no stream.
func Streams(t testing.TB, path string) []Stream {
	t.Helper()
	fields := []string{"frame.time_epoch", "frame.len", "tcp.stream", "udp.stream", "ip.src", "ip.dst", "ipv6.src", "ipv6.dst",
		"tcp.srcport", "tcp.dstport", "udp.srcport", "udp.dstport", "tcp.len", "udp.length",
		"tcp.analysis.retransmission", "tcp.analysis.out_of_order", "tcp.analysis.zero_window", "tcp.flags", "tcp.analysis.initial_rtt",
		"icmp.type", "icmpv6.type", "ip.flags.mf", "ip.frag_offset", "ipv6.fraghdr.more", "ipv6.fraghdr.offset"}
	args := []string{"-n", "-r", path, "-T", "fields", "-E", "occurrence=f", "-E", "separator=|",
		"-o", "ip.defragment:FALSE", "-o", "ipv6.defragment:FALSE", "-o", "tcp.desegment_tcp_streams:FALSE"}
	for _, f := range fields {
		args = append(args, "-e", f)
	}
	index := map[string]int{}
	for i, f := range fields {
		index[f] = i
	}
	type key struct {
		protocol string
		number   int
	}
	seen := map[key]int{}
	var streams []Stream
	for line := range strings.Lines(Output(t, "tshark", args...)) {
		v := strings.Split(strings.TrimSuffix(line, "\n"), "|")
		if len(v) != len(fields) {
			t.Fatalf("tshark prints %q: must have %d fields", line, len(fields))
		}
		get := func(f string) string { return v[index[f]] }
		number := func(f string) int64 {
			n, err := strconv.ParseInt(get(f), 0, 64)
			if err != nil {
				t.Fatalf("tshark: %s: %v in %q", f, err, line)
			}
			return n
		}
		on := func(f string) bool { s := get(f); return s != "" && s != "0" && s != "False" }
		if get("icmp.type") != "" || get("icmpv6.type") != "" || on("ip.flags.mf") || on("ip.frag_offset") || on("ipv6.fraghdr.more") || on("ipv6.fraghdr.offset") {
			continue
		}
		k := key{"tcp", 0}
		if get("tcp.stream") == "" {
			k.protocol = "udp"
		}
		if get(k.protocol+".stream") == "" {
			continue
		}
		k.number = int(number(k.protocol + ".stream"))
		source := get("ip.src") + get("ipv6.src") + " " + get(k.protocol+".srcport")
		stamp := Nanoseconds(t, get("frame.time_epoch"))
		i, ok := seen[k]
		if !ok {
			i = len(streams)
			seen[k] = i
			streams = append(streams, Stream{Protocol: k.protocol, Number: k.number, A: source,
				B: get("ip.dst") + get("ipv6.dst") + " " + get(k.protocol+".dstport"), First: stamp, Last: stamp})
		}
		s, d := &streams[i], 0
		if source != s.A {
			d = 1
		}
		s.First, s.Last = min(s.First, stamp), max(s.Last, stamp)
		s.Packets[d]++
		s.Bytes[d] += number("frame.len")
		if k.protocol == "udp" {
			s.Payload[d] += number("udp.length") - 8
			continue
		}
		if n := number("tcp.len"); n > 0 {
			s.Payload[d] += n
			if s.Data[d] == 0 {
				s.FirstData[d] = stamp
			}
			s.Data[d]++
			s.LastData[d] = stamp
		}
		flags := number("tcp.flags")
		if flags&1 != 0 && s.FIN[d] > 0 {
			s.FINAgain[d]++
			if number("tcp.len") == 0 {
				s.LoneFINAgain[d]++
			}
		}
		for _, c := range []struct {
			n  *[2]int
			is bool
		}{
			{&s.Retransmissions, on("tcp.analysis.retransmission")}, {&s.OutOfOrder, on("tcp.analysis.out_of_order")}, {&s.ZeroWindows, on("tcp.analysis.zero_window")},
			{&s.FIN, flags&1 != 0}, {&s.SYN, flags&2 != 0}, {&s.RST, flags&4 != 0},
		} {
			if c.is {
				c.n[d]++
			}
		}
		if s.RTT == 0 && get("tcp.analysis.initial_rtt") != "" {
			s.RTT = Nanoseconds(t, get("tcp.analysis.initial_rtt"))
		}
	}
	slices.SortFunc(streams, func(a, b Stream) int {
		if a.Protocol != b.Protocol {
			return strings.Compare(a.Protocol, b.Protocol)
		}
		return a.Number - b.Number
	})
	return streams
}

// Nanoseconds parses seconds with nine decimals, which exceed the precision of a float64.
func Nanoseconds(t testing.TB, s string) int64 {
	t.Helper()
	whole, part, _ := strings.Cut(s, ".")
	if len(part) > 9 {
		t.Fatalf("%q has more than nine decimals", s)
	}
	n, err := strconv.ParseInt(whole+part+strings.Repeat("0", 9-len(part)), 10, 64)
	if err != nil {
		t.Fatalf("seconds: %v", err)
	}
	return n
}
