package kernel

import (
	"maps"
	"net/netip"
	"strings"
	"testing"
	"time"

	"testbed/emu/kernel/netnstest"
	"testbed/emu/plan"
	"testbed/topo"
	"testbed/topo/units"
)

func TestParseCounters(t *testing.T) {
	names := "Ip: Forwarding DefaultTTL InReceives InHdrErrors MaxConn"
	values := "Ip: 1 64 100 1 -1"
	want := map[string]uint64{"Forwarding": 1, "DefaultTTL": 64, "InReceives": 100, "InHdrErrors": 1}
	if got, err := parseCounters("Icmp: x\nIcmp: 1\n"+names+"\n"+values+"\nTcp: x\nTcp: 1\n", "Ip:", "InReceives"); err != nil || !maps.Equal(got, want) {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
	for _, bad := range []string{"", names + "\n", names + "\nIp: 1 2\n", "Ip: InHdrErrors\nIp: 5\n", strings.Replace(names+"\n"+values+"\n", "100", "x", 1)} {
		if got, err := parseCounters(bad, "Ip:", "InReceives"); err == nil {
			t.Errorf("parseCounters(%q) = %v, want an error", bad, got)
		}
	}
}

// FuzzParseCounters: any input returns a value or an error, without a panic.
func FuzzParseCounters(f *testing.F) {
	f.Add("Ip: InReceives InDelivers ForwDatagrams OutRequests\nIp: 1 2 3 4\n")
	f.Add("Ip:\nIp:\n")
	f.Fuzz(func(t *testing.T, text string) {
		_, _ = parseCounters(text, "Ip:", "InReceives")
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
