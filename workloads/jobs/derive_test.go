package jobs

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"testbed/topo/units"
)

func TestDerive(t *testing.T) {
	r := DefaultRules()
	r.Block, r.PerReduce, r.MaxReduces, r.Users.Count = 100, 30, 3, 1
	list, err := Derive([]Record{
		{"a", time.Second, 250, 100, 20, ""},  // three maps, four reduces bounded to three
		{"b", time.Second, 0, 0, 7, ""},       // a map of one byte
		{"c", 2 * time.Second, 100, 1, 0, ""}, // one map, one reduce
	}, r, 1)
	if err != nil {
		t.Fatal(err)
	}
	whole, last := []units.Bytes{14, 13, 13}, []units.Bytes{7, 7, 6}
	rate, sort := DefaultMapRate, DefaultSortRate
	want := []Job{
		{ID: 1, User: "u1", Profile: ProfileTransform, Submit: time.Second, Stages: []Stage{
			{Kind: Map, Tasks: []Task{{Input: 0, InputSize: 100, Rate: rate, Output: whole}, {Input: 1, InputSize: 100, Rate: rate, Output: whole}, {Input: 2, InputSize: 50, Rate: rate, Output: last}}},
			{Kind: Reduce, From: []int{0}, Tasks: []Task{{Rate: rate, SortRate: sort, Writes: 7}, {Rate: rate, SortRate: sort, Writes: 7}, {Rate: rate, SortRate: sort, Writes: 6}}},
		}},
		{ID: 2, User: "u1", Profile: ProfileMapOnly, Submit: time.Second, Stages: []Stage{{Kind: Map, Tasks: []Task{{Input: 3, InputSize: 1, Rate: rate, Writes: 7}}}}},
		{ID: 3, User: "u1", Profile: ProfileAggregate, Submit: 2 * time.Second, Stages: []Stage{
			{Kind: Map, Tasks: []Task{{Input: 4, InputSize: 100, Rate: rate, Output: []units.Bytes{1}}}},
			{Kind: Reduce, From: []int{0}, Tasks: []Task{{Rate: rate, SortRate: sort}}},
		}},
	}
	if !reflect.DeepEqual(list, want) {
		t.Errorf("Derive = %+v\nwant %+v", list, want)
	}
}

func anyRecords(t *rapid.T) []Record {
	size := rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(0, 2000), rapid.Int64Range(0, 1_000_000))
	var at time.Duration
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Record {
		at += time.Duration(rapid.Int64Range(0, 5).Draw(t, "gap")) * time.Second
		return Record{"j", at, units.Bytes(size.Draw(t, "input")), units.Bytes(size.Draw(t, "shuffle")), units.Bytes(size.Draw(t, "output")), ""}
	}), 1, 6).Draw(t, "records")
}

func anyRules(t *rapid.T) Rules {
	r := DefaultRules()
	r.Block = units.Bytes(rapid.IntRange(1000, 100_000).Draw(t, "block"))
	r.PerReduce = units.Bytes(rapid.IntRange(10_000, 100_000).Draw(t, "per reduce"))
	r.MaxReduces = rapid.IntRange(1, 50).Draw(t, "max reduces")
	r.PartitionSkew = rapid.SampledFrom([]float64{0, 0.5, 1, 3}).Draw(t, "skew")
	r.Users = Users{rapid.IntRange(1, 5).Draw(t, "users"), rapid.SampledFrom([]float64{0, 1}).Draw(t, "user skew")}
	return r
}

// Tasks read, send and write exactly what the record states, and are as many as the rules say.
func TestDeriveKeepsTotals(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		records, r := anyRecords(t), anyRules(t)
		list, err := Derive(records, r, rapid.Uint64().Draw(t, "seed"))
		if err != nil {
			t.Fatal(err)
		}
		if err := Check(list, Limits{}); err != nil {
			t.Fatal(err)
		}
		for i, rec := range records {
			total, _ := list[i].total()
			maps := max(1, int((rec.Input+r.Block-1)/r.Block))
			reduces := min(r.MaxReduces, int((rec.Shuffle+r.PerReduce-1)/r.PerReduce))
			if total.Maps != maps || total.Reduces != reduces || total.Input != int64(max(1, rec.Input)) || total.Shuffled != int64(rec.Shuffle) || total.Written != int64(rec.Output) {
				t.Errorf("%+v: %+v, want %d maps, %d reduces", rec, total, maps, reduces)
			}
		}
	})
}

// With a bound on maps, the ratios of a job stay the same, to a byte.
func TestDeriveMaxMaps(t *testing.T) {
	r := DefaultRules()
	r.Block, r.MaxMaps = 100, 2
	list, err := Derive([]Record{{"a", 0, 1000, 3000, 500, ""}, {"b", 0, 200, 9, 9, ""}, {"c", 0, 1001, 1, 0, ""}}, r, 1)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []Total{{Maps: 2, Reduces: 1, Input: 200, Shuffled: 600, Written: 100}, {Maps: 2, Reduces: 1, Input: 200, Shuffled: 9, Written: 9}, {Maps: 2, Reduces: 1, Input: 200, Shuffled: 1}} {
		got, _ := list[i].total()
		got.MapSeconds, got.ReduceSeconds = 0, 0
		if got != want {
			t.Errorf("job %d: %+v, want %+v", i+1, got, want)
		}
	}
}

