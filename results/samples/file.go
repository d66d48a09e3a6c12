package samples

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"sync"
	"time"

	"github.com/parquet-go/parquet-go"

	"testbed/results/safefile"
)

// row is a Sample in a file.
type row struct {
	At     int64  `parquet:"at_ns,delta"`
	Object string `parquet:"object,dict"`
	Metric string `parquet:"metric,dict"`
	Value  int64  `parquet:"value,delta"`
}

// headKey is the key of the Head in the metadata of a file; those of units and descriptions are followed by the
// name of the metric.
const (
	headKey = "testbed.samples"
	unitKey = "unit:"
	docKey  = "description:"
)

const (
	batchRows = 2048
	// batches is the number of batches between Add and the file.
	batches = 4
	// groupRows is the number of rows of a row group, which are in memory until they are written.
	groupRows = 1 << 15
)

// Writer writes samples while a trial runs. Its memory is bounded by batches and one row group.
type Writer struct {
	mu     sync.Mutex
	batch  []row
	rows   int64 // added
	most   int64
	full   chan []row
	head   Head // set by Close before full is closed
	closed bool
	drop   bool
	done   chan error
}

// never is the factor of a file that is full.
const never = 1 << 62

var errDropped = errors.New("the trial did not end")

// Create begins a file, which is there once Close has returned without an error. The file has about most rows: see
// Every.
func Create(path string, most int64) *Writer {
	w := &Writer{most: most, full: make(chan []row, batches), done: make(chan error, 1)}
	go func() {
		err := safefile.Write(path, w.write)
		for range w.full { // after an error
		}
		w.done <- err
	}()
	return w
}

func (w *Writer) write(to io.Writer) error {
	options := []parquet.WriterOption{parquet.Compression(&parquet.Zstd), parquet.MaxRowsPerRowGroup(groupRows), parquet.CreatedBy("testbed", "", "")}
	for _, m := range Metrics() {
		options = append(options, parquet.KeyValueMetadata(docKey+m.Name, m.Doc))
		if m.Unit != "" {
			options = append(options, parquet.KeyValueMetadata(unitKey+m.Name, m.Unit))
		}
	}
	out := parquet.NewGenericWriter[row](to, options...)
	for rows := range w.full {
		if _, err := out.Write(rows); err != nil {
			return err
		}
	}
	if w.drop {
		return errDropped
	}
	head, err := json.Marshal(w.head)
	if err != nil {
		return err
	}
	out.SetKeyValueMetadata(headKey, string(head))
	return out.Close()
}

// Add adds samples, which stay next to each other. After Close it does nothing.
func (w *Writer) Add(all ...Sample) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return
	}
	for _, s := range all {
		w.batch = append(w.batch, row{int64(s.At), s.Object, s.Metric, s.Value})
	}
	w.rows += int64(len(all))
	if len(w.batch) >= batchRows {
		w.full <- w.batch
		w.batch = make([]row, 0, batchRows+len(all))
	}
}

// Every is the factor by which a caller that adds samples periodically must do so less often. It doubles whenever half
// of the rows that were left have been used, so that samples become rarer and do not end.
func (w *Writer) Every() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.rows >= w.most {
		return never
	}
	factor := int64(1)
	for left := w.most / 2; w.rows > w.most-left; left /= 2 {
		factor *= 2
	}
	return factor
}

// Close completes the file. A second call does nothing.
func (w *Writer) Close(h Head) error {
	h.Thinned = w.Every()
	return w.end(h, false)
}

// Discard ends the writer without a file. After Close it does nothing.
func (w *Writer) Discard() error {
	if err := w.end(Head{}, true); !errors.Is(err, errDropped) {
		return err
	}
	return nil
}

func (w *Writer) end(h Head, drop bool) error {
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return nil
	}
	w.closed, w.head, w.drop = true, h, drop
	if len(w.batch) > 0 {
		w.full <- w.batch
	}
	close(w.full)
	w.mu.Unlock()
	return <-w.done
}

// Reader reads the samples of a trial.
type Reader struct {
	Head
	shift time.Duration // of points
	path  string
	file  *os.File
	in    *parquet.File
}

// Open opens a file. The error is fs.ErrNotExist if there is none.
func Open(path string) (*Reader, error) {
	f, err := safefile.Open(path)
	if err != nil {
		return nil, err
	}
	r := &Reader{path: path, file: f}
	if err := r.open(); err != nil {
		return nil, errors.Join(r.damaged(err), f.Close())
	}
	return r, nil
}

func (r *Reader) open() error {
	info, err := r.file.Stat()
	if err != nil {
		return err
	}
	if r.in, err = parquet.OpenFile(r.file, info.Size(), parquet.SkipBloomFilters(true), parquet.SkipPageIndex(true)); err != nil {
		return err
	}
	head, ok := r.in.Lookup(headKey)
	if !ok {
		return fmt.Errorf("its metadata has no %s", headKey)
	}
	return json.Unmarshal([]byte(head), &r.Head)
}

func (r *Reader) damaged(err error) error {
	return fmt.Errorf("%s: %w (the file is damaged: restore it, or remove it and report without it)", r.path, err)
}

// CountFrom makes the times of points count from a moment instead of the start of the trial, unless it is zero.
func (r *Reader) CountFrom(zero time.Time) {
	if !zero.IsZero() {
		r.shift = r.Zero.Sub(zero)
	}
}

// Rows is the number of samples.
func (r *Reader) Rows() int64 { return r.in.NumRows() }

// All reads all samples in the order in which they were added.
func (r *Reader) All() iter.Seq2[Sample, error] {
	return func(yield func(Sample, error) bool) {
		in := parquet.NewGenericReader[row](r.in)
		defer in.Close()
		rows := make([]row, batchRows)
		for {
			n, err := in.Read(rows)
			for _, x := range rows[:n] {
				if !yield(Sample{time.Duration(x.At), x.Object, x.Metric, x.Value}, nil) {
					return
				}
			}
			switch {
			case errors.Is(err, io.EOF):
				return
			case err != nil:
				yield(Sample{}, r.damaged(err))
				return
			}
		}
	}
}

// Close closes the file.
func (r *Reader) Close() error { return r.file.Close() }
