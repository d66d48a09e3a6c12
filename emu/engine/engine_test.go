package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"testbed/policies"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// scheduler is a coflow policy that calls a function.
type scheduler struct {
	unlimited bool
	needs     policies.Facts
	triggers  policies.Triggers
	f         func(*policies.CoflowView, *policies.Schedule)
}

// visible is what policies of these tests see, unless they test what is hidden.
const visible = policies.Progress | policies.Links

func (s scheduler) Unlimited() bool                                       { return s.unlimited }
func (s scheduler) Needs() policies.Facts                                 { return s.needs }
func (s scheduler) New() policies.CoflowInstance                          { return s }
func (s scheduler) Triggers() policies.Triggers                           { return s.triggers }
func (s scheduler) Decide(v *policies.CoflowView, out *policies.Schedule) { s.f(v, out) }

// always is a policy that is called at every arrival and end.
func always(f func(*policies.CoflowView, *policies.Schedule)) scheduler {
	return scheduler{triggers: policies.Triggers{Coflows: true, Flows: true}, f: f}
}

// placeFunc is a placement policy that calls a function.
type placeFunc func(*policies.PlacementView, workloads.Block, *rand.Rand) ([]topo.HostID, error)

func (placeFunc) Needs() policies.Facts { return policies.LinkLoad | policies.DiskUse }
func (f placeFunc) Place(v *policies.PlacementView, b workloads.Block, rng *rand.Rand) ([]topo.HostID, error) {
	return f(v, b, rng)
}

func free(v *policies.CoflowView, s *policies.Schedule) {
	s.Steps = append(s.Steps, policies.Step{Rule: policies.Free, Coflows: s.Order(len(v.Coflows))})
}

func none(*policies.CoflowView, *policies.Schedule) {}

// explicit returns a schedule function with explicit rates.
func explicit(rates ...policies.FlowRate) func(*policies.CoflowView, *policies.Schedule) {
	return func(_ *policies.CoflowView, s *policies.Schedule) {
		s.Steps = append(s.Steps, policies.Step{Rule: policies.Explicit, Rates: rates})
	}
}

func testConfig(t testing.TB, coflow policies.CoflowScheduler, placement policies.Placer) Config {
	t.Helper()
	f := must(topo.LeafSpine{Leaves: 2, Spines: 1, HostsPerLeaf: 2, HostLink: 10 * units.Mbps,
		Oversubscription: units.Ratio{Num: 2, Den: 1}, Queue: topo.Queue{Time: time.Millisecond}, MTU: 1500}.Build())
	return Config{Fabric: f, Coflow: coflow, Placement: placement, Heartbeat: time.Second, Alpha: 0.2, Seed: 1, IDs: workloads.IDs{Coflow: 100, Flow: 100}}
}

func newEngine(t *testing.T, c Config) *Engine {
	t.Helper()
	e := must(New(c))
	return e
}

func step(t *testing.T, e *Engine, now time.Duration, evs ...Event) []Command {
	t.Helper()
	cmds := must(e.Step(now, evs...))
	return cmds
}

// check fails a test if a part of its setup has failed.
func check(t interface{ Fatal(...any) }, err error) {
	if err != nil {
		t.Fatal(err)
	}
}

// must returns the value of a call that cannot fail, or panics.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func coflowOf(id workloads.CoflowID, flows ...workloads.Flow) CoflowArrived {
	return CoflowArrived{Coflow: workloads.Coflow{ID: id, Flows: flows}}
}

