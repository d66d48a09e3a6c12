package runner

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"testbed/emu/kernel/netnstest"
	"testbed/emu/live"
	"testbed/emu/longtest"
	"testbed/emu/plan"
	"testbed/results/flows"
	"testbed/results/rundir"
	"testbed/results/summary"
	"testbed/results/verdict"
	"testbed/topo"
)

// dropped returns the packets that the kernel counts as dropped by the token bucket of each link, by the
// link's name, in the namespaces that are pinned in a directory. Where tc is installed, it must
// show the same counts, which the caller has to read while no packet moves.
func dropped(f *topo.Fabric, pins string) (map[string]int, error) {
	byDevice := map[string]map[string]int{}
	out := map[string]int{}
	_, noTC := exec.LookPath("tc")
	for _, l := range f.Links() {
		ns, device := plan.Egress(f, l.ID)
		if byDevice[ns] == nil {
			got, err := droppedIn(filepath.Join(pins, ns))
			if err != nil {
				return nil, fmt.Errorf("qdiscs of %s: %w", ns, err)
			}
			if noTC == nil {
				shown, err := droppedByTC(filepath.Join(pins, ns))
				if err != nil {
					return nil, fmt.Errorf("tc in %s: %w", ns, err)
				}
				if d := cmp.Diff(shown, got); d != "" {
					return nil, fmt.Errorf("drops in %s (-tc +netlink):\n%s", ns, d)
				}
			}
			byDevice[ns] = got
		}
		n, ok := byDevice[ns][device]
		if !ok {
			return nil, fmt.Errorf("%s in %s has no token bucket", device, ns)
		}
		out[f.LinkName(l.ID)] = n
	}
	return out, nil
}

// droppedIn reads the drops of the token buckets of a namespace, by device.
func droppedIn(pin string) (byDevice map[string]int, err error) {
	ns, err := netns.GetFromPath(pin)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, ns.Close()) }()
	h, err := netlink.NewHandleAt(ns, unix.NETLINK_ROUTE) // a stock kernel lacks others
	if err != nil {
		return nil, err
	}
	defer h.Close()
	links, err := h.LinkList()
	if err != nil {
		return nil, err
	}
	byDevice = map[string]int{}
	for _, link := range links {
		qdiscs, err := h.QdiscList(link)
		if err != nil {
			return nil, err
		}
		for _, q := range qdiscs {
			if q.Type() != "tbf" {
				continue
			}
			if q.Attrs().Statistics == nil {
				return nil, fmt.Errorf("%s has no statistics", link.Attrs().Name)
			}
			byDevice[link.Attrs().Name] = int(q.Attrs().Statistics.Queue.Drops)
		}
	}
	return byDevice, nil
}

// droppedByTC is droppedIn by what tc prints.
func droppedByTC(pin string) (map[string]int, error) {
	text, err := exec.Command("nsenter", "--net="+pin, "tc", "-s", "-j", "qdisc", "show").Output()
	if err != nil {
		return nil, err
	}
	var list []struct {
		Kind, Dev string
		Drops     int
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, fmt.Errorf("%w: %s", err, text)
	}
	byDevice := map[string]int{}
	for _, q := range list {
		if q.Kind == "tbf" {
			byDevice[q.Dev] = q.Drops
		}
	}
	return byDevice, nil
}

