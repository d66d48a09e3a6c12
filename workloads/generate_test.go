package workloads

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"testbed/topo"
	"testbed/topo/units"
)

func TestStream(t *testing.T) {
	first := func(seed uint64, purpose string, ids ...int) uint64 { return Stream(seed, purpose, ids...).Uint64() }
	if a, b := first(1, "hash", 2, 3), first(1, "hash", 2, 3); a != b {
		t.Error("the same key gives different streams")
	}
	seen := map[uint64]string{}
	for _, k := range []struct {
		seed    uint64
		purpose string
		ids     []int
	}{
		{1, "hash", nil}, {2, "hash", nil}, {1, "hash", []int{0}}, {1, "hash", []int{0, 0}}, {1, "hash", []int{-1}},
		{1, "hash", []int{1, 2}}, {1, "hash", []int{2, 1}}, {1, "hashes", nil}, {math.MaxUint64, "hash", nil}, {1, "", []int{1}},
	} {
		n := first(k.seed, k.purpose, k.ids...)
		if other, ok := seen[n]; ok {
			t.Errorf("%+v gives the stream of %s", k, other)
		}
		seen[n] = k.purpose
	}
	// These numbers must not change: a change would change every experiment.
	if got, want := first(1, "hash", 2, 3), uint64(0x6597aaf370ca1e92); got != want {
		t.Errorf("Stream(1, \"hash\", 2, 3) starts with %#x, want %#x", got, want)
	}
	if RepeatSeed(1, 0) == RepeatSeed(1, 1) || RepeatSeed(1, 0) == RepeatSeed(2, 0) {
		t.Error("repeats share a seed")
	}
}

func TestWriters(t *testing.T) {
	f := fabric(t, 4, 5)
	spec := WriterSpec{Count: 6, Blocks: 3, Block: 4 * units.MB, Replicas: 3, Packet: 64 * units.KB, Window: 8, Start: time.Second, Spread: 2 * time.Second}
	got, err := Writers(spec, f, 7)
	if err != nil {
		t.Fatal(err)
	}
	again, _ := Writers(spec, f, 7)
	if diff := cmp.Diff(got, again); diff != "" {
		t.Errorf("the same seed gives different writers:\n%s", diff)
	}
	other, _ := Writers(spec, f, 8)
	spec.Key = 1
	keyed, _ := Writers(spec, f, 7)
	if cmp.Equal(got, other) || cmp.Equal(got, keyed) {
		t.Error("another seed or key gives the same writers")
	}
	clients := map[topo.HostID]bool{}
	next := BlockID(0)
	last := spec.Start
	for i, w := range got {
		clients[w.Client] = true
		if w.ID != WriterID(i) || len(w.Blocks) != 3 || w.Start < last || w.Start >= 3*time.Second {
			t.Errorf("writer %+v: want id %d, 3 blocks and a start from %v to 3s", w, i, last)
		}
		last = w.Start
		for _, b := range w.Blocks {
			want := Block{ID: next, Writer: w.ID, Client: w.Client, Size: 4 * units.MB, Replicas: 3, Packet: 64 * units.KB, Window: 8}
			if b != want {
				t.Errorf("block %+v, want %+v", b, want)
			}
			next++
		}
	}
	if len(clients) != 6 {
		t.Errorf("%d clients, want 6 different ones", len(clients))
	}
	named, err := Writers(WriterSpec{Hosts: []string{"h3-04", "h0-00"}, Blocks: 1, Block: 1, Replicas: 1, Packet: 1, Window: 1}, f, 1)
	if err != nil || len(named) != 2 || named[0].Client != f.HostIn(3, 4) || named[1].Client != 0 {
		t.Errorf("writers on named hosts: %+v, %v", named, err)
	}
}

func TestWritersErrors(t *testing.T) {
	f := fabric(t, 4, 5)
	for _, tt := range []struct {
		name  string
		spoil func(*WriterSpec)
		want  string
	}{
		{"none", func(s *WriterSpec) { s.Count = 0 }, "0 on 20 hosts"},
		{"too many", func(s *WriterSpec) { s.Count = 21 }, "21 on 20 hosts"},
		{"both", func(s *WriterSpec) { s.Hosts = []string{"h0-00"} }, "by count or by name"},
		{"stranger", func(s *WriterSpec) { s.Count, s.Hosts = 0, []string{"h9-00"} }, `no host "h9-00"`},
		{"blocks", func(s *WriterSpec) { s.Blocks = 0 }, "0 blocks"},
		{"window", func(s *WriterSpec) { s.Window = 0 }, "windows of 0 packets"},
		{"replicas", func(s *WriterSpec) { s.Replicas = 21 }, "21 replicas on 20 hosts"},
		{"start", func(s *WriterSpec) { s.Start = -1 }, "start -1ns"},
		{"spread", func(s *WriterSpec) { s.Spread = math.MaxInt64; s.Start = 1 }, "must not be negative"},
	} {
		s := WriterSpec{Count: 2, Blocks: 1, Block: units.MB, Replicas: 3, Packet: units.KB, Window: 8}
		tt.spoil(&s)
		if _, err := Writers(s, f, 1); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v, want %q", tt.name, err, tt.want)
		}
	}
}

