package engine

import (
	"context"
	"time"
)

// Backend executes commands and reports the resulting events. Its clock starts at 0 when the
// run starts and never goes back.
type Backend interface {
	// Do starts the commands and returns without waiting for them to finish.
	Do(ctx context.Context, cmds []Command) error
	// Await blocks until an event occurs or the clock reaches wake. It returns the time and
	// all events up to it, in order. wake may be in the past or NextNever.
	Await(ctx context.Context, wake time.Duration) (now time.Duration, evs []Event, err error)
}
