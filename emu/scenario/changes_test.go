package scenario

import (
	"fmt"
	"io/fs"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"

	"testbed/policies/catalog"
	"testbed/topo/yamltree"
	"testbed/workloads"
	"testbed/workloads/jobs"
)

// armFiles are the files of the scenarios of this file.
var armFiles = fstest.MapFS{
	"trace.txt": {Data: []byte("8 2\n1 0 2 0 2 2 1:2.0 3:2.0\n2 400 1 4 2 1:0.4 5:0.2\n")},
}

func parseArms(text string, set map[string]string) (*Scenario, error) {
	open := func(name string) (fs.File, error) { return armFiles.Open(name) }
	return Parse("s.yaml", []byte(text), Options{Catalog: catalog.All(), Set: set, Open: open})
}

func mustArms(t *testing.T, text string) *Scenario {
	t.Helper()
	s, err := parseArms(text, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// withArms has the arms on line 7, and a queue that is a time.
const withArms = `name: changes
vars: {deep: 80ms}
fabric: {leaves: 2, spines: 2, hosts_per_leaf: 4, host_link: 50Mbps, queue: 20ms}
disk: {write: 1MB/s, size: 64MB}
workload:
  - {kind: trace, path: trace.txt, mb: MB}
arms: `

// Arms in a list and in a mapping change the scenario as RFC 7396 merges, and values that depend on others are
// resolved for each arm.
func TestArmsSetKeys(t *testing.T) {
	s := mustArms(t, withArms+`
  - {name: cubic}
  - {name: bbr, set: {fabric: {congestion_control: bbr}}}
  - {coflow: sebf, set: {fabric: {queue: "${deep}", uplink: 25Mbps}, disk: null, faults: [{at: 1s, kind: link-down, link: leaf0<>spine1}]}}
  - {set: {fabric.red: {min: 30KB, max: 60KB}}}
`)
	var names []string
	for i, arm := range s.ArmList() {
		names = append(names, arm.Name)
		if got := s.OfArm(i).ArmList(); len(got) != 1 || got[0].Name != arm.Name || got[0].Set != nil || !reflect.DeepEqual(got[0].Policies, arm.Policies) {
			t.Errorf("arm %d: its scenario has the arms %+v", i, got)
		}
	}
	if d := cmp.Diff([]string{"cubic", "bbr", "sebf+queue=80ms+uplink=25Mbps+disk=none+faults=1", "min=30KB+max=60KB"}, names); d != "" {
		t.Errorf("names (-want +got):\n%s", d)
	}
	if d := cmp.Diff(map[string]any{"disk": nil, "fabric": map[string]any{"queue": "80ms", "uplink": "25Mbps"},
		"faults": []any{map[string]any{"at": "1s", "kind": "link-down", "link": "leaf0<>spine1"}}}, s.Spec.Arms[2].Set); d != "" {
		t.Errorf("set (-want +got):\n%s", d)
	}
	plain := mustArms(t, withArms+"[{name: cubic}]")
	if d := cmp.Diff(plain.Spec, s.OfArm(0).Spec); d != "" {
		t.Errorf("an arm that sets nothing (-want +got):\n%s", d)
	}
	alone := mustArms(t, strings.NewReplacer("queue: 20ms", "queue: 80ms, uplink: 25Mbps", "disk: {write: 1MB/s, size: 64MB}\n", "",
		"arms:", "faults: [{at: 1s, kind: link-down, link: leaf0<>spine1}]\narms:").Replace(withArms)+
		`[{name: sebf+queue=80ms+uplink=25Mbps+disk=none+faults=1, coflow: sebf}]`)
	if d := cmp.Diff(alone.Spec, s.OfArm(2).Spec); d != "" {
		t.Errorf("an arm and the same scenario written out (-want +got):\n%s", d)
	}
	keys := []string{"fabric.congestion_control", "fabric.queue", "fabric.uplink", "disk", "faults", "fabric.red.min", "fabric.red.max"}
	if d := cmp.Diff(keys, s.SetKeys()); d != "" {
		t.Errorf("keys (-want +got):\n%s", d)
	}
	for _, tt := range []struct {
		arm       int
		key, want string
	}{
		{0, "fabric.queue", "20ms (125KB on host links, 250KB on uplinks)"},
		{2, "fabric.queue", "80ms (500KB on host links, 250KB on uplinks)"},
		{0, "fabric.uplink", "none"},
		{2, "fabric.uplink", "25Mbps"},
		{2, "disk", "none"},
		{2, "faults", "[{kind: link-down, at: 1s, link: leaf0<>spine1}]"},
		{1, "fabric.congestion_control", "bbr"},
		{3, "fabric.red.max", "60KB"},
	} {
		if got := s.ArmValue(tt.arm, tt.key); got != tt.want {
			t.Errorf("arm %d: %s is %s, want %s", tt.arm, tt.key, got, tt.want)
		}
	}

	crossed := mustArms(t, withArms+`{fabric.oversubscription: ["1:1", "5:1"], coflow: [fair, {name: sebf}], fabric.red: [null, {min: 30KB, max: 45KB}], setup: [simultaneous]}`)
	var values []string
	for i, arm := range crossed.ArmList() {
		values = append(values, fmt.Sprint(arm.Name, " ", arm.Policies["coflow"].Name, " ", crossed.ArmValue(i, "fabric.oversubscription"), " ",
			crossed.ArmValue(i, "fabric.red.min"), " ", crossed.ArmValue(i, "setup")))
	}
	if d := cmp.Diff([]string{
		"fair+oversubscription=1to1+red=none+setup=simultaneous fair 1:1 none simultaneous",
		"fair+oversubscription=1to1+red=2+setup=simultaneous fair 1:1 30KB simultaneous",
		"fair+oversubscription=5to1+red=none+setup=simultaneous fair 5:1 none simultaneous",
		"fair+oversubscription=5to1+red=2+setup=simultaneous fair 5:1 30KB simultaneous",
		"sebf+oversubscription=1to1+red=none+setup=simultaneous sebf 1:1 none simultaneous",
		"sebf+oversubscription=1to1+red=2+setup=simultaneous sebf 1:1 30KB simultaneous",
		"sebf+oversubscription=5to1+red=none+setup=simultaneous sebf 5:1 none simultaneous",
		"sebf+oversubscription=5to1+red=2+setup=simultaneous sebf 5:1 30KB simultaneous",
	}, values); d != "" {
		t.Errorf("all combinations (-want +got):\n%s", d)
	}

	// The resolved scenario has the changes, and is the same one.
	for _, s := range []*Scenario{s, crossed} {
		resolved, err := s.Resolved()
		if err != nil {
			t.Fatal(err)
		}
		again := mustArms(t, string(resolved))
		if fingerprint(t, again) != fingerprint(t, s) || fingerprint(t, s) == fingerprint(t, plain) {
			t.Errorf("the resolved scenario is another one:\n%s", resolved)
		}
		for i := range s.Spec.Arms {
			if d := cmp.Diff(s.OfArm(i).Spec, again.OfArm(i).Spec, cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == ".Vars" }, cmp.Ignore())); d != "" {
				t.Errorf("arm %d of the resolved scenario (-want +got):\n%s", i, d)
			}
		}
	}
}