// Steps are served in order, from the residual capacity. Capacity left at the end stays
// idle: a flow that no step serves is paused.
func TestSteps(t *testing.T) {
	steps := func(greedy bool) scheduler {
		return always(func(v *policies.CoflowView, s *policies.Schedule) {
			explicit(policies.FlowRate{Flow: 1, Rate: 4e6}, policies.FlowRate{Flow: 0, Rate: 1e6})(v, s)
			if greedy {
				s.Steps = append(s.Steps, policies.Step{Rule: policies.Greedy, Coflows: s.Order(1)})
			}
		})
	}
	for _, tt := range []struct {
		greedy bool
		want   []units.Rate
	}{
		{false, []units.Rate{1 * units.Mbps, 4 * units.Mbps, 0, 0}},
		{true, []units.Rate{6 * units.Mbps, 4 * units.Mbps, 6 * units.Mbps, 10 * units.Mbps}},
	} {
		e := newEngine(t, testConfig(t, steps(tt.greedy), nil))
		cmds := step(t, e, 0, coflowOf(1,
			workloads.Flow{ID: 0, Src: 0, Dst: 2, Size: 1e6}, // crosses the 10 Mbps uplink
			workloads.Flow{ID: 1, Src: 1, Dst: 3, Size: 1e6}, // crosses the 10 Mbps uplink
			workloads.Flow{ID: 2, Src: 2, Dst: 3, Size: 1e6}, // shares h1-01's downlink with flow 1
			workloads.Flow{ID: 3, Src: 3, Dst: 0, Size: 1e6}, // shares nothing
		))
		var got []units.Rate
		for _, c := range cmds[1:] {
			got = append(got, c.(StartTransfer).Ceiling)
		}
		if d := cmp.Diff(tt.want, got); d != "" {
			t.Errorf("greedy %v: ceilings (-want +got):\n%s", tt.greedy, d)
		}
	}
}

func TestHidesWhatAPolicyDidNotAskFor(t *testing.T) {
	for _, needs := range []policies.Facts{
		visible, visible | policies.Sizes, visible | policies.Totals, visible | policies.Flows, visible | policies.NewFlows,
		visible | policies.Sizes | policies.NewFlows, visible | policies.Sizes | policies.LinkLoad | policies.Flows,
	} {
		decisions := 0
		look := func(v *policies.CoflowView, s *policies.Schedule) {
			decisions++
			knows, shows := needs.Has(policies.Sizes), needs.Has(policies.Flows) || needs.Has(policies.NewFlows) && decisions == 1
			c, totals := v.Coflows[0], needs.Has(policies.Totals)
			if (c.Size == 130) != totals || (c.Largest == 100) != totals || (c.Remaining > 0) != knows || (c.Bound > 0) != totals || (c.Links[0].Remaining > 0) != knows {
				t.Errorf("needs %+v, decision %d: coflow %+v", needs, decisions, c)
			}
			if (len(c.Flows) > 0) != shows {
				t.Errorf("needs %+v, decision %d: flows %+v", needs, decisions, c.Flows)
			}
			for _, f := range c.Flows {
				if (f.Size > 0) != knows || (f.Remaining > 0) != knows || decisions == 2 && f.ID == 0 && f.Sent != 30 {
					t.Errorf("needs %+v, decision %d: flow %+v", needs, decisions, f)
				}
			}
			if (v.Hosts[2].Rx > 0) != (needs.Has(policies.LinkLoad) && decisions > 1) {
				t.Errorf("needs %+v, decision %d: host %+v", needs, decisions, v.Hosts[2])
			}
			free(v, s)
		}
		p := always(look)
		p.needs = needs
		e := newEngine(t, testConfig(t, p, nil))
		step(t, e, 0, coflowOf(1, workloads.Flow{ID: 0, Src: 0, Dst: 2, Size: 100}, workloads.Flow{ID: 1, Src: 0, Dst: 3, Size: 30}))
		step(t, e, 1, TransferProgressed{[]workloads.FlowID{0}, []units.Bytes{30}}, Heartbeat{Host: 2, Rx: 30}, TransferFinished{1})
		if decisions != 2 {
			t.Errorf("%d decisions, want 2", decisions)
		}
	}
}

