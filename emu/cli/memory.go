package cli

import (
	"fmt"
	"math"
	"runtime/debug"

	"github.com/spf13/cobra"

	"testbed/emu/kernel"
	"testbed/topo/units"
)

// memoryShare is the part of the free memory that a command takes by default.
const memoryShare = 0.5

// memoryFlag is how much memory a command may take.
type memoryFlag struct{ text string }

func (f *memoryFlag) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.text, "memory", "", fmt.Sprintf("most memory to take, such as 8GB (default %.0f %% of what is free: MemAvailable, or what the cgroup leaves)", 100*memoryShare))
}

// bound returns the limit, and makes the collector of garbage keep to it as far as it can.
// Where neither the flag nor the machine states one there is none, which is 0.
func (f *memoryFlag) bound() (units.Bytes, error) {
	limit := units.Bytes(0)
	if f.text != "" {
		var err error
		if limit, err = units.ParseBytes(f.text); err == nil && limit <= 0 {
			err = fmt.Errorf("must be above 0")
		}
		if err != nil {
			return 0, usageError{fmt.Errorf("--memory %q: %w", f.text, err)}
		}
	} else if free, _, err := kernel.AvailableMemory(); err == nil {
		limit = units.Bytes(memoryShare * float64(free))
	}
	if had := debug.SetMemoryLimit(-1); limit > 0 && had == math.MaxInt64 { // not set by GOMEMLIMIT
		debug.SetMemoryLimit(int64(limit))
	}
	return limit, nil
}
