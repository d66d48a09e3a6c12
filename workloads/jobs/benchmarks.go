package jobs

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"testbed/workloads"
)

// Size is a class of the sizes of jobs.
type Size struct {
	Weight int    // share of jobs, relative to the other classes
	Maps   [2]int // range of the number of maps, log-uniform
}

// ClassMix has the shares of jobs with heavy, medium and light shuffle, relative to each other.
type ClassMix struct{ Heavy, Medium, Light int }

// DefaultClassMix is the mix of the ShuffleWatcher report (USENIX ATC 2014, section on benchmarks), in %.
func DefaultClassMix() ClassMix { return ClassMix{40, 20, 40} }

// The shuffle input ratios of the classes. The report states their bounds, 0.8 and 0.3, and no ratios: these
// are ours.
const (
	heavySIR  = 1.0
	mediumSIR = 0.55
	lightSIR  = 0.1
)

// benchmarks are the twelve programs of the report, with their shares of jobs in % in DefaultClassMix. The
// ratio of the output of reduces to what they fetch is ours: a sort keeps everything, others next to nothing,
// since the report counts no outputs in its traffic, of which shuffles are 90 % and remote maps 10 %.
var benchmarks = [...]struct {
	name       string
	weight     int
	sir        float64
	keepReduce float64
}{
	{"terasort", 5, heavySIR, 1},
	{"ranked-inverted-index", 10, heavySIR, 0.01},
	{"self-join", 10, heavySIR, 0.01},
	{"word-sequence-count", 10, heavySIR, 0.01},
	{"adjacency-list", 5, heavySIR, 0.01},
	{"inverted-index", 10, mediumSIR, 0.01},
	{"term-vector", 10, mediumSIR, 0.01},
	{"grep", 15, lightSIR, 0.01},
	{"wordcount", 10, lightSIR, 0.01},
	{"classification", 5, lightSIR, 0.01},
	{"histogram-movies", 5, lightSIR, 0.01},
	{"histogram-ratings", 5, lightSIR, 0.01},
}

// benchmarkReduces is the number of reduces of a benchmark relative to its maps. It is ours.
const benchmarkReduces = 0.1

// BenchmarkProfiles returns the twelve benchmarks, with equal rates.
func BenchmarkProfiles(mix ClassMix) ([]Profile, error) {
	var c checks
	for _, x := range []struct {
		class string
		share int
	}{{"heavy", mix.Heavy}, {"medium", mix.Medium}, {"light", mix.Light}} {
		c.add(x.share < 0 || x.share > maxClassShare, "mix: %s %d: must be 0 to %d", x.class, x.share, maxClassShare)
	}
	c.add(mix == ClassMix{}, "mix: all shares are 0: expected one above it")
	if err := errors.Join(c...); err != nil {
		return nil, err
	}
	all := DefaultClassMix()
	var out []Profile
	for _, b := range benchmarks {
		share, of := mix.Light, all.Light
		switch b.sir {
		case heavySIR:
			share, of = mix.Heavy, all.Heavy
		case mediumSIR:
			share, of = mix.Medium, all.Medium
		}
		out = append(out, Profile{Name: b.name, Weight: b.weight * share * all.Heavy / of, Reduces: benchmarkReduces, KeepMap: b.sir, KeepReduce: b.keepReduce,
			MapRate: DefaultMapRate, SortRate: DefaultSortRate, ReduceRate: DefaultReduceRate})
	}
	return out, nil
}

const maxClassShare = 1000

// BenchmarkSizes returns sizes from 1 to 400 blocks with the shares of the report's classes: below 100 MB,
// to 1 GB, to 20 GB, to 100 GB, and its classes above 100 GB as one.
func BenchmarkSizes() []Size {
	return []Size{{20, [2]int{1, 1}}, {19, [2]int{2, 8}}, {21, [2]int{9, 60}}, {10, [2]int{61, 150}}, {30, [2]int{151, 400}}}
}

// DefaultBenchmarks returns the workload of the ShuffleWatcher report: 360 jobs of 30 users, one every 40 s on
// average, of twelve benchmarks. Sizes are ours: see BenchmarkSizes.
func DefaultBenchmarks() Mix {
	profiles, err := BenchmarkProfiles(DefaultClassMix())
	if err != nil {
		panic(err) // the default mix is valid
	}
	return Mix{Jobs: 360, Gap: 40 * time.Second, Block: DefaultBlock, Users: Users{Count: DefaultUsers}, Profiles: profiles, Sizes: BenchmarkSizes()}
}

func (c *checks) sizes(list []Size) (weights []int64) {
	c.add(len(list) > maxProfiles, "%d sizes: must be at most %d", len(list), maxProfiles)
	for i, s := range list {
		c.add(s.Weight < 0 || s.Weight > maxWeight, "size %d: weight %d: must be 0 to %d", i+1, s.Weight, maxWeight)
		c.add(!validMaps(s.Maps), "size %d: %s", i+1, mapsRule(s.Maps))
		weights = append(weights, int64(max(0, s.Weight)))
	}
	c.add(len(list) > 0 && sum(weights) == 0, "all weights of sizes are 0: expected one above it")
	return weights
}

// maps draws the number of maps of a job.
func (g *Mix) maps(seed uint64, id int, of Profile, sizes []int64) int {
	if len(sizes) == 0 {
		return of.Maps[0] + workloads.Stream(seed, "mix-maps", id).IntN(of.Maps[1]-of.Maps[0]+1)
	}
	r := workloads.Stream(seed, "mix-size", id)
	return logUniform(r, g.Sizes[draw(r, sizes)].Maps)
}

// logUniform draws a number from a range, both ends included.
func logUniform(r *rand.Rand, of [2]int) int {
	low, high := math.Log(float64(of[0])), math.Log(float64(of[1]+1))
	return min(max(int(math.Exp(low+float64(r.Float64()*(high-low)))), of[0]), of[1])
}

func validMaps(m [2]int) bool { return m[0] >= 1 && m[1] >= m[0] && m[1] <= maxNumber }

func mapsRule(m [2]int) string {
	return fmt.Sprintf("%d to %d maps: must be 1 to %d, in ascending order", m[0], m[1], maxNumber)
}
