package kernel

import (
	"maps"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"testbed/emu/kernel/netnstest"
	"testbed/emu/plan"
	"testbed/topo"
	"testbed/topo/units"
)

func TestParseStat(t *testing.T) {
	p, err := parseStat("cpu  10 20 30 400 5 6 7 8 2 1\ncpu0 1 2 3 4 5 6 7 8 0 0\ncpu1 1 2 3 4 5 6 7 8 0 0\nintr 5 0\n")
	want := Processors{Count: 2, Tasks: 600 * time.Millisecond, Softirq: 70 * time.Millisecond, Irq: 60 * time.Millisecond, Stolen: 80 * time.Millisecond}
	if err != nil || p != want {
		t.Errorf("got %+v, %v, want %+v", p, err, want)
	}
	for _, bad := range []string{"", "cpu 1 2 3\n", "cpu  1 2 3 x 5 6 7 8\ncpu0 1\n", "intr 5\n", "cpu  -1 2 3 4 5 6 7 8\ncpu0\n"} {
		if p, err := parseStat(bad); err == nil {
			t.Errorf("parseStat(%q) = %+v, want an error", bad, p)
		}
	}
}

func TestParseProcess(t *testing.T) {
	for _, tt := range []struct {
		name, line string
		softirq    bool
	}{
		{"a name with parentheses and spaces", "7 (a) b (c) S 1 7 7 0 -1 4194304 1 2 3 4 100 20 30 4 20 0 9 0 5150 1 2 3", false},
		{"a kernel thread of packets", "7 (ksoftirqd/1) S 2 0 0 0 -1 69238848 0 0 0 0 100 20 30 4 20 0 1 0 5150 0 0 1", true},
		{"another kernel thread", "7 (kworker/1:1) S 2 0 0 0 -1 69238880 0 0 0 0 100 20 30 4 20 0 1 0 5150 0 0 1", false},
		{"a process named as one of packets", "7 (ksoftirqd/1) S 1 7 7 0 -1 4194304 1 2 3 4 100 20 30 4 20 0 9 0 5150 1 2 3", false},
	} {
		want := charged{1200 * time.Millisecond, 340 * time.Millisecond}
		if start, c, softirq, err := parseProcess(tt.line); err != nil || start != 5150 || c != want || softirq != tt.softirq {
			t.Errorf("%s: %d, %+v, %t, %v; want 5150, %+v, %t", tt.name, start, c, softirq, err, want, tt.softirq)
		}
	}
	for _, bad := range []string{"", "7 a S 1", "7 )a( S", "7 (a) S 1 7 7 0 -1 4194304 1 2 3 4 100 20 30 4 20 0 9 0", "7 (a) S 1 7 7 0 -1 4194304 1 2 3 4 x 20 30 4 20 0 9 0 5150 1"} {
		if _, c, _, err := parseProcess(bad); err == nil {
			t.Errorf("parseProcess(%q) = %+v, want an error", bad, c)
		}
	}
}

