package fidelity

import (
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"testbed/results/samples"
	"testbed/topo/units"
)

// script writes samples of a link of 50 Mbps with frames of 1514 bytes, and returns what they show.
type script struct {
	*samples.Writer
	path string
	sent int64
}

func newScript(t *testing.T) *script {
	path := filepath.Join(t.TempDir(), samples.File)
	return &script{Writer: samples.Create(path, 1<<30), path: path}
}

func (s *script) look(at time.Duration, number int64) {
	s.Add(samples.Sample{At: at, Object: samples.Links, Metric: samples.Look, Value: number})
}

// read adds a reading: bytes that the link sent since the one before, and those that wait.
func (s *script) read(at time.Duration, sent, waiting int64) {
	s.sent += sent
	s.Add(samples.Sample{At: at, Object: "a>b", Metric: samples.SentBytes, Value: s.sent},
		samples.Sample{At: at, Object: "a>b", Metric: samples.QueueBytes, Value: waiting})
}

func (s *script) shows(t *testing.T) Sampled {
	t.Helper()
	if err := s.Close(samples.Head{Interval: 8 * time.Millisecond, Frame: 1514,
		Links: []samples.Link{{Name: "a>b", Rate: 50 * units.Mbps, Queue: 100_000, DropTail: true}}}); err != nil {
		t.Fatal(err)
	}
	out, found, err := ReadSampled(s.path)
	if err != nil || !found {
		t.Fatal(found, err)
	}
	again, _, err := ReadSampled(s.path)
	if d := cmp.Diff(out, again); d != "" || err != nil {
		t.Errorf("read twice: %v\n%s", err, d)
	}
	return out
}

// A link that has enough in its queue was busy until the next reading; one that was read late may not have been.
func TestSamplesOfABusyLink(t *testing.T) {
	s := newScript(t)
	const ms = time.Millisecond
	s.look(0, 0)
	s.read(1*ms, 0, 60_000) // 50,000 are sent in 8 ms
	s.look(9*ms, 1)
	s.read(9*ms, 49_000, 60_000)
	s.look(17*ms, 2)
	s.read(17*ms, 50_000, 55_000)
	s.look(60*ms, 3) // late: the queue may have run empty
	s.read(60*ms, 56_000, 90_000)
	s.look(68*ms, 4)
	s.read(68*ms, 1_000, 90_000)
	s.look(200*ms, 0)
	s.read(200*ms, 1_000, 49_000) // too little
	s.look(208*ms, 1)
	s.read(208*ms, 10_000, 0)
	got := s.shows(t)
	want := []Link{{Name: "a>b", Frame: 1514, Spells: 1, Delivered: 99_000, Could: 100_000}}
	got.Links[0].Low, got.Links[0].High = nil, nil
	if d := cmp.Diff(want, got.Links); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]Queue{{Link: "a>b", Limit: 100_000, Frame: 1514, Longest: 90_000}}, got.Queues); d != "" {
		t.Error(d)
	}
}

// A link is watched from a look that says so, while packets wait at every reading.
func TestSamplesOfAWatchedLink(t *testing.T) {
	for _, looks := range []int64{leastLooks - 1, leastLooks} {
		s := newScript(t)
		s.look(0, 0)
		s.read(0, 0, 2*1514)
		s.Add(samples.Sample{Object: "a>b", Metric: samples.Followed, Value: 1})
		at := time.Duration(0)
		for k := range looks - 1 {
			at += 8 * time.Millisecond
			s.look(at, k+1)
			s.read(at, 48_000, 2*1514)
		}
		s.look(at+8*time.Millisecond, looks) // idle: no samples
		got := s.shows(t)
		if judged := looks >= leastLooks; judged != (len(got.Links) == 1) || judged != (len(got.Waiting["a>b"]) == 1) {
			t.Fatalf("%d looks: %+v", looks, got)
		}
		if looks < leastLooks {
			continue
		}
		if x := got.Links[0]; len(x.Pieces) != int(looks-1) || x.Pieces[0] != 0.96 || got.Waiting["a>b"][0] != (Period{0, at}) {
			t.Errorf("%+v", got)
		}
	}
}

// Drops bound the limit of a queue from above: also those between the start and the first look, and the last look and
// the end.
func TestSamplesOfDrops(t *testing.T) {
	s := newScript(t)
	drop := func(n int64) { s.Add(samples.Sample{Object: "a>b", Metric: samples.Dropped, Value: n}) }
	s.look(-time.Second, samples.OutsideOfLooks)
	drop(5)
	s.read(-time.Second, 0, 0)
	s.look(0, 0)
	drop(7)
	s.read(0, 30_000, 80_000)
	s.look(time.Second, samples.OutsideOfLooks)
	drop(8)
	s.read(time.Second, 90_000, 3_000)
	want := []Queue{{Link: "a>b", Limit: 100_000, Frame: 1514, Longest: 80_000, Drops: 2, AtMost: 3_000 + 90_000 + 1514}}
	if d := cmp.Diff(want, s.shows(t).Queues); d != "" {
		t.Error(d)
	}
}

func TestSamplesOfTimers(t *testing.T) {
	s := newScript(t)
	for i := range int64(1000) {
		s.Add(samples.Sample{Object: samples.Machine, Metric: samples.Lateness, Value: i + 1})
	}
	s.Add(samples.Sample{Object: samples.Machine, Metric: samples.Lateness, Value: int64(2 * time.Hour / time.Microsecond)})
	got := s.shows(t)
	if got.Lateness != 991*time.Microsecond || got.Stall < time.Minute {
		t.Errorf("p99 %v, at most %v; want 991µs, and a minute or more", got.Lateness, got.Stall)
	}
}

// A trial without the file has nothing to judge, and one with a part of a reading is damaged.
func TestSamplesThatAreMissing(t *testing.T) {
	if _, found, err := ReadSampled(filepath.Join(t.TempDir(), samples.File)); found || err != nil {
		t.Error(found, err)
	}
	s := newScript(t)
	s.Add(samples.Sample{Object: "a>b", Metric: samples.QueueBytes, Value: 1})
	if err := s.Close(samples.Head{Links: []samples.Link{{Name: "a>b"}}}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := ReadSampled(s.path); err == nil {
		t.Error(errors.New("a queue without bytes sent: want an error"))
	}
}
