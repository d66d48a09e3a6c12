package rundir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"testbed/results/safefile"
	"testbed/results/schema"
	"testbed/results/summary"
)

// progress checks a row of progress.csv: it belongs to a transfer of the run.
func (r *Run) progress(m *schema.Moment) error {
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
	return r.known(m.Key)
}

// rows reads a table, which must have the rows that the summary states. It returns nil without an error
// if the summary was written without the table.
func rows[T any](r *Run, name string, check func(*T) error) ([]T, error) {
	stated, ok := r.Summary.Rows[name]
	if !ok {
		return nil, nil
	}
	f, err := safefile.Open(filepath.Join(r.Dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s is missing (%s)", name, r.again())
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
	if len(out) != stated {
		return nil, r.damaged(name, 0, fmt.Sprintf("it has %d rows, but %s states %d: the files are from different reports, or one was cut short",
			len(out), summary.SummaryFile, stated))
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
