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

// Scaled returns the scenario with every rate and every size divided by a factor
// above 1: links, disks, queues in bytes, blocks, packets of the write pipeline,
// flows of traces, and sizes among the parameters of policies. All times stay,
// and so do the MTU, counts and random draws. Traffic that shares links as a fluid then takes
// the same time as before; a difference shows the influence of packets, headers and the
// emulator.
//
// Rates are rounded down to one bit/s and sizes to one byte. The result is
// checked as a scenario file is: a value out of bounds is an error, such as a queue that no
// longer holds two frames.
func (s *Scenario) Scaled(by workloads.Factor) (*Scenario, error) {
	if by.Num <= 0 || by.Den <= 0 || by.Num <= by.Den {
		return nil, fmt.Errorf("scale scenario %s by %v: the factor must be above 1, such as 2", s.Spec.Name, by)
	}
	if len(s.points) > 0 {
		return nil, fmt.Errorf("scale scenario %s: it has a sweep of %d points: scale one of them",
			s.Spec.Name, len(s.points))
	}
	if s.base != nil {
		base, err := s.base.Scaled(by)
		if err != nil {
			return nil, err
		}
		return base.OfArm(s.index), nil
	}
	fail := func(err error) (*Scenario, error) {
		var invalid *Errors
		if errors.As(err, &invalid) { // their lines are those of a generated text
			var plain []error
			for _, p := range invalid.Problems {
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
	// Parsed again, so that the copy shares nothing with s.
	o := Options{Catalog: s.catalog, Open: s.open}
	copied, err := Parse(s.Spec.Name, text, o)
	if err != nil {
		return fail(err)
	}
	c := scaler{by: by}
	eachQuantity("", reflect.ValueOf(&copied.Spec).Elem(), func(path string, _ field, v reflect.Value) {
		v.SetInt(c.divide(path, v.Int()))
	})
	copied.Spec.Scale.Size = c.factor("scale", copied.Spec.Scale.Size)
	for i, arm := range copied.Spec.Arms {
		if changed := copied.changedArms[i]; changed != nil {
			scaled := *changed
			scaled.Spec.Workload = nil // shared with copied, and above
			eachQuantity("", reflect.ValueOf(&scaled.Spec).Elem(), func(path string, _ field, v reflect.Value) {
				v.SetInt(c.divide(fmt.Sprintf("arms[%d].set.%s", i, path), v.Int()))
			})
			tree, err := scaled.tree()
			if err == nil {
				copied.Spec.Arms[i].Set, err = scaledSet(arm.Set, tree)
			}
			if err != nil {
				return fail(err)
			}
		}
		for _, role := range sortedKeys(arm.Policies) {
			p := arm.Policies[role]
			if p.Params, err = s.catalog.Scaled(role, p.Name, p.Params, by); err != nil {
				c.errs = append(c.errs, fmt.Errorf("arms[%d].%s: %w", i, role, err))
			}
			arm.Policies[role] = p
		}
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

// portable returns Resolved with the paths of traces and workload files in Files.
func (s *Scenario) portable() ([]byte, error) {
	return s.withPaths(func(t loadedTrace) string { return t.file.Name }).Resolved()
}

// open opens a loaded trace by its name in Files.
func (s *Scenario) open(name string) (fs.File, error) {
	for _, t := range s.traces {
		if t.held() && t.file.Name == filepath.ToSlash(name) {
			return heldFile{bytes.NewReader(t.file.Data), t.file.Name}, nil
		}
	}
	for _, t := range s.policies {
		if t.file.Name == filepath.ToSlash(name) {
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
	by   workloads.Factor
	errs []error
}

// divide returns n divided by the factor, rounded down.
func (c *scaler) divide(path string, n int64) int64 {
	q := new(big.Int).Mul(big.NewInt(n), big.NewInt(c.by.Den))
	q.Quo(q, big.NewInt(c.by.Num))
	if n > 0 && q.Sign() == 0 {
		c.errs = append(c.errs, fmt.Errorf("%s: %d divided by %v is less than 1", path, n, c.by))
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
		c.errs = append(c.errs, fmt.Errorf("%s.size: %v divided by %v does not fit 63 bits", path, f, c.by))
		return f
	}
	return workloads.Factor{Num: q.Num().Int64(), Den: q.Denom().Int64()}
}
