package wasm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// The sections of a module that meter reads or changes.
const (
	sectionCustom   = 0
	sectionType     = 1
	sectionImport   = 2
	sectionFunction = 3
	sectionTable    = 4
	sectionMemory   = 5
	sectionGlobal   = 6
	sectionExport   = 7
	sectionElement  = 9
	sectionCode     = 10
	sectionData     = 11
)

// sectionOrder is the order of sections by ID: that of data counts (12) is before the code.
var sectionOrder = [...]int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 10}

const (
	i32, i64 = 0x7f, 0x7e
	// slice is the work between two moments at which the program that called the module gets the processor.
	slice = 1 << 16
	// mostTable bounds the elements of a table, which are not part of the memory.
	mostTable = 1 << 20
	// bytesOfWork is the shift from bytes that one instruction fills or copies to its work.
	bytesOfWork = 6
)

// workLeft is the exported global with the work that is left for an answer, without the slice begun.
const workLeft = "testbed.work"

// meter returns the module with a bound on its work: each function and each turn of a loop takes one from a slice,
// and an instruction that fills or copies memory one for each 64 bytes. A function that it adds begins the next slice,
// and traps if no work is left. The result depends on nothing but the module.
func meter(module []byte) ([]byte, error) {
	const header = 8
	if len(module) < header || string(module[:4]) != "\x00asm" {
		return nil, errors.New("not a WebAssembly module")
	}
	if binary.LittleEndian.Uint32(module[4:]) != 1 {
		return nil, errors.New("not a WebAssembly module of version 1 (components are not supported)")
	}
	m := &metered{left: reader{b: module[header:]}, out: append([]byte(nil), module[:header]...)}
	for len(m.left.b) > 0 {
		id := int(m.left.byte())
		payload := reader{b: m.left.take(m.left.uint())}
		if m.left.failed {
			return nil, errCutOff
		}
		if id != sectionCustom { // which may be anywhere
			if id >= len(sectionOrder) {
				return nil, fmt.Errorf("unknown section %d", id)
			}
			if err := m.missing(sectionOrder[id]); err != nil {
				return nil, err
			}
			m.reached = sectionOrder[id] + 1
		}
		if err := m.section(id, payload); err != nil {
			return nil, err
		}
	}
	if err := m.missing(len(sectionOrder)); err != nil {
		return nil, err
	}
	if !m.memory {
		return nil, errors.New("it defines no memory")
	}
	return m.out, nil
}

var errCutOff = errors.New("the module is cut off")

// metered is a module that is being metered.
type metered struct {
	left      reader
	out       []byte
	reached   int    // next place in the order of sections
	params    []int  // numbers of parameters, by type
	functions []int  // types of functions that are not imported
	imported  uint64 // functions
	globals   uint64
	memory    bool
}

// missing adds those of the sections that meter appends to which the module does not have, before a place.
func (m *metered) missing(before int) error {
	for _, id := range []int{sectionType, sectionFunction, sectionGlobal, sectionExport, sectionCode} {
		if at := sectionOrder[id]; at >= m.reached && at < before {
			if err := m.section(id, reader{b: []byte{0}}); err != nil {
				return err
			}
		}
	}
	return nil
}

// section appends a section to the output.
func (m *metered) section(id int, r reader) error {
	whole := r.b
	var payload []byte
	// added appends n elements to those of the section.
	added := func(n uint64, elements ...byte) {
		list := reader{b: whole}
		count := list.uint()
		payload = append(append(binary.AppendUvarint(nil, count+n), list.b...), elements...)
	}
	var err error
	switch id {
	case sectionCustom:
		if payload = names(r); payload == nil {
			return nil
		}
	case sectionType:
		m.types(&r)
		added(1, 0x60, 0, 0)
	case sectionImport:
		err = m.imports(&r)
		payload = whole
	case sectionFunction:
		for range r.list() {
			m.functions = append(m.functions, int(r.uint()))
		}
		added(1, binary.AppendUvarint(nil, uint64(len(m.params)))...)
	case sectionTable:
		for range r.list() {
			r.byte()
			limited := r.byte()
			if n := r.uint(); n > mostTable {
				return fmt.Errorf("a table has %d elements: must be at most %d", n, mostTable)
			}
			if limited&1 != 0 {
				r.uint()
			}
		}
		payload = whole
	case sectionMemory:
		m.memory = r.uint() > 0
		payload = whole
	case sectionGlobal:
		m.globals = r.list()
		variable := []byte{i64, 1, 0x42, 0, 0x0b} // i64, mutable, 0
		added(2, append(variable, variable...)...)
	case sectionExport:
		r.list()
		name := append([]byte{byte(len(workLeft))}, workLeft...)
		added(1, binary.AppendUvarint(append(name, 3), m.globals+1)...)
	case sectionElement:
		err = elements(&r)
		payload = whole
	case sectionCode:
		payload, err = m.code(&r)
	case sectionData:
		r.list()
		payload = whole
	default:
		payload = whole
	}
	if err == nil && r.failed {
		err = fmt.Errorf("section %d: %w", id, errCutOff)
	}
	m.out = append(binary.AppendUvarint(append(m.out, byte(id)), uint64(len(payload))), payload...)
	return err
}

