// Package wasm runs a policy that is a WebAssembly module and holds the conversation with it, messages in its
// memory, within bounds of memory and work. A module has no clock, no files, no environment and no randomness
// except a stream that follows from the seed, so equal messages have equal answers.
//
// It does not know what the messages mean: package external does.
package wasm

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"
	"github.com/tetratelabs/wazero/sys"

	"testbed/topo/units"
)

// page is the unit of memory.
const page = 64 * units.KiB

// features are those of WebAssembly 2.0 without vectors, which package meter does not read.
const features = api.CoreFeaturesV2 &^ api.CoreFeatureSIMD

// Config describes a module.
type Config struct {
	Name   string // in errors
	Module []byte
	Seed   uint64 // of its random numbers
	// Stderr gets the first Output bytes of its standard output and standard error; nil drops them.
	Stderr io.Writer
	Output units.Bytes // also bounds an answer
	Memory units.Bytes // bounds its memory
	Work   int64       // bounds the calls and turns of loops for one answer
}

// Cache keeps modules that are compiled: instances of the same module with the same bound of memory share its code.
// The zero value is empty. Code that is in no cache and no instance any more is freed.
type Cache struct {
	mu   sync.Mutex
	code map[key]*code
}

// key is what compiled code depends on.
type key struct {
	digest [sha256.Size]byte // of the module
	memory units.Bytes
}

// code is a compiled module, of which there can be any number of instances.
type code struct {
	runtime  wazero.Runtime
	compiled wazero.CompiledModule
}

// Module is a module that is ready to answer.
type Module struct {
	cfg           Config
	module        api.Module
	work          api.MutableGlobal
	alloc         api.Function
	hello, decide api.Function
	place, room   uint32 // of messages, and its size
	stack         [2]uint64
	said          *said
	asked         int
	failed        error // the first error of Ask
}

// The functions that a module exports.
const (
	exportAlloc  = "alloc"
	exportHello  = "hello"
	exportDecide = "decide"
	exportEnd    = "end" // optional
	exportStart  = "_initialize"
)

// Start makes an instance of a module and calls its function _initialize, if it has one. A nil cache keeps nothing.
func (c *Cache) Start(ctx context.Context, cfg Config) (_ *Module, err error) {
	m := &Module{cfg: cfg, said: &said{w: cfg.Stderr, left: int64(cfg.Output)}}
	defer func() {
		if err != nil {
			err = m.blame(err)
		}
	}()
	if c == nil {
		c = &Cache{}
	}
	of, err := c.compiled(ctx, cfg)
	if err != nil {
		return nil, err
	}
	var seed [32]byte
	for i := range 8 {
		seed[i] = byte(cfg.Seed >> (8 * i))
	}
	m.module, err = of.runtime.InstantiateModule(ctx, of.compiled, wazero.NewModuleConfig().
		WithName("").WithStartFunctions().WithStdout(m.said).WithStderr(m.said).
		WithRandSource(rand.NewChaCha8(seed)).
		WithWalltime(func() (int64, int32) { return 0, 1 }, 1).WithNanotime(func() int64 { return 1 }, 1).
		WithNanosleep(func(int64) {}).WithOsyield(func() {}))
	if err != nil {
		return nil, m.reason(err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, m.module.Close(ctx))
		}
	}()
	if err := m.exports(); err != nil {
		return nil, err
	}
	m.work = m.module.ExportedGlobal(workLeft).(api.MutableGlobal)
	if start := m.module.ExportedFunction(exportStart); start != nil {
		m.work.Set(uint64(cfg.Work))
		if _, err := start.Call(ctx); err != nil {
			return nil, fmt.Errorf("%s: %w", exportStart, m.reason(err))
		}
	}
	return m, nil
}

