package engine

import (
	"context"
	"time"
)

// Backend carries out commands and reports what came of them. Its clock starts
// at 0 when the run starts and never goes back.
type Backend interface {
	// Do starts the commands and returns without waiting for them to finish.
	Do(ctx context.Context, cmds []Command) error
	// Await blocks until something happened or the clock reaches wake, and
	// returns the time and all that happened up to it, in order. wake may be in
	// the past or NextNever.
	Await(ctx context.Context, wake time.Duration) (now time.Duration, evs []Event, err error)
}
