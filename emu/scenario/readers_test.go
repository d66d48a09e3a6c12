package scenario

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"testbed/topo/units"
	"testbed/workloads"
)

const readersScenario = `name: readers
fabric: {leaves: 4, spines: 1, hosts_per_leaf: 5, host_link: 100Mbps, oversubscription: "5:1", queue: 20ms}
disk: {write: 6.9MB/s, read: 20MB/s, size: 4GB}
workload:
  - {kind: readers, count: 6, blocks: 20, start: 2s, spread: 4s}
  - {kind: writers, count: 2, blocks: 3, block: 1MB, packet: 16KB, start: 3s}
  - {kind: readers, hosts: [h0-00, h3-04], blocks: 30, of: writers, start: 1s}
  - {kind: jobs, count: 12, interval: 2s, block: 4MB, replicas: 2}
  - {kind: readers, count: 3, blocks: 40, of: jobs}
arms: {coflow: [fair], placement: [hdfs]}
`

// Readers read existing blocks of the selected writers, at times and on hosts drawn from the
// seed, and no two attempts share an ID with each other or with a coflow.
func TestReaders(t *testing.T) {
	s, err := parseJobs(t, readersScenario, nil)
	if err != nil {
		t.Fatal(err)
	}
	if d := s.Spec.Disk; d.Read != 160*units.Mbps || d.ReadRate() != 160*units.Mbps {
		t.Errorf("disk %+v", d)
	}
	w, notes := workloadOf(t, s, 1)
	if again, _ := workloadOf(t, s, 1); !cmp.Equal(w, again) {
		t.Error("the same repeat is another workload")
	}
	if other, _ := workloadOf(t, s, 2); cmp.Equal(w.Readers, other.Readers) {
		t.Error("another repeat has the same readers")
	}
	blocks, ofJob := map[workloads.BlockID]workloads.Block{}, map[workloads.BlockID]bool{}
	for _, wr := range w.Writers {
		for _, b := range wr.Blocks {
			blocks[b.ID], ofJob[b.ID] = b, wr.Job != 0
		}
	}
	kinds := map[int][2]int{} // by number of reads of a reader: blocks of writers, of jobs
	for i, r := range w.Readers {
		if int(r.ID) != i || i > 0 && r.Start < w.Readers[i-1].Start || r.Start >= 6*time.Second {
			t.Errorf("reader %d starts at %v", r.ID, r.Start)
		}
		for _, x := range r.Reads {
			b := blocks[x.Block]
			if b.Size != x.Size || x.Size == 0 {
				t.Fatalf("read %+v of block %+v", x, b)
			}
			k := kinds[len(r.Reads)]
			if ofJob[x.Block] {
				k[1]++
			} else {
				k[0]++
			}
			kinds[len(r.Reads)] = k
		}
	}
	if k := kinds[30]; len(w.Readers) != 11 || k != [2]int{60, 0} || kinds[40] != [2]int{0, 120} || kinds[20][0] == 0 || kinds[20][1] == 0 {
		t.Errorf("%d readers, blocks of writers and of jobs %v", len(w.Readers), kinds)
	}
	if all := strings.Join(notes, "\n"); !strings.Contains(all, "workload[2]: 2 readers of 30 blocks each, of the 6 blocks of writers without a job, from 1s to 1s") {
		t.Errorf("notes:\n%s", all)
	}
}

// Without a read rate, disks read at their write rate; contradictory values are refused.
func TestReadersRefused(t *testing.T) {
	s, err := parseJobs(t, strings.Replace(readersScenario, "read: 20MB/s, ", "", 1), nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := s.Spec.Disk.ReadRate(), s.Spec.Disk.Write; got != want {
		t.Errorf("reads at %v, want %v", got, want)
	}
	for from, want := range map[string][2]string{
		"count: 6, blocks: 20": {"count: 21, blocks: 20", "workload[0].count: 21 readers on 20 hosts"},
		"[h0-00, h3-04]":       {"[h0-00, h9-04]", `workload[2].hosts[1]: "h9-04": no such host`},
		"of: jobs":             {"of: coflows", "workload[4].of"},
		"read: 20MB/s":         {"read: 0MB/s", "disk.read"},
		"  - {kind: writers, count: 2, blocks: 3, block: 1MB, packet: 16KB, start: 3s}\n": {"", "no item writes such blocks"},
		"count: 3, blocks: 40": {"count: 3, blocks: 90000", "limits.flows"},
	} {
		_, err := parseJobs(t, strings.Replace(readersScenario, from, want[0], 1), nil)
		if err == nil || !strings.Contains(err.Error(), want[1]) {
			t.Errorf("%s in place of %s: %v, want %q", want[0], from, err, want[1])
		}
	}
}