func (m *metered) types(r *reader) {
	for range r.list() {
		if r.byte() != 0x60 {
			r.failed = true
			return
		}
		params := r.uint()
		r.take(params)
		r.take(r.uint())
		m.params = append(m.params, int(params))
	}
}

// names returns the part of a custom section that still applies after metering: names of functions, which are in the
// stacks of errors. It is nil without them.
func names(r reader) []byte {
	const section, ofFunctions = "name", 1
	if string(r.take(r.uint())) != section {
		return nil
	}
	for len(r.b) > 0 && !r.failed {
		id := r.byte()
		list := reader{b: r.take(r.uint())}
		whole := list.b
		if list.list(); id == ofFunctions && !list.failed {
			payload := append([]byte{byte(len(section))}, section...)
			return append(binary.AppendUvarint(append(payload, id), uint64(len(whole))), whole...)
		}
	}
	return nil
}

// elements checks the lengths of the lists of a section of elements: the compiler of the module reserves memory for
// as many as a length says.
func elements(r *reader) error {
	for range r.list() {
		flags := r.uint()
		if flags&1 == 0 { // active: perhaps a table, and a place in it
			if flags&2 != 0 {
				r.uint()
			}
			if err := r.constant(); err != nil {
				return err
			}
		}
		if flags&3 != 0 {
			r.byte() // kind or type
		}
		for range r.list() {
			if flags&4 == 0 {
				r.uint()
			} else if err := r.constant(); err != nil {
				return err
			}
		}
	}
	return nil
}

// imports rejects all imports except functions.
func (m *metered) imports(r *reader) error {
	for range r.list() {
		from, name := r.take(r.uint()), r.take(r.uint())
		if kind := r.byte(); kind != 0 && !r.failed {
			return fmt.Errorf("it imports %s.%s, which is not a function: a module must define its own memory, tables and globals", from, name)
		}
		r.uint()
		m.imported++
	}
	return nil
}

// code appends the check to the beginning of functions and loops, and the function that begins a slice.
func (m *metered) code(r *reader) ([]byte, error) {
	count := r.uint()
	if count != uint64(len(m.functions)) {
		r.failed = true
		return nil, nil
	}
	check := m.check()
	out := binary.AppendUvarint(nil, count+1)
	for i, of := range m.functions {
		if of >= len(m.params) {
			r.failed = true
			return nil, nil
		}
		body := reader{b: r.take(r.uint())}
		metered, err := m.function(&body, m.params[of], check)
		if body.failed || err != nil {
			r.failed = r.failed || body.failed
			if err != nil {
				err = fmt.Errorf("function %d: %w", m.imported+uint64(i), err)
			}
			return nil, err
		}
		out = append(binary.AppendUvarint(out, uint64(len(metered))), metered...)
	}
	next := m.next()
	return append(binary.AppendUvarint(out, uint64(len(next))), next...), nil
}

// change is get, constant, operation, set: it changes a global by a constant.
func change(global, by uint64, operation byte) []byte {
	b := binary.AppendUvarint([]byte{0x23}, global)
	b = signed(append(b, 0x42), int64(by))
	return binary.AppendUvarint(append(b, operation, 0x24), global)
}

const opAdd, opSub = 0x7c, 0x7d

// ifNegative runs instructions if a global is negative.
func ifNegative(global uint64, then ...byte) []byte {
	b := binary.AppendUvarint([]byte{0x23}, global)
	b = append(b, 0x42, 0, 0x53, 0x04, 0x40) // i64.const 0, i64.lt_s, if
	return append(append(b, then...), 0x0b)
}

// check takes one from the slice, and begins another where none is left.
func (m *metered) check() []byte {
	begin := binary.AppendUvarint([]byte{0x10}, m.imported+uint64(len(m.functions)))
	return append(change(m.globals, 1, opSub), ifNegative(m.globals, begin...)...)
}

// next is the function that begins a slice. Growing the memory by nothing returns to the program that runs the module,
// which may then do other work.
func (m *metered) next() []byte {
	b := []byte{0, 0x41, 0, 0x40, 0, 0x1a} // no locals; i32.const 0, memory.grow, drop
	b = append(b, change(m.globals+1, slice, opSub)...)
	b = append(b, ifNegative(m.globals+1, 0x00)...) // unreachable
	return append(append(b, change(m.globals, slice, opAdd)...), 0x0b)
}

