package catalog

import (
	"fmt"
	"math"
	"time"

	"testbed/policies/external"
	"testbed/topo/units"
)

const measured = "measured"

// outside are the entries of policies of a role that are outside of the program. made makes them.
func outside[P any](made func(external.Settings) P) []Entry {
	latency := Param{Name: "latency", Type: Choice, Choices: []string{measured}, Durations: true, Default: "0s", Max: int64(time.Minute),
		Doc: "time from a decision until it takes effect; measured is the time that the policy took, which passes by itself on packets"}
	output := Param{Name: "output", Type: Size, Default: 16 * units.MB, Min: 1000, Max: math.MaxInt32,
		Doc: "most output for one answer, and most standard error that is kept"}
	parameters := Param{Name: "parameters", Type: Mapping, Doc: "passed to the policy"}
	return []Entry{
		entry(made, Entry{
			Name: Exec, Doc: "a process outside of the program decides, over its standard input and output",
			Params: []Param{
				{Name: Exec, Type: Command, Doc: "program and arguments, run in the directory of the scenario"},
				{Name: Files, Type: Command, Doc: "further files that the process reads, such as [testbed.py]: they are kept with the run"},
				latency,
				{Name: "timeout", Type: Duration, Default: 5 * time.Second, Min: int64(time.Millisecond), Max: int64(time.Hour),
					Doc: "longest wait for an answer, and for the end of the process"},
				output,
				parameters,
			},
		}, "exec: [python3, mine.py]", func(v Values) external.Settings {
			return external.Settings{Command: v[Exec].([]string), Timeout: v.duration("timeout"), Output: v.size("output")}
		}),
		entry(made, Entry{
			Name: Wasm, Doc: "a WebAssembly module decides, without clock, files and randomness",
			Params: []Param{
				{Name: Wasm, Type: Path, Doc: "file of the module, relative to the directory of the scenario"},
				latency,
				{Name: "memory", Type: Size, Default: 256 * units.MiB, Min: 1 << 16, Max: 4 << 30,
					Doc: "most memory of the module, in whole pages of 64KiB"},
				{Name: "work", Type: Whole, Default: int64(1_000_000_000), Min: 1 << 16, Max: math.MaxInt64, Unit: "calls and turns of loops",
					Doc: "most work for one answer"},
				output,
				parameters,
			},
		}, "wasm: mine.wasm", func(v Values) external.Settings {
			return external.Settings{Module: v[Wasm].(string), Memory: v.size("memory"), Work: v["work"].(int64), Output: v.size("output")}
		}),
	}
}

// entry completes an entry, whose example states the parameter of its name.
func entry[P any](made func(external.Settings) P, e Entry, example string, settings func(Values) external.Settings) Entry {
	e.Holds = true
	e.Check = func(v Values) []error {
		if v[e.Name] == nil {
			return []error{fmt.Errorf("%s is missing: add %s", e.Name, example)}
		}
		return nil
	}
	e.New = func(v Values) any {
		s := settings(v)
		switch latency := v["latency"].(type) {
		case time.Duration:
			s.Latency = latency
		case string:
			if latency == measured {
				s.Latency = external.Measured
			}
		}
		s.Parameters, _ = v["parameters"].(map[string]any)
		return made(s)
	}
	return e
}
