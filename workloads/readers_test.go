package workloads

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"testbed/topo"
	"testbed/topo/units"
)

const readersFile = `testbed-workload 1
fabric racks=2 hosts=2
coflow 4 arrival=1s
flow 7 h0-00>h1-01 size=4MB
writer 0 h1-00 start=0s
block 3 size=8MB replicas=3 packet=64KB window=8
block 5 size=1MB replicas=1 packet=64KB window=2
reader 2 h0-01 start=4s
read block=5
read block=3
reader 3 h0-00 start=4s
read block=3
`

// Readers do not change when a file is read and written, and they scale with the workload. The
// coflows of their reads get IDs above those of the workload.
func TestReadersFile(t *testing.T) {
	file, err := ReadWorkload("w", strings.NewReader(readersFile))
	if err != nil {
		t.Fatal(err)
	}
	want := []Reader{
		{ID: 2, Client: 1, Start: 4 * time.Second, Reads: []Read{{Block: 5, Size: units.MB}, {Block: 3, Size: 8 * units.MB}}},
		{ID: 3, Client: 0, Start: 4 * time.Second, Reads: []Read{{Block: 3, Size: 8 * units.MB}}},
	}
	if got := file.Workload.NextIDs(); got != (IDs{Coflow: 5, Flow: 8, Block: 6}) {
		t.Errorf("next IDs %+v, want coflow 5, flow 8 and block 6", got)
	}
	if d := cmp.Diff(want, file.Workload.Readers); d != "" {
		t.Errorf("readers (-want +got):\n%s", d)
	}
	f, err := topo.LeafSpine{Leaves: 2, Spines: 1, HostsPerLeaf: 2, HostLink: units.Gbps, Oversubscription: units.Ratio{Num: 1, Den: 1},
		Queue: topo.Queue{Time: time.Millisecond}, MTU: 1500}.Build()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := WriteWorkload(&out, f, file.Workload); err != nil || out.String() != readersFile {
		t.Errorf("written: %v\n%s", err, cmp.Diff(readersFile, out.String()))
	}
	if got, want := file.Stats().Readers, (ReadersStat{2, 3, 17_000_000}); got != want {
		t.Errorf("stats %+v, want %+v", got, want)
	}
	half := Factor{Num: 1, Den: 2}
	scaled, err := file.On(f, half, half)
	if err != nil || scaled.Readers[0].Start != 2*time.Second || scaled.Readers[0].Reads[1].Size != 4*units.MB || file.Workload.Readers[0].Reads[1].Size != 8*units.MB {
		t.Errorf("scaled %+v, %v", scaled.Readers, err)
	}
}

func TestReadersFileMistakes(t *testing.T) {
	for from, want := range map[string][2]string{
		"read block=5\n":               {"read block=6\n", "block 6: no such block"},
		"reader 2 h0-01 start=4s":      {"reader 2 h0-01 start=5s", "expected readers in order of start"},
		"reader 3 h0-00":               {"reader 2 h0-00", "reader 2 again"},
		"read block=3\nreader":         {"read block=3 size=1MB\nreader", "size: unknown key of a read line"},
		"read block=5\nread block=3\n": {"", "reader without reads"},
		"writer 0 h1-00 start=0s\n":    {"read block=3\nwriter 0 h1-00 start=0s\n", "read outside a reader"},
	} {
		_, err := ReadWorkload("w", strings.NewReader(strings.Replace(readersFile, from, want[0], 1)))
		var bad *TraceErrors
		if !errors.As(err, &bad) || !strings.Contains(err.Error(), want[1]) {
			t.Errorf("%q in place of %q: %v, want %q", want[0], from, err, want[1])
		}
	}
}

func TestReadersSpecRefused(t *testing.T) {
	f, err := topo.LeafSpine{Leaves: 1, HostsPerLeaf: 2, HostLink: units.Gbps, Oversubscription: units.Ratio{Num: 1, Den: 1}, Queue: topo.Queue{Time: time.Millisecond}, MTU: 1500}.Build()
	if err != nil {
		t.Fatal(err)
	}
	some := []Block{{Size: 1, Replicas: 1}}
	for _, x := range []struct {
		s    ReaderSpec
		from []Block
	}{
		{ReaderSpec{Blocks: 1}, some}, {ReaderSpec{Count: 3, Blocks: 1}, some}, {ReaderSpec{Count: 1}, some}, {ReaderSpec{Count: 1, Blocks: 1}, nil},
		{ReaderSpec{Count: 1, Blocks: 1, Start: -1}, some}, {ReaderSpec{Hosts: []string{"h7-00"}, Blocks: 1}, some},
	} {
		if got, err := Readers(x.s, f, 1, x.from); err == nil {
			t.Errorf("%+v of %d blocks: %+v", x.s, len(x.from), got)
		}
	}
}