func TestSynthetic(t *testing.T) {
	s := Synthetic{Name: "t", Ports: 20, Coflows: 100, Span: 10 * time.Second, Bins: []SyntheticBin{
		ShortNarrow: {Share: 60, Mappers: [2]int{1, 3}, Reducers: [2]int{1, 3}, Flow: [2]Megabytes{10 * kilobyte, 5 * megabyte}},
		LongNarrow:  {Share: 16, Mappers: [2]int{1, 2}, Reducers: [2]int{1, 2}, Flow: [2]Megabytes{6 * megabyte, 6 * megabyte}},
		ShortWide:   {Share: 12, Mappers: [2]int{8, 20}, Reducers: [2]int{7, 20}, Flow: [2]Megabytes{kilobyte, 3 * kilobyte}},
		LongWide:    {Share: 12, Mappers: [2]int{8, 10}, Reducers: [2]int{8, 10}, Flow: [2]Megabytes{6 * megabyte, 50 * megabyte}},
	}}
	got, err := s.Generate(1)
	if err != nil {
		t.Fatal(err)
	}
	again, _ := s.Generate(1)
	if diff := cmp.Diff(got, again); diff != "" {
		t.Errorf("the same seed gives a different trace:\n%s", diff)
	}
	bins := map[Bin]int{}
	early := 0
	for _, c := range got.Coflows {
		bins[c.Bin()]++
		if c.Arrival < s.Span/2 {
			early++
		}
	}
	if diff := cmp.Diff(map[Bin]int{ShortNarrow: 60, LongNarrow: 16, ShortWide: 12, LongWide: 12}, bins); diff != "" {
		t.Errorf("bins (-want +got):\n%s", diff)
	}
	// 100 fair coins are outside 30 to 70 once in 26,000 times; the seed is fixed.
	if early < 30 || early > 70 {
		t.Errorf("%d of 100 arrive in the first half", early)
	}
	s.ReduceWeights = make([]int, 20)
	for port := range s.ReduceWeights {
		s.ReduceWeights[port] = 1 + 1000*(port%2)
	}
	if got, err = s.Generate(1); err != nil {
		t.Fatal(err)
	}
	even := 0
	for _, c := range got.Coflows {
		for _, r := range c.Reducers {
			if r.Port%2 == 0 && len(c.Reducers) <= 10 {
				even++
			}
		}
	}
	if even > 20 {
		t.Errorf("%d reducers on ports a thousand times less likely", even)
	}
	s.Coflows = 7
	got, err = s.Generate(2)
	if err != nil || len(got.Coflows) != 7 {
		t.Errorf("7 coflows: %d, %v", len(got.Coflows), err)
	}
}

func TestSyntheticErrors(t *testing.T) {
	bin := SyntheticBin{Share: 1, Mappers: [2]int{1, 1}, Reducers: [2]int{1, 1}, Flow: [2]Megabytes{megabyte, megabyte}}
	good := Synthetic{Name: "t", Ports: 4, Coflows: 1, Span: time.Second, Bins: []SyntheticBin{bin}}
	if _, err := good.Generate(1); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name  string
		spoil func(*Synthetic)
	}{
		{"one port", func(s *Synthetic) { s.Ports = 1 }},
		{"no coflows", func(s *Synthetic) { s.Coflows = 0 }},
		{"no time", func(s *Synthetic) { s.Span = 0 }},
		{"no bins", func(s *Synthetic) { s.Bins = nil }},
		{"no share", func(s *Synthetic) { s.Bins[0].Share = 0 }},
		{"mappers", func(s *Synthetic) { s.Bins[0].Mappers = [2]int{2, 1} }},
		{"reducers", func(s *Synthetic) { s.Bins[0].Reducers = [2]int{1, 5} }},
		{"flow", func(s *Synthetic) { s.Bins[0].Flow[0] = 0 }},
		{"too few weights", func(s *Synthetic) { s.ReduceWeights = []int{1} }},
		{"zero weight", func(s *Synthetic) { s.ReduceWeights = []int{1, 1, 0, 1} }},
		{"fraction of a kilobyte", func(s *Synthetic) { s.Bins[0].Flow = [2]Megabytes{kilobyte + 1, megabyte} }},
	} {
		s := good
		s.Bins = []SyntheticBin{bin}
		if tt.name == "no bins" {
			s.Bins = nil
		}
		tt.spoil(&s)
		if _, err := s.Generate(1); err == nil || !strings.HasPrefix(err.Error(), "synthetic trace t: ") {
			t.Errorf("%s: error %v", tt.name, err)
		}
	}
}
