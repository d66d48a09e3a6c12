package wasm

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tetratelabs/wazero"
	"pgregory.net/rapid"

	"testbed/emu/wasm/wasmtest"
	"testbed/policies"
	"testbed/policies/coflow"
	"testbed/policies/external"
	"testbed/policies/policytest"
	"testbed/topo"
	"testbed/topo/units"
)

const (
	testMemory = 2 * page
	testWork   = 1 << 17
)

// part is a section, with its elements.
func part(id byte, elements ...[]byte) []byte {
	return section(id, append(elements[:0:0], binary.AppendUvarint(nil, uint64(len(elements))), slices.Concat(elements...))...)
}

func section(id byte, of ...[]byte) []byte {
	b := slices.Concat(of...)
	return append(binary.AppendUvarint([]byte{id}, uint64(len(b))), b...)
}

func named(name string, rest ...byte) []byte {
	return append(append([]byte{byte(len(name))}, name...), rest...)
}

// assembled returns a module whose function decide has a body; the function hello returns the memory from 16 on, 8 bytes.
// Imported functions have type (i32, i32) -> i64 unless they are of WASI.
func assembled(body []byte, imports ...[]byte) []byte {
	n := byte(len(imports))
	function := func(code ...byte) []byte {
		return append(binary.AppendUvarint(nil, uint64(len(code)+2)), append(append([]byte{0}, code...), 0x0b)...)
	}
	const answer = uint64(16)<<32 | 8
	m := []byte("\x00asm\x01\x00\x00\x00")
	m = append(m, part(1, []byte{0x60, 1, i32, 1, i32}, []byte{0x60, 2, i32, i32, 1, i64}, []byte{0x60, 2, i32, i32, 1, i32}, []byte{0x60, 1, i32, 0},
		[]byte{0x60, 3, i32, i64, i32, 1, i32})...)
	if n > 0 {
		m = append(m, part(2, imports...)...)
	}
	m = append(m, part(3, []byte{0}, []byte{1}, []byte{1})...)
	m = append(m, part(5, []byte{0, 1})...)
	m = append(m, part(7, named("memory", 2, 0), named("alloc", 0, n), named("hello", 0, n+1), named("decide", 0, n+2))...)
	m = append(m, part(10, function(0x41, 0), function(signed([]byte{0x42}, int64(answer))...), function(body...))...)
	return append(m, part(11, append([]byte{0, 0x41, 16, 0x0b, 8}, "answer\n\n"...))...)
}

func imported(name string, of byte) []byte {
	return append(named("wasi_snapshot_preview1"), named(name, 0, of)...)
}