// function returns the body of a function with checks and one more local.
func (m *metered) function(r *reader, params int, check []byte) ([]byte, error) {
	whole := r.b
	groups := r.uint()
	first := whole[len(whole)-len(r.b):]
	locals := uint64(params)
	for range min(groups, uint64(len(r.b))) {
		locals += r.uint()
		r.byte()
	}
	if r.failed || locals > 1<<20 {
		r.failed = true
		return nil, nil
	}
	out := binary.AppendUvarint(make([]byte, 0, 2*len(whole)), groups+1)
	out = append(out, first[:len(first)-len(r.b)]...)
	out = append(out, 1, i32)
	out = append(out, check...)
	for len(r.b) > 0 {
		before := r.b
		op := r.byte()
		bulk, err := r.immediates(op)
		if err != nil || r.failed {
			return nil, err
		}
		if bulk { // the number of bytes is on the stack
			out = binary.AppendUvarint(append(out, 0x22), locals)
			out = binary.AppendUvarint(append(out, 0x23), m.globals)
			out = binary.AppendUvarint(append(out, 0x20), locals)
			out = append(out, 0xad, 0x42, bytesOfWork, 0x88, opSub) // i64.extend_i32_u, i64.shr_u
			out = binary.AppendUvarint(append(out, 0x24), m.globals)
		}
		out = append(out, before[:len(before)-len(r.b)]...)
		if op == 0x03 {
			out = append(out, check...)
		}
	}
	return out, nil
}

// constant reads a constant expression.
func (r *reader) constant() error {
	for op := r.byte(); op != 0x0b && !r.failed; op = r.byte() {
		if _, err := r.immediates(op); err != nil {
			return err
		}
	}
	return nil
}

// immediates reads the operands of an instruction. It reports whether it fills or copies memory.
func (r *reader) immediates(op byte) (bulk bool, err error) {
	switch {
	case op == 0x00 || op == 0x01 || op == 0x05 || op == 0x0b || op == 0x0f || op == 0x1a || op == 0x1b || op == 0xd1,
		op >= 0x45 && op <= 0xc4: // none
	case op == 0x02 || op == 0x03 || op == 0x04, // block, loop, if
		op == 0x0c || op == 0x0d || op == 0x10, // br, br_if, call
		op >= 0x20 && op <= 0x26,               // variables, tables
		op == 0x3f || op == 0x40,               // size and growth of memory
		op == 0x41 || op == 0x42,               // constants
		op == 0xd0 || op == 0xd2:               // references
		r.number()
	case op == 0x11 || op >= 0x28 && op <= 0x3e: // call_indirect, loads, stores
		r.number()
		r.number()
	case op == 0x0e: // br_table
		for range r.list() {
			r.number()
		}
		r.number()
	case op == 0x1c: // select with types
		r.take(r.uint())
	case op == 0x43:
		r.take(4)
	case op == 0x44:
		r.take(8)
	case op == 0xfc:
		switch more := r.uint(); {
		case more <= 7: // conversions
		case more == 8 || more == 10: // memory.init, memory.copy
			r.number()
			r.number()
			return true, nil
		case more == 9:
			r.number()
		case more == 11: // memory.fill
			r.number()
			return true, nil
		case more == 16: // table.size
			r.number()
		case more <= 17:
			return false, errors.New("it changes a table while it runs, which is not offered")
		default:
			return false, fmt.Errorf("unknown instruction 0xfc %d", more)
		}
	default:
		return false, fmt.Errorf("instruction 0x%x is not offered: compile for WebAssembly 2.0 without SIMD, threads and exceptions", op)
	}
	return false, nil
}

// reader reads a module. After it failed it returns zeros.
type reader struct {
	b      []byte
	failed bool
}

func (r *reader) take(n uint64) []byte {
	if r.failed || n > uint64(len(r.b)) {
		r.failed = true
		return nil
	}
	b := r.b[:n]
	r.b = r.b[n:]
	return b
}

func (r *reader) byte() byte {
	if b := r.take(1); len(b) > 0 {
		return b[0]
	}
	return 0
}

// uint reads a number of 32 bits.
func (r *reader) uint() uint64 {
	n, size := binary.Uvarint(r.b)
	if size <= 0 || n > math.MaxUint32 {
		r.failed = true
		return 0
	}
	r.take(uint64(size))
	return n
}

// list reads the length of a list, whose elements have at least a byte each.
func (r *reader) list() uint64 {
	n := r.uint()
	if n > uint64(len(r.b)) {
		r.failed = true
		return 0
	}
	return n
}

// number skips a number of any size.
func (r *reader) number() {
	for r.byte()&0x80 != 0 && !r.failed {
	}
}

// signed appends a signed LEB128 number.
func signed(b []byte, n int64) []byte {
	for {
		low := byte(n & 0x7f)
		n >>= 7
		if n == 0 && low&0x40 == 0 || n == -1 && low&0x40 != 0 {
			return append(b, low)
		}
		b = append(b, low|0x80)
	}
}
