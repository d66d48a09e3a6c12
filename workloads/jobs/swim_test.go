package jobs

import (
	"errors"
	"math"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"testbed/topo/magic"
	"testbed/topo/units"
	"testbed/workloads"
	"testbed/workloads/oracletest"
)

const smallSWIM = "# three jobs\njob0\t2\t2\t300000000\t1500000000\t70\njob1\t2\t0\t5\t0\t9\r\n\njob2\t10\t8\t0\t0\t0\n"

func TestReadSWIM(t *testing.T) {
	want := []Record{
		{"job0", 2 * time.Second, 300 * units.MB, 1500 * units.MB, 70, ""},
		{"job1", 2 * time.Second, 5, 0, 9, ""},
		{"job2", 10 * time.Second, 0, 0, 0, ""},
	}
	for _, text := range []string{smallSWIM, "\ufeff" + smallSWIM, strings.ReplaceAll(smallSWIM, "\t", "  ")} {
		got, err := ReadSWIM("t", strings.NewReader(text), Limits{})
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("ReadSWIM(%q) = %v, %v, want %v", text, got, err, want)
		}
	}
}

func TestReadSWIMReportsAllErrors(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		limits     Limits
		want       []string
	}{
		{"empty", "", Limits{}, []string{"t:1:1: no jobs: "}},
		{"comments only", "# a\n# b\n", Limits{}, []string{"t:2:1: no jobs: "}},
		{"several", "a 1 1 1 1\nb 5 5 -1 1 1\nc 6 1 1 1 1 /a /b x\nd 7 1 1.5 1 1\n", Limits{}, []string{
			`t:1:10: line ends before the output bytes: expected 6 fields`,
			`t:2:7: input bytes "-1": expected a whole number, 0 to 1000000000000000`,
			`t:3:19: "x" after the paths of input and output: expected the end of the line`,
			`t:4:7: input bytes "1.5": `,
		}},
		{"out of range", "a 99999999999 1 1 1 1\nb 1 1 9999999999999999999 1 1\nc 1 1 1 +1 1\n", Limits{}, []string{
			`t:1:3: submit time in s "99999999999": `, `t:2:7: input bytes "9999999999999999999": `, `t:3:9: shuffle bytes "+1": `,
		}},
		{"order", "a 5 5 1 1 1\nb 4 0 1 1 1\n", Limits{}, []string{"t:2:3: submit time 4 s after one at 5 s: "}},
		{"gap", "a 5 5 1 1 1\nb 9 3 1 1 1\nc 9 0 1 1 1\n", Limits{}, []string{"t:2:5: gap of 3 s: the submit times are 4 s apart"}},
		{"a gap after an invalid line", "a 5 5 1 1 1\nb x 0 1 1 1\nc 9 1 1 1 1\n", Limits{}, []string{`t:2:3: submit time in s "x": `}},
		{"too many", "a 1 1 1 1 1\nb 2 1 1 1 1\nc x\n", Limits{Jobs: 1}, []string{"t:2:1: more than 1 jobs up to this line: "}},
		{"long line", "a 1 1 1 1 1\n" + strings.Repeat("x", maxSWIMLine+1) + "\n", Limits{}, []string{"t:2:1: line longer than 4096 bytes: "}},
		{"too much", strings.Repeat("a 0 0 1000000000000000 0 0\n", 1001), Limits{}, []string{"t:1001:1: more than 1000000TB up to this line: "}},
	} {
		_, err := ReadSWIM("t", strings.NewReader(tt.text), tt.limits)
		var all *workloads.TraceErrors
		if !errors.As(err, &all) {
			t.Errorf("%s: error %v", tt.name, err)
			continue
		}
		lines := strings.Split(err.Error(), "\n")
		if len(lines) != len(tt.want) {
			t.Errorf("%s: errors\n%v\nwant %d", tt.name, err, len(tt.want))
			continue
		}
		for i := range lines {
			if !strings.HasPrefix(lines[i], tt.want[i]) {
				t.Errorf("%s: error %q, want %q", tt.name, lines[i], tt.want[i])
			}
		}
	}
}

func TestIsSWIM(t *testing.T) {
	for text, want := range map[string]bool{smallSWIM: true, "# a\n\nj 1 1 1 1 1": true, "": false, "testbed-jobs: 1\n": false, "3 1\n1 0 1 0 1 1:8.0\n": false, "j 1 1 1 1 x": false, "j 1 1 1 1 1 /a /b": true, "j 1 1 1 1 1 /a /b x": false} {
		if got := IsSWIM([]byte(text)); got != want {
			t.Errorf("IsSWIM(%q) = %v, want %v", text, got, want)
		}
	}
}

