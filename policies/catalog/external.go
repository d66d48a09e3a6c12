package catalog

import (
	"errors"
	"math"
	"time"

	"testbed/policies/external"
	"testbed/topo/units"
)

const measured = "measured"

// externalCoflow is the entry of coflow policies that processes implement.
func externalCoflow() *Entry {
	return &Entry{
		Name: External, Doc: "a process outside of the program decides, over its standard input and output", Holds: true,
		Params: []Param{
			{Name: External, Type: Command, Doc: "program and arguments, run in the directory of the scenario"},
			{Name: "latency", Type: Choice, Choices: []string{measured}, Durations: true, Default: "0s", Max: int64(time.Minute),
				Doc: "time from a decision until its rate caps take effect; measured is the time that the process took, which passes by itself on packets"},
			{Name: "timeout", Type: Duration, Default: 5 * time.Second, Min: int64(time.Millisecond), Max: int64(time.Hour),
				Doc: "longest wait for an answer, and for the end of the process"},
			{Name: "output", Type: Size, Default: 16 * units.MB, Min: 1000, Max: math.MaxInt32,
				Doc: "most output for one answer, and most standard error that is kept"},
			{Name: "parameters", Type: Mapping, Doc: "passed to the process"},
		},
		Check: func(v Values) []error {
			if v[External] == nil {
				return []error{errors.New(`the command is missing: add exec: [python3, mine.py]`)}
			}
			return nil
		},
		New: func(v Values) any {
			s := external.Settings{Command: v[External].([]string), Timeout: v.duration("timeout"), Output: v.size("output")}
			switch latency := v["latency"].(type) {
			case time.Duration:
				s.Latency = latency
			case string:
				if latency == measured {
					s.Latency = external.Measured
				}
			}
			s.Parameters, _ = v["parameters"].(map[string]any)
			return &external.Scheduler{Settings: s}
		},
	}
}
