package scenario

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"path/filepath"
	"reflect"
	"time"

	"testbed/workloads"
)

// Scaled is the scenario with every rate and every size divided by a factor
// above 1: links, disks, queues in bytes, blocks, packets of the write pipeline,
// flows of traces, and sizes among the parameters of policies. All times stay,
// and so do the MTU, counts and luck. What shares links as fluids do then takes
// as long as before; what does not is where packets, headers and the emulator
// show.
//
// Rates are rounded down to a bit a second and sizes to a byte. The result is
// checked as a scenario that was read: it is an error where a value is out of
// bounds, as where a queue no longer holds two frames.
//
// o.CheckPolicy and o.ScalePolicy are used, the rest of o is not.
func (s *Scenario) Scaled(by workloads.Factor, o Options) (*Scenario, error) {
	if by.Num <= 0 || by.Den <= 0 || by.Num <= by.Den {
		return nil, fmt.Errorf("scale scenario %s by %v: want a factor above 1, such as 2", s.Spec.Name, by)
	}
	fail := func(err error) (*Scenario, error) {
		var mistakes *Errors
		if errors.As(err, &mistakes) { // their lines are of a text that nobody wrote
			var plain []error
			for _, p := range mistakes.Problems {
				plain = append(plain, fmt.Errorf("%s: %s", p.Path, p.Text))
			}
			err = errors.Join(plain...)
		}
		return nil, fmt.Errorf("scale scenario %s by %v: %w", s.Spec.Name, by, err)
	}
	text, err := s.portable()
	if err != nil {
		return fail(err)
	}
	// Read again, so that nothing is shared with s.
	o = Options{CheckPolicy: o.CheckPolicy, ScalePolicy: o.ScalePolicy, Open: s.open}
	copied, err := Parse(s.Spec.Name, text, o)
	if err != nil {
		return fail(err)
	}
	c := scaler{by: by, scalePolicy: o.ScalePolicy}
	eachQuantity("", reflect.ValueOf(&copied.Spec).Elem(), func(path string, _ reflect.StructField, v reflect.Value) {
		v.SetInt(c.divide(path, v.Int()))
	})
	copied.Spec.Scale.Size = c.factor("scale", copied.Spec.Scale.Size)
	for i := range copied.Spec.Arms {
		c.policy(fmt.Sprintf("arms[%d].coflow", i), "coflow", &copied.Spec.Arms[i].Coflow)
		c.policy(fmt.Sprintf("arms[%d].placement", i), "placement", &copied.Spec.Arms[i].Placement)
	}
	if err := errors.Join(c.errs...); err != nil {
		return fail(err)
	}
	if text, err = copied.Resolved(); err != nil {
		return fail(err)
	}
	scaled, err := Parse(s.Spec.Name, text, o)
	if err != nil {
		return fail(err)
	}
	return scaled, nil
}

// portable is Resolved with traces and workload files by their names in Files.
func (s *Scenario) portable() ([]byte, error) {
	return s.withPaths(func(t loadedTrace) string { return t.file.Name }).Resolved()
}

// open opens a trace that was loaded, by its name in Files.
func (s *Scenario) open(name string) (fs.File, error) {
	for _, t := range s.traces {
		if t.held() && t.file.Name == filepath.ToSlash(name) {
			return heldFile{bytes.NewReader(t.file.Data), t.file.Name}, nil
		}
	}
	return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
}

// heldFile is a file in memory.
type heldFile struct {
	*bytes.Reader
	name string
}

func (f heldFile) Stat() (fs.FileInfo, error) { return f, nil }
func (f heldFile) Close() error               { return nil }
func (f heldFile) Name() string               { return f.name }
func (f heldFile) Mode() fs.FileMode          { return 0o444 }
func (f heldFile) ModTime() time.Time         { return time.Time{} }
func (f heldFile) IsDir() bool                { return false }
func (f heldFile) Sys() any                   { return nil }

// scaler divides the quantities of a Spec.
type scaler struct {
	by          workloads.Factor
	scalePolicy func(role, name string, params map[string]any, by workloads.Factor) (map[string]any, error)
	errs        []error
}

// divide is n over the factor, rounded down.
func (c *scaler) divide(path string, n int64) int64 {
	q := new(big.Int).Mul(big.NewInt(n), big.NewInt(c.by.Den))
	q.Quo(q, big.NewInt(c.by.Num))
	if n > 0 && q.Sign() == 0 {
		c.errs = append(c.errs, fmt.Errorf("%s: %d over %v is less than 1", path, n, c.by))
	}
	return q.Int64() // no larger than n
}

func (c *scaler) factor(path string, f workloads.Factor) workloads.Factor {
	if f == (workloads.Factor{}) {
		f = workloads.Factor{Num: 1, Den: 1}
	}
	q := big.NewRat(f.Num, f.Den)
	q.Mul(q, big.NewRat(c.by.Den, c.by.Num))
	if !q.Num().IsInt64() || !q.Denom().IsInt64() {
		c.errs = append(c.errs, fmt.Errorf("%s.size: %v over %v does not fit 63 bits", path, f, c.by))
		return f
	}
	return workloads.Factor{Num: q.Num().Int64(), Den: q.Denom().Int64()}
}

func (c *scaler) policy(path, role string, p *Policy) {
	if p.Name == "" || c.scalePolicy == nil {
		return
	}
	params, err := c.scalePolicy(role, p.Name, p.Params, c.by)
	if err != nil {
		c.errs = append(c.errs, fmt.Errorf("%s: %w", path, err))
		return
	}
	p.Params = params
}