func TestStepRejects(t *testing.T) {
	fl := workloads.Flow{ID: 0, Src: 0, Dst: 2, Size: 100}
	blk := workloads.Block{ID: 1, Size: 10, Replicas: 2, Packet: 1, Window: 1}
	over := always(explicit(policies.FlowRate{Flow: 0, Rate: 1e9}))
	stranger := always(explicit(policies.FlowRate{Flow: 9}))
	negative := always(explicit(policies.FlowRate{Flow: 0, Rate: -1}))
	saying := func(say func(*policies.Schedule)) scheduler {
		return always(func(v *policies.CoflowView, s *policies.Schedule) { say(s) })
	}
	queues := saying(func(s *policies.Schedule) { s.Queues = append(s.Queues, 1, 2) })
	watch := saying(func(s *policies.Schedule) { s.Watch = append(s.Watch, 1, 2) })
	pilot := saying(func(s *policies.Schedule) { s.Pilots = append(s.Pilots, 9) })
	place := saying(func(s *policies.Schedule) { s.Steps = append(s.Steps, policies.Step{Coflows: []int{1}}) })
	outside := saying(func(s *policies.Schedule) { s.Err = errors.New("coflow policy mine.py: line 2") })
	madd := saying(func(s *policies.Schedule) {
		s.Steps = append(s.Steps, policies.Step{Rule: policies.MADD, Coflows: []int{0}})
	})
	same := placeFunc(func(*policies.PlacementView, workloads.Block, *rand.Rand) ([]topo.HostID, error) {
		return []topo.HostID{1, 1}, nil
	})
	few := placeFunc(func(*policies.PlacementView, workloads.Block, *rand.Rand) ([]topo.HostID, error) {
		return []topo.HostID{1}, nil
	})
	full := placeFunc(func(*policies.PlacementView, workloads.Block, *rand.Rand) ([]topo.HostID, error) {
		return nil, errors.New("disks full")
	})
	ok := always(free)
	write := WriterArrived{workloads.Writer{Blocks: []workloads.Block{blk}}}
	for _, tt := range []struct {
		name   string
		coflow policies.CoflowScheduler
		place  policies.Placer
		evs    []Event
		want   string
	}{
		{"empty coflow", ok, nil, []Event{coflowOf(1)}, "coflow 1 has no flows"},
		{"flow to itself", ok, nil, []Event{coflowOf(1, workloads.Flow{ID: 0, Src: 2, Dst: 2, Size: 1})}, "two different hosts"},
		{"unknown host", ok, nil, []Event{coflowOf(1, workloads.Flow{ID: 0, Src: 0, Dst: 99, Size: 1})}, "two different hosts"},
		{"flow twice", ok, nil, []Event{coflowOf(1, fl), coflowOf(2, fl)}, "already arrived"},
		{"unknown flow finishes", ok, nil, []Event{TransferFinished{3}}, "flow 3 finished"},
		{"progress of a stranger", ok, nil, []Event{TransferProgressed{[]workloads.FlowID{3}, []units.Bytes{1}}}, "flow 3"},
		{"progress too far", ok, nil, []Event{coflowOf(1, fl), TransferProgressed{[]workloads.FlowID{0}, []units.Bytes{101}}}, "101 of 100 bytes"},
		{"ragged progress", ok, nil, []Event{TransferProgressed{[]workloads.FlowID{3}, nil}}, "1 flows with 0 counts"},
		{"over-full link", over, nil, []Event{coflowOf(1, fl)}, "at 0s: coflow policy mine: schedule: step 0 (Explicit): flow 0: rate 1e+09 bit/s: exceeds the residual capacity"},
		{"rate for a stranger", stranger, nil, []Event{coflowOf(1, fl)}, "flow 9"},
		{"negative rate", negative, nil, []Event{coflowOf(1, fl)}, "0 or more"},
		{"queues of two", queues, nil, []Event{coflowOf(1, fl)}, "at 0s: coflow policy mine: schedule: Queues has 2 values: must be one for each of 1 coflows"},
		{"watches two", watch, nil, []Event{coflowOf(1, fl)}, "Watch has 2 values: must be one for each of 1 coflows"},
		{"strange pilot", pilot, nil, []Event{coflowOf(1, fl)}, "pilot flow 9 is not running"},
		{"strange coflow", place, nil, []Event{coflowOf(1, fl)}, "coflow 1"},
		{"outside", outside, nil, []Event{coflowOf(1, fl)}, "at 0s: coflow policy mine.py: line 2"},
		{"sizes not declared", madd, nil, []Event{coflowOf(1, fl)}, "Sizes"},
		{"no placement policy", ok, nil, []Event{write}, "no placement policy"},
		{"same host twice", ok, same, []Event{write}, "must be different hosts"},
		{"too few hosts", ok, few, []Event{write}, "at 0s: placement policy ours: 1 hosts for 2 replicas"},
		{"placement fails", ok, full, []Event{write}, "place block 1 of 10B from h0-00: disks full"},
		{"unknown block durable", ok, nil, []Event{BlockDurable{8}}, "block 8 durable"},
		{"writer without blocks", ok, nil, []Event{WriterArrived{}}, "has no blocks"},
		{"heartbeat of a stranger", ok, nil, []Event{Heartbeat{Host: 77}}, "unknown host 77"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg := testConfig(t, tt.coflow, tt.place)
			cfg.Names = map[string]string{"coflow": "coflow policy mine", "placement": "placement policy ours"}
			if _, err := newEngine(t, cfg).Step(0, tt.evs...); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one that contains %q", err, tt.want)
			}
		})
	}
	e := newEngine(t, testConfig(t, ok, nil))
	step(t, e, 5)
	if _, err := e.Step(4); err == nil {
		t.Error("time went back and nothing was said")
	}
}

