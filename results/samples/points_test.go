package samples

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"testbed/topo/units"
)

// written returns a reader of samples.
func written(t *testing.T, h Head, all ...Sample) *Reader {
	t.Helper()
	path := filepath.Join(t.TempDir(), File)
	w := Create(path, 1<<20)
	w.Add(all...)
	if err := w.Close(h); err != nil {
		t.Fatal(err)
	}
	r, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

func linkPoints(t *testing.T, r *Reader) (out []string) {
	t.Helper()
	for p, err := range r.LinkPoints() {
		if err != nil {
			t.Fatal(err)
		}
		text := fmt.Sprint(p.At, " ", p.Link)
		if p.Rate != nil {
			text += fmt.Sprint(" ", *p.Rate)
		}
		if p.Queue != nil {
			text += fmt.Sprint(" queue ", int64(*p.Queue), " ", *p.Packets, " dropped ", *p.Dropped, " marked ", *p.Marked)
		}
		out = append(out, text)
	}
	return out
}

const second = time.Second

func TestLinkPoints(t *testing.T) {
	look := func(at time.Duration, k int64) Sample { return Sample{at, Links, Look, k} }
	link := func(at time.Duration, metric string, value int64) Sample { return Sample{at, "a>b", metric, value} }
	r := written(t, Head{Links: []Link{{Name: "a>b", Rate: units.Gbps}}},
		look(-second, OutsideOfLooks), link(-second, SentBytes, 100), link(-second, Dropped, 7), link(-second, Marked, 1),
		link(-second, QueuePackets, 0), link(-second, QueueBytes, 0),
		look(second, 0), Sample{second, Machine, Lateness, 5},
		look(2*second, 0), look(3*second, 0), // idle from 1 s to 3 s
		look(4*second, 0), link(4*second, SentBytes, 1_000_100), link(4*second, QueuePackets, 2), link(4*second, QueueBytes, 3000),
		look(5*second, 1), link(5*second, SentBytes, 3_000_100), link(5*second, Dropped, 9), link(5*second, QueueBytes, 3000),
		look(6*second, 0), link(6*second, SentBytes, 3_000_100), link(6*second, QueuePackets, 0), link(6*second, QueueBytes, 0),
	)
	want := []string{
		"-1s a>b queue 0 0 dropped 0 marked 0",
		"3s a>b 0bps queue 0 0 dropped 0 marked 0", // the last reading of all links before packets came
		"4s a>b 8Mbps queue 3000 2 dropped 0 marked 0",
		"5s a>b 16Mbps queue 3000 2 dropped 2 marked 0",
		"6s a>b 0bps queue 0 0 dropped 2 marked 0",
	}
	if d := cmp.Diff(want, linkPoints(t, r)); d != "" {
		t.Error(d)
	}
}

// The fluid model has no queues.
func TestLinkPointsOfRates(t *testing.T) {
	r := written(t, Head{RatesOnly: true, Links: []Link{{Name: "a>b"}}},
		Sample{0, Links, Look, 0}, Sample{0, "a>b", SentBytes, 0}, Sample{second, Links, Look, 0}, Sample{second, "a>b", SentBytes, 125_000})
	if d := cmp.Diff([]string{"0s a>b", "1s a>b 1Mbps"}, linkPoints(t, r)); d != "" {
		t.Error(d)
	}
}

func TestFlowPoints(t *testing.T) {
	at := func(at time.Duration, flow int, metric string, value int64) Sample {
		return Sample{at, fmt.Sprint("flow ", flow), metric, value}
	}
	r := written(t, Head{},
		at(second, 3, RTT, 500), at(second, 3, Window, 10), at(second, 3, DeliveryRate, 8), at(second, 3, Retransmitted, 0),
		at(second, 4, RTT, 600), Sample{second, Machine, Lateness, 5},
		at(2*second, 3, Window, 11), at(3*second, 3, Retransmitted, 2))
	var got []FlowPoint
	for p, err := range r.FlowPoints() {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, p)
	}
	const us = time.Microsecond
	want := []FlowPoint{{second, 3, 500 * us, 10, 8, 0}, {second, 4, 600 * us, 0, 0, 0}, {2 * second, 3, 500 * us, 11, 8, 0}, {3 * second, 3, 500 * us, 11, 8, 2}}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}
