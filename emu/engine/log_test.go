package engine

import (
	"bytes"
	"encoding/json"
	"io"
	"math"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"testbed/policies"
	"testbed/topo/units"
	"testbed/workloads"
)

// Messages encoded by hand equal the output of json.Marshal.
func TestLogIsJSON(t *testing.T) {
	evs := []Event{
		TransferProgressed{}, TransferProgressed{Flows: []workloads.FlowID{}, Received: []units.Bytes{}},
		TransferProgressed{Flows: []workloads.FlowID{3, 0, math.MaxInt32}, Received: []units.Bytes{1, 2_500_000, 3 << 20}},
		TransferProgressed{Flows: []workloads.FlowID{1}, Received: []units.Bytes{0}},
		TransferFinished{}, TransferFinished{Flow: 12}, Heartbeat{Host: 1, Rx: 2}, Heartbeat{},
		Heartbeat{Host: 3, Rx: 5_000_000, Tx: 1, Made: 7, Disk: &DiskReport{}}, Heartbeat{Disk: &DiskReport{Used: 9000, Writing: []workloads.BlockID{4, 0}, Ended: []workloads.BlockID{2}}},
		Heartbeat{Made: math.MaxInt64, Disk: &DiskReport{Writing: []workloads.BlockID{}, Ended: []workloads.BlockID{7}}},
		RackReport{}, RackReport{Rack: 2, Rx: 3, Tx: 4_000, Made: 5}, LinkLoads{}, LinkLoads{Rates: []units.Rate{}}, LinkLoads{Rates: []units.Rate{0, 1, 2_500_000}}, HostLost{Host: 3}, TransferFailed{Flow: 3, Why: "a \"quoted\" <reason>"},
	}
	cmds := []Command{
		SetCeiling{}, SetCeiling{Flow: 7, Ceiling: 12_345_678}, SetCeiling{Flow: 7, Ceiling: 12_500_000}, SetCeiling{Flow: 1, Ceiling: policies.NoLimit},
		SetCeiling{Flow: math.MaxInt32, Ceiling: 1}, StartTransfer{Coflow: 1, Flow: workloads.Flow{ID: 2, Size: 3}}, StopChain{Block: 4},
	}
	for _, v := range append(anys(evs), anys(cmds)...) {
		want := must(json.Marshal(map[string]any{reflect.TypeOf(v).Name(): v}))
		got, err := appendTagged([]byte("before "), v)
		if diff := cmp.Diff("before "+string(want), string(got)); err != nil || diff != "" {
			t.Errorf("%T: %v %s", v, err, diff)
		}
	}
	evs = slices.DeleteFunc(evs, func(ev Event) bool { _, row := ev.(Heartbeat); return row }) // see TestHeartbeatsInALog
	for _, c := range []struct {
		evs  []Event
		cmds []Command
	}{{nil, nil}, {evs[:1], nil}, {nil, cmds[:1]}, {evs, cmds}} {
		want := map[string]any{"format": LogFormat, "t": 1500 * time.Millisecond, "events": []any{}}
		if len(c.evs) > 0 {
			want["events"] = named(anys(c.evs))
		}
		if len(c.cmds) > 0 {
			want["commands"] = named(anys(c.cmds))
		}
		text := must(json.Marshal(want))
		var buf bytes.Buffer
		log := NewLog(&buf)
		check(t, log.Observe(1500*time.Millisecond, c.evs, c.cmds))
		check(t, log.Flush())
		var got, plain any
		if err := json.Unmarshal(buf.Bytes(), &got); err != nil {
			t.Fatalf("%v: %s", err, buf.Bytes())
		}
		check(t, json.Unmarshal(text, &plain))
		if diff := cmp.Diff(plain, got); diff != "" || buf.Bytes()[buf.Len()-1] != '\n' || bytes.Count(buf.Bytes(), []byte("\n")) != 1 {
			t.Errorf("line %q: %s", buf.Bytes(), diff)
		}
	}
}

// Every event in a log is read back unchanged.
func TestEventsReadBack(t *testing.T) {
	blocks := []workloads.BlockID{3, 1}
	for _, ev := range []Event{
		CoflowArrived{Coflow: workloads.Coflow{ID: 1, Flows: []workloads.Flow{{ID: 2, Size: 3}}}, Then: []workloads.Writer{{ID: 4, Job: 5}}}, WriterArrived{workloads.Writer{ID: 3}},
		TransferProgressed{Flows: []workloads.FlowID{1}, Received: []units.Bytes{2}}, TransferFinished{3}, BlockDurable{4},
		Heartbeat{Host: 1, Rx: 2, Tx: 3}, Heartbeat{Host: 1, Rx: 2, Tx: 3, Made: 4, Disk: &DiskReport{}}, Heartbeat{Disk: &DiskReport{Used: 9, Writing: blocks, Ended: blocks}},
		RackReport{Rack: 1, Rx: 2, Tx: 3, Made: 4, At: 5}, LinkLoads{Rates: []units.Rate{5, 0, 7_000_000}}, LinkChanged{Link: 1, Rate: 2}, PathChanged{Flow: 1, Spine: 2}, HostLost{3},
		HostBack{Host: 2, DiskLost: true}, TransferFailed{Flow: 1, Why: "x"}, ReplicaLost{Block: 1, Host: 2}, BlockFailed{Block: 3, Why: "y"},
	} {
		raw, err := appendTagged(nil, ev)
		if err != nil {
			t.Fatal(err)
		}
		got, err := untag(nil, raw, 0, new(beats), 4)
		if diff := cmp.Diff([]Event{ev}, got); err != nil || diff != "" {
			t.Errorf("%s: %v %s", raw, err, diff)
		}
	}
}

func anys[E any](s []E) []any {
	out := make([]any, len(s))
	for i, v := range s {
		out[i] = v
	}
	return out
}

func named(s []any) []any {
	out := make([]any, len(s))
	for i, v := range s {
		out[i] = map[string]any{reflect.TypeOf(v).Name(): v}
	}
	return out
}

// BenchmarkLog measures the line of a step with the progress of 2,000 flows and 300 new rate
// caps. In the steady state it does not allocate.
func BenchmarkLog(b *testing.B) {
	var p TransferProgressed
	for i := range 2000 {
		p.Flows = append(p.Flows, workloads.FlowID(i))
		p.Received = append(p.Received, units.Bytes(1_234_567*i+i))
	}
	var cmds []Command
	for i := range 300 {
		cmds = append(cmds, SetCeiling{Flow: workloads.FlowID(7 * i), Ceiling: units.Rate(123_456 + 77*i)})
	}
	evs := []Event{p, TransferFinished{Flow: 9}}
	log := NewLog(io.Discard)
	b.ReportAllocs()
	for b.Loop() {
		check(b, log.Observe(time.Second, evs, cmds))
	}
}
