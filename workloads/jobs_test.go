package workloads

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"testbed/topo"
	"testbed/topo/units"
)

func racksOf(t testing.TB, leaves, hosts int) *topo.Fabric {
	t.Helper()
	f, err := topo.LeafSpine{Leaves: leaves, Spines: 1, HostsPerLeaf: hosts, HostLink: 100 * units.Mbps,
		Oversubscription: units.Ratio{Num: int64(hosts), Den: 1}, Queue: topo.Queue{Time: 20 * time.Millisecond}, MTU: 1500}.Build()
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func someJobs() JobSpec {
	return JobSpec{
		Count: 1000, Interval: time.Second, Mappers: [2]int{2, 8}, Reducers: [2]int{1, 8}, Writers: [2]int{1, 4}, Blocks: [2]int{1, 3},
		Block: 8 * units.MB, Replicas: 3, Packet: 64 * units.KB, Window: 8, ShuffleRate: 100 * units.Mbps, WriteRate: 55 * units.Mbps,
	}
}

func jobsOf(t testing.TB, s JobSpec, f *topo.Fabric, seed uint64) (Workload, JobReport) {
	t.Helper()
	w, report, err := Jobs(s, f, seed)
	if err != nil {
		t.Fatal(err)
	}
	return w, report
}

func around(t *testing.T, what string, got, want, within float64) {
	t.Helper()
	if !(math.Abs(got-want) <= within) {
		t.Errorf("%s %.4g, want %.4g within %.4g", what, got, want, within)
	}
}

// With 1000 jobs each bin has exactly its share of the jobs, and its share of the bytes within
// 2 % of all bytes. Every job writes for a share of its time in its bin's range.
func TestJobsBins(t *testing.T) {
	f := racksOf(t, 10, 5)
	s := someJobs()
	w, report := jobsOf(t, s, f, 1)
	bins := SinbadBins()
	jobs, bytes := make([]int, len(bins)), make([]float64, len(bins))
	written := map[JobID]units.Bytes{}
	writers := map[JobID]int{}
	longest := map[JobID]units.Bytes{}
	total := 0.0
	for _, wr := range w.Writers {
		var n units.Bytes
		for _, b := range wr.Blocks {
			n += b.Size
			if b.Size < 1 || b.Size > s.Block || b.Packet > b.Size || b.Replicas != 3 || b.Client != wr.Client || b.Writer != wr.ID {
				t.Fatalf("block %+v of writer %d on %d", b, wr.ID, wr.Client)
			}
		}
		for _, b := range wr.Blocks[:len(wr.Blocks)-1] {
			if b.Size != s.Block {
				t.Fatalf("writer %d: a block of %v that is not its last", wr.ID, b.Size)
			}
		}
		written[wr.Job] += n
		longest[wr.Job] = max(longest[wr.Job], n)
		writers[wr.Job]++
		total += float64(n)
	}
	if units.Bytes(total) != report.Written {
		t.Errorf("the report has %v written, want %v", report.Written, units.Bytes(total))
	}
	for _, j := range w.Jobs {
		jobs[j.Bin-1]++
		bytes[j.Bin-1] += float64(written[j.ID])
	}
	for i, b := range bins {
		if jobs[i] != 10*b.Jobs {
			t.Errorf("bin %d: %d jobs of 1000, want %d", i+1, jobs[i], 10*b.Jobs)
		}
		around(t, "share of bytes of a bin", 100*bytes[i]/total, float64(b.Bytes), 2)
	}
	shuffles := 0
	for _, c := range w.Coflows {
		j := w.Jobs[c.Job-1]
		b := bins[j.Bin-1]
		src, dst := map[topo.HostID]bool{}, map[topo.HostID]bool{}
		for _, fl := range c.Flows {
			src[fl.Src], dst[fl.Dst] = true, true
		}
		if len(c.Flows) != len(src)*len(dst) || len(dst) != writers[j.ID] || c.Arrival != j.Arrival || c.Background || b.onlyWrites() {
			t.Fatalf("coflow %d of job %+v: %d flows, %d senders, %d receivers, %d writers", c.ID, j, len(c.Flows), len(src), len(dst), writers[j.ID])
		}
		for h := range src {
			if dst[h] {
				t.Fatalf("coflow %d: host %d sends and receives", c.ID, h)
			}
		}
		shuffle := s.ShuffleRate.TimeToSend(c.Size()).Seconds() / float64(min(len(src), len(dst)))
		write := s.WriteRate.TimeToSend(longest[j.ID]).Seconds()
		if share := write / (shuffle + write); share < b.From-1e-4 || share > b.To+1e-4 {
			t.Errorf("job %d of bin %d writes for %.3f of its time, want %v to %v", j.ID, j.Bin, share, b.From, b.To)
		}
		shuffles++
	}
	if want := 1000 - 10*bins[4].Jobs; shuffles != want {
		t.Errorf("%d shuffles, want %d", shuffles, want)
	}
	for _, wr := range w.Writers {
		only := w.Jobs[wr.Job-1].Bin == 5
		if n := writers[wr.Job]; only && (n > 4 || len(wr.Blocks) > 3 || wr.Start != w.Jobs[wr.Job-1].Arrival) || !only && wr.Start != 0 {
			t.Errorf("writer %d of job %d: one of %d, %d blocks, start %v", wr.ID, wr.Job, n, len(wr.Blocks), wr.Start)
		}
	}
}

// The gaps of a Poisson process have the specified mean, and an equal standard deviation. With
// a load, the bytes that enter racks are that share of the racks' capacity.
func TestJobsArrivals(t *testing.T) {
	f := racksOf(t, 10, 5)
	s := someJobs()
	s.Count, s.Start = 4000, time.Minute
	w, _ := jobsOf(t, s, f, 3)
	sum, squares, last := 0.0, 0.0, s.Start
	for _, j := range w.Jobs {
		gap := (j.Arrival - last).Seconds()
		last = j.Arrival
		sum += gap
		squares += gap * gap
	}
	mean := sum / 4000
	around(t, "mean gap", mean, 1, 0.05)
	around(t, "deviation of gaps", math.Sqrt(squares/4000-mean*mean), 1, 0.08)

	s.Interval, s.Load = 0, 0.3
	w, report := jobsOf(t, s, f, 3)
	around(t, "load", report.Load, 0.3, 1e-9)
	var entering float64
	for _, c := range w.Coflows {
		for _, fl := range c.Flows {
			if f.RackOf(fl.Src) != f.RackOf(fl.Dst) {
				entering += float64(fl.Size)
			}
		}
	}
	for _, wr := range w.Writers {
		for _, b := range wr.Blocks {
			entering += float64(b.Size)
		}
	}
	capacity := 10 * 100e6 / 8 * report.Interval.Seconds() * 4000
	around(t, "load of what was drawn", entering/capacity, 0.3, 0.01)
}

// Changing one option changes only the property that it describes.
func TestJobsKeyedLuck(t *testing.T) {
	f := racksOf(t, 10, 5)
	s := someJobs()
	s.Count = 50
	base, _ := jobsOf(t, s, f, 9)
	if again, _ := jobsOf(t, s, f, 9); !cmp.Equal(base, again) {
		t.Error("the same seed gives other jobs")
	}
	if other, _ := jobsOf(t, s, f, 10); cmp.Equal(base.Coflows[0].Flows, other.Coflows[0].Flows) {
		t.Error("another seed gives the same jobs")
	}
	more := s
	more.Count = 70
	w, _ := jobsOf(t, more, f, 9)
	if d := cmp.Diff(base.Jobs, w.Jobs[:50]); d != "" {
		t.Errorf("with more jobs the first differ (-want +got):\n%s", d)
	}
	if d := cmp.Diff(base.Coflows, w.Coflows[:len(base.Coflows)]); d != "" {
		t.Errorf("with more jobs the first coflows differ (-want +got):\n%s", d)
	}
	slow := s
	slow.Interval *= 2
	w, _ = jobsOf(t, slow, f, 9)
	for i, c := range w.Coflows {
		if !cmp.Equal(c.Flows, base.Coflows[i].Flows) {
			t.Fatalf("coflow %d changed with the rate", i)
		}
	}
	// Small blocks are inserted between the other blocks.
	small := s
	small.Small, small.SmallBlock = 0.4, units.MB
	w, report := jobsOf(t, small, f, 9)
	if d := cmp.Diff(base.Coflows, w.Coflows); d != "" {
		t.Errorf("with small blocks coflows differ (-want +got):\n%s", d)
	}
	count := func(w Workload) (blocks int, sizes map[JobID][]units.Bytes) {
		sizes = map[JobID][]units.Bytes{}
		for _, wr := range w.Writers {
			blocks += len(wr.Blocks)
			for _, b := range wr.Blocks {
				sizes[wr.Job] = append(sizes[wr.Job], b.Size)
			}
		}
		return blocks, sizes
	}
	_, before := count(base)
	_, with := count(w)
	for job, sizes := range before {
		rest := with[job]
		for _, n := range sizes {
			at := slices.Index(rest, n)
			if at < 0 {
				t.Fatalf("job %d lost a block of %v", job, n)
			}
			rest = slices.Delete(slices.Clone(rest), at, at+1)
		}
	}
	small.Count = 2000
	w, report = jobsOf(t, small, f, 9)
	all, _ := count(w)
	small.Small = 0
	w, plain := jobsOf(t, small, f, 9)
	large, _ := count(w)
	around(t, "share of small blocks", float64(all-large)/float64(all), 0.4, 0.02)
	around(t, "mean small block", float64(report.Small)/float64(all-large), float64(units.MB)/2, 0.03*float64(units.MB))
	if report.Written != plain.Written {
		t.Errorf("%v written with small blocks, want %v as without", report.Written, plain.Written)
	}
}

// Whole blocks, halved sizes, a fixed output, and avoided leaves.
func TestJobsOptions(t *testing.T) {
	f := racksOf(t, 10, 5)
	s := someJobs()
	whole := s
	whole.WholeBlocks = true
	w, _ := jobsOf(t, whole, f, 2)
	for _, wr := range w.Writers {
		for _, b := range wr.Blocks {
			if b.Size != s.Block {
				t.Fatalf("block of %v, want whole ones of %v", b.Size, s.Block)
			}
		}
	}
	base, _ := jobsOf(t, s, f, 2)
	half := s
	half.Block, half.Packet, half.ShuffleRate, half.WriteRate = s.Block/2, s.Packet/2, s.ShuffleRate/2, s.WriteRate/2
	w, _ = jobsOf(t, half, f, 2)
	if len(w.Writers) != len(base.Writers) || len(w.Coflows) != len(base.Coflows) || !cmp.Equal(w.Jobs, base.Jobs) {
		t.Fatal("half the sizes make other jobs")
	}
	for i, c := range w.Coflows {
		around(t, "halved coflow", float64(c.Size()), float64(base.Coflows[i].Size())/2, float64(len(c.Flows)))
	}
	output := s
	output.Bins = []JobBin{{1, 1, 0.3, 0.5}}
	output.Output = 40 * units.MB
	_, report := jobsOf(t, output, f, 2)
	around(t, "mean output", float64(report.Written)/1000, 40e6, 1.5e6)
	avoid := s
	avoid.Avoid = func(at time.Duration) []topo.RackID { return []topo.RackID{topo.RackID(int(at/time.Minute) % 10)} }
	w, _ = jobsOf(t, avoid, f, 2)
	moved := 0
	for i, wr := range w.Writers {
		if at := w.Jobs[wr.Job-1].Arrival; int(f.RackOf(wr.Client)) == int(at/time.Minute)%10 {
			t.Fatalf("writer %d of job %d writes in a leaf to be avoided", wr.ID, wr.Job)
		}
		if base.Writers[i].Client != wr.Client {
			moved++
		}
	}
	if moved == 0 || moved > len(w.Writers)*2/3 {
		t.Errorf("%d of %d writers have moved, want some, those that had to", moved, len(w.Writers))
	}
}

func TestJobsRefused(t *testing.T) {
	f := racksOf(t, 2, 4)
	for _, tt := range []struct {
		name, want string
		edit       func(*JobSpec)
	}{
		{"too wide", "9 mappers and 4 reducers on 8 hosts", func(s *JobSpec) { s.Mappers, s.Reducers = [2]int{1, 9}, [2]int{1, 4} }},
		{"backward", "3 to 2 mappers", func(s *JobSpec) { s.Mappers = [2]int{3, 2} }},
		{"no rate", "specify one of them", func(s *JobSpec) { s.Interval = 0 }},
		{"two rates", "specify one of them", func(s *JobSpec) { s.Load = 0.1 }},
		{"no number", "specify one of them", func(s *JobSpec) { s.Interval, s.Load = 0, math.NaN() }},
		{"all small", "1 of the blocks small", func(s *JobSpec) { s.Small, s.SmallBlock = 1, 1 }},
		{"small blocks larger", "small blocks of up to 16MB", func(s *JobSpec) { s.Small, s.SmallBlock = 0.1, 16*units.MB }},
		{"endless shuffle", "bin 1: writing from 0 to", func(s *JobSpec) { s.Bins = []JobBin{{1, 1, 0, 0.5}, {1, 1, 1, 1}} }},
		{"half a bin of writes", "bin 1: writing from 0.5 to 1", func(s *JobSpec) { s.Bins = []JobBin{{1, 1, 0.5, 1}, {1, 1, 1, 1}} }},
		{"no measure", "add one, or specify an output", func(s *JobSpec) { s.Bins = []JobBin{{1, 1, 0.5, 0.5}} }},
		{"flows", "too many flows: ", func(s *JobSpec) { s.MaxFlows = 100 }},
		{"blocks", "too many blocks: ", func(s *JobSpec) { s.MaxBlocks, s.Output, s.Block = 1000, units.GB, 1; s.Packet = 1 }},
		{"years", "use fewer jobs or a shorter interval", func(s *JobSpec) { s.Interval = 1000 * time.Hour }},
		{"all leaves hot", "only 0 are outside the hot leaves", func(s *JobSpec) {
			s.Avoid = func(time.Duration) []topo.RackID { return []topo.RackID{0, 1} }
		}},
	} {
		s := someJobs()
		s.Mappers, s.Reducers = [2]int{1, 4}, [2]int{1, 4}
		tt.edit(&s)
		if _, _, err := Jobs(s, f, 1); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
}

func someBackground() BackgroundSpec {
	return BackgroundSpec{Hot: 3, Intensity: 0.35, HotShare: 0.7, Persist: 20 * time.Second, Transfer: 2 * units.MB, Senders: 4, Start: 5 * time.Second, For: 200 * time.Second}
}

// The bytes that enter a leaf never differ from the specification by more than a transfer, and
// all come from other racks.
func TestBackgroundLoad(t *testing.T) {
	f := racksOf(t, 10, 5)
	s := someBackground()
	coflows, err := Background(s, f, 4)
	if err != nil {
		t.Fatal(err)
	}
	hotLoad, otherLoad := s.LeafLoads(f)
	around(t, "load of a hot leaf", hotLoad, 0.35*10*0.7/3, 1e-9)
	around(t, "load of another", otherLoad, 0.35*10*0.3/7, 1e-9)
	const perSecond = 100e6 / 8
	var into [10]float64 // expected bytes
	var got [10]float64
	var total, hotBytes float64
	next := 0
	sets := map[string]bool{}
	for epoch := range 10 {
		from := s.Start + time.Duration(epoch)*s.Persist
		hot := s.HotLeaves(f, 4, from)
		if len(hot) != 3 || !slices.Equal(hot, s.HotLeaves(f, 4, from+s.Persist-1)) {
			t.Fatalf("hot leaves %v in epoch %d", hot, epoch)
		}
		sets[strings.Trim(strings.Join(strings.Fields(time.Duration(hot[0]*100+hot[1]*10+hot[2]).String()), ""), "ns")] = true
		for r := range into {
			load := otherLoad
			if slices.Contains(hot, topo.RackID(r)) {
				load = hotLoad
			}
			into[r] += load * perSecond * 20
		}
		for ; next < len(coflows) && coflows[next].Arrival < from+s.Persist; next++ {
			c := coflows[next]
			leaf := f.RackOf(c.Flows[0].Dst)
			src := map[topo.HostID]bool{}
			for _, fl := range c.Flows {
				if fl.Dst != c.Flows[0].Dst || f.RackOf(fl.Src) == leaf {
					t.Fatalf("coflow %d: flow %+v", c.ID, fl)
				}
				src[fl.Src] = true
			}
			if !c.Background || c.Job != 0 || c.Size() != s.Transfer || len(src) != 4 || c.ID != CoflowID(next) || c.Arrival < from {
				t.Fatalf("coflow %+v", c)
			}
			got[leaf] += float64(c.Size())
			total += float64(c.Size())
			if slices.Contains(hot, leaf) {
				hotBytes += float64(c.Size())
			}
		}
		for r := range into {
			around(t, "bytes into a leaf", got[r], into[r], float64(s.Transfer))
		}
	}
	if next != len(coflows) {
		t.Errorf("%d coflows after the end", len(coflows)-next)
	}
	around(t, "intensity", total/(10*perSecond*200), 0.35, 0.01)
	around(t, "hot share", hotBytes/total, 0.7, 0.02)
	if len(sets) < 5 {
		t.Errorf("%d different sets of hot leaves in 10 times, want more", len(sets))
	}
	if s.HotLeaves(f, 4, 0) != nil || s.HotLeaves(f, 4, s.Start+s.For) != nil {
		t.Error("leaves are hot before the start or after the end")
	}
	// The intensity does not change hosts; the seed does.
	s.Intensity = 0.2
	less, err := Background(s, f, 4)
	if err != nil {
		t.Fatal(err)
	}
	first := func(all []Coflow) []Flow {
		i := slices.IndexFunc(all, func(c Coflow) bool { return f.RackOf(c.Flows[0].Dst) == 6 })
		for j := range all[i].Flows {
			all[i].Flows[j].ID = 0
		}
		return all[i].Flows
	}
	if d := cmp.Diff(first(coflows), first(less)); d != "" {
		t.Errorf("hosts depend on the intensity (-want +got):\n%s", d)
	}
}

func TestBackgroundRefused(t *testing.T) {
	for _, tt := range []struct {
		name, want string
		leaves     int
		edit       func(*BackgroundSpec)
	}{
		{"one rack", "3 hot leaves of 1", 1, func(*BackgroundSpec) {}},
		{"all hot", "10 hot leaves of 10", 10, func(s *BackgroundSpec) { s.Hot = 10 }},
		{"overload", "245% of the downlinks of a hot leaf", 10, func(s *BackgroundSpec) { s.Hot = 1 }},
		{"overload elsewhere", "of another's", 10, func(s *BackgroundSpec) { s.Intensity, s.HotShare, s.Hot = 1, 0.1, 3 }},
		{"no number", "intensity NaN", 10, func(s *BackgroundSpec) { s.Intensity = math.NaN() }},
		{"no time", "expected positive times", 10, func(s *BackgroundSpec) { s.Persist = 0 }},
		{"too many senders", "51 senders", 10, func(s *BackgroundSpec) { s.Senders = 51 }},
		{"less than bytes", "transfers of 3B from 4 senders", 10, func(s *BackgroundSpec) { s.Transfer = 3 }},
		{"too many", "more than 10000000 coflows", 10, func(s *BackgroundSpec) { s.Transfer = 4 }},
		{"flows", "too many flows: 35000, the limit is 1000", 10, func(s *BackgroundSpec) { s.MaxFlows, s.Transfer = 1000, units.MB }},
		{"too often", "at most 10000000 times", 10, func(s *BackgroundSpec) { s.Persist = 1 }},
	} {
		s := someBackground()
		tt.edit(&s)
		if _, err := Background(s, racksOf(t, tt.leaves, 5), 1); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
}