func start(t *testing.T, module []byte, seed uint64) (*Module, *bytes.Buffer, error) {
	t.Helper()
	var kept bytes.Buffer
	m, err := new(Cache).Start(t.Context(), Config{Name: "policy m.wasm", Module: module, Seed: seed, Stderr: &kept, Output: 1000, Memory: testMemory, Work: testWork})
	if err == nil {
		t.Cleanup(func() {
			if err := m.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	return m, &kept, err
}

// whatever accepts any line and keeps it.
func whatever(kept *string) func([]byte) (bool, error) {
	return func(line []byte) (bool, error) {
		*kept = string(line)
		return true, nil
	}
}

// Each way in which a module fails is an error, within the bounds.
func TestFailures(t *testing.T) {
	forever := []byte{0x03, 0x40, 0x0c, 0, 0x0b, 0x42, 0} // loop, br 0
	fill := []byte{0x03, 0x40, 0x41, 0, 0x41, 1, 0x41, 0x80, 0x80, 4, 0xfc, 11, 0, 0x0c, 0, 0x0b, 0x42, 0}
	grow := []byte{0x41, 0xff, 0x00, 0x40, 0, 0xac, 0x42, 0x7f, 0x52, 0x04, 0x40, 0x03, 0x40, 0x0c, 0, 0x0b, 0x0b, 0x00}
	for _, tt := range []struct {
		name string
		body []byte
		more [][]byte
		want string
	}{
		{"a loop without end", forever, nil, "message 2 to it: more than 131072 calls and turns of loops for one answer (work)"},
		{"fills memory without end", fill, nil, "(work)"},
		{"calls itself without end", []byte{0x20, 0, 0x20, 1, 0x10, 2}, nil, "message 2 to it: "},
		{"more memory than the bound", grow, nil, "unreachable"}, // the growth fails
		{"traps", []byte{0x00}, nil, "message 2 to it: wasm error: unreachable"},
		{"answers beyond its memory", signed([]byte{0x42}, 1<<40), nil, "has no message"},
		{"answers too much", signed([]byte{0x42}, 65536), nil, "more than 1KB of output for one answer (output)"},
		{"no answer", []byte{0x42, 0}, nil, "its answer of 0 bytes has no message"},
		{"exits", []byte{0x41, 3, 0x10, 0, 0x42, 0}, [][]byte{imported("proc_exit", 3)}, "it ended (exit status 3)"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m, _, err := start(t, assembled(tt.body, tt.more...), 1)
			if err != nil {
				t.Fatal(err)
			}
			var answer string
			if _, err := m.Ask([]byte("hello\n"), whatever(&answer)); err != nil || answer != "answer" {
				t.Fatalf("%q, %v", answer, err)
			}
			_, err = m.Ask([]byte("decide\n"), whatever(&answer))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %q", err, tt.want)
			}
			if _, again := m.Ask(nil, whatever(&answer)); again != err {
				t.Errorf("then %v, want the same error", again)
			}
		})
	}
}

// What a module cannot be, or cannot import.
func TestRefused(t *testing.T) {
	answers := []byte{0x42, 0}
	valid := assembled(answers)
	replaced := func(from, to string) []byte { return bytes.Replace(valid, []byte(from), []byte(to), 1) }
	for name, tt := range map[string]struct {
		module []byte
		want   string
	}{
		"no module":          {[]byte("#!/bin/sh\n"), "policy m.wasm: not a WebAssembly module"},
		"a component":        {append([]byte("\x00asm\x0d\x00\x01\x00"), 1, 0), "components are not supported"},
		"cut off":            {valid[:len(valid)-9], "cut off"},
		"a clock of a host":  {assembled(answers, append(named("env"), named("time", 0, 1)...)), "it imports env.time: only functions of wasi_snapshot_preview1 are offered"},
		"WASI does not have": {assembled(answers, imported("fd_frob", 1)), "it imports wasi_snapshot_preview1.fd_frob"},
		"memory of a host":   {assembled(answers, append(named("env"), named("memory", 2, 0)...)), "it imports env.memory, which is not a function"},
		"no decide":          {replaced("decide", "decade"), `it exports no function "decide"`},
		"no memory":          {replaced("memory", "menory"), `it exports no memory "memory"`},
		"much memory":        {bytes.Replace(valid, part(5, []byte{0, 1}), part(5, []byte{0, 9}), 1), "memory is at most 131.072KB"},
		"vectors":            {assembled([]byte{0xfd, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x1a, 0x42, 0}), "instruction 0xfd is not offered"},
		"growing tables":     {assembled([]byte{0xfc, 15, 0}), "changes a table"},
	} {
		if _, _, err := start(t, tt.module, 1); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
}

// A module sees a clock that stands still, randomness of the seed alone, no files, no arguments and no environment.
func TestPure(t *testing.T) {
	const place = 16 << 6
	at := signed([]byte{0x41}, place)
	answer := signed([]byte{0x42}, place<<32|8)
	call := func(args ...byte) []byte { return append(slices.Concat(args, []byte{0x10, 0, 0x1a}), answer...) }
	say := func(t *testing.T, seed uint64, module []byte) (said []string) {
		m, _, err := start(t, module, seed)
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			var line string
			m.asked = 1 // decide
			if _, err := m.Ask([]byte("x\n"), whatever(&line)); err != nil {
				t.Fatal(err)
			}
			said = append(said, line)
		}
		return said
	}
	// Bytes 8 to 15 make an answer of any value.
	random := assembled(call(append(at, 0x41, 8)...), imported("random_get", 2))
	first, again, other := say(t, 1, random), say(t, 1, random), say(t, 2, random)
	if !slices.Equal(first, again) || slices.Equal(first, other) || first[0] == first[1] {
		t.Errorf("random numbers %q, again %q, of another seed %q", first, again, other)
	}
	for clock := range byte(2) {
		now := say(t, 1, assembled(call(append([]byte{0x41, clock, 0x42, 0}, at...)...), imported("clock_time_get", 4)))
		if now[0] != now[1] || now[1] != now[2] {
			t.Errorf("clock %d: %q", clock, now)
		}
	}
	for _, name := range []string{"environ_sizes_get", "args_sizes_get"} {
		sizes := say(t, 1, assembled(call(slices.Concat(at, signed([]byte{0x41}, place+4))...), imported(name, 2)))
		if sizes[0] != "\x00\x00\x00\x00\x00\x00\x00\x00" {
			t.Errorf("%s: %q", name, sizes)
		}
	}
	// The number of the error is the answer: fd_prestat_get(3) finds no directory.
	body := slices.Concat([]byte{0x41}, signed(nil, place), []byte{0x41, 3}, at, []byte{0x10, 0, 0x36, 2, 0}, answer)
	if files := say(t, 1, assembled(body, imported("fd_prestat_get", 2))); files[0] != "\x08\x00\x00\x00\x00\x00\x00\x00" {
		t.Errorf("a file: %q, want error 8 (EBADF)", files)
	}
}

// The examples in Go and C decide as the policy sebf does.
func TestSEBF(t *testing.T) {
	for name, built := range map[string]func(testing.TB) string{"Go": wasmtest.SEBF, "C": wasmtest.C} {
		t.Run(name, func(t *testing.T) { equalSEBF(t, built(t)) })
	}
}

func equalSEBF(t *testing.T, path string) {
	s, p := opened(t, path), coflow.SEBF{}
	if s.Needs() != p.Needs() || s.Triggers() != p.Triggers() {
		t.Errorf("%+v, %+v: want %+v, %+v", s.Needs(), s.Triggers(), p.Needs(), p.Triggers())
	}
	x := s.New()
	rapid.Check(t, func(t *rapid.T) {
		compare := func(v, _ *policies.CoflowView, want *policies.Schedule) error {
			var got policies.Schedule
			x.Decide(v, &got)
			if d := cmp.Diff(fmt.Sprint(want.Steps), fmt.Sprint(got.Steps)); d != "" || got.Err != nil {
				return fmt.Errorf("%v (-program +module):\n%s", got.Err, d)
			}
			return nil
		}
		if err := policytest.Clusters().Draw(t, "cluster").Run(p, p.Needs(), compare); err != nil {
			t.Fatal(err)
		}
	})
}

func opened(t testing.TB, path string) *external.Scheduler {
	t.Helper()
	module, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	m, err := new(Cache).Start(t.Context(), Config{Name: "sebf.wasm", Module: module, Output: units.MB, Memory: 64 * units.MiB, Work: 1e9})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	f, err := topo.BigSwitch(2, units.Gbps)
	if err != nil {
		t.Fatal(err)
	}
	s := external.Coflow(external.Settings{})
	if err := s.Open(m, f, 1); err != nil {
		t.Fatal(err)
	}
	return s
}

// The runtime reserves memory for as many elements as a list says that it has: no list may be longer than the module.
func TestLengthsOfLists(t *testing.T) {
	most := binary.AppendUvarint(nil, math.MaxUint32)
	for name, list := range map[string][]byte{
		"globals":              section(6, most),
		"exports":              section(7, most),
		"segments of elements": section(9, most),
		"elements":             section(9, []byte{1, 0, 0x41, 0, 0x0b}, most),
		"constants":            section(9, []byte{1, 5, 0x70}, most),
		"parts of data":        section(11, most),
		"beyond 32 bits":       section(6, binary.AppendUvarint(nil, 1<<40)),
	} {
		if _, err := meter(append([]byte("\x00asm\x01\x00\x00\x00"), list...)); !errors.Is(err, errCutOff) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// Custom sections are left out, except names of functions.
	valid := assembled([]byte{0})
	bounded, err := meter(valid)
	if err != nil {
		t.Fatal(err)
	}
	names := section(0, named("name", 1, 4, 1, 3, 1, 'd'))
	for name, tt := range map[string]struct{ custom, want []byte }{
		"names of functions":          {names, names},
		"too many names of functions": {section(0, named("name", 1, 5), most), nil},
		"names of locals":             {section(0, named("name", 2, 5), most), nil},
		"another":                     {section(0, named("ab")), nil},
	} {
		if got, err := meter(slices.Concat(valid, tt.custom)); err != nil || !bytes.Equal(got, slices.Concat(bounded, tt.want)) {
			t.Errorf("%s: %v, and other bytes", name, err)
		}
	}
}

// A module that is valid stays valid with a bound on its work, and any bytes are an error or a module.
func FuzzMeter(f *testing.F) {
	f.Add(assembled([]byte{0x03, 0x40, 0x0c, 0, 0x0b, 0x42, 0}))
	f.Add(assembled([]byte{0x42, 0}, imported("random_get", 2)))
	f.Add([]byte("\x00asm\x01\x00\x00\x00"))
	config := wazero.NewRuntimeConfigInterpreter().WithCoreFeatures(features).WithMemoryLimitPages(4)
	r := wazero.NewRuntimeWithConfig(f.Context(), config)
	f.Cleanup(func() { _ = r.Close(f.Context()) })
	f.Fuzz(func(t *testing.T, module []byte) {
		bounded, err := meter(module)
		if err != nil {
			return
		}
		now, err := r.CompileModule(t.Context(), bounded)
		if err == nil {
			now.Close(t.Context())
			return
		}
		if was, other := r.CompileModule(t.Context(), module); other == nil {
			was.Close(t.Context())
			t.Fatalf("%x is valid, and with a bound not: %v", module, err)
		}
	})
}
