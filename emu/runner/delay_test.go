package runner

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"testbed/emu/deploy"
	"testbed/emu/kernel"
	"testbed/emu/kernel/netnstest"
	"testbed/emu/plan"
	"testbed/results/tooltest"
	"testbed/results/verdict"
	"testbed/topo/units"
)

const acrossTheRacks = `
name: delayed
fabric: {leaves: 2, spines: 1, hosts_per_leaf: 2, host_link: 20Mbps, queue: 20ms%s}
workload:
  - {kind: trace, path: trace.txt, mb: MB}
arms: {coflow: [fair]}
`

// A flow of 100 kB across the racks takes its time at the payload capacity of 20 Mbps
// and the 8 ms of its four links, on the fluid model to the microsecond, on packets no
// less, and more by the handshake and the growth of its window. A kernel without netem
// refuses it before anything is built.
func TestDelayIsInTheCompletionTime(t *testing.T) {
	netnstest.Require(t)
	const one = "1 0 1 0 1 1:0.1" // h0-00 to h1-00
	s := loadText(t, fmt.Sprintf(acrossTheRacks, ", delay: 2ms"), one)
	f, err := s.Shape().Build()
	if err != nil {
		t.Fatal(err)
	}
	if err := kernel.CheckNeeds(plan.Compile("delayed", f, plan.Options{})); err != nil {
		if netnstest.Guest() || !errors.Is(err, deploy.ErrUnsupported) {
			t.Fatal(err)
		}
		t.Logf("NOT TESTED ON PACKETS: %v; what is tested is the refusal", err)
		o := options(t)
		_, err := Execute(t.Context(), s, o)
		var refused Refusal
		if !errors.As(err, &refused) || !strings.Contains(err.Error(), ": fabric.delay: this kernel has no qdisc netem") {
			t.Errorf("Execute() = %v", err)
		}
		if left, err := os.ReadDir(o.StateRoot); err != nil && !errors.Is(err, fs.ErrNotExist) || slices.ContainsFunc(left, fs.DirEntry.IsDir) {
			t.Errorf("left behind: %v, %v", left, err)
		}
		return
	}
	netnstest.Timing(t, func(t *testing.T) bool {
		_, arms := onPackets(t, s)
		r := arms["fair"]
		got, want := cct(t, r.Records, 1), cct(t, *r.Fluid, 1)
		alone := plan.Payload(20*units.Mbps, 1500).TimeToSend(100 * units.KB)
		if (want - alone - 8*time.Millisecond).Abs() > time.Microsecond {
			t.Errorf("fluid CCT %v, want %v for 100 kB and 8ms for four links", want, alone)
		}
		t.Logf("measured %v, fluid %v, verdict %v", got, want, r.Verdict.Level)
		if got < want {
			t.Errorf("measured %v, faster than its links and their delays allow: %v", got, want)
		}
		for _, name := range []string{"capture-drops", "captured-bytes", "loss", "frames"} {
			i := slices.IndexFunc(r.Verdict.Checks, func(c verdict.Check) bool { return c.Name == name })
			if i < 0 || r.Verdict.Checks[i].Level != verdict.Pass {
				show(t, r.Verdict, true)
				t.Errorf("%s does not pass", name)
			}
		}
		// The handshake is a round trip, and a window of 10 packets that doubles four
		// more at most.
		return got < want+5*16*time.Millisecond
	})
}