// instant is a backend on which every operation takes one second.
type instant struct {
	now     time.Duration
	pending []Event
}

func (b *instant) Do(_ context.Context, cmds []Command) error {
	for _, c := range cmds {
		switch c := c.(type) {
		case StartTransfer:
			b.pending = append(b.pending, TransferFinished{c.Flow.ID})
		case StartChain:
			b.pending = append(b.pending, BlockDurable{c.Block.ID})
		}
	}
	return nil
}

func (b *instant) Await(ctx context.Context, wake time.Duration) (time.Duration, []Event, error) {
	if err := ctx.Err(); err != nil {
		return b.now, nil, err
	}
	if len(b.pending) == 0 {
		b.now = max(b.now, wake)
		return b.now, nil, nil
	}
	b.now = min(b.now+time.Second, max(wake, b.now))
	evs := b.pending
	b.pending = nil
	return b.now, evs, nil
}

func smallWorkload() workloads.Workload {
	return workloads.Workload{
		Coflows: []workloads.Coflow{
			{ID: 1, Arrival: 0, Flows: []workloads.Flow{{ID: 0, Src: 0, Dst: 2, Size: 100}, {ID: 1, Src: 1, Dst: 3, Size: 10}}},
			{ID: 2, Arrival: 5 * time.Second, Flows: []workloads.Flow{{ID: 2, Src: 2, Dst: 1, Size: 7}}},
		},
		Writers: []workloads.Writer{{ID: 0, Client: 3, Start: time.Second, Blocks: []workloads.Block{
			{ID: 0, Client: 3, Size: 10, Replicas: 2, Packet: 5, Window: 1}, {ID: 1, Client: 3, Size: 10, Replicas: 2, Packet: 5, Window: 1}}}},
	}
}

func TestRunReplaysFromItsLog(t *testing.T) {
	place := placeFunc(func(v *policies.PlacementView, b workloads.Block, rng *rand.Rand) ([]topo.HostID, error) {
		return []topo.HostID{b.Client, topo.HostID(rng.IntN(3))}, nil
	})
	cfg := testConfig(t, always(free), place)
	var buf bytes.Buffer
	log := NewLog(&buf)
	check(t, Run(t.Context(), newEngine(t, cfg), &instant{}, Arrivals(smallWorkload()), log.Observe))
	check(t, log.Flush())
	got, err := Replay(t.Context(), bytes.NewReader(buf.Bytes()), newEngine(t, cfg))
	if err != nil || got.Differs != nil || got.Unfinished != "" || got.Steps < 5 || got.Commands < 5 {
		t.Fatalf("Replay = %+v, %v", got, err)
	}
	cfg.Coflow = always(none)
	got, err = Replay(t.Context(), bytes.NewReader(buf.Bytes()), newEngine(t, cfg))
	if err != nil || got.Differs == nil || got.Differs.Step != 1 || string(got.Differs.Logged) == string(got.Differs.Replayed) {
		t.Errorf("replay under another policy: %+v, %v", got, err)
	}
}

