package schema

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// filled returns a row with a different value in every column of a file.
func filled[T any]() *T {
	row := new(T)
	v := reflect.ValueOf(row).Elem()
	for i, c := range Columns[T]() {
		f := v.FieldByIndex(c.index)
		if c.Derived {
			continue
		}
		if f.Kind() == reflect.Pointer {
			f.Set(reflect.New(f.Type().Elem()))
			f = f.Elem()
		}
		switch c.Type {
		case String:
			if f.Kind() == reflect.Slice {
				f.Set(reflect.ValueOf([]string{"a", fmt.Sprint(i)}))
			} else {
				f.SetString(fmt.Sprintf("x %d", i))
			}
		case Int:
			f.SetInt(1_000_000 * int64(i+1))
		case Double:
			f.SetFloat(float64(i) / 8)
		case Micros:
			f.Set(reflect.ValueOf(time.Duration(i)*time.Hour + 1))
		case Bool:
			f.SetBool(true)
		}
	}
	return row
}

// fileColumns has the columns of the files of a run, by row type. A file may lack those with
// a question mark. Files that older versions wrote must stay readable, so a column that is
// added has one, and no column loses it.
var fileColumns = map[string]string{
	"Flow": "arm repeat verdict coflow flow src dst size_bytes arrival_us start_us end_us fct_us " +
		"packets resent wire_bytes fluid_fct_us? first_byte_us? resent_bytes? rtt_min_us? " +
		"rtt_median_us? ideal_us? slowdown? background? setup_us? job? stage? task? attempt? outputs? from_stage? from_task? from_attempt?",
	"Coflow": "arm repeat verdict coflow width size_bytes arrival_us end_us cct_us fluid_cct_us? " +
		"skew? slowest_flow? bottleneck? lone_us? slowdown? held_us? setup_us? " +
		"serialisation_us? queueing_us? retransmission_us? host_us? latency_us? background? job? stage?",
	"Block": "arm repeat verdict block client hosts size_bytes requested_us end_us write_time_us " +
		"fluid_write_time_us? held_us? network_us? disk_us? host_us? waited_us?",
	"Request": "arm repeat verdict writer job? client blocks size_bytes requested_us end_us " +
		"request_time_us fluid_request_time_us?",
	"Job": "arm repeat verdict job bin? coflow? blocks size_bytes arrival_us end_us job_time_us " +
		"fluid_job_time_us? user? profile? tasks? input_bytes? cross_rack_bytes? waiting_us? mapping_us? " +
		"shuffling_us? computing_us? writing_us? lone_us? slowdown?",
	"Attempt": "arm repeat verdict job stage task attempt kind host slot locality input_bytes " +
		"start_us input_end_us? compute_us? computed_us? end_us time_us outcome why?",
	"Balance": "arm repeat verdict from_us interval_us cv",
	"Share":   "arm repeat verdict coflow cause link time_us",
	"Load":    "arm repeat verdict link rate_bps from_us interval_us bytes utilisation payload_bytes? queue_bytes?",
	"Drop":    "arm repeat verdict link rate_bps dropped_packets source",
	"Moment": "arm repeat verdict kind coflow? flow? block? hop? pipeline? size_bytes at_us " +
		"received_bytes sent_us?",
}

// table tests the files of one row type.
func table[T any](t *testing.T) {
	name := reflect.TypeFor[T]().Name()
	t.Run(name, func(t *testing.T) {
		want := []T{*filled[T](), *new(T)}
		nameless := reflect.ValueOf(&want[1]).Elem()
		for _, c := range Columns[T]() {
			if f := nameless.FieldByIndex(c.index); c.Name == "cause" {
				f.SetString("held") // may not be empty
			} else if f.Kind() == reflect.Slice {
				f.Set(reflect.MakeSlice(f.Type(), 0, 0))
			}
		}
		write := func(rows []T) string {
			var b bytes.Buffer
			if err := Write(&b, func(yield func(*T) bool) {
				for i := range rows {
					if !yield(&rows[i]) {
						return
					}
				}
			}); err != nil {
				t.Fatal(err)
			}
			return b.String()
		}
		read := func(s string) ([]T, error) { return Read(strings.NewReader(s), func(*T) error { return nil }) }
		file := write(want)
		got, err := read(file)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("read differs from written (-want +got):\n%s", diff)
		}

		lines := strings.Split(strings.TrimSuffix(file, "\n"), "\n")
		var columns []string
		header, cells := strings.Split(lines[0], ","), strings.Split(lines[1], ",")
		for _, c := range Columns[T]() {
			i := slices.Index(header, c.Name)
			if i < 0 != c.Derived {
				t.Fatalf("column %s: in the file: %v, want %v", c.Name, i >= 0, !c.Derived)
			}
			if c.Derived {
				continue
			}
			// A column is missing.
			_, err := read(strings.Join(slices.Delete(slices.Clone(header), i, i+1), ",") + "\n")
			if err == nil {
				columns = append(columns, c.Name+"?")
			} else if missing := "line 1: no column " + c.Name; err.Error() != missing {
				t.Errorf("without column %s: %v, want %q", c.Name, err, missing)
			} else {
				columns = append(columns, c.Name)
			}
			for kind, bad := range map[Type]string{Int: "-1", Double: "NaN", Micros: "1", Bool: "yes"} {
				if c.Type != kind {
					continue
				}
				changed := slices.Clone(cells)
				changed[i] = bad
				begin := fmt.Sprintf("line 2: %s: %q: must be ", c.Name, bad)
				if _, err := read(lines[0] + "\n" + strings.Join(changed, ",") + "\n"); err == nil || !strings.HasPrefix(err.Error(), begin) {
					t.Errorf("column %s: error %v, want %q", c.Name, err, begin)
				}
			}
		}
		if diff := cmp.Diff(fileColumns[name], strings.Join(columns, " ")); diff != "" {
			t.Errorf("columns (-want +got):\n%s", diff)
		}
	})
}

// What is written is read back equal, whatever the type of a field; every bad cell and missing
// column is an error that names it.
func TestFiles(t *testing.T) {
	table[Flow](t)
	table[Coflow](t)
	table[Block](t)
	table[Request](t)
	table[Job](t)
	table[Attempt](t)
	table[Balance](t)
	table[Share](t)
	table[Load](t)
	table[Drop](t)
	table[Moment](t)
}