// compiled returns the code of a module, on all processors if it is not known yet.
func (c *Cache) compiled(ctx context.Context, cfg Config) (*code, error) {
	k := key{sha256.Sum256(cfg.Module), cfg.Memory}
	c.mu.Lock()
	defer c.mu.Unlock()
	if known := c.code[k]; known != nil {
		return known, nil
	}
	bounded, err := meter(cfg.Module)
	if err != nil {
		return nil, err
	}
	ctx = experimental.WithCompilationWorkers(ctx, runtime.GOMAXPROCS(0))
	made := &code{runtime: wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfig().
		WithMemoryLimitPages(uint32(cfg.Memory/page)).WithCoreFeatures(features).WithDebugInfoEnabled(false))}
	if made.compiled, err = made.runtime.CompileModule(ctx, bounded); err != nil {
		err = fmt.Errorf("%w (memory is at most %v)", err, cfg.Memory)
	} else {
		err = made.offered(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, made.runtime.Close(ctx))
	}
	if c.code == nil {
		c.code = map[key]*code{}
	}
	c.code[k] = made
	return made, nil
}

// offered rejects imports that are not offered, and offers those of WASI, which have nothing behind them.
func (c *code) offered(ctx context.Context) error {
	wasi, err := wasi_snapshot_preview1.NewBuilder(c.runtime).Compile(ctx)
	if err != nil {
		return err
	}
	for _, f := range c.compiled.ImportedFunctions() {
		from, name, _ := f.Import()
		if from != wasi_snapshot_preview1.ModuleName || wasi.ExportedFunctions()[name] == nil {
			return fmt.Errorf("it imports %s.%s: only functions of %s are offered", from, name, wasi_snapshot_preview1.ModuleName)
		}
	}
	_, err = c.runtime.InstantiateModule(ctx, wasi, wazero.NewModuleConfig())
	return err
}

// exports finds the functions that a module must export.
func (m *Module) exports() error {
	if m.module.ExportedMemory("memory") == nil {
		return errors.New(`it exports no memory "memory"`)
	}
	for _, x := range []struct {
		name            string
		params, results []api.ValueType
		to              *api.Function
	}{
		{exportAlloc, []api.ValueType{api.ValueTypeI32}, []api.ValueType{api.ValueTypeI32}, &m.alloc},
		{exportHello, []api.ValueType{api.ValueTypeI32, api.ValueTypeI32}, []api.ValueType{api.ValueTypeI64}, &m.hello},
		{exportDecide, []api.ValueType{api.ValueTypeI32, api.ValueTypeI32}, []api.ValueType{api.ValueTypeI64}, &m.decide},
	} {
		f := m.module.ExportedFunction(x.name)
		if f == nil {
			return fmt.Errorf("it exports no function %q: must export memory, %s, %s and %s", x.name, exportAlloc, exportHello, exportDecide)
		}
		d := f.Definition()
		if !slices.Equal(d.ParamTypes(), x.params) || !slices.Equal(d.ResultTypes(), x.results) {
			return fmt.Errorf("function %q: must be %s", x.name, signature(x.params, x.results))
		}
		*x.to = f
	}
	return nil
}

func signature(params, results []api.ValueType) string {
	var in []string
	for _, p := range params {
		in = append(in, api.ValueTypeName(p))
	}
	return fmt.Sprintf("(%s) -> %s", strings.Join(in, ", "), api.ValueTypeName(results[0]))
}

func (m *Module) blame(err error) error { return fmt.Errorf("%s: %w", m.cfg.Name, err) }

// Ask implements external.Conversation: the first message is for the function hello, others are for decide.
// After an error it returns the same error.
func (m *Module) Ask(message []byte, use func([]byte) (bool, error)) (time.Duration, error) {
	if m.failed != nil {
		return 0, m.failed
	}
	began := time.Now()
	m.asked++
	if err := m.ask(context.Background(), message, use); err != nil {
		m.failed = m.blame(fmt.Errorf("message %d to it: %w", m.asked, err))
	}
	return time.Since(began), m.failed
}

