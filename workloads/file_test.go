package workloads

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"testbed/topo/magic"
	"testbed/topo/units"
)

const goodFile = `testbed-workload 1
# by hand
fabric racks=4 hosts=5
job 1 arrival=1.5s bin=3
job 7 arrival=3s

coflow 0 arrival=1.5s job=1
flow 0 h0-00>h1-02 size=4MB
flow 5 h0-01>h1-02 size=1B
coflow 1 background arrival=2s
flow 1 h2-01>h1-00 size=1MiB
writer 0 h1-02 start=0s job=1
block 0 size=8MB replicas=3 packet=64KB window=8
block 1 window=8 packet=64KB size=1500001B replicas=3
writer 1 h3-04 start=3s job=7
block 2 size=8MB replicas=20 packet=64KB window=8
`

func TestReadWorkload(t *testing.T) {
	got, err := ReadWorkload("good", strings.NewReader(goodFile))
	if err != nil {
		t.Fatal(err)
	}
	want := &WorkloadFile{Name: "good", Racks: 4, Hosts: 5, Workload: Workload{
		Jobs: []Job{{ID: 1, Arrival: 1500 * time.Millisecond, Bin: 3}, {ID: 7, Arrival: 3 * time.Second}},
		Coflows: []Coflow{
			{ID: 0, Arrival: 1500 * time.Millisecond, Job: 1, Flows: []Flow{{ID: 0, Src: 0, Dst: 7, Size: 4 * units.MB}, {ID: 5, Src: 1, Dst: 7, Size: 1}}},
			{ID: 1, Arrival: 2 * time.Second, Background: true, Flows: []Flow{{ID: 1, Src: 11, Dst: 5, Size: units.MiB}}},
		},
		Writers: []Writer{
			{ID: 0, Client: 7, Job: 1, Blocks: []Block{
				{ID: 0, Client: 7, Size: 8 * units.MB, Replicas: 3, Packet: 64 * units.KB, Window: 8},
				{ID: 1, Client: 7, Size: 1500001, Replicas: 3, Packet: 64 * units.KB, Window: 8}}},
			{ID: 1, Client: 19, Start: 3 * time.Second, Job: 7, Blocks: []Block{{ID: 2, Writer: 1, Client: 19, Size: 8 * units.MB, Replicas: 20, Packet: 64 * units.KB, Window: 8}}},
		},
	}}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if !IsWorkload([]byte(goodFile)) || IsWorkload([]byte("150 526\n")) {
		t.Error("IsWorkload does not tell")
	}
}

