package runner

import (
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"testbed/emu/fidelity"
	"testbed/emu/kernel/netnstest"
	"testbed/emu/longtest"
	"testbed/hosts/wire"
	"testbed/results/flows"
	"testbed/results/summary"
	"testbed/results/tooltest"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// manyTasks has jobs of tasks with shuffles and outputs, some of whose attempts are killed, writers and
// background load.
const manyTasks = `
name: tasks
fabric: {leaves: 3, spines: 1, hosts_per_leaf: 3, host_link: 40Mbps, oversubscription: "3:1", queue: 20ms}
disk: {write: 3MB/s, size: 256MB}
heartbeat: {interval: 100ms}
capture: {links: ["leaf*>spine0"]}
workload:
  - {kind: tasks, generator: mix, jobs: 10, gap: 300ms, block: 1MB, users: 3, map_rate: 2MB/s, reduce_rate: 2MB/s,
     profiles: [{name: small, maps: 1-3, reduces: 0.5, keep_map: 0.5, keep_reduce: 0.5}, {name: large, maps: 8-16, reduces: 0.25, keep_map: 0.5, keep_reduce: 0.5}]}
  - {kind: writers, count: 2, blocks: 2, block: 500KB, packet: 8KB}
  - {kind: background, hot_leaves: 1, intensity: 0.2, hot_share: 0.8, persist: 10m, transfer: 200KB, for: 1s}
tasks: {map_slots: 1, reduce_slots: 1, input: {replicas: 1}, output: {packet: 16KB, replicas: 2}}
arms:
  - {coflow: fair, placement: hdfs, tasks: {name: fair, kill: true, fair_timeout: 200ms, kill_interval: 200ms}}
`

// bareCaptures returns a directory with the captures of a run and nothing else.
func bareCaptures(t *testing.T, run string) string {
	t.Helper()
	bare := t.TempDir()
	err := filepath.WalkDir(run, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || filepath.Base(filepath.Dir(path)) != capturesDir {
			return err
		}
		rel, err := filepath.Rel(run, path)
		if err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Dir(filepath.Join(bare, rel)), 0o755); err != nil {
			return err
		}
		return os.Link(path, filepath.Join(bare, rel))
	})
	if err != nil {
		t.Fatal(err)
	}
	return bare
}

// runOneArm runs the first arm of a scenario on packets. It returns the directory of its only repeat, what the captures
// and the run directory give, and what the engine saw.
func runOneArm(t *testing.T, text string) (dir string, res flows.Result, rep summary.Repeat, seen flows.Records) {
	t.Helper()
	netnstest.Require(t)
	o := options(t)
	o.Captures = KeepCaptures
	o.tamper.observed = func(r flows.Records) { seen = r }
	s := loadText(t, text)
	out, err := Execute(t.Context(), s, o)
	if err != nil {
		t.Fatal(err)
	}
	dir = repeatDir(out.Dir, s.ArmList()[0].Name, 0)
	res, rep = reduced(t, dir)
	if len(rep.Records.Problems) > 0 {
		t.Errorf("problems %v", rep.Records.Problems)
	}
	return dir, res, rep, seen
}

func reduced(t *testing.T, dir string) (flows.Result, summary.Repeat) {
	t.Helper()
	res, err := flows.Reduce(t.Context(), filepath.Join(dir, capturesDir), flows.Options{})
	if err != nil {
		t.Fatal(err)
	}
	rep, err := repeatOf(repeatFiles{dir: dir}, res)
	if err != nil {
		t.Fatal(err)
	}
	return res, rep
}

