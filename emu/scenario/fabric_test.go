package scenario

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"testbed/topo"
	"testbed/topo/units"
)

func fabricOf(t *testing.T, file string) (*Scenario, *topo.Fabric) {
	t.Helper()
	s := load(t, file, nil)
	f, err := s.Shape().Build()
	if err != nil {
		t.Fatal(err)
	}
	return s, f
}

func TestUnlikeFabric(t *testing.T) {
	_, f := fabricOf(t, "testdata/unlike.yaml")
	var got []string
	for _, name := range []string{"h0-00>leaf0", "leaf0>h0-03", "h1-00>leaf1", "leaf0>spine0", "spine1>leaf0"} {
		ids, err := f.FindLinks(name)
		if err != nil {
			t.Fatal(err)
		}
		l := f.Link(ids[0])
		red := l.RED != nil && l.RED.ECN && l.RED.Probability == 0.1
		got = append(got, strings.Join([]string{name, l.Rate.String(), l.Queue.String(), l.Delay.String(), map[bool]string{true: "red"}[red]}, " "))
	}
	want := []string{"h0-00>leaf0 50Mbps 125KB 1ms ", "leaf0>h0-03 100Mbps 250KB 1ms red", "h1-00>leaf1 20Mbps 50KB 1ms ",
		"leaf0>spine0 20Mbps 50KB 1ms red", "spine1>leaf0 10Mbps 62.5KB 0s red"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("links (-want +got):\n%s", diff)
	}
}

func TestSwitch(t *testing.T) {
	_, f := fabricOf(t, "testdata/switch.yaml")
	if f.Hosts() != 150 || f.Racks() != 1 || f.Spines() != 0 || f.Link(f.HostUp(149)).Rate != units.Gbps {
		t.Errorf("%v: want one switch with 150 ports of 1 Gbps", f.Shape())
	}
}

// A fabric written with all defaults loads again as the same fabric.
func TestResolvedFabricLoadsAgain(t *testing.T) {
	for _, file := range []string{"testdata/unlike.yaml", "testdata/switch.yaml", "testdata/good.yaml"} {
		s, f := fabricOf(t, file)
		text, err := s.Resolved()
		if err != nil {
			t.Fatal(err)
		}
		again, err := Parse("s.yaml", text, options(nil))
		if err != nil {
			t.Fatalf("%s written out:\n%s\n%v", file, text, err)
		}
		g, err := again.Shape().Build()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(f.Links(), g.Links(), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s read back (-before +after):\n%s", file, diff)
		}
	}
}