// The statistics of the public traces, as their description states them, which counts maps of 128
// MiB. With 128 MB, up to 0.8 % fewer jobs have at most 50 maps.
func TestPublicSWIM(t *testing.T) {
	for _, tt := range []struct {
		file                   string
		jobs                   int
		last                   time.Duration
		mapOnly                float64
		upTo                   [4]float64 // share of jobs of at most 1, 2, 10 and 50 maps of 128 MiB
		input, shuffle, output float64    // TB
	}{
		{"traces/SWIM-FB-2009-0.tsv", 5894, 86404 * time.Second, 0.755, [4]float64{0.877, 0.884, 0.916, 0.948}, 26.9, 22.2, 6.9},
		{"traces/SWIM-FB-2010-0.tsv", 24442, 86408 * time.Second, 0.341, [4]float64{0.645, 0.675, 0.738, 0.860}, 1082.6, 437.9, 339.4},
	} {
		path := oracletest.Path(t, tt.file)
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		records, err := ReadSWIM(path, f, Limits{})
		if err != nil || len(records) != tt.jobs || records[len(records)-1].Submit != tt.last {
			t.Fatalf("%s: %d jobs, %v", tt.file, len(records), err)
		}
		var mapOnly float64
		var upTo [4]float64
		var input, shuffle, output units.Bytes
		for _, r := range records {
			maps := Rules{Block: 128 * units.MiB, PerReduce: 1, MaxReduces: 1}.program(r).maps()
			for i, most := range []int{1, 2, 10, 50} {
				if maps <= most {
					upTo[i]++
				}
			}
			if r.Shuffle == 0 {
				mapOnly++
			}
			input, shuffle, output = input+r.Input, shuffle+r.Shuffle, output+r.Output
		}
		near := func(what string, got, want, within float64) {
			if math.Abs(got-want) > within {
				t.Errorf("%s: %s %v, want %v", tt.file, what, got, want)
			}
		}
		near("map-only", mapOnly/float64(tt.jobs), tt.mapOnly, 0.0006)
		for i := range upTo {
			near("jobs by maps", upTo[i]/float64(tt.jobs), tt.upTo[i], 0.0006)
		}
		near("input", float64(input)/1e12, tt.input, 0.06)
		near("shuffle", float64(shuffle)/1e12, tt.shuffle, 0.06)
		near("output", float64(output)/1e12, tt.output, 0.06)
	}
}

// The whole trace of 2009 has about 210,000 maps of 128 MB, and its derived jobs are valid.
func TestDerivePublicSWIM(t *testing.T) {
	path := oracletest.Path(t, "traces/SWIM-FB-2009-0.tsv")
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	records, err := ReadSWIM(path, f, Limits{})
	if err != nil {
		t.Fatal(err)
	}
	list, err := Derive(records, DefaultRules(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := Check(list, Limits{}); err != nil {
		t.Error(err)
	}
	if s := Describe(list, DefaultBins()); s.Maps < 205_000 || s.Maps > 220_000 || s.Jobs != len(records) {
		t.Errorf("%d maps of %d jobs, want about 210,000", s.Maps, s.Jobs)
	}
}

// FuzzReadSWIM checks that no trace makes the reader panic, that every error has a place, and that
// the jobs derived from a valid one are valid.
func FuzzReadSWIM(f *testing.F) {
	f.Add(smallSWIM)
	f.Add("a 1 1 1 1\nb 5 5 -1 1 1\n")
	f.Add("a 1 1 1000000000000000 1000000000000000 1000000000000000\n")
	f.Fuzz(func(t *testing.T, text string) {
		records, err := ReadSWIM("t", strings.NewReader(text), Limits{Jobs: 100})
		if err != nil {
			if errors.As(err, new(*magic.NotTextError)) {
				return
			}
			var all *workloads.TraceErrors
			if !errors.As(err, &all) || len(all.First) == 0 {
				t.Fatalf("error %T %v", err, err)
			}
			for _, e := range all.First {
				if e.Line < 1 || e.Col < 1 || e.Text == "" || strings.Contains(e.Text, "\n") {
					t.Errorf("error %+v", e)
				}
			}
			return
		}
		r := DefaultRules()
		r.PartitionSkew, r.Limits.Tasks = 1, 10_000
		list, err := Derive(records, r, 1)
		if err != nil {
			return
		}
		if err := Check(list, Limits{}); err != nil {
			t.Error(err)
		}
	})
}

// A piece of a trace begins with any job. Jobs with the same path and size of input read the same
// blocks; others have blocks of their own.
func TestPathsAndPieces(t *testing.T) {
	const text = "a\t3600\t7\t300000000\t5\t1\t/in/a\t/out/1\nb\t3605\t5\t100\t0\t5\t/in/b\nc\t3606\t1\t300000000\t0\t5\t/in/a\nd\t3606\t0\t100\t0\t5\t/in/a\ne\t3606\t0\t100\t0\t5\n"
	records, err := ReadSWIM("t", strings.NewReader(text), Limits{})
	if err != nil || len(records) != 5 || records[0].Path != "/in/a" || records[4].Path != "" {
		t.Fatalf("records %+v, %v", records, err)
	}
	list, err := Derive(records, DefaultRules(), 1)
	if err != nil {
		t.Fatal(err)
	}
	want := []workloads.BlockID{0, 3, 0, 4, 5} // the first block of each job; three blocks of /in/a
	for i, j := range list {
		if got := j.Stages[0].Tasks[0].Input; got != want[i] {
			t.Errorf("job %d reads from block %d on, want %d", i+1, got, want[i])
		}
	}
}
