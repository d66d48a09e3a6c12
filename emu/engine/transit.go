package engine

import (
	"iter"
	"slices"
	"time"
)

// transit are decisions that have not taken effect yet, in the order in which they were made: none
// overtakes another.
type transit[T any] []sent[T]

type sent[T any] struct {
	at   time.Duration // when it takes effect
	what T
}

// arrival returns when a decision takes effect that is made now and takes some time.
func (q transit[T]) arrival(now, takes time.Duration) time.Duration {
	if n := len(q); n > 0 {
		return max(now+takes, q[n-1].at)
	}
	return now + takes
}

// atOnce reports whether a decision that takes some time takes effect now.
func (q transit[T]) atOnce(takes time.Duration) bool { return takes == 0 && len(q) == 0 }

// hold keeps a decision back that takes some time, and reports whether it did. If not, it takes
// effect now.
func (q *transit[T]) hold(now, takes time.Duration, what T) bool {
	if q.atOnce(takes) {
		return false
	}
	*q = append(*q, sent[T]{q.arrival(now, takes), what})
	return true
}

// next returns when the first of them takes effect; NextNever for none.
func (q transit[T]) next() time.Duration {
	if len(q) == 0 {
		return NextNever
	}
	return q[0].at
}

// arrived returns those that have taken effect by now, and then removes them. Meanwhile others may be
// added.
func (q *transit[T]) arrived(now time.Duration) iter.Seq[T] {
	return func(yield func(T) bool) {
		n := 0
		for more := true; more && n < len(*q) && (*q)[n].at <= now; n++ {
			more = yield((*q)[n].what)
		}
		*q = slices.Delete(*q, 0, n)
	}
}