// Every output shows the drops that the kernel counts, of each queue and direction: where racks
// are oversubscribed, of a host that receives from both racks, and of both.
func TestDropsAreThoseOfTheKernel(t *testing.T) {
	t.Parallel()
	netnstest.Require(t)
	const text = `
name: drops
fabric: {leaves: 2, spines: 2, hosts_per_leaf: 4, host_link: 50Mbps, oversubscription: "%s", queue: 5ms}
workload:
  - {kind: trace, path: trace.txt, mb: MB}
arms: {coflow: [fair]}
`
	for _, tt := range []struct {
		name, ratio string
		trace       []string
		drops       []string // beginnings of the names of the links that lose packets
		where       string   // of which at least half are there
	}{
		{"uplinks", "4:1", []string{"1 0 4 0 2 4 6 4 1:3 3:3 5:3 7:3"}, []string{"leaf0>spine"}, "leaf0>spine"},
		{"downlinks", "1:1", []string{"1 0 3 1 2 3 1 0:3"}, []string{"leaf0>h0-00"}, "leaf0>h0-00"},
		{"incast", "1:1", []string{"1 0 7 0 1 2 3 4 5 6 1 7:7"}, []string{"leaf1>h1-03"}, "leaf1>h1-03"},
		{"both", "4:1", []string{"1 0 4 0 2 4 6 4 1:1.5 3:1.5 5:1.5 7:1.5", "2 900 3 3 5 7 1 1:3"}, []string{"leaf0>spine", "leaf1>h1-00"}, "leaf"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.name != "both" {
				longtest.Skip(t, "one place of drops alone, 2 s")
			}
			s := loadText(t, fmt.Sprintf(text, tt.ratio), tt.trace...)
			f, err := s.Shape().Build()
			if err != nil {
				t.Fatal(err)
			}
			o := options(t)
			var pins string
			var before, after map[string]int
			o.tamper = tamper{
				start: func(_ *live.Config, at string) (err error) {
					pins = at
					before, err = dropped(f, pins)
					return err
				},
				recorded: func(string) (err error) {
					after, err = dropped(f, pins)
					return err
				},
			}
			out, err := Execute(t.Context(), s, o)
			if err != nil {
				t.Fatal(err)
			}
			want := map[string]int{}
			total, there := 0, 0
			for link, n := range after {
				want[link] = n - before[link]
				total += want[link]
				if strings.HasPrefix(link, tt.where) {
					there += want[link]
				}
			}
			for _, begin := range tt.drops {
				n := 0
				for link, dropped := range want {
					if strings.HasPrefix(link, begin) {
						n += dropped
					}
				}
				if n == 0 {
					t.Errorf("no packet was dropped at %s: the test shows nothing (%v)", begin, want)
				}
			}
			if 2*there < total {
				t.Errorf("%d of %d packets were dropped at %s*, want half of them there (%v)", there, total, tt.where, want)
			}
			estimate := compareEstimate(t, filepath.Join(repeatDir(out.Dir, "fair", 0), "captures"), tt.where)
			t.Logf("kernel: %d dropped packets, %d at %s*; estimate from captures: %d at %[3]s*", total, there, tt.where, estimate)

			check := func(when string) {
				t.Helper()
				r, err := rundir.Open(out.Dir)
				if err != nil {
					t.Fatal(err)
				}
				csv, listed := map[string]int{}, map[string]int{}
				for _, d := range r.Drops {
					csv[d.Link] += d.Dropped
					if d.Source != summary.DropsKernel {
						t.Errorf("%s: source %q of %s", when, d.Source, d.Link)
					}
				}
				if d := cmp.Diff(want, csv); d != "" {
					t.Errorf("%s, %s (-kernel +report):\n%s", when, summary.DropsFile, d)
				}
				l := r.Arm("fair").Losses
				if l == nil {
					t.Fatalf("%s: no losses are known, as of a void repeat", when)
				}
				for _, x := range l.Links {
					listed[x.Link] = x.Dropped
				}
				positive := maps.Clone(want)
				maps.DeleteFunc(positive, func(_ string, n int) bool { return n == 0 })
				if d := cmp.Diff(positive, listed); d != "" || l.Dropped != total || l.Source != summary.DropsKernel || l.Resent == 0 {
					t.Errorf("%s, %s: %d dropped, %d sent again, by %s (-kernel +report):\n%s", when, summary.SummaryFile, l.Dropped, l.Resent, l.Source, d)
				}
				md, err := os.ReadFile(filepath.Join(out.Dir, summary.MarkdownFile))
				if err != nil {
					t.Fatal(err)
				}
				rows := 0
				for _, line := range strings.Split(string(md), "\n") {
					cells := strings.Split(line, "|")
					if len(cells) != 9 || strings.TrimSpace(cells[1]) != "fair" {
						continue
					}
					if n, ok := want[strings.TrimSpace(cells[2])]; ok {
						rows++
						if got := strings.TrimSpace(cells[7]); got != strconv.Itoa(n) {
							t.Errorf("%s, %s: drops %q, want %d: %s", when, summary.MarkdownFile, got, n, line)
						}
					}
				}
				if rows == 0 {
					t.Errorf("%s: no row of a link in %s", when, summary.MarkdownFile)
				}
			}
			if out.Level() != verdict.Void {
				check("run")
			}
			plantPass(t, out.Dir, "fair")
			again, err := Report(t.Context(), out.Dir, ReportOptions{})
			if err != nil {
				t.Fatal(err)
			}
			check("report")
			var terminal strings.Builder
			if err := again.Report.Terminal(&terminal); err != nil {
				t.Fatal(err)
			}
			if want := "losses: fair: "; !strings.Contains(terminal.String(), want) || !strings.Contains(terminal.String(), "packets dropped in queues") {
				t.Errorf("the terminal has no %q:\n%s", want, &terminal)
			}

			// Without the counts there is an estimate, which is marked.
			if err := os.Remove(filepath.Join(repeatDir(out.Dir, "fair", 0), summary.QueuesFile)); err != nil {
				t.Fatal(err)
			}
			if again, err = Report(t.Context(), out.Dir, ReportOptions{}); err != nil {
				t.Fatal(err)
			}
			if l := again.Report.Summary.Arms[0].Losses; l.Source != summary.DropsCaptures {
				t.Errorf("without counts: %+v, want an estimate", l)
			}
		})
	}
}

// compareEstimate returns how many of the packets lost are estimated to be lost at links
// of a name. Each lost packet is counted once.
func compareEstimate(t *testing.T, captures, where string) (there int) {
	t.Helper()
	res, err := flows.Reduce(t.Context(), captures, flows.Options{})
	if err != nil {
		t.Fatal(err)
	}
	lost, placed := 0, 0
	for _, x := range res.Trails {
		lost += x.Lost
	}
	for _, l := range res.Links {
		placed += l.Drops
		if strings.HasPrefix(l.Name, where) {
			there += l.Drops
		}
	}
	if placed != lost {
		t.Errorf("%d packets were lost between captures, and %d are placed at links", lost, placed)
	}
	if 10*there < 9*placed {
		t.Errorf("%d of %d packets lost are placed at %s*, want nine of ten", there, placed, where)
	}
	return there
}