// Replay reports a changed, added or removed command with its step and index, and a damaged
// log with its line.
func TestReplayFindsTheStep(t *testing.T) {
	place := placeFunc(func(v *policies.PlacementView, b workloads.Block, rng *rand.Rand) ([]topo.HostID, error) {
		return []topo.HostID{b.Client, topo.HostID(rng.IntN(3))}, nil
	})
	cfg := testConfig(t, always(free), place)
	var buf bytes.Buffer
	log := NewLog(&buf)
	check(t, Run(t.Context(), newEngine(t, cfg), &instant{}, Arrivals(smallWorkload()), log.Observe))
	check(t, log.Flush())
	lines := strings.SplitAfter(strings.TrimSuffix(buf.String(), "\n"), "\n")
	lines[len(lines)-1] += "\n"
	replay := func(edit func([]string)) (Replayed, error) {
		edited := slices.Clone(lines)
		edit(edited)
		return Replay(t.Context(), strings.NewReader(strings.Join(edited, "")), newEngine(t, cfg))
	}
	edits := 0
	for k, text := range lines {
		var line logLine
		check(t, json.Unmarshal([]byte(text), &line))
		marshal := func(cmds []json.RawMessage) string {
			line.Commands = cmds
			b := must(json.Marshal(line))
			return string(b) + "\n"
		}
		original := line.Commands
		format := ""
		if k == 0 {
			format = "\"format\":3,"
		}
		other := json.RawMessage(`{"StopChain":{"Block":77}}`)
		for i := range original {
			changed := slices.Clone(original)
			changed[i] = other
			got, err := replay(func(l []string) { l[k] = marshal(changed) })
			if d := got.Differs; err != nil || got.Steps != k || d == nil || d.Step != k+1 || d.Command != i+1 || string(d.Logged) != string(other) || string(d.Replayed) != string(original[i]) || len(d.Events) != len(line.Events) {
				t.Errorf("command %d of step %d changed: %+v, %v", i+1, k+1, got, err)
			}
			edits++
		}
		got, err := replay(func(l []string) { l[k] = marshal(append(slices.Clone(original), other)) })
		if d := got.Differs; err != nil || d == nil || d.Step != k+1 || d.Command != len(original)+1 || d.Replayed != nil || d.LoggedCommands != d.ReplayedCommands+1 {
			t.Errorf("a command added to step %d: %+v, %v", k+1, got, err)
		}
		if len(original) > 0 {
			got, err := replay(func(l []string) { l[k] = marshal(original[:len(original)-1]) })
			if d := got.Differs; err != nil || d == nil || d.Step != k+1 || d.Command != len(original) || d.Logged != nil {
				t.Errorf("a command taken from step %d: %+v, %v", k+1, got, err)
			}
		}
		for _, damage := range []struct {
			name, want string
			edit       func([]string)
		}{
			{"cut off", "cut off after", func(l []string) {
				l[k] = l[k][:len(l[k])/2]
				clear(l[k+1:])
			}},
			{"noise", "not a step", func(l []string) { l[k] = "\x00\xff" + l[k] }},
			{"two in a line", "more after it", func(l []string) { l[k] = strings.TrimSuffix(l[k], "\n") + l[k] }},
			{"no event", "no events", func(l []string) { l[k] = "{" + format + "\"t\":1}\n" }},
			{"unknown event", "unknown event", func(l []string) { l[k] = "{" + format + "\"t\":1,\"events\":[{\"Nonsense\":{}}]}\n" }},
			{"unknown key", "unknown field", func(l []string) { l[k] = "{" + format + "\"t\":1,\"evnts\":[]}\n" }},
			{"time that goes back", "refuses the step", func(l []string) { l[k] = strings.Replace(l[k], "\"t\":", "\"t\":-", 1) + l[k] }},
		} {
			if damage.name == "time that goes back" && line.T == 0 {
				continue
			}
			got, err := replay(damage.edit)
			var bad *LogError
			if !errors.As(err, &bad) || bad.Line != k+1 || !strings.Contains(err.Error(), damage.want) || got.Steps != k {
				t.Errorf("line %d, %s: %+v, %v, want an error of line %d with %q", k+1, damage.name, got, err, k+1, damage.want)
			}
		}
	}
	if edits < 5 {
		t.Errorf("%d commands were changed, want 5 or more", edits)
	}
	if got, err := Replay(t.Context(), strings.NewReader(""), newEngine(t, cfg)); err != nil || got != (Replayed{}) {
		t.Errorf("empty log: %+v, %v", got, err)
	}
	// A log that ends at the end of a line may still be incomplete.
	if got, err := replay(func(l []string) { clear(l[1:]) }); err != nil || !strings.Contains(got.Unfinished, "coflows") {
		t.Errorf("a log of one step: %+v, %v", got, err)
	}
}

