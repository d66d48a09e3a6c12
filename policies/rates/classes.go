package rates

import (
	"fmt"
	"math"
	"slices"

	"testbed/topo"
)

// Classes computes max-min fair rates of flows by the paths they take: flows of one
// path have one rate, of whatever coflow they are. It is rule Free over everything
// for a caller that keeps count of the flows of each path as they come and go, and so
// need not look at the flows to know their rates.
type Classes struct {
	levels
	links  int
	byPath map[string]int32
	key    []byte
	stride int
	path   []int32 // by class: stride links, filled up with links
	at     []int32 // parallel to path: where the class is in crossing; -1 if it has no flows
	flows  []int32 // by class
	total  []int   // by link: flows
	halted []bool  // by class: its flows have stopped rising; kept for paths of more than two links

	crossing [][]crossing // by link: classes with flows
}

// crossing is one class on a link.
type crossing struct {
	class int32
	other int32 // the other link of a path of two, else -1
	flows int32
}

// NewClasses is without classes. links is the number of links of the fabric.
func NewClasses(links int) *Classes {
	return &Classes{links: links, byPath: map[string]int32{}, stride: 2, total: make([]int, links+1), crossing: make([][]crossing, links)}
}

// Class is the number of a path's class: 0 for the first that was asked for, and so
// on. A path that is empty, leaves the fabric or has a loop is an error.
func (c *Classes) Class(path []topo.LinkID) (int, error) {
	c.key = c.key[:0]
	for i, l := range path {
		if l < 0 || int(l) >= c.links {
			return 0, fmt.Errorf("path %v crosses link %d: the fabric has links 0 to %d", path, l, c.links-1)
		}
		if slices.Contains(path[:i], l) {
			return 0, fmt.Errorf("path %v crosses link %d twice: want a path without loops", path, l)
		}
		c.key = append(c.key, byte(l), byte(l>>8), byte(l>>16), byte(l>>24))
	}
	if len(path) == 0 {
		return 0, fmt.Errorf("a path without links: nothing would limit its rate")
	}
	if class, ok := c.byPath[string(c.key)]; ok {
		return int(class), nil
	}
	class := len(c.flows)
	c.byPath[string(c.key)] = int32(class)
	if len(path) > c.stride {
		c.widen(len(path))
	}
	for j := range c.stride {
		l := int32(c.links)
		if j < len(path) {
			l = int32(path[j])
		}
		c.path, c.at = append(c.path, l), append(c.at, -1)
	}
	c.flows = append(c.flows, 0)
	return class, nil
}

func (c *Classes) widen(stride int) {
	path, at := make([]int32, len(c.flows)*stride), make([]int32, len(c.flows)*stride)
	for i := range path {
		path[i], at[i] = int32(c.links), -1
	}
	for class := range c.flows {
		copy(path[class*stride:], c.path[class*c.stride:(class+1)*c.stride])
		copy(at[class*stride:], c.at[class*c.stride:(class+1)*c.stride])
	}
	c.path, c.at, c.stride = path, at, stride
}

// Len is how many classes there are, Flows how many flows one has.
func (c *Classes) Len() int            { return len(c.flows) }
func (c *Classes) Flows(class int) int { return int(c.flows[class]) }

// Add adds so many flows to a class, or takes them off if n is negative. To take off
// more than there are takes off all.
func (c *Classes) Add(class, n int) {
	had := int(c.flows[class])
	n = max(n, -had)
	has := had + n
	if n == 0 {
		return
	}
	c.flows[class] = int32(has)
	path := c.path[class*c.stride : (class+1)*c.stride]
	at := c.at[class*c.stride : (class+1)*c.stride]
	for j, l := range path {
		if int(l) == c.links {
			break
		}
		c.total[l] += n
		switch {
		case had == 0:
			at[j] = int32(len(c.crossing[l]))
			c.crossing[l] = append(c.crossing[l], crossing{int32(class), c.other(path, j), int32(has)})
		case has == 0:
			c.remove(l, at[j])
			at[j] = -1
		default:
			c.crossing[l][at[j]].flows = int32(has)
		}
	}
}

// other is the link of a path of two that is not its j-th, else -1.
func (c *Classes) other(path []int32, j int) int32 {
	if int(path[1]) == c.links || c.stride > 2 && int(path[2]) != c.links {
		return -1
	}
	return path[1-j]
}

// remove takes a class off a link: the last one there takes its place.
func (c *Classes) remove(l, at int32) {
	list := c.crossing[l]
	last := len(list) - 1
	moved := list[last]
	list[at] = moved
	c.crossing[l] = list[:last]
	first := int(moved.class) * c.stride
	for j, m := range c.path[first : first+c.stride] {
		if m == l {
			c.at[first+j] = at
		}
	}
}

// Share computes the rates for links of so many bit/s, by LinkID. An error leaves
// no rates that mean anything.
func (c *Classes) Share(capacity []float64) error {
	if len(capacity) != c.links {
		return fmt.Errorf("capacities of %d links: the fabric has %d", len(capacity), c.links)
	}
	c.begin(c.links + 1)
	for l, v := range capacity {
		if !(v >= 0) || math.IsInf(v, 0) {
			return fmt.Errorf("the capacity of link %d is %v bit/s: want 0 or more, and finite", l, v)
		}
		c.left[l], c.n[l] = v, float64(c.total[l])
	}
	c.ready()
	c.halted = sized(c.halted, len(c.flows))
	for l := c.next(); l >= 0; l = c.next() {
		for _, x := range c.crossing[l] {
			if x.other >= 0 {
				if c.rises(x.other) {
					c.stop(x.other, float64(x.flows))
				}
				continue
			}
			if c.halted[x.class] {
				continue
			}
			c.halted[x.class] = true
			for _, m := range c.path[int(x.class)*c.stride : int(x.class+1)*c.stride] {
				c.stop(m, float64(x.flows))
			}
		}
	}
	return nil
}

// Rate is what each flow of a class has since the last Share, in bit/s; for a class
// without flows, the least level of its links, +Inf if none is full.
func (c *Classes) Rate(class int) float64 {
	rate := math.Inf(1)
	for _, l := range c.path[class*c.stride : (class+1)*c.stride] {
		rate = min(rate, c.level[l])
	}
	return rate
}

// Levels are the rates, by LinkID, in bit/s, above which no flow across the link
// comes, +Inf where the link limits none: a flow's rate is the least of its path. They
// are valid until the next Share.
func (c *Classes) Levels() []float64 { return c.level[:c.links] }