// What is drawn for a job depends on the seed and its number alone.
func TestDeriveDrawsByJob(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		records, r, seed := anyRecords(t), anyRules(t), rapid.Uint64().Draw(t, "seed")
		all, err := Derive(records, r, seed)
		if err != nil {
			t.Fatal(err)
		}
		n := rapid.IntRange(1, len(records)).Draw(t, "first")
		first, err := Derive(records[:n], r, seed)
		if err != nil || !reflect.DeepEqual(first, all[:n]) {
			t.Fatalf("the first %d jobs differ: %v", n, err)
		}
		other := r
		other.PartitionSkew, other.Block = 2, r.Block+1
		changed, err := Derive(records, other, seed)
		if err != nil {
			t.Fatal(err)
		}
		for i := range all {
			if all[i].User != changed[i].User {
				t.Errorf("job %d: the user depends on other settings", i+1)
			}
		}
	})
}

// Users and partitions follow their weights: the larger of two users with weights 1 and 1/2 has two
// thirds of the jobs, and the largest of partitions that of Zipf.
func TestDeriveSkews(t *testing.T) {
	r := DefaultRules()
	r.Block, r.PerReduce, r.Users, r.PartitionSkew = 1000, 100, Users{2, 1}, 1
	records := slices.Repeat([]Record{{"a", 0, 1000, 400, 2500, ""}}, 3000)
	list, err := Derive(records, r, 7)
	if err != nil {
		t.Fatal(err)
	}
	first, places := 0, map[units.Bytes]int{}
	for i := range list {
		if list[i].User == "u1" {
			first++
		}
		// 400 × (1, 1/2, 1/3, 1/4) / (25/12) = 192, 96, 64, 48, in any order
		got := slices.Sorted(slices.Values(list[i].Fetched(1)))
		for k, want := range []units.Bytes{48, 64, 96, 192} {
			if d := got[k] - want; d < -1 || d > 1 {
				t.Fatalf("job %d fetches %v, want 48, 64, 96, 192 in some order", i+1, got)
			}
		}
		places[units.Bytes(slices.Index(list[i].Fetched(1), got[3]))]++
	}
	if first < 1900 || first > 2100 { // 2000 ± 26
		t.Errorf("user u1 has %d of 3000 jobs, want about 2000", first)
	}
	for place := range units.Bytes(4) {
		if n := places[place]; n < 650 || n > 850 { // 750 ± 24
			t.Errorf("reduce %d is the largest of %d jobs of 3000, want about 750", place, n)
		}
	}
}

func TestDeriveErrors(t *testing.T) {
	for _, tt := range []struct {
		name    string
		change  func(*Rules)
		records []Record
		want    []string
	}{
		{"settings", func(r *Rules) {
			r.Block, r.MaxMaps, r.PerReduce, r.MaxReduces, r.MapRate, r.PartitionSkew, r.Users.Count = 0, -1, 0, 0, -1, -1, 0
		}, nil, []string{"block 0B: ", "at most -1 maps: ", "0B a reduce: ", "at most 0 reduces: ", "map rate -1bps: ", "skew of partitions -1: ", "0 users: "}},
		{"tasks", func(r *Rules) { r.Block, r.Limits.Tasks = 10, 10 }, []Record{{"a", 0, 50, 0, 0, ""}, {"b", 0, 60, 0, 0, ""}}, []string{"job 2 of 2, b: more than 10 tasks up to here"}},
		{"many tasks", func(r *Rules) { r.Block, r.PerReduce, r.MaxReduces = 1, 1, maxNumber }, []Record{{"a", 0, maxSize, maxSize, 0, ""}}, []string{"more than 2000000 tasks"}},
		{"jobs", func(r *Rules) { r.Limits.Jobs = 1 }, make([]Record, 2), []string{"job 2 of 2, : more than 1 jobs"}},
		{"records", func(*Rules) {}, []Record{{"a", -1, -1, 0, maxSize + 1, ""}}, []string{"submitted at -1ns", "size -1B", "size 1000000000000.001KB"}},
	} {
		r := DefaultRules()
		tt.change(&r)
		_, err := Derive(tt.records, r, 1)
		if err == nil {
			t.Errorf("%s: no error", tt.name)
			continue
		}
		for _, want := range tt.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: error %v, want %q", tt.name, err, want)
			}
		}
	}
}

func TestProfileOf(t *testing.T) {
	for _, tt := range []struct {
		input, shuffle units.Bytes
		want           string
	}{
		{100, 0, ProfileMapOnly}, {0, 0, ProfileMapOnly}, {100, 9, ProfileAggregate}, {100, 10, ProfileTransform}, {100, 200, ProfileTransform}, {105, 10, ProfileAggregate}, {100, 201, ProfileExpand}, {0, 2, ProfileExpand},
	} {
		if got := profileOf(Record{Input: tt.input, Shuffle: tt.shuffle}); got != tt.want {
			t.Errorf("profileOf(%d, %d) = %s, want %s", tt.input, tt.shuffle, got, tt.want)
		}
	}
}

func TestSplit(t *testing.T) {
	for _, tt := range []struct {
		total   units.Bytes
		n       int
		weights []int64
		want    []units.Bytes
	}{
		{7, 3, nil, []units.Bytes{3, 2, 2}},
		{0, 2, nil, []units.Bytes{0, 0}},
		{10, 3, []int64{1, 2, 2}, []units.Bytes{2, 4, 4}},
		{10, 3, []int64{0, 0, 5}, []units.Bytes{0, 0, 10}},
		{1e18, 2, []int64{1e9, 3e9}, []units.Bytes{25e16, 75e16}},
	} {
		if got := split(tt.total, tt.n, tt.weights); !slices.Equal(got, tt.want) {
			t.Errorf("split(%v, %d, %v) = %v, want %v", tt.total, tt.n, tt.weights, got, tt.want)
		}
	}
}
