package external

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"testbed/policies"
	"testbed/policies/external/messages"
	"testbed/policies/policytest"
	"testbed/policies/tasks"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
	"testbed/workloads/jobs"
)

// greeted begins a conversation in which the process states its needs and then answers with the given lines.
func greeted(t testing.TB, p *Policy, needs string, lines ...string) *[]string {
	t.Helper()
	var asked []string
	err := p.Open(says(func(line string) []string {
		if asked = append(asked, line); len(asked) == 1 {
			return []string{`{"type":"hello","version":2,"needs":[` + needs + `]}`}
		}
		return lines
	}), fabric(t), 7)
	if err != nil {
		t.Fatal(err)
	}
	return &asked
}

const everyTaskNeed = `"slots","attempts","every_heartbeat","task_progress","shuffle","link_load"`

func taskView(t testing.TB) *policies.TaskView {
	v := &policies.TaskView{Cluster: view(t).Cluster, Host: 1}
	v.Hosts = []policies.HostState{{LastReport: -1, NextReport: 2, Rx: 3, Tx: 4, Disk: 5, Lost: true}, {}}
	v.Racks = []policies.RackState{{Rx: 6, Tx: 7, Received: 8, Sent: 9}}
	v.DiskRate, v.Zone = 10, []int{1}
	v.Slots = []policies.SlotState{{}, {
		Total: [2]int{2, 1}, Used: [2]int{1, 0}, Need: jobs.Resources{CPU: 0.5, Memory: 11}, Capacity: jobs.Resources{CPU: 2, Memory: 12},
		Space: -1, Committed: 13, CommittedTime: 14,
	}}
	id := jobs.AttemptID{Task: jobs.TaskID{Job: 3, Stage: 0, Index: 4}, N: 5}
	v.Jobs = []policies.TaskJob{{
		ID: 3, User: "ann\"", Priority: 1, Profile: "sort", Submit: 2, Input: 15,
		Stages: []policies.StageState{{
			Kind: jobs.Reduce, Tasks: 16, Done: 17, Running: 18, Pending: [3]int{1, 0, 2}, Waiting: 19, Need: jobs.Resources{CPU: 1.5, Memory: 20},
			Output: 21, Anywhere: true, Outputs: 22, Consumption: policies.Consumption{Read: 23, Busy: 24, Input: 25, Output: 26}, Durations: []time.Duration{27},
		}, {}},
		Running: []policies.AttemptState{{ID: id, Host: 1, Locality: policies.OffRack, Start: 28, Phase: policies.Computing, Progress: 0.25, Killing: true, Paused: true, Spare: true}},
		Shuffle: &policies.ShuffleState{Blocks: []policies.PlacedBlock{{Size: 29, Racks: []topo.RackID{0}}}, Intermediate: []units.Bytes{30}, Maps: []int{31}, Reduces: []int{32}},
	}, {ID: 4, Stages: []policies.StageState{{}}}}
	return v
}

