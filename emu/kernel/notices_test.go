package kernel

import (
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"testbed/emu/deploy"
	"testbed/results/tooltest"
	"testbed/topo/units"
)

// Every alteration that Verify finds while it lasts is reported although it is taken back at once, and so are
// those of objects that no plan has. What is set to the value that it has is not reported, except parameters.
func TestBriefAlterationsAreReported(t *testing.T) {
	t.Parallel()
	tooltest.Need(t, "ip", "tc")
	k := keep(t, shape(2, 2, 2, 20*units.Mbps, 1500))
	want, err := deploy.Expect(k.plan)
	if err != nil {
		t.Fatal(err)
	}
	list := append(alterations(),
		alteration{"route of another table", "leaf0", "ip route add blackhole 10.1.0.0/16 table 7", "ip route del blackhole 10.1.0.0/16 table 7",
			[]string{"leaf0: route 10.1.0.0/16 in table 7 none in the plan, one in the kernel"}},
		alteration{"filter", "leaf1", "tc qdisc add dev h1-00 clsact; tc filter add dev h1-00 egress bpf da bytecode '1,6 0 0 2'", "tc qdisc del dev h1-00 clsact",
			[]string{"leaf1>h1-00: filter at egress none in the plan, one in the kernel"}},
		alteration{"nftables", "h1-00", nftTable, "true", []string{"h1-00: change of nftables rules none in the plan, one in the kernel"}},
		alteration{"parameter of no plan", "h1-01", "echo 10 > /proc/sys/net/ipv4/tcp_reordering", "echo 3 > /proc/sys/net/ipv4/tcp_reordering",
			[]string{"h1-01: net.ipv4.tcp_reordering as built in the plan, 10 in the kernel"}},
		alteration{"the same route", "leaf0", "ip route replace 10.0.0.0/8 proto static %BOTH%", "true", nil},
		alteration{"the same shaper, which fills its bucket", "leaf0", alteredShaper, "true",
			[]string{"leaf0>h0-01: tbf set again none in the plan, one in the kernel"}},
		alteration{"the same value of a parameter", "h0-00", "echo 1 > /proc/sys/net/ipv4/tcp_sack", "true", []string{"h0-00: net.ipv4.tcp_sack 1 in the plan, 1 when it was read, after it was written in the kernel"}},
	)
	for _, c := range list {
		if c.name == "segments" {
			continue // the kernel does not report it: Compare finds it at the end
		}
		t.Run(c.name, func(t *testing.T) {
			k.t = t
			n, err := k.x.Notices()
			if err != nil {
				t.Fatal(err)
			}
			from := time.Now()
			switch c.alter {
			case nftTable:
				addTable(t, k.x.builder(c.namespace))
			case "%OFFLOAD%":
				k.alter(c)
				time.Sleep(20 * time.Millisecond) // the kernel reports that offloads changed, and not which
			default:
				k.alter(c)
			}
			k.restore(c)
			got, lost, err := n.Close()
			if err != nil || lost {
				t.Fatal(err, lost)
			}
			end, err := want.Compare(t.Context(), k.x)
			if err != nil || len(end) > 0 {
				t.Fatalf("at the end %v, %v", end, err)
			}
			var all []string
			for _, x := range want.Changes(got, end) {
				all = append(all, x.String())
				if x.From.Before(from) || x.From.After(time.Now()) {
					t.Errorf("%v at %v", x, x.From.Sub(from))
				}
			}
			for _, w := range c.want {
				if strings.Contains(w, "a frame from") || strings.Contains(w, "none in the plan, clsact") {
					continue // Verify sends a frame
				}
				named, _, _ := strings.Cut(k.fill(w), " in the plan, ")
				if !slices.ContainsFunc(all, func(s string) bool {
					// On a busy machine, a parameter may be restored before it is read.
					return strings.HasPrefix(s, k.fill(w)) || strings.Contains(c.alter, "/proc/sys/") && strings.HasPrefix(s, named+" in the plan, ")
				}) {
					t.Errorf("no %q in\n%s", k.fill(w), strings.Join(all, "\n"))
				}
			}
			if len(c.want) == 0 && len(all) > 0 {
				t.Errorf("reported: %s", strings.Join(all, "\n"))
			}
		})
	}
}

// nftTable stands for addTable in an alteration.
const nftTable = "%NFT%"

// addTable adds an empty table of nftables, as "nft add table ip t" does.
func addTable(t *testing.T, b *builder) {
	t.Helper()
	const batchBegin, batchEnd, newTable, tableName = 0x10, 0x11, unix.NFNL_SUBSYS_NFTABLES << 8, 1
	var batch []byte
	for _, m := range []struct {
		kind, flags uint16
		resource    uint16
		attributes  []byte
	}{
		{batchBegin, 0, unix.NFNL_SUBSYS_NFTABLES, nil},
		{newTable, unix.NLM_F_CREATE, 0, nl.NewRtAttr(tableName, nl.ZeroTerminated("t")).Serialize()},
		{batchEnd, 0, unix.NFNL_SUBSYS_NFTABLES, nil},
	} {
		const headers = unix.SizeofNlMsghdr + 4 // and struct nfgenmsg
		b := binary.NativeEndian.AppendUint32(nil, uint32(headers+len(m.attributes)))
		b = binary.NativeEndian.AppendUint16(b, m.kind)
		b = binary.NativeEndian.AppendUint16(b, m.flags|unix.NLM_F_REQUEST)
		b = append(b, make([]byte, 8)...)
		b = append(b, unix.AF_INET, 0)
		b = binary.BigEndian.AppendUint16(b, m.resource)
		batch = append(batch, append(b, m.attributes...)...)
	}
	var fd int
	err := b.do(func() (err error) {
		fd, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
		return err
	})
	if err == nil {
		err = errors.Join(unix.Sendto(fd, batch, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}), unix.Close(fd))
	}
	if err != nil {
		t.Fatal(err)
	}
}
