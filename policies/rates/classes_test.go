package rates

import (
	"fmt"
	"math"
	"testing"

	"pgregory.net/rapid"

	"testbed/topo"
)

// Classes of flows that come and go have the rates the same flows have one by one.
func TestClassesSameAsSlow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		net := network{rapid.IntRange(1, 3).Draw(t, "racks"), rapid.IntRange(2, 5).Draw(t, "hosts")}
		hosts := net.racks * net.hosts
		c := NewClasses(net.links())
		counts := map[[2]int]int{}
		for range rapid.IntRange(1, 40).Draw(t, "changes") {
			pair := [2]int{rapid.IntRange(0, hosts-1).Draw(t, "from"), rapid.IntRange(0, hosts-1).Draw(t, "to")}
			class, err := c.Class(net.path(pair[0], pair[1]))
			if err != nil {
				t.Fatal(err)
			}
			n := rapid.IntRange(-3, 3).Draw(t, "by")
			c.Add(class, n)
			counts[pair] = max(0, counts[pair]+n)
			if c.Flows(class) != counts[pair] {
				t.Fatalf("class of %v has %d flows, want %d", pair, c.Flows(class), counts[pair])
			}
		}
		s := &slow{}
		for l := range net.links() {
			s.capacity = append(s.capacity, rapid.SampledFrom([]float64{0, 1e4, 1e9, 1e9, 2.5e9}).Draw(t, fmt.Sprint("capacity ", l)))
		}
		var fs []*slowFlow
		of := map[*slowFlow][2]int{}
		for pair, n := range counts {
			for range n {
				f := &slowFlow{}
				for _, l := range net.path(pair[0], pair[1]) {
					f.path = append(f.path, int(l))
				}
				fs, of[f] = append(fs, f), pair
			}
		}
		if err := c.Share(s.capacity); err != nil {
			t.Fatal(err)
		}
		s.maxmin(fs, append([]float64(nil), s.capacity...))
		for f, pair := range of {
			class, err := c.Class(net.path(pair[0], pair[1]))
			if err != nil {
				t.Fatal(err)
			}
			if got := c.Rate(class); math.Abs(got-f.rate) > 1e-8*f.rate {
				t.Fatalf("a flow of %v has %v bit/s, want %v", pair, got, f.rate)
			}
		}
	})
}

func TestClassesMistakes(t *testing.T) {
	c := NewClasses(4)
	for _, path := range [][]topo.LinkID{nil, {4}, {-1}, {1, 2, 1}} {
		if _, err := c.Class(path); err == nil {
			t.Errorf("a class of path %v, want an error", path)
		}
	}
	for _, capacity := range [][]float64{{1}, {1, 2, math.NaN(), 4}, {1, 2, -3, 4}, {1, 2, 3, math.Inf(1)}} {
		if err := c.Share(capacity); err == nil {
			t.Errorf("rates on capacities %v, want an error", capacity)
		}
	}
}

// BenchmarkClasses is a decision over the pairs of hosts of a fabric, each with
// a few flows, and one flow that ends.
func BenchmarkClasses(b *testing.B) {
	for _, net := range []network{{1, 150}, {15, 10}, {1, 900}} {
		b.Run(fmt.Sprintf("racks=%d/hosts=%d", net.racks, net.hosts), func(b *testing.B) {
			hosts := net.racks * net.hosts
			c := NewClasses(net.links())
			for s := range hosts {
				for d := range hosts {
					if (s*7+d*13)%10 == 0 && hosts <= 150 || hosts > 150 && (s*7+d*13)%40 != 0 {
						continue
					}
					class, err := c.Class(net.path(s, d))
					if err != nil {
						b.Fatal(err)
					}
					c.Add(class, 1+(s*31+d*17)%5)
				}
			}
			capacity := idle(net.links(), 1e9)
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				i = (i + 7919) % c.Len()
				n := c.Flows(i)
				c.Add(i, -1)
				if err := c.Share(capacity); err != nil {
					b.Fatal(err)
				}
				c.Add(i, n-c.Flows(i))
			}
			b.ReportMetric(float64(c.Len()), "classes")
		})
	}
}