func TestTaskMessages(t *testing.T) {
	const answer = `{"type":"assignment","n":1,"launch":[{"job":1,"stage":0,"locality":2}],"backup":[{"job":0,"stage":0,"index":6}],"kill":[{"job":0,"stage":0,"index":4,"n":5}],"later":1}`
	s := Tasks(Settings{Latency: time.Second})
	asked := greeted(t, &s.Policy, everyTaskNeed, `{"type":"news"}`, answer)
	want := policies.Slots | policies.Attempts | policies.EveryHeartbeat | policies.TaskProgress | policies.Shuffle | policies.LinkLoad
	if d := cmp.Diff(want, s.Needs()); d != "" {
		t.Errorf("needs (-want +got):\n%s", d)
	}
	var got policies.Assignment
	s.New().Assign(taskView(t), &got)
	message := `{"type":"assign","n":1,"now":5,"capacity":[1000000000,1000000000,1000000000,1000000000],"lost":[1,0],"disk":[5,0],"disk_rate":10,"zone":[1],` +
		`"rx":[3,0],"tx":[4,0],"last_report":[-1,0],"next_report":[2,0],"rack_rx":[6],"rack_tx":[7],"rack_received":[8],"rack_sent":[9],"host":1,` +
		`"slots":[{},{"total":[2,1],"used":[1,0],"cpu":0.5,"memory":11,"cpu_capacity":2,"memory_capacity":12,"space":-1,"committed":13,"committed_time":14}],` +
		`"jobs":[{"id":3,"user":"ann\"","priority":1,"profile":"sort","submit":2,"input":15,"stages":[{"kind":1,"tasks":16,"done":17,"running":18,"pending":[1,0,2],` +
		`"waiting":19,"cpu":1.5,"memory":20,"output":21,"anywhere":1,"outputs":22,"read":23,"busy":24,"consumed":25,"produced":26,"durations":[27]},{}],` +
		`"attempts":[[0,4,5,1,2,28,2,1,1,1,0.25]],"intermediate":[30],"rack_maps":[31],"rack_reduces":[32],"blocks":[[29,[0]]]},{"id":4,"stages":[{}],"attempts":[]}]}` + "\n"
	if d := cmp.Diff(message, (*asked)[1]); d != "" {
		t.Errorf("message (-want +got):\n%s", d)
	}
	task := jobs.TaskID{Job: 3, Stage: 0, Index: 4}
	decision := policies.Assignment{Launch: []policies.Launch{{Job: 1, Locality: policies.OffRack}}, Backup: []jobs.TaskID{{Job: 3, Stage: 0, Index: 6}},
		Kill: []jobs.AttemptID{{Task: task, N: 5}}, Answer: []byte(answer), Latency: time.Second}
	opt := cmpopts.IgnoreUnexported(policies.Assignment{})
	if d := cmp.Diff(decision, got, opt); d != "" {
		t.Errorf("assignment (-want +got):\n%s", d)
	}
	// A replay needs no process.
	again := Tasks(Settings{})
	if err := again.Recorded(s.Hello()); err != nil {
		t.Fatal(err)
	}
	x := again.New()
	x.(policies.Replayer).Replay(got.Answer, got.Latency)
	var copied policies.Assignment
	if x.Assign(taskView(t), &copied); !cmp.Equal(got, copied, opt) {
		t.Errorf("replay (-want +got):\n%s", cmp.Diff(got, copied, opt))
	}
	copied.Reset()
	if x.Assign(taskView(t), &copied); copied.Err == nil || copied.Err.Error() != "the log has no answer to decision 2" {
		t.Errorf("replay of a decision that the log has not: %v", copied.Err)
	}
}

func placementView(t testing.TB) *policies.PlacementView {
	v := &policies.PlacementView{Cluster: taskView(t).Cluster, LargestBlock: 33}
	v.Hosts[1].Used, v.Hosts[1].Writing = 34, 35
	v.Placements = []policies.Placement{{At: 36, Client: 1, Size: 37, Hosts: []topo.HostID{1, 0}}}
	return v
}