// Every error has its line and column, and several are reported at once.
func TestReadWorkloadErrors(t *testing.T) {
	for _, tt := range []struct{ old, new, want string }{
		{"testbed-workload 1", "testbed-workload 2", `1:18: version "2": expected version 1`},
		{"testbed-workload 1", "150 526", "1:1: not a workload file: expected a first line"},
		{goodFile, "", "1:1: empty file"},
		{goodFile, "testbed-workload 1\nfabric racks=1 hosts=2\n", "2:1: no coflow and no writer"},
		{"fabric racks=4 hosts=5\n", "", "3:1: job before the fabric"},
		{"racks=4", "racks=0", `3:8: racks "0": expected a whole number, 1 to 100000`},
		{"racks=4 hosts=5", "racks=99999 hosts=5", "3:1: 99999 racks of 5 hosts"},
		{"job 7", "job 1", "5:5: job 1 again"},
		{"job 7 arrival=3s", "job 7 arrival=3", `5:7: arrival "3": expected a time`},
		{"job 7 arrival=3s", "job 7 arrival=-3s", "5:7: arrival"},
		{"job 7 arrival=3s", "job 7", "5:1: job without arrival=…"},
		{"job 7 arrival=3s", "job arrival=3s", "5:5: job without a number"},
		{"bin=3", "bin=3 bin=4", "4:26: bin: duplicate key"},
		{"bin=3", "bim=3", "4:20: bim: unknown key of a job line: expected arrival and bin"},
		{"coflow 1 background", "coflow 1 background=1", `10:10: "background=1": expected background without a value`},
		{"coflow 1 background", "coflow 1 background job=1", "10:10: background and job"},
		{"coflow 1 background", "coflow 1 job=1", "10:10: job 1 has a coflow on line 7"},
		{"coflow 0 arrival=1.5s job=1", "coflow 0 arrival=1s job=1", "7:10: arrival 1s, but job 1 arrives at 1.5s"},
		{"coflow 0 arrival=1.5s job=1", "coflow 0 arrival=1.5s job=2", "7:23: job 2: no such job"},
		{"coflow 0 arrival=1.5s job=1", "coflow 0 arrival=2.5s", "10:8: coflow 1 at 2s after coflow 0 at 2.5s"},
		{"flow 5 h0-01>h1-02", "flow 0 h0-01>h1-02", "9:6: flow 0 again"},
		{"h0-01>h1-02", "h0-01>h0-01", "a flow from a host to itself"},
		{"h0-01>h1-02", "h0-01>h4-02", `9:8: host "h4-02": expected h0-00 to h3-04`},
		{"h0-01>h1-02", "h0-1>h1-02", `host "h0-1"`},
		{"h0-01>h1-02", "h0-01", "expected two hosts such as"},
		{"size=1B", "size=0B", "9:20: size 0B: must be 1B to"},
		{"size=1B", "size=1", "9:20: size: "},
		{"size=1B", "size", "9:20: size without a value"},
		{"flow 1 h2-01>h1-00 size=1MiB\n", "", "10:1: coflow without flows"},
		{"writer 1 h3-04 start=3s", "writer 1 h3-04 start=2s", "15:16: start 2s before the arrival of job 7 at 3s"},
		{"writer 1 h3-04 start=3s", "writer 1 h3-04 start=4s", "5:1: job 7 arrives at 3s, and its first writer starts at 4s"},
		{"writer 1 h3-04 start=3s job=7", "writer 1 h3-04 start=3s", "5:1: job 7 has no coflow and no writer"},
		{"writer 1 h3-04", "writer 1", "15:10: writer without its host"},
		{"replicas=20", "replicas=21", `16:18: replicas "21": expected a whole number, 1 to 20`},
		{"block 2", "flow 2", "16:1: flow outside a coflow"},
		{"writer 0 h1-02", "block 9 size=1B replicas=1 packet=1B window=1\nwriter 0 h1-02", "12:1: block outside a writer"},
		{"block 2 ", "Block 2 ", `16:1: "Block": expected fabric, job`},
		{"# by hand\n", "\x00\n", "2:1: byte 0x0"},
		{"block 2 ", "job 9 arrival=0s\nblock 2 ", "16:1: job after writer"},
		{"# by hand", "# " + strings.Repeat("x", 5000), "2:1: line longer than 4096 bytes"},
	} {
		text := strings.Replace(goodFile, tt.old, tt.new, 1)
		_, err := ReadWorkload("f", strings.NewReader(text))
		var bad *TraceErrors
		if !errors.As(err, &bad) || !strings.Contains(err.Error(), "f:"+tt.want) && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q for %q: %v, want %q", tt.new, tt.old, err, tt.want)
		}
	}
	text := strings.NewReplacer("size=1B", "size=0B", "replicas=20", "replicas=0", "bin=3", "bin=x").Replace(goodFile)
	_, err := ReadWorkload("f", strings.NewReader(text))
	var bad *TraceErrors
	if !errors.As(err, &bad) || bad.Total != 3 {
		t.Errorf("three errors: %v", err)
	}
	many := goodFile + strings.Repeat("nonsense\n", 100)
	if _, err := ReadWorkload("f", strings.NewReader(many)); !errors.As(err, &bad) || bad.Total != 100 || len(bad.First) != MaxTraceErrors {
		t.Errorf("a hundred errors: %v", err)
	}
}

// A time below a millisecond contains µ, which is not ASCII.
func TestWorkloadFileMicroseconds(t *testing.T) {
	text := "testbed-workload 1\nfabric racks=2 hosts=2\njob 1 arrival=328µs\ncoflow 0 arrival=328µs job=1\nflow 0 h0-00>h1-00 size=1MB\n"
	got, err := ReadWorkload("f", strings.NewReader(text))
	if err != nil || got.Workload.Jobs[0].Arrival != 328*time.Microsecond {
		t.Errorf("ReadWorkload = %+v, %v", got, err)
	}
	if _, err := ReadWorkload("f", strings.NewReader(text+"job 2 arrival=1\u00a0s\n")); err == nil || !strings.Contains(err.Error(), "6:16: byte 0xc2") {
		t.Errorf("no-break space: %v", err)
	}
}

// Workloads of all kinds do not change when written and read back.
func TestWorkloadFileRoundTrip(t *testing.T) {
	f := racksOf(t, 10, 5)
	rapid.Check(t, func(t *rapid.T) {
		s := someJobs()
		s.Count = rapid.IntRange(1, 40).Draw(t, "count")
		s.Small = rapid.Float64Range(0, 0.5).Draw(t, "small")
		s.SmallBlock = units.MB
		s.Block = units.Bytes(rapid.Int64Range(int64(2*units.MB), int64(units.GB)).Draw(t, "block"))
		s.Start = time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "start"))
		seed := rapid.Uint64().Draw(t, "seed")
		w, _, err := Jobs(s, f, seed)
		if err != nil {
			t.Fatal(err)
		}
		if rapid.Bool().Draw(t, "background") {
			b := someBackground()
			b.For = time.Duration(rapid.Int64Range(int64(time.Second), int64(10*time.Second)).Draw(t, "for"))
			if w.Coflows, err = Background(b, f, seed); err != nil {
				t.Fatal(err)
			}
			var writers []Writer // without the coflows
			var jobs []Job
			for _, j := range w.Jobs {
				if j.Bin == 5 {
					jobs = append(jobs, j)
				}
			}
			for _, wr := range w.Writers {
				if w.Jobs[wr.Job-1].Bin == 5 {
					writers = append(writers, wr)
				}
			}
			w.Jobs, w.Writers = jobs, writers
		}
		var b bytes.Buffer
		if err := WriteWorkload(&b, f, w, "made\nby a test"); err != nil {
			t.Fatal(err)
		}
		got, err := ReadWorkload("f", bytes.NewReader(b.Bytes()))
		if err != nil {
			t.Fatalf("%v\n%s", err, b.Bytes())
		}
		if d := cmp.Diff(w, got.Workload); d != "" || got.Racks != 10 || got.Hosts != 5 {
			t.Fatalf("(-want +got):\n%s", d)
		}
		on, err := got.On(f, Factor{}, Factor{})
		if d := cmp.Diff(w, on); d != "" || err != nil {
			t.Fatalf("on its fabric: %v (-want +got):\n%s", err, d)
		}
	})
}

