package rundir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"testbed/results/report"
	"testbed/results/safefile"
	"testbed/results/schema"
)

// progress checks the rows of progress.csv in order: each belongs to a transfer of the run,
// those of a transfer are adjacent and do not decrease, and a flow with a record ends at the
// time in its record.
func (r *Run) progress() func(*schema.Moment) error {
	type id struct {
		arm          string
		repeat, flow int
	}
	ends := map[id]*schema.Flow{}
	for i := range r.Flows {
		f := &r.Flows[i]
		ends[id{f.Arm, f.Repeat, int(f.Flow)}] = f
	}
	seen := map[schema.Transfer]bool{}
	var last *schema.Moment
	return func(m *schema.Moment) error {
		if err := r.known(m.Key); err != nil {
			return err
		}
		flow, block := m.Coflow != nil && m.Flow != nil, m.Block != nil && m.Hop != nil && m.Pipeline != nil
		switch {
		case m.Kind != schema.KindFlow && m.Kind != schema.KindBlock:
			return fmt.Errorf("kind %q: must be %q or %q", m.Kind, schema.KindFlow, schema.KindBlock)
		case m.Kind == schema.KindFlow && (!flow || m.Block != nil || m.Hop != nil || m.Pipeline != nil):
			return errors.New("a flow must have coflow and flow, and no block, hop and pipeline")
		case m.Kind == schema.KindBlock && (!block || m.Coflow != nil || m.Flow != nil):
			return errors.New("a hop of a block must have block, hop and pipeline, and no coflow and flow")
		case m.Received > m.Size:
			return fmt.Errorf("received_bytes: %d of %d", m.Received, m.Size)
		}
		k := m.Transfer()
		if last == nil || last.Transfer() != k {
			if seen[k] {
				return errors.New("the rows of its transfer must be adjacent")
			}
			seen[k] = true
		} else if m.At < last.At || m.Received <= last.Received || m.Size != last.Size {
			return fmt.Errorf("%d of %d bytes at %v, after %d of %d at %v: time and bytes must not decrease", m.Received, m.Size, m.At, last.Received, last.Size, last.At)
		}
		if m.Kind == schema.KindFlow {
			f := ends[id{m.Arm, m.Repeat, int(*m.Flow)}]
			if f != nil && f.Coflow == *m.Coflow && m.Received == m.Size && m.At != f.End {
				return fmt.Errorf("flow %d completes at %v, but at %v in %s", f.Flow, m.At, f.End, report.FlowsFile)
			}
		}
		kept := *m
		last = &kept
		return nil
	}
}

// rows reads a table. It returns nil without an error if the run has no such file.
func rows[T any](r *Run, name string, check func(*T) error) ([]T, error) {
	f, err := safefile.Open(filepath.Join(r.Dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := ended(f); err != nil {
		return nil, r.damaged(name, 0, err.Error())
	}
	out, err := schema.Read(f, check)
	var bad *schema.Error
	if errors.As(err, &bad) {
		return nil, r.damaged(name, bad.Line, bad.Err.Error())
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return out, nil
}

// ended detects a file that was cut short: its last line has no newline.
func ended(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.Size() == 0 {
		return errors.New("it is empty")
	}
	var last [1]byte
	if _, err := f.ReadAt(last[:], info.Size()-1); err != nil {
		return err
	}
	if last[0] != '\n' {
		return errors.New("its last line has no newline: it was cut short")
	}
	return nil
}