func TestPlacementMessages(t *testing.T) {
	block := workloads.Block{ID: 38, Client: 1, Size: 39, Replicas: 2}
	for answer, want := range map[string]struct {
		hosts []topo.HostID
		err   string
		ends  bool
	}{
		`{"type":"placement","n":1,"hosts":[1,0],"later":1}`: {hosts: []topo.HostID{1, 0}},
		`{"type":"placement","n":1,"error":"no room"}`:       {err: "no room"},
		`{"type":"placement","n":2,"hosts":[1,0]}`:           {err: `placement: n is 2: must be 1, that of the message "place"`, ends: true},
	} {
		p := Placement(Settings{Latency: time.Second})
		asked := greeted(t, &p.Policy, `"link_load","disk_use"`, answer)
		hosts, err := p.Place(placementView(t), block, rand.New(rand.NewPCG(1, 2)))
		var outside policies.OutsideError
		if !slices.Equal(hosts, want.hosts) || (err == nil) != (want.err == "") || err != nil && err.Error() != want.err || errors.As(err, &outside) != want.ends {
			t.Errorf("%s: %v, %v", answer, hosts, err)
		}
		seed := rand.New(rand.NewPCG(1, 2)).Uint64() >> 11
		message := `{"type":"place","n":1,"now":5,"capacity":[1000000000,1000000000,1000000000,1000000000],"block":{"id":38,"client":1,"size":39,"replicas":2},` +
			fmt.Sprintf(`"largest_block":33,"seed":%d,`, seed) + `"lost":[1,0],"disk":[5,0],"disk_rate":10,"zone":[1],"used":[0,34],"writing":[0,35],"rx":[3,0],"tx":[4,0],` +
			`"last_report":[-1,0],"next_report":[2,0],"rack_rx":[6],"rack_tx":[7],"rack_received":[8],"rack_sent":[9],` +
			`"placements":[{"at":36,"client":1,"size":37,"hosts":[1,0]}]}` + "\n"
		if d := cmp.Diff(message, (*asked)[1]); d != "" {
			t.Errorf("message (-want +got):\n%s", d)
		}
		if want.ends {
			continue
		}
		line, latency := p.Answered()
		if string(line) != answer || latency != time.Second {
			t.Errorf("answered %s after %v", line, latency)
		}
		again := Placement(Settings{})
		if err := again.Recorded(p.Hello()); err != nil {
			t.Fatal(err)
		}
		again.Replay(line, latency)
		copied, failed := again.Place(placementView(t), block, rand.New(rand.NewPCG(1, 2)))
		if !slices.Equal(copied, hosts) || (failed == nil) != (err == nil) {
			t.Errorf("replay: %v, %v", copied, failed)
		}
	}
}

func TestInvalidAssignments(t *testing.T) {
	for line, want := range map[string]string{
		`{"type":"assignment"}`:                                      `n is 0: must be 1, that of the message "assign"`,
		`{"type":"assignment","n":1,"launch":[1]}`:                   "launch",
		`{"type":"assignment","n":1,"launch":[{"job":2}]}`:           `launch 0: no job 2 with stage 0`,
		`{"type":"assignment","n":1,"launch":[{"job":0,"stage":2}]}`: `launch 0: no job 0 with stage 2`,
		`{"type":"assignment","n":1,"launch":[{"job":1},{"job":0}]}`: `launch 1: host 1 lacks a slot, cores or memory for it`,
		`{"type":"assignment","n":1,"kill":[{"job":2}]}`:             "kill: job 2: must be an index of the 2 jobs",
		`{"type":"schedule","n":1}`:                                  "no answer",
	} {
		s := Tasks(Settings{})
		greeted(t, &s.Policy, "", line)
		var a policies.Assignment
		if s.New().Assign(taskView(t), &a); a.Err == nil || !strings.Contains(a.Err.Error(), want) {
			t.Errorf("%s: %v, want %q", line, a.Err, want)
		}
	}
}