func TestWorkloadFileOn(t *testing.T) {
	w, err := ReadWorkload("good", strings.NewReader(goodFile))
	if err != nil {
		t.Fatal(err)
	}
	larger := racksOf(t, 5, 7)
	got, err := w.On(larger, Factor{1, 2}, Factor{10, 1})
	if err != nil {
		t.Fatal(err)
	}
	if fl := got.Coflows[0].Flows[1]; fl.Size != 1 || fl.Dst != larger.HostIn(1, 2) || got.Coflows[0].Flows[0].Size != 2*units.MB {
		t.Errorf("flow %+v", fl)
	}
	if wr := got.Writers[1]; wr.Client != larger.HostIn(3, 4) || wr.Start != 30*time.Second || wr.Blocks[0].Client != wr.Client || wr.Blocks[0].Packet != 32*units.KB || got.Jobs[1].Arrival != 30*time.Second {
		t.Errorf("writer %+v, job %+v", wr, got.Jobs[1])
	}
	if w.Workload.Coflows[0].Flows[0].Size != 4*units.MB {
		t.Error("the file was changed")
	}
	for _, tt := range []struct {
		leaves, hosts int
		size, time    Factor
		want          string
	}{
		{3, 7, Factor{}, Factor{}, "host h3-04, and the fabric has 3 racks of 7 hosts: expected 4 of 5"},
		{5, 4, Factor{}, Factor{}, "host h3-04"},
		{5, 5, Factor{1 << 40, 1}, Factor{}, "must be at most 1000TB"},
		{5, 5, Factor{}, Factor{1 << 40, 1}, "must be at most 8784h"},
		{5, 5, Factor{-1, 1}, Factor{}, "must be two positive numbers"},
	} {
		if _, err := w.On(racksOf(t, tt.leaves, tt.hosts), tt.size, tt.time); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("on %d racks of %d: %v, want %q", tt.leaves, tt.hosts, err, tt.want)
		}
	}
}

// No file makes the reader panic, every error has a position, and an accepted workload does
// not change when written and read back.
func FuzzReadWorkload(f *testing.F) {
	f.Add(goodFile)
	f.Add("testbed-workload 1\nfabric racks=1 hosts=1\nwriter 0 h0-00 start=0s\nblock 0 size=1B replicas=1 packet=1B window=1\n")
	f.Add(strings.Replace(goodFile, "writer 0", "writer 9", 1))
	f.Add("testbed-workload 1\njob\ncoflow\nflow\nfabric")
	f.Add("testbed-workload 1\nfabric racks=1 hosts=2\ncoflow 0\nflow 0 =\nblock\nwriter 1\nblock 1\n")
	f.Fuzz(func(t *testing.T, text string) {
		w, err := ReadWorkload("f", strings.NewReader(text))
		if err != nil {
			if errors.As(err, new(*magic.NotTextError)) {
				return
			}
			var bad *TraceErrors
			if !errors.As(err, &bad) || bad.Total < 1 {
				t.Fatalf("error %T %v", err, err)
			}
			for _, e := range bad.First {
				if e.Line < 1 || e.Col < 1 || e.Text == "" || strings.Contains(e.Text, "\n") {
					t.Errorf("error without a position: %+v", e)
				}
			}
			return
		}
		if w.Racks > 250 || w.Hosts > 250 {
			return // no fabric can be built
		}
		fabric := racksOf(t, w.Racks, w.Hosts)
		var b bytes.Buffer
		if err := WriteWorkload(&b, fabric, w.Workload); err != nil {
			t.Fatal(err)
		}
		again, err := ReadWorkload("f", &b)
		if err != nil || !cmp.Equal(w, again) {
			t.Fatalf("read again: %v\n%s", err, cmp.Diff(w, again))
		}
		if s := fmt.Sprint(w.Stats()); s == "" {
			t.Error("nothing to tell")
		}
	})
}