const (
	once     = "must be the same in all arms, which share workload, hosts and random draws: state it once, for all arms"
	sweepIt  = "must be the same in all arms, which share workload, hosts and random draws: sweep it instead, so that each value has a workload of its own"
	expected = "expected a mapping of keys of the scenario to values, such as {fabric: {queue: 5ms}}"
)

// Errors in an arm have the place of the value in the arm or, if another value of the file contradicts the
// arm, that of the arm.
func TestErrorsOfArms(t *testing.T) {
	for _, tt := range []struct{ name, arms, want string }{
		{"unknown key", "[{name: a, set: {fabric: {quue: 5ms}}}]",
			`7:33: arms[0].set.fabric.quue: unknown key (did you mean "queue"?)`},
		{"unknown key with dots", "[{name: a, set: {fabric.quue: 5ms}}]",
			`7:24: arms[0].set.fabric.quue: unknown key (did you mean "queue"?)`},
		{"unknown section", "[{name: a, set: {fabrik: {queue: 5ms}}}]",
			`7:24: arms[0].set.fabrik: unknown key (did you mean "fabric"?)`},
		{"unknown key that is removed", "[{name: a, set: {fabric: {quue: null}}}]",
			`7:33: arms[0].set.fabric.quue: unknown key of the scenario`},
		{"value", "[{name: a}, {name: b, set: {fabric: {queue: 5}}}]",
			`7:51: arms[1].set.fabric.queue: queue "5": expected a size such as "64KB" or a drain time such as "20ms"`},
		{"required key", "[{name: a, set: {fabric: {host_link: null}}}]",
			"7:8: arms[0].set: in arm a, fabric.host_link: missing: expected a rate from 100Kbps to 100Gbps"},
		{"contradiction", "[{name: a, set: {fabric: {host_link: 500Kbps}}}]",
			"7:8: arms[0].set: in arm a, fabric.queue: 20ms: 1250 bytes at a host's link of 500Kbps: must hold at least two frames, 3028 bytes"},
		{"kind", "[{name: a, set: {fabric: {kind: switch}}}]",
			"7:33: arms[0].set.fabric.kind: " + sweepIt},
		{"workload", "[{name: a, set: {workload: [{kind: trace, path: trace.txt}]}}]",
			"7:24: arms[0].set.workload: " + sweepIt},
		{"scale", "[{name: a, set: {scale: {rate: 2}}}]",
			"7:24: arms[0].set.scale: " + sweepIt},
		{"repeat", "[{name: a, set: {repeat: 2}}]",
			"7:24: arms[0].set.repeat: " + once},
		{"fabric removed", "[{name: a, set: {fabric: null}}]",
			"7:24: arms[0].set.fabric: contains fabric.kind, which must be the same in all arms: set only other keys of it"},
		{"nothing", "[{name: a, set: {}}]", "7:23: arms[0].set: a mapping: " + expected},
		{"no value", "[{name: a, set: }]",
			"7:23: arms[0].set: no value: " + expected + ", or leave the key out"},
		{"text", "[{name: a, set: 5ms}]", `7:23: arms[0].set: "5ms": ` + expected},
		{"twice", "[{name: a, set: {fabric.queue: 5ms, fabric: {queue: 6ms}}}]",
			"7:43: arms[0].set: fabric.queue and fabric.queue overlap: set each key once"},
		{"duplicate key", "[{name: a, set: {fabric.queue: 5ms, fabric.queue: 6ms}}]",
			"7:43: arms[0].set.fabric.queue: duplicate key, first on line 7: keep one of them"},
		{"value of a mapping", "{coflow: [fair, sebf], fabric.queue: [5ms, 6]}",
			`7:50: arms.fabric.queue: queue "6": expected a size such as "64KB" or a drain time such as "20ms"`},
		{"not a list", "{fabric.queue: 5ms}", `7:22: arms.fabric.queue: "5ms": expected a list`},
		{"key of a mapping", "{fabric.leaves: [1, 2]}",
			"7:8: arms.fabric.leaves: " + sweepIt},
		{"contradiction in a mapping", "{fabric.host_link: [50Mbps, 500Kbps]}",
			"7:7: arms: in arm host_link=500Kbps, fabric.queue: 20ms: 1250 bytes at a host's link of 500Kbps: must hold at least two frames, 3028 bytes"},
		{"unknown role", "{coflo: [fair]}",
			`7:8: arms.coflo: unknown key (did you mean "coflow"?)`},
		{"empty", "{}",
			"7:7: arms: empty: expected a list of arms, or a mapping such as {coflow: [fair, sebf], placement: [hdfs, sinbad], tasks: [fifo, fair]}"},
		{"same names", "{disk.dir: [/a/b, /a-b]}",
			`7:7: arms: name "dir=-a-b" is the name of arm 0: write arms as a list and give each a unique name`},
		{"long name", "{disk.dir: [/" + strings.Repeat("a", 70) + "]}",
			`7:7: arms: name "dir=-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa…": must have at most 64 characters: write arms as a list and name each`},
		{"too many", "{fabric.queue: [" + strings.Repeat("5ms, ", 11) + "], fabric.delay: [" + strings.Repeat("5ms, ", 10) + "]}", "7:7: arms: 110 combinations: must be at most 100"},
		{"unknown variable", `[{name: a, set: {fabric: {queue: "${shallow}"}}}]`,
			"7:40: arms.set.fabric.queue: ${shallow}: unknown variable: declare it under vars"},
		{"policy", "[{name: a, coflow: seb, set: {fabric: {queue: 5ms}}}]",
			`7:26: arms[0].coflow: unknown coflow policy "seb"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := parseArms(withArms+tt.arms, nil)
			if err == nil || !strings.HasPrefix(err.Error(), "s.yaml:"+tt.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%v\nwant\ns.yaml:%s", err, tt.want)
			}
		})
	}
	// An error of the file is reported once, not for each arm.
	_, err := parseArms(strings.Replace(withArms, "queue: 20ms", "queue: 20", 1)+"{fabric.delay: [1ms, 2ms, 3]}", nil)
	want := "s.yaml:3:77: fabric.queue: queue \"20\": expected a size such as \"64KB\" or a drain time such as \"20ms\"\n" +
		"s.yaml:7:33: arms.fabric.delay: time \"3\": expected a number followed by ns, us, ms, s, m or h, such as \"250ms\""
	if err == nil || err.Error() != want {
		t.Errorf("%v\nwant\n%s", err, want)
	}
}

// A workload item of every kind: those in one file, and jobs of tasks, which exclude other jobs.
var everyItem = map[string]string{
	"coflows and blocks": `name: every
fabric: {leaves: 4, spines: 2, hosts_per_leaf: 4, host_link: 50Mbps, oversubscription: "2:1"}
disk: {write: 2MB/s, size: 2GB, dir: /var/tmp}
faults: [{at: 1s, kind: slow-disk, host: h0-00, rate: 1MB/s}]
workload:
  - {kind: trace, path: trace.txt, mb: MB}
  - {kind: writers, count: 3, blocks: 2, block: 4MB, spread: 1s}
  - {kind: readers, count: 2, blocks: 2}
  - {kind: jobs, count: 12, load: 0.5, block: 4MB, off_hot: true, reducers: 1-4, writers: 1-2}
  - {kind: background, hot_leaves: 1, intensity: 0.3, persist: 2s, transfer: 100KB, for: 5s}
  - {kind: workload, path: work.json}
arms: `,
	"jobs of tasks": `name: every
fabric: {leaves: 4, spines: 2, hosts_per_leaf: 4, host_link: 50Mbps, oversubscription: "2:1"}
disk: {write: 2MB/s, size: 2GB, dir: /var/tmp}
faults: [{at: 1s, kind: slow-disk, host: h0-00, rate: 1MB/s}]
tasks: {output_space: 1TB, cores: 64, memory: 64GB, stragglers: {probability: 0.2, sticky: 0.5}, evict: latest}
workload:
  - {kind: tasks, generator: bins, jobs: 10, largest: 8, utilization: 0.5, block: 4MB}
  - {kind: tasks, generator: mix, jobs: 3, maps: 1-3, block: 4MB}
  - {kind: tasks, generator: benchmarks, jobs: 3, sizes: [{maps: 1-3}], block: 4MB}
  - {kind: tasks, generator: simulation, jobs: 3, block: 4MB}
  - {kind: tasks, generator: bm, tasks: 1/100, block: 4MB}
arms: `,
}

// others has a value for every key outside the workload, none of them that of everyItem. A key of
// only one kind of fabric or of Pareto stragglers has those as its context.
var others = byKey(`
version: 1
name: x
vars: {x: 1}
sweep: {x: [1]}
workload: [{kind: trace, path: trace.txt}]
arms: [{name: x}]
repeat: 2
tries: 2
time: virtual
fork_at: 2s
seed: 9
scale.size: 2
scale.time: 2
scale.rate: 1/2
setup: simultaneous
faults: [{at: 2s, kind: host-crash, host: h1-00}]
fabric.kind: switch
fabric.leaves: 2
fabric.spines: 4
fabric.hosts_per_leaf: 8
fabric.ports: 16
fabric.host_link: 10Mbps
fabric.host_links: [{hosts: h0-*, rate: 20Mbps}]
fabric.oversubscription: "8:1"
fabric.uplink: 10Mbps
fabric.cross_rack: 10Mbps
fabric.zone_racks: 2
fabric.queue: 40ms
fabric.red.min: 20KB
fabric.red.max: 60KB
fabric.red.probability: 0.2
fabric.red.ecn: true
fabric.delay: 1ms
fabric.link_model: store-and-forward
fabric.links: [{link: leaf0<>spine1, rate: 5Mbps}]
fabric.mtu: 1400
fabric.congestion_control: bbr
fabric.convergence: 1s
fabric.short_flow: 90KB
disk.count: 2
disk.write: 4MB/s
disk.read: 3MB/s
disk.size: 4GB
disk.throttle: kernel
disk.dir: /tmp
heartbeat.interval: 500ms
heartbeat.phase: together
heartbeat.alpha: 0.5
heartbeat.lost_after: 9
coordinator.latency: 5ms
fluid.resolution: 1ms
fluid.jobs_only: true
tasks.map_slots: 4
tasks.reduce_slots: 3
tasks.cores: 96
tasks.memory: 96GB
tasks.out_of_band: true
tasks.slowstart: 1
tasks.shuffle: barrier
tasks.fetches: 7
tasks.fetch_batch: 3
tasks.penalty: 1s
tasks.penalty_growth: 2
tasks.penalty_max: 11m
tasks.fetch_failures: 5
tasks.attempts: 6
tasks.output_space: 2TB
tasks.evict: least-progress
tasks.input.placement: uniform
tasks.input.replicas: 2
tasks.input.cached: true
tasks.output.block: 9MB
tasks.output.replicas: 2
tasks.output.packet: 32KB
tasks.output.window: 3
tasks.stragglers.probability: 0.3
tasks.stragglers.factor: 3-4
tasks.stragglers.spread: 0.2
tasks.stragglers.mid_task: 0.1
tasks.stragglers.sticky: 0.1
tasks.stragglers.sticky_window: 1m
tasks.stragglers.tail: pareto
tasks.stragglers.shape: 2
tasks.stragglers.most: 9
capture.snaplen: 200
capture.ring: 4MB
capture.links: ["leaf0>spine1"]
limits.duration: 1h
limits.stuck: 1s
limits.flows: 1000000
limits.blocks: 200000
limits.tasks: 3000000
limits.alone: 10
limits.samples: 1000
limits.trace: 128MB
`)

// context has the other keys that the value of a key requires.
var context = byKey(`
fabric.red.min: fabric.red.max: 90KB
fabric.red.max: fabric.red.min: 10KB
fabric.red.probability: fabric.red.min: 10KB, fabric.red.max: 60KB
fabric.red.ecn: fabric.red.min: 10KB, fabric.red.max: 60KB
tasks.stragglers.tail: tasks.stragglers.probability: null, tasks.stragglers.sticky: null
tasks.stragglers.shape: tasks.stragglers.probability: null, tasks.stragglers.sticky: null, tasks.stragglers.tail: pareto
tasks.stragglers.most: tasks.stragglers.probability: null, tasks.stragglers.sticky: null, tasks.stragglers.tail: pareto
`)

// byKey splits lines at the first colon.
func byKey(lines string) map[string]string {
	out := map[string]string{}
	for line := range strings.Lines(strings.TrimSpace(lines)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		out[key] = value
	}
	return out
}

// keysOfSpec returns the keys of a struct, with dots, not those in lists.
func keysOfSpec(t reflect.Type, above string) (keys []string) {
	for _, f := range fieldsOf(t) {
		typ, key := t.Field(f.index).Type, yamltree.Join(above, f.key)
		if typ.Kind() == reflect.Pointer {
			typ = typ.Elem()
		}
		if _, quantity := quantities[typ]; typ.Kind() == reflect.Struct && !quantity && typ != reflect.TypeFor[Repeats]() {
			keys = append(keys, keysOfSpec(typ, key)...)
		} else {
			keys = append(keys, key)
		}
	}
	return keys
}

// writeWork writes the workload file of everyItem.
func writeWork(t *testing.T) {
	t.Helper()
	var b strings.Builder
	work := workloads.Workload{Coflows: []workloads.Coflow{{ID: 1, Flows: []workloads.Flow{{ID: 1, Src: 0, Dst: 5, Size: 1000}}}}}
	f, err := mustArms(t, everyItem["jobs of tasks"]+"[{name: x}]").Shape().Build()
	if err != nil {
		t.Fatal(err)
	}
	if err := workloads.WriteWorkload(&b, f, work); err != nil {
		t.Fatal(err)
	}
	armFiles["work.json"] = &fstest.MapFile{Data: []byte(b.String())}
}

// Every key of the scenario, set by an arm, is either refused, or gives every kind of item the same workload, byte for
// byte, on the hosts of the arm.
func TestNoArmChangesTheWorkload(t *testing.T) {
	writeWork(t)
	keys := keysOfSpec(reflect.TypeFor[Spec](), "")
	for key := range others {
		if !slices.Contains(keys, key) {
			t.Errorf("%s is no key", key)
		}
	}
	for name, file := range everyItem {
		base := mustArms(t, file+"[{name: base}]")
		want := worksOf(t, base)
		applied := 0
		for _, key := range keys {
			if strings.HasPrefix(key, "tasks.") && name != "jobs of tasks" {
				continue
			}
			value, ok := others[key]
			if !ok {
				t.Errorf("no other value of %s: state one", key)
				continue
			}
			set := fmt.Sprintf("%s: %s", key, value)
			if c := context[key]; c != "" {
				set += ", " + c
			}
			s, err := parseArms(fmt.Sprintf("%s[{name: base}, {name: other, set: {%s}}]", file, set), nil)
			if why, _ := fixed(key); why != "" {
				if err == nil || !strings.Contains(err.Error(), "must be the same in all arms") {
					t.Errorf("%s: %s is not refused: %v", name, key, err)
				}
				continue
			}
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			applied++
			if s.ArmValue(0, key) == s.ArmValue(1, key) {
				t.Errorf("%s: %s has the same value %s in both arms", name, key, s.ArmValue(0, key))
			}
			if got := worksOf(t, s.OfArm(1)); !reflect.DeepEqual(got, want) {
				t.Errorf("%s: %s changes the workload (-want +got):\n%s", name, key, cmp.Diff(want, got))
			}
		}
		if applied < 35 {
			t.Errorf("%s: only %d keys were set", name, applied)
		}
	}
	// The test detects a workload that depends on the fabric.
	file := everyItem["coflows and blocks"]
	if other := strings.Replace(file, "2:1", "8:1", 1); reflect.DeepEqual(worksOf(t, mustArms(t, file+"[{name: x}]")), worksOf(t, mustArms(t, other+"[{name: x}]"))) {
		t.Error("a load of 0.5 has the same workload at 2:1 and at 8:1")
	}
}

// works are the workloads of two repeats.
type works struct {
	Work  [2]workloads.Workload
	Tasks [2][]jobs.Job
	Out   workloads.Block
	Seeds [2]uint64
}

func worksOf(t *testing.T, s *Scenario) (w works) {
	t.Helper()
	f, err := s.Shape().Build()
	if err != nil {
		t.Fatal(err)
	}
	for k := range w.Work {
		if w.Work[k], _, err = s.Workload(f, k); err != nil {
			t.Fatal(err)
		}
		if w.Tasks[k], _, err = s.taskList(f, k); err != nil {
			t.Fatal(err)
		}
		w.Seeds[k] = s.RepeatSeed(k)
	}
	if s.Spec.Tasks != nil {
		w.Out = s.TaskOutput(w.Tasks[0])
		w.Out.Packet, w.Out.Window = 0, 0 // how a block is sent
	}
	return w
}

// A scaled scenario has the rates and sizes of its arms scaled too, and the workload of the scaled file.
func TestScaledArms(t *testing.T) {
	s := mustArms(t, strings.Replace(withArms, "trace.txt, mb: MB}", "trace.txt, mb: MB}\n  - {kind: jobs, count: 4, load: 0.5, block: 1MB, window: 1, mappers: 1-2, reducers: 1-2}", 1)+
		`[{name: base}, {name: slow, set: {fabric: {uplink: 20Mbps, queue: 60KB, delay: 4ms}, disk: {write: 500KB/s}}}, {name: none, set: {fabric.red: null}}]`)
	half, err := s.Scaled(workloads.Factor{Num: 2, Den: 1})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(map[string]any{"fabric": map[string]any{"uplink": "10Mbps", "queue": "30KB", "delay": "4ms"}, "disk": map[string]any{"write": "2Mbps"}}, half.Spec.Arms[1].Set); d != "" {
		t.Errorf("set (-want +got):\n%s", d)
	}
	arm, err := s.OfArm(1).Scaled(workloads.Factor{Num: 2, Den: 1})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(half.OfArm(1).Spec, arm.Spec); d != "" {
		t.Errorf("the scaled arm and the arm of the scaled scenario (-want +got):\n%s", d)
	}
	if d := cmp.Diff(worksOf(t, half), worksOf(t, arm)); d != "" {
		t.Errorf("the workload of the scaled arm (-want +got):\n%s", d)
	}
	if f := arm.Spec.Fabric; f.Uplink != s.OfArm(1).Spec.Fabric.Uplink/2 || f.Delay != 4*time.Millisecond {
		t.Errorf("uplink %v, delay %v", f.Uplink, f.Delay)
	}
	if _, err := s.Scaled(workloads.Factor{Num: 1000, Den: 1}); err == nil {
		t.Error("links of 50 Kbps")
	}
}

// An arm has the fingerprint of another one only if the scenario without its changes, which draws the workload, is the same.
func TestFingerprintsOfArms(t *testing.T) {
	writeWork(t)
	arm := func(over string) string {
		text := strings.Replace(everyItem["coflows and blocks"], "2:1", over, 1)
		return fingerprint(t, mustArms(t, text+`[{name: x, set: {fabric: {oversubscription: "8:1"}}}]`).OfArm(0))
	}
	if two, again := arm("2:1"), arm("2:1"); two != again || two == arm("3:1") {
		t.Error("the fingerprint of an arm at 8:1 does not depend on the fabric that draws its load of 0.5")
	}
}

// Scenarios that differ only in what their arms set have the same workload.
func TestArmsAreNotWorkload(t *testing.T) {
	a, b := mustArms(t, withArms+"[{name: a}]"), mustArms(t, withArms+"[{name: a, set: {fabric: {queue: 5ms}}}]")
	if d, err := WorkloadDiffers(a, b); err != nil || len(d) > 0 {
		t.Errorf("%v, %v", d, err)
	}
	if d, err := WorkloadDiffers(a.OfArm(0), b.OfArm(0)); err != nil || len(d) != 1 || d[0].Key != "fabric.queue" || d[0].A.Line != 3 || d[0].B.Line != 7 {
		t.Errorf("of the arms: %v, %v", d, err)
	}
}