// The published schema lists the keys of the messages of tasks and placement.
func TestSchemaOfRoles(t *testing.T) {
	s, p := Tasks(Settings{}), Placement(Settings{})
	assign, place := greeted(t, &s.Policy, everyTaskNeed, `{"type":"assignment","n":1}`), greeted(t, &p.Policy, `"link_load","disk_use"`, `{"type":"placement","n":1}`)
	v := taskView(t)
	v.Hosts[0].Used, v.Hosts[0].Writing = 1, 1
	s.New().Assign(v, &policies.Assignment{})
	if _, err := p.Place(placementView(t), workloads.Block{ID: 1, Client: 1, Size: 1, Replicas: 1}, rand.New(rand.NewPCG(1, 2))); err != nil {
		t.Fatal(err)
	}
	var schema struct {
		Defs map[string]map[string]any `json:"$defs"`
	}
	if err := json.Unmarshal(Schema, &schema); err != nil {
		t.Fatal(err)
	}
	// listed checks that the schema has all keys of a message and, of those that it lists, lacks only the given ones.
	var listed func(what string, of map[string]any, value any, missing ...string)
	listed = func(what string, of map[string]any, value any, missing ...string) {
		if list, ok := value.([]any); ok {
			if items, ok := of["items"].(map[string]any); ok && len(list) > 0 {
				listed(what, items, list[len(list)-1], missing...)
				listed(what, items, list[0], append(missing, "*")...)
			}
			return
		}
		fields, ok := value.(map[string]any)
		if !ok {
			return
		}
		known, _ := of["properties"].(map[string]any)
		for key, value := range fields {
			if known[key] == nil {
				t.Errorf("%s: the schema lacks %s", what, key)
				continue
			}
			listed(what+"."+key, known[key].(map[string]any), value, "*")
		}
		for key := range known {
			if _, has := fields[key]; !has && !slices.Contains(missing, "*") && !slices.Contains(missing, key) {
				t.Errorf("%s: the schema lists %s, which the message lacks", what, key)
			}
		}
	}
	sent := func(line string) (m any) {
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatal(err)
		}
		return m
	}
	listed("assign", schema.Defs["assign"], sent((*assign)[1]), "used", "writing", "lost")
	listed("place", schema.Defs["place"], sent((*place)[1]))
	answer := func(v any) any {
		b, _ := json.Marshal(v)
		return sent(string(b))
	}
	listed("assignment", schema.Defs["assignment"], answer(assignment{Assignment: messages.Assignment{Launch: []messages.Launch{{}}}}), "backup", "kill")
	listed("running", schema.Defs["running"], answer(messages.Attempt{}))
	listed("placement", schema.Defs["placement"], answer(placed{}))
	known := schema.Defs["hello_answer"]["properties"].(map[string]any)["needs"].(map[string]any)["items"].(map[string]any)["oneOf"]
	var facts []any
	for _, x := range policies.AllFacts() {
		if len(x.Roles) > 0 {
			facts = append(facts, map[string]any{"const": x.Name, "description": strings.Join(x.Roles, ", ") + ": " + x.Doc + "."})
		}
	}
	if d := cmp.Diff(facts, known); d != "" {
		t.Errorf("facts (-program +schema):\n%s", d)
	}
}

// The example of FAIR in Python assigns as the scheduler of the program does.
func TestPythonFair(t *testing.T) {
	builtin := tasks.DefaultFair()
	order := builtin.Order.(tasks.Fair)
	order.FairTimeout = time.Hour
	builtin.Order, builtin.Waiting, builtin.T1, builtin.T2 = order, tasks.ByTime, 500*time.Millisecond, time.Second
	waited, talk := 0, python(t, "fair.py")
	rapid.Check(t, func(rt *rapid.T) {
		s := Tasks(Settings{Parameters: map[string]any{"t1": 0.5, "t2": 1}})
		c := policytest.TaskClusters().Draw(rt, "cluster")
		// Its method start forgets other clusters.
		if err := s.Open(talk, c.Fabric, 1); err != nil {
			rt.Fatal(err)
		}
		x, n := s.New(), 0
		c.Run(rt, builtin, 60, func(v *policies.TaskView, want *policies.Assignment) {
			var got policies.Assignment
			x.Assign(policytest.MaskTasks(v, s.Needs()), &got)
			if got.Err != nil || fmt.Sprint(got.Launch, got.Kill) != fmt.Sprint(want.Launch, want.Kill) {
				rt.Fatalf("decision %d: launches %v, want %v; %v", n, got.Launch, want.Launch, got.Err)
			}
			n++
			for _, l := range want.Launch {
				if l.Locality == policies.NodeLocal {
					waited++
				}
			}
		})
	})
	if waited == 0 {
		t.Error("no map was launched next to its input")
	}
}