func (m *Module) ask(ctx context.Context, message []byte, use func([]byte) (bool, error)) error {
	m.work.Set(uint64(m.cfg.Work))
	answer := m.decide
	if m.asked == 1 {
		answer = m.hello
	}
	if end := bytes.IndexByte(message, '\n'); end+1 < len(message) { // a line, and what it announces
		message = message[end+1:]
	}
	stack := m.stack[:]
	if len(message) > int(m.room) {
		room := 2 * uint64(len(message))
		if stack[0] = room; room > math.MaxUint32 {
			return fmt.Errorf("a message of %d bytes: must be at most %d", len(message), math.MaxUint32/2)
		}
		if err := m.alloc.CallWithStack(ctx, stack); err != nil {
			return fmt.Errorf("%s: %w", exportAlloc, m.reason(err))
		}
		m.place, m.room = uint32(stack[0]), uint32(room)
	}
	if !m.module.Memory().Write(m.place, message) {
		return fmt.Errorf("%s(%d) returned %d, beyond its memory of %d bytes", exportAlloc, m.room, m.place, m.module.Memory().Size())
	}
	stack[0], stack[1] = uint64(m.place), uint64(len(message))
	if err := answer.CallWithStack(ctx, stack); err != nil {
		return m.reason(err)
	}
	place, size := uint32(stack[0]>>32), uint32(stack[0])
	if units.Bytes(size) > m.cfg.Output {
		return fmt.Errorf("more than %v of output for one answer (output)", m.cfg.Output)
	}
	said, ok := m.module.Memory().Read(place, size)
	if !ok {
		return fmt.Errorf("its answer is %d bytes at %d, beyond its memory of %d bytes", size, place, m.module.Memory().Size())
	}
	for line := range bytes.Lines(said) {
		accepted, err := use(bytes.TrimSpace(line))
		if err != nil {
			return fmt.Errorf("%w: %s", err, units.Clip(string(bytes.TrimSpace(line))))
		}
		if accepted {
			return nil
		}
	}
	return fmt.Errorf("its answer of %d bytes has no message of the type that was asked for", size)
}

// reason returns why a call ended.
func (m *Module) reason(err error) error {
	var exit *sys.ExitError
	switch {
	case errors.As(err, &exit):
		err = fmt.Errorf("it ended (exit status %d)", exit.ExitCode())
	case m.work != nil && int64(m.work.Get()) < 0:
		err = fmt.Errorf("more than %d calls and turns of loops for one answer (work)", m.cfg.Work)
	default:
		text, _, _ := strings.Cut(err.Error(), "\n")
		err = errors.New(text)
	}
	if last := m.said.last(); last != "" {
		return fmt.Errorf("%w; its output ends with: %s", err, last)
	}
	return err
}

// Close calls the function end, if the module has one and has not failed, and ends the instance.
func (m *Module) Close() error {
	var err error
	ctx := context.Background()
	if end := m.module.ExportedFunction(exportEnd); end != nil && m.failed == nil {
		m.work.Set(uint64(m.cfg.Work))
		if _, e := end.Call(ctx); e != nil {
			err = m.blame(fmt.Errorf("%s: %w", exportEnd, m.reason(e)))
		}
	}
	return errors.Join(err, m.module.Close(ctx))
}

// said is the output of a module.
type said struct {
	w    io.Writer
	left int64
	tail []byte
}

func (s *said) Write(b []byte) (int, error) {
	const tail = 4000 // bytes in messages
	s.tail = append(s.tail, b...)
	s.tail = s.tail[max(0, len(s.tail)-tail):]
	if n := min(int64(len(b)), s.left); s.w != nil && n > 0 {
		_, _ = s.w.Write(b[:n]) // a full disk does not end the run
		s.left -= n
	}
	return len(b), nil
}

// last returns the first line that a panic of Go begins with, or the last line.
func (s *said) last() string {
	lines := strings.Split(strings.TrimSpace(string(s.tail)), "\n")
	for _, line := range lines {
		if strings.HasPrefix(line, "panic: ") {
			return units.Clip(line)
		}
	}
	return units.Clip(lines[len(lines)-1])
}