// sameFromCaptures checks that the records of captures alone are equal to those of the whole run directory, field
// by field, and so are the figures that need more than records. It counts the records.
func sameFromCaptures(t *testing.T, dir string, whole summary.Repeat) map[string]int {
	t.Helper()
	bareDir := filepath.Join(bareCaptures(t, filepath.Dir(filepath.Dir(dir))), filepath.Base(filepath.Dir(dir)), filepath.Base(dir))
	_, bare := reduced(t, bareDir)
	r := whole.Records
	n := map[string]int{"flows": len(r.Flows), "coflows": len(r.Coflows), "blocks": len(r.Blocks), "write requests": len(r.Writes), "jobs": len(r.Jobs), "attempts": len(r.Attempts)}
	t.Logf("records %v", n)
	// The time of a job alone is not measured: the fluid model computes it from the scenario.
	if d := cmp.Diff(r, bare.Records, cmpopts.IgnoreFields(flows.JobRecord{}, "Lone")); d != "" {
		t.Errorf("records (-run directory +captures alone):\n%s", d)
	}
	if d := cmp.Diff(whole.Slots, bare.Slots) + cmp.Diff(whole.Placement, bare.Placement) + cmp.Diff(whole.Progress, bare.Progress); d != "" {
		t.Errorf("other figures (-run directory +captures alone):\n%s", d)
	}
	meta, err := readWorkloadMeta(repeatFiles{dir: dir})
	if err != nil || len(r.Writes) != len(meta.Writers) || len(r.Jobs) != len(meta.Jobs)+len(meta.TaskJobs) || len(meta.Background) == 0 {
		t.Errorf("%d requests and %d jobs of %+v, %v", len(r.Writes), len(r.Jobs), meta, err)
	}
	return n
}

// Captures alone have the write requests and jobs of writers, with the job's coflow and bin.
func TestCapturesAloneGiveWriteRequests(t *testing.T) {
	t.Parallel()
	longtest.Skip(t, "runs jobs on packets, 5 s")
	arms := strings.Index(jobsAndBackground, "  - {name: leaf")
	dir, _, whole, _ := runOneArm(t, jobsAndBackground[:arms])
	if n := sameFromCaptures(t, dir, whole); n["write requests"] < 5 || n["jobs"] != 5 {
		t.Errorf("records %v: want 5 jobs and their requests", n)
	}
	linksAreMeasuredAgain(t, dir)
}

// linksAreMeasuredAgain checks that a report finds the bursts and the spacing of packets that the run found.
func linksAreMeasuredAgain(t *testing.T, dir string) {
	t.Helper()
	want, known, err := repeatFiles{dir: dir}.measured()
	if err != nil || !known {
		t.Fatal(known, err)
	}
	got := want
	got.Spacing, got.Bursts = nil, nil
	packets, gaps := 0, 0
	for _, b := range want.Bursts {
		packets += b.Packets
		got.Bursts = append(got.Bursts, fidelity.Conformance{Link: b.Link, Rate: b.Rate, Bucket: b.Bucket, Frame: b.Frame})
	}
	for _, l := range want.Spacing {
		gaps += l.Gaps
	}
	if packets < 1000 || gaps < 100 {
		t.Errorf("%d packets and %d gaps: nothing is compared", packets, gaps)
	}
	res, err := flows.Reduce(t.Context(), filepath.Join(dir, capturesDir), flows.Options{Spacing: spacings(got.Bursts, got.Sampled)})
	if err != nil {
		t.Fatal(err)
	}
	measureLinks(&got, res)
	if d := cmp.Diff(want.Bursts, got.Bursts) + cmp.Diff(want.Spacing, got.Spacing); d != "" {
		t.Errorf("links (-run +captures):\n%s", d)
	}
}

// Captures alone have all jobs of tasks and attempts, with users and profiles, and these are those of
// the engine.
func TestCapturesAloneGiveTasks(t *testing.T) {
	t.Parallel()
	longtest.Skip(t, "runs jobs of tasks on packets, 15 s")
	dir, res, whole, seen := runOneArm(t, manyTasks)
	r := whole.Records
	for what, n := range sameFromCaptures(t, dir, whole) {
		if n == 0 {
			t.Errorf("no %s: nothing is compared", what)
		}
	}
	for _, j := range r.Jobs {
		if j.Tasks > 0 && (j.User == "" || j.Profile == "") {
			t.Errorf("job %d has user %q, profile %q", j.Job, j.User, j.Profile)
		}
	}

	sameAttempts(t, seen.Attempts, r.Attempts)
	killed := 0
	for _, a := range r.Attempts {
		if a.Outcome == flows.Killed {
			killed++
		}
		if (a.Why == "") != (a.Outcome == flows.Committed) {
			t.Errorf("attempt %+v with reason %q", a, a.Why)
		}
	}
	if killed == 0 { // reasons are longer than the snaplen leaves room for
		t.Error("no attempt was killed")
	}
	localityOnTheWire(t, res)
}

