// Package maxmin implements progressive filling, which computes max-min fair rates: the rates
// of all flows rise together; when a link is full, its flows keep that rate, and the others
// rise further (Bertsekas and Gallager, Data Networks, 6.5.2). It also has the heap that
// orders links by the rate at which they are full.
package maxmin

import (
	"cmp"
	"math"
)

// Filling is the state of progressive filling, by link. The caller sets its fields and calls
// Start, then Next until no flow rises. For flows that stop rising it adds their rates to
// Load and subtracts them from Weight, for every link that they cross.
type Filling struct {
	Capacity []float64 // bit/s
	Load     []float64 // bit/s: sum of the rates of the flows that do not rise
	Weight   []float64 // number of rising flows; one that crosses a link k times counts k times

	heap []Entry[int32]
}

// Start begins a filling in which flows rise on the given links alone.
func (f *Filling) Start(links []int32) {
	f.heap = f.heap[:0]
	for _, l := range links {
		if f.Weight[l] > 0 {
			f.heap = append(f.heap, Entry[int32]{f.level(l), l})
		}
	}
	Init(f.heap)
}

// Rise continues a filling after flows have begun to rise on a link.
func (f *Filling) Rise(link int32) { f.heap = Push(f.heap, Entry[int32]{f.level(link), link}) }

// Next returns the link that is full next and the rate of its rising flows, or -1 and +Inf if
// no link has rising flows. It returns the same link again until its flows have stopped.
func (f *Filling) Next() (link int32, rate float64) {
	for len(f.heap) > 0 {
		top := &f.heap[0]
		l := top.Value
		if f.Weight[l] < 0.5 { // whole flows: none left
			f.heap = Pop(f.heap)
			continue
		}
		// Flows that stop at other links make a link full later, never earlier: an entry is a
		// lower bound.
		level := f.level(l)
		if level <= top.Key {
			return l, top.Key
		}
		top.Key = level
		Sink(f.heap, 0)
		if f.heap[0] == (Entry[int32]{level, l}) {
			return l, level
		}
	}
	return -1, math.Inf(1)
}

func (f *Filling) level(l int32) float64 { return max(f.Capacity[l]-f.Load[l], 0) / f.Weight[l] }

// Entry is an element of a heap. The first is the one with the smallest key, among equal keys
// the one with the smallest value.
type Entry[V cmp.Ordered] struct {
	Key   float64
	Value V
}

func (a Entry[V]) before(b Entry[V]) bool {
	return a.Key < b.Key || a.Key == b.Key && a.Value < b.Value
}

// Init makes a heap of entries in any order.
func Init[V cmp.Ordered](h []Entry[V]) {
	for i := len(h)/2 - 1; i >= 0; i-- {
		Sink(h, i)
	}
}

// Push adds an entry to a heap, and returns the heap.
func Push[V cmp.Ordered](h []Entry[V], x Entry[V]) []Entry[V] {
	h = append(h, x)
	for i := len(h) - 1; i > 0; {
		up := (i - 1) / 2
		if !h[i].before(h[up]) {
			break
		}
		h[up], h[i] = h[i], h[up]
		i = up
	}
	return h
}

// Pop removes the first entry of a heap, which must not be empty, and returns the heap.
func Pop[V cmp.Ordered](h []Entry[V]) []Entry[V] {
	last := len(h) - 1
	h[0] = h[last]
	h = h[:last]
	Sink(h, 0)
	return h
}

// Sink restores the order of a heap after the key of the entry at an index has increased.
func Sink[V cmp.Ordered](h []Entry[V], i int) {
	if i >= len(h) {
		return
	}
	x := h[i]
	for {
		kid := 2*i + 1
		if kid >= len(h) {
			break
		}
		if kid+1 < len(h) && h[kid+1].before(h[kid]) {
			kid++
		}
		if !h[kid].before(x) {
			break
		}
		h[i] = h[kid]
		i = kid
	}
	h[i] = x
}