// Runs on links that store and forward, without and with a delay: the kernel is as planned, no queue is longer than its
// limit in packets, nothing is lost, and packets leave one at a time. A flow of 10 KB across racks, half of
// whose time token buckets would save, takes no less than its frames on four links.
func TestRunOnLinksThatStoreAndForward(t *testing.T) {
	netnstest.Require(t)
	for _, delay := range []time.Duration{0, 12 * time.Millisecond} {
		s := loadText(t, fmt.Sprintf(acrossTheRacks, fmt.Sprintf(", link_model: store-and-forward, delay: %v", delay)), "1 0 1 0 1 1:0.01", "2 2000 2 0 1 1 2:1", "3 2500 2 1 2 1 3:1")
		f, err := s.Shape().Build()
		if err != nil {
			t.Fatal(err)
		}
		if err := kernel.CheckNeeds(plan.Compile("stored", f, plan.Options{})); err != nil {
			if netnstest.Guest() || !errors.Is(err, deploy.ErrUnsupported) || !strings.Contains(err.Error(), "link_model") {
				t.Fatal(err)
			}
			t.Logf("NOT TESTED ON PACKETS: %v; what is tested is the refusal", err)
			return
		}
		_, arms := onPackets(t, s)
		r := arms["fair"]
		least := 9*(20*units.Mbps).TimeToSend(1514) + 4*delay // seven frames, the last of 1,378 bytes, and three more
		if got := cct(t, r.Records, 1); got < least {
			t.Errorf("delay %v: 10 KB took %v, less than %v on four links", delay, got, least)
		}
		for _, c := range r.Verdict.Checks {
			switch c.Name {
			case "kernel", "capture-drops", "captured-bytes", "loss", "frames", "queue", "foreign":
				if c.Level != verdict.Pass {
					t.Errorf("delay %v: %s is %v: %s: %s", delay, c.Name, c.Level, c.Value, c.Reason)
				}
			case "burst", "delivered":
				t.Logf("delay %v: %s is %v: %s", delay, c.Name, c.Level, c.Value)
				if c.Level == verdict.Void && !netnstest.Emulated() {
					t.Errorf("delay %v: %s is void: %s", delay, c.Name, c.Reason)
				}
			}
		}
	}
}

// A delay that the plan does not have is found by the round trips of idle paths, without the reports of the kernel, on the link
// of a host, of a leaf and of a spine. A delay that is planned is not. Emulated processors take up to 2 ms themselves, with 0.5 ms
// of noise: there, longer delays are compared with the same paths of a run without them.
func TestHiddenDelaysAreMeasured(t *testing.T) {
	netnstest.Require(t)
	delayed := func() (string, []string) {
		return fmt.Sprintf(acrossTheRacks, ", delay: 2ms"), []string{"1 0 1 0 1 1:0.5"} // h0-00 to h1-00
	}
	text, trace := delayed()
	f, err := loadText(t, text, trace...).Shape().Build()
	if err != nil {
		t.Fatal(err)
	}
	if err := kernel.CheckNeeds(plan.Compile("delayed", f, plan.Options{})); err != nil {
		if netnstest.Guest() || !errors.Is(err, deploy.ErrUnsupported) {
			t.Fatal(err)
		}
		t.Skipf("NOT TESTED ON PACKETS: %v", err)
	}
	tooltest.Need(t, "tc", "nsenter")
	least := time.Millisecond
	if netnstest.Emulated() {
		least = 2 * time.Millisecond
	}
	clean := map[string]time.Duration{} // round trips by path
	for _, tt := range []struct {
		at, device, link, back string
		more                   time.Duration
	}{
		{"h0-01", "eth0", "h0-01>leaf0", "leaf0>h0-01", 0},
		{"h0-01", "eth0", "h0-01>leaf0", "leaf0>h0-01", least},
		{"leaf1", "spine0", "leaf1>spine0", "spine0>leaf1", least},
		{"spine0", "leaf0", "spine0>leaf0", "leaf0>spine0", 5 * time.Millisecond},
	} {
		t.Run(fmt.Sprintf("%v on %s", tt.more, tt.link), func(t *testing.T) {
			change := fmt.Sprintf("tc qdisc change dev %s root handle 1: netem delay %dus limit 1000", tt.device, (2*time.Millisecond + tt.more).Microseconds())
			s, v := judgedSamples(t, delayed, distort([][]distortion{{{tt.link, tt.at, change, "", 0, ""}}}))
			c := v.Checks[slices.IndexFunc(v.Checks, func(c verdict.Check) bool { return c.Name == "round-trip" })]
			t.Logf("%v: %s. %s", c.Level, c.Value, c.Reason)
			if !netnstest.Emulated() && (c.Level > verdict.Pass) != (tt.more > 0) || tt.more > least && c.Level == verdict.Pass {
				t.Errorf("round-trip is %v with %v more", c.Level, tt.more)
			}
			var with []time.Duration
			for _, r := range s.RoundTrips {
				path := strings.Join(r.Links, " ")
				if tt.more == 0 {
					clean[path] = r.After
				} else if slices.Contains(r.Links, tt.link) || slices.Contains(r.Links, tt.back) {
					with = append(with, r.After-clean[path])
				}
			}
			t.Logf("round trips over the link grew by %v", with)
			if tt.more > 0 && slices.Max(with) < tt.more/2 {
				t.Errorf("round trips over the link grew by %v, want %v", with, tt.more)
			}
		})
	}
}
