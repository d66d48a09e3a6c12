package engine

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// logged returns the events of each line of a log, read back.
func logged(t interface{ Fatal(...any) }, log []byte, hosts int) (out [][]Event) {
	var told beats
	for line := range bytes.Lines(log) {
		var l logLine
		check(t, json.Unmarshal(line, &l))
		var evs []Event
		for _, raw := range l.Events {
			var err error
			if evs, err = untag(evs, raw, &told, hosts); err != nil {
				t.Fatal(err)
			}
		}
		out = append(out, evs)
	}
	return out
}

// A log returns heartbeats unchanged: single, of consecutive hosts, with gaps, out of order,
// and with reset counters.
func TestHeartbeatsInALog(t *testing.T) {
	const hosts = 6
	rapid.Check(t, func(t *rapid.T) {
		var buf bytes.Buffer
		log := NewLog(&buf)
		var want [][]Event
		for i := range rapid.IntRange(1, 6).Draw(t, "steps") {
			var evs []Event
			for range rapid.IntRange(0, 12).Draw(t, "events") {
				next := Heartbeat{Rx: units.Bytes(rapid.IntRange(0, 5e9).Draw(t, "rx")), Tx: units.Bytes(rapid.IntRange(0, 9).Draw(t, "tx"))}
				switch rapid.IntRange(0, 4).Draw(t, "disk") {
				case 0:
					next.Disk = &DiskReport{Used: units.Bytes(rapid.IntRange(0, 2).Draw(t, "used"))}
				case 1:
					next.Disk = &DiskReport{Used: 1, Writing: []workloads.BlockID{workloads.BlockID(rapid.IntRange(0, 1).Draw(t, "block"))}}
				case 2:
					next.Made = time.Duration(rapid.IntRange(0, 3).Draw(t, "made"))
				}
				switch {
				case rapid.IntRange(0, 4).Draw(t, "kind") == 0:
					evs = append(evs, TransferFinished{Flow: workloads.FlowID(i)})
					continue
				case len(evs) > 0 && rapid.Bool().Draw(t, "next"):
					if hb, ok := evs[len(evs)-1].(Heartbeat); ok && hb.Host < hosts-1 {
						next.Host = hb.Host + 1
					}
				default:
					next.Host = topo.HostID(rapid.IntRange(0, hosts-1).Draw(t, "host"))
				}
				evs = append(evs, next)
			}
			want = append(want, evs)
			check(t, log.Observe(time.Duration(i), evs, nil))
		}
		check(t, log.Flush())
		if d := cmp.Diff(want, logged(t, buf.Bytes(), hosts)); d != "" {
			t.Fatalf("(-logged +read):\n%s", d)
		}
	})
}

func TestHeartbeatsInARow(t *testing.T) {
	var buf bytes.Buffer
	log := NewLog(&buf)
	for i, evs := range [][]Event{
		{Heartbeat{Host: 4, Rx: 7, Tx: 1}, Heartbeat{Host: 5, Rx: 20, Tx: 2}, Heartbeat{Host: 7, Rx: 1}},
		{Heartbeat{Host: 5, Rx: 30, Tx: 2}},
		{Heartbeat{Host: 4, Rx: 7, Tx: 101}, Heartbeat{Host: 5, Rx: 31, Tx: 2}},
	} {
		check(t, log.Observe(time.Duration(i), evs, nil))
	}
	check(t, log.Flush())
	want := `{"format":2,"t":0,"events":[{"Heartbeats":{"From":4,"Rx":[7,20],"Tx":[1,2]}},{"Heartbeat":{"Host":7,"Rx":"1B","Tx":"0B"}}]}
{"t":1,"events":[{"Heartbeat":{"Host":5,"Rx":"30B","Tx":"2B"}}]}
{"t":2,"events":[{"Heartbeats":{"From":4,"Rx":[0,1],"Tx":[100,0]}}]}
`
	if d := cmp.Diff(want, buf.String()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// A complete heartbeat in the list Whole replaces the one of the row.
func TestWholeHeartbeats(t *testing.T) {
	told := beats{latest: []Heartbeat{{Host: 0, Rx: 5}, {Host: 1, Rx: 6}}}
	got, err := untag([]Event{HostLost{}}, json.RawMessage(`{"Heartbeats":{"From":0,"Rx":[4,4],"Tx":[1,1],"Whole":[{"Host":1,"Rx":"10B","Tx":"2B"}]}}`), &told, 2)
	want := []Event{HostLost{}, Heartbeat{Host: 0, Rx: 9, Tx: 1}, Heartbeat{Host: 1, Rx: 10, Tx: 2}}
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, d)
	}
}

func TestDamagedHeartbeats(t *testing.T) {
	for _, text := range []string{
		`{"Heartbeats":{"From":0,"Rx":[1,2],"Tx":[1]}}`,
		`{"Heartbeats":{"From":-1,"Rx":[1],"Tx":[1]}}`,
		`{"Heartbeats":{"From":2,"Rx":[1,2],"Tx":[1,2]}}`,
		`{"Heartbeats":{"From":9223372036854775807,"Rx":[1],"Tx":[1]}}`,
		`{"Heartbeats":{"From":0,"Rx":[1],"Tx":[1],"Whole":[{"Host":1}]}}`,
		`{"Heartbeats":[]}`,
	} {
		var told beats
		evs, err := untag(nil, json.RawMessage(text), &told, 3)
		if err == nil || len(evs) > 0 {
			t.Errorf("%s: %v, %v, want an error", text, evs, err)
		} else if !strings.HasPrefix(err.Error(), "heartbeats from host") && !strings.HasPrefix(err.Error(), "json:") {
			t.Errorf("%s: %v", text, err)
		}
	}
}