// localityOnTheWire checks that the locality of each attempt is that of the packets of its input: none
// on the wire for an attempt that reads its own host's block.
func localityOnTheWire(t *testing.T, res flows.Result) {
	t.Helper()
	type attempt struct {
		job            workloads.JobID
		stage, task, n int
	}
	from := map[attempt]string{} // the host from which it read most recently
	wired := map[attempt]units.Bytes{}
	for _, x := range res.Trails {
		if x.Task.Job == 0 || x.Task.Outputs > 0 {
			continue
		}
		id := attempt{workloads.JobID(x.Task.Job), int(x.Task.Stage), int(x.Task.Index), int(x.Task.Attempt)}
		from[id] = x.SrcName
		wired[id] += x.Wire
	}
	rack := func(host string) topo.RackID {
		r, _, ok := topo.ParseHostName(host)
		if !ok {
			t.Fatalf("%q is no host", host)
		}
		return r
	}
	count := map[string]int{}
	var local units.Bytes
	for _, a := range res.Attempts {
		if a.Kind != flows.MapTask {
			continue
		}
		id := attempt{a.Job, a.Stage, a.Task, a.Attempt}
		got := flows.NodeLocal
		if src, ok := from[id]; ok {
			got = flows.OffRack
			if rack(src) == rack(a.Host) {
				got = flows.RackLocal
			}
		} else if a.Outcome != flows.Committed {
			continue // it ended before its first packet
		}
		count[got]++
		if got != a.Locality {
			t.Errorf("attempt %+v: %s by its packets", a, got)
		}
		if a.Locality == flows.NodeLocal {
			local += wired[id]
		}
	}
	t.Logf("localities by packets %v; node-local attempts put %v on the wire", count, local)
	if local != 0 || count[flows.NodeLocal] == 0 || count[flows.RackLocal] == 0 || count[flows.OffRack] == 0 {
		t.Errorf("localities %v, and %v of node-local attempts on the wire", count, local)
	}
}

// The bytes that leave racks are those that tshark counts on the uplinks of leaves, and no connection
// of a node-local attempt exists: tshark sees as many streams as transfers have trails.
func TestCrossRackBytesAgreeWithTshark(t *testing.T) {
	longtest.Nightly(t, "runs jobs of tasks on packets, 15 s")
	tooltest.Need(t, "tshark")
	dir, res, rep, _ := runOneArm(t, manyTasks)
	captures := filepath.Join(dir, capturesDir)
	var total int64
	for leaf := range topo.RackID(3) {
		for line := range strings.Lines(tooltest.Output(t, "tshark", "-n", "-r", filepath.Join(captures, topo.LeafName(leaf)+flows.Suffix), "-T", "fields", "-e", "frame.len")) {
			n, err := strconv.ParseInt(strings.TrimSpace(line), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			total += n
		}
	}
	if got := int64(rep.Placement.CrossRack.All); got != total || total == 0 {
		t.Errorf("the report has %d bytes between racks, tshark counts %d on the uplinks of leaves", got, total)
	}
	streams := 0
	for _, c := range res.Captures {
		for _, s := range tooltest.Streams(t, filepath.Join(captures, c.Host+flows.Suffix)) {
			source, _, _ := strings.Cut(s.A, " ")
			addr, err := netip.ParseAddr(source)
			if err != nil {
				t.Fatal(err)
			}
			if name, _ := topo.HostNameOf(addr); name == c.Host && s.Protocol == "tcp" && strings.HasSuffix(s.B, " "+strconv.Itoa(wire.ShufflePort)) && s.Payload[0] > 0 {
				streams++
			}
		}
	}
	trails := len(slices.DeleteFunc(slices.Clone(res.Trails), func(x flows.Trail) bool { return x.Kind != wire.KindFlow }))
	t.Logf("%d bytes between racks, %d flows", total, trails)
	if streams != trails {
		t.Errorf("tshark sees %d streams of flows with payload, the captures have %d trails", streams, trails)
	}
}
