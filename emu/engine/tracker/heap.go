package tracker

// ordered is an element of a heap.
type ordered[T any] interface{ before(T) bool }

// heap is a priority queue: its first element is before all others.
type heap[T ordered[T]] []T

func (h *heap[T]) push(x T) {
	*h = append(*h, x)
	s := *h
	for i := len(s) - 1; i > 0; {
		up := (i - 1) / 2
		if !s[i].before(s[up]) {
			break
		}
		s[i], s[up] = s[up], s[i]
		i = up
	}
}

// pop removes and returns the first element.
func (h *heap[T]) pop() T {
	s := *h
	first, last := s[0], len(s)-1
	s[0] = s[last]
	var none T
	s[last] = none
	s = s[:last]
	*h = s
	for i := 0; ; {
		next := i
		for child := 2*i + 1; child <= 2*i+2 && child < last; child++ {
			if s[child].before(s[next]) {
				next = child
			}
		}
		if next == i {
			return first
		}
		s[i], s[next] = s[next], s[i]
		i = next
	}
}