func TestFabricErrors(t *testing.T) {
	const rest = "workload: [{kind: trace, path: small.txt}]\narms: {coflow: [fair]}\n"
	const spine = "leaves: 2, spines: 2, hosts_per_leaf: 4, host_link: 50Mbps"
	const star = "kind: switch, ports: 8, host_link: 50Mbps"
	tests := []struct{ name, fabric, want string }{
		{"two ways", spine + `, oversubscription: "2:1", uplink: 25Mbps, cross_rack: 40Mbps`,
			`s.yaml:2:103: fabric.uplink: excludes oversubscription: state one of oversubscription, uplink and cross_rack
s.yaml:2:123: fabric.cross_rack: excludes oversubscription: state one of oversubscription, uplink and cross_rack`},
		{"no such host", spine + `, host_links: [{hosts: "h9-*", rate: 10Mbps}, {hosts: "h[", rate: 10Mbps}]`,
			`s.yaml:2:91: fabric.host_links[0].hosts: "h9-*": the fabric has no such host: hosts are h0-00 to h1-03
s.yaml:2:122: fabric.host_links[1].hosts: "h[": syntax error in pattern`},
		{"no such link", spine + `, links: [{link: "leaf0>leaf1", rate: 10Mbps}, {link: "leaf0>spine0"}]`,
			`s.yaml:2:85: fabric.links[0].link: "leaf0>leaf1": the fabric has no such link: an example is "spine1>leaf1"
s.yaml:2:115: fabric.links[1]: changes nothing: state a rate, a queue or a delay`},
		{"queue of a link", spine + `, links: [{link: "leaf0>spine0", queue: 1KB}]`,
			`s.yaml:2:108: fabric.links[0].queue: 1KB: 1000 bytes at leaf0>spine0 of 100Mbps: must hold at least two frames, 3028 bytes`},
		{"slow link on a short queue", spine + `, queue: 1ms, links: [{link: "leaf0>spine0", rate: 1Mbps}]`,
			`s.yaml:2:77: fabric.queue: 1ms: 125 bytes at an uplink of 1Mbps: must hold at least two frames, 3028 bytes`},
		{"cross-rack rate", "leaves: 2, spines: 64, hosts_per_leaf: 4, host_link: 50Mbps, cross_rack: 1Mbps",
			`s.yaml:2:83: fabric.cross_rack: 1Mbps: 64 spines make each uplink 15.625Kbps: must be 100Kbps to 1Tbps`},
		{"ratio of unlike hosts", spine + `, oversubscription: "1900:1", host_links: [{hosts: "h0-*", rate: 100Mbps}]`,
			`s.yaml:2:88: fabric.oversubscription: 1900:1: 4 hosts of 50Mbps and 2 spines make each uplink 52632 bps`},
		{"red", spine + `, red: {min: 1KB, max: 1KB}`,
			`s.yaml:2:81: fabric.red.min: 1KB: must be at least a frame of 1514 bytes
s.yaml:2:91: fabric.red.max: 1KB with min 1KB: must be more than min`},
		{"red above the queue", spine + `, queue: 20KB, red: {min: 10KB, max: 30KB}`,
			`s.yaml:2:105: fabric.red.max: 30KB: larger than the queue of leaf0>h0-00, 20KB: use a smaller value, or a larger queue`},
		{"red on links that store and forward", spine + `, link_model: store-and-forward, red: {min: 10KB, max: 30KB}`,
			`s.yaml:2:106: fabric.red: links that store and forward have no RED: remove it, or use link_model: token-bucket`},
		{"link model", spine + `, link_model: netem`, `s.yaml:2:82: fabric.link_model: "netem": expected token-bucket or store-and-forward`},
		{"delay", spine + `, delay: 1m`, `s.yaml:2:77: fabric.delay: "1m": expected a time from 0s to 10s`},
		{"keys of a leaf-spine", star + `, spines: 2, uplink: 25Mbps`,
			`s.yaml:2:53: fabric.spines: key of kind leaf-spine in a fabric of kind switch: leave it out, or change the kind; allowed keys: kind, ports, host_link, host_links, queue, red, delay, link_model, links, mtu, congestion_control
s.yaml:2:64: fabric.uplink: key of kind leaf-spine`},
		{"keys of a switch", spine + `, ports: 4`, `s.yaml:2:70: fabric.ports: key of kind switch in a fabric of kind leaf-spine`},
		{"too many ports", "kind: switch, ports: 251, host_link: 50Mbps", `s.yaml:2:31: fabric.ports: "251": expected a whole number from 1 to 250`},
		{"no ports", "kind: switch, host_link: 50Mbps", `s.yaml:2:9: fabric.ports: missing: expected a whole number from 1 to 250`},
		{"no such kind", "kind: swich, ports: 4, host_link: 50Mbps", `s.yaml:2:16: fabric.kind: "swich": expected leaf-spine or switch (did you mean "switch"?)`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Parse("s.yaml", []byte("name: x\nfabric: {"+tt.fabric+"}\n"+rest), options(nil))
			if err == nil {
				t.Fatal("no error")
			}
			got := strings.Split(err.Error(), "\n")
			want := strings.Split(tt.want, "\n")
			for i := range max(len(got), len(want)) {
				if i >= len(got) || i >= len(want) || !strings.HasPrefix(got[i], want[i]) {
					t.Fatalf("got\n%s\nwant\n%s", err, tt.want)
				}
			}
		})
	}
}