// OthersSince counts the time of processes that are reaped.
func TestOthersSince(t *testing.T) {
	const s = time.Second
	id := func(pid int) process { return process{pid, 1} }
	was := ProcessUsage{id(1): {0, 100 * s}, id(20): {5 * s, 2 * s}, id(21): {60 * s, 10 * s}, process{os.Getpid(), 1}: {3 * s, 0}}
	for _, tt := range []struct {
		name   string
		change func(ProcessUsage)
		want   time.Duration
	}{
		{"nothing", func(ProcessUsage) {}, 0},
		{"one works", func(p ProcessUsage) { p[id(20)] = charged{9 * s, 2 * s} }, 4 * s},
		{"this one works", func(p ProcessUsage) { p[process{os.Getpid(), 1}] = charged{9 * s, 8 * s} }, 0},
		{"one begins", func(p ProcessUsage) { p[id(22)] = charged{2 * s, 1 * s} }, 3 * s},
		{"one began and ended", func(p ProcessUsage) { p[id(20)] = charged{5 * s, 3 * s} }, 1 * s},
		{"one ends that had taken much", func(p ProcessUsage) { delete(p, id(21)); p[id(20)] = charged{5 * s, 73 * s} }, 1 * s},
		{"its parent has ended too, and init waits for both", func(p ProcessUsage) {
			delete(p, id(20))
			delete(p, id(21))
			p[id(1)] = charged{0, 179 * s}
		}, 2 * s},
		{"one ends that is never waited for", func(p ProcessUsage) { delete(p, id(21)); p[id(20)] = charged{6 * s, 2 * s} }, 1 * s},
		{"its number is used again", func(p ProcessUsage) {
			delete(p, id(20))
			p[process{20, 2}] = charged{1 * s, 0}
			p[id(1)] = charged{0, 107 * s}
		}, 1 * s},
	} {
		is := maps.Clone(was)
		tt.change(is)
		if got := is.OthersSince(was); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestParsePressure(t *testing.T) {
	text := "some avg10=0.36 avg60=1.24 avg300=2.00 total=1234567\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=5\n"
	if d, ok := parsePressure(text); !ok || d != 1234567*time.Microsecond {
		t.Errorf("got %v, %t", d, ok)
	}
	for _, bad := range []string{"", "full total=5\n", "some avg10=1\n", "some total=x\n"} {
		if d, ok := parsePressure(bad); ok {
			t.Errorf("parsePressure(%q) = %v", bad, d)
		}
	}
}

func TestParseIPStats(t *testing.T) {
	names := "Ip: Forwarding DefaultTTL InReceives InHdrErrors InAddrErrors ForwDatagrams InDelivers OutRequests"
	values := "Ip: 1 64 100 1 2 30 60 40"
	for _, tt := range []struct {
		name, text string
		sent       uint64
	}{
		{"from 6.7 on", names + " OutTransmits\n" + values + " 70\nIcmp: x\nIcmp: 1\n", 70},
		{"before", names + "\n" + values + "\n", 40},
	} {
		want := IPStats{Received: 100, Delivered: 60, Forwarded: 30, Sent: tt.sent, Refused: 3}
		if got, err := parseIPStats(tt.text); err != nil || got != want {
			t.Errorf("%s: %+v, %v, want %+v", tt.name, got, err, want)
		}
	}
	for _, bad := range []string{"", names + "\n", names + "\nIp: 1 2\n", "Ip: InReceives\nIp: 5\n", strings.Replace(names+"\n"+values+"\n", "100", "x", 1)} {
		if got, err := parseIPStats(bad); err == nil {
			t.Errorf("parseIPStats(%q) = %+v, want an error", bad, got)
		}
	}
}

// FuzzParseIPStats: any input returns a value or an error, without a panic.
func FuzzParseIPStats(f *testing.F) {
	f.Add("Ip: InReceives InDelivers ForwDatagrams OutRequests\nIp: 1 2 3 4\n")
	f.Add("Ip:\nIp:\n")
	f.Fuzz(func(t *testing.T, text string) {
		_, _ = parseIPStats(text)
		_, _ = parseStat(text)
		_, _ = parsePressure(text)
		_, _, _, _ = parseProcess(text)
	})
}

// Packets from a host are received and forwarded by its leaf and delivered at the other host; a
// datagram that the leaf discards is only received.
func TestIPCountsPackets(t *testing.T) {
	b := build(t, shape(1, 2, 0, 100*units.Mbps, 1500), plan.Options{})
	read := func(name string) IPStats {
		s, err := b.ns(name).IP()
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	names := []string{"h0-00", "leaf0", "h0-01"}
	was := map[string]IPStats{}
	for _, n := range names {
		was[n] = read(n)
	}
	const delivered, discarded = 20, 7
	send := func(n int, to netip.Addr) {
		for range n {
			if err := b.ns("h0-00").SendUDP([]byte("x"), netip.AddrPortFrom(to, 50099)); err != nil {
				t.Fatal(err)
			}
		}
	}
	send(delivered, b.HostAddr(1))
	send(discarded, topo.MarkAddr())
	deadline := time.Now().Add(netnstest.Patience(2 * time.Second))
	for {
		h, leaf, to := read("h0-00"), read("leaf0"), read("h0-01")
		// The receiver answers with port unreachable, which is rate-limited.
		replies := to.Sent - was["h0-01"].Sent
		ok := h.Sent-was["h0-00"].Sent == delivered+discarded &&
			leaf.Received-was["leaf0"].Received == delivered+discarded+replies && leaf.Forwarded-was["leaf0"].Forwarded == delivered+replies &&
			leaf.Delivered == was["leaf0"].Delivered && leaf.Refused == was["leaf0"].Refused &&
			to.Delivered-was["h0-01"].Delivered == delivered && h.Delivered-was["h0-00"].Delivered == replies
		if ok {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("sender %+v, leaf %+v, receiver %+v, before %+v", h, leaf, to, was)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