func FuzzReplay(f *testing.F) {
	f.Add([]byte(`{"t":0,"events":[{"CoflowArrived":{"Coflow":{"ID":1,"Flows":[{"ID":0,"Src":0,"Dst":2,"Size":"100B"}]}}}]}` + "\n"))
	f.Add([]byte("{\"t\":5,\"events\":[{\"Heartbeat\":{\"Host\":9}}]}\n"))
	f.Add([]byte("{\"t\":5,\"events\":[{\"TransferProgressed\":{\"Flows\":[1,2],\"Received\":[]}}]}\n"))
	f.Add([]byte("{\"t\":5,\"events\":[{\"LinkChanged\":{\"Link\":-1}},{\"PathChanged\":{}},{\"HostLost\":{\"Host\":99}},{\"WriterArrived\":{}}]}\n"))
	f.Add([]byte(`{"t":0,"events":[{"CoflowArrived":{"Coflow":{"ID":1,"Flows":[{"ID":0,"Src":99,"Dst":-2,"Size":"100B"}]}}}]}` + "\n"))
	f.Add([]byte(`{"t":0,"events":[{"WriterArrived":{"Writer":{"ID":1,"Client":99,"Blocks":[{"ID":0,"Client":99,"Size":"10B","Replicas":2}]}}}]}` + "\n"))
	f.Add([]byte(`{"t":0,"events":[{"CoflowArrived":{"Coflow":{"ID":1}}},{"LinkChanged":{"Link":900}},{"HostBack":{"Host":-1}},{"ReplicaLost":{"Block":3,"Host":70}}]}` + "\n"))
	f.Add([]byte(`{"t":5,"events":[{"Heartbeat":{"Host":1,"Rx":"9223372036854775807B","Tx":"0B","Made":9,"Disk":{"Used":"9223372036854775807B","Writing":[1,1,-3],"Ended":[1]}}},{"RackReport":{"Rack":9}},{"LinkLoads":{"Rates":["1bps"]}}]}` + "\n"))
	f.Add([]byte(`{"t":0,"events":[{"WriterArrived":{"Writer":{"ID":1,"Client":3,"Blocks":[{"ID":0,"Client":3,"Size":"10B","Replicas":2,"Packet":"1B","Window":1}]}}},{"Heartbeat":{"Host":3,"Disk":{"Used":"9223372036854775807B"}}},{"BlockDurable":{"Block":0}}]}` + "\n"))
	cfg := testConfig(f, always(free), placeFunc(func(v *policies.PlacementView, b workloads.Block, rng *rand.Rand) ([]topo.HostID, error) {
		return []topo.HostID{b.Client, topo.HostID(rng.IntN(3))}, nil
	}))
	f.Fuzz(func(t *testing.T, log []byte) {
		e := must(New(cfg))
		// It must not panic; the error depends on the log.
		if _, err := Replay(context.Background(), bytes.NewReader(log), e); err != nil && err.Error() == "" {
			t.Error("an error without a word")
		}
	})
}

func TestRunStopsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("interrupted")
	observe := func(time.Duration, []Event, []Command) error { cancel(stop); return nil }
	err := Run(ctx, newEngine(t, testConfig(t, always(free), nil)), &instant{}, Arrivals(workloads.Workload{Coflows: smallWorkload().Coflows}), observe)
	if !errors.Is(err, stop) || !strings.Contains(err.Error(), "unfinished") {
		t.Errorf("Run = %v", err)
	}
}
