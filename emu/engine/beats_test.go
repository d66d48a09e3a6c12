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
			if evs, err = untag(evs, raw, l.T, &told, hosts); err != nil {
				t.Fatal(err)
			}
		}
		out = append(out, evs)
	}
	return out
}

// A log returns heartbeats unchanged: single, in any order, also in that of the previous ones, held back, and
// with reset counters.
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
				case 3:
					next.At = time.Duration(rapid.IntRange(0, max(0, i-1)).Draw(t, "at"))
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

// Rows follow the order of the previous heartbeats, and times their interval.
func TestHeartbeatsInARow(t *testing.T) {
	var buf bytes.Buffer
	log := NewLog(&buf)
	all := [][]Event{
		{Heartbeat{Host: 2, At: 1}, Heartbeat{Host: 0, At: 3}, Heartbeat{Host: 1, At: 6}, TransferFinished{9}},
		{Heartbeat{Host: 2, Rx: 7, At: 11}, Heartbeat{Host: 0, At: 13}, Heartbeat{Host: 1}},
		{Heartbeat{Host: 2, Rx: 7, At: 21}, Heartbeat{Host: 0, Tx: 5, At: 23}, TransferFinished{9}},
		{Heartbeat{Host: 1}},
		{Heartbeat{Host: 2, Rx: 8, At: 31}, Heartbeat{Host: 0, Tx: 5, At: 34}, Heartbeat{Host: 1, At: 36}, TransferFinished{9}},
	}
	for i, evs := range all {
		check(t, log.Observe([]time.Duration{6, 16, 25, 26, 40}[i], evs, nil))
	}
	check(t, log.Flush())
	want := `{"format":3,"t":6,"events":[{"Heartbeat":{"Host":2,"Rx":"0B","Tx":"0B","At":1}},{"Heartbeats":{"From":0,"Rx":[0,0],"Tx":[0,0],"Whole":[{"Host":0,"Rx":"0B","Tx":"0B","At":3}],"Places":[0]}},{"TransferFinished":{"Flow":9}}]}
{"t":16,"events":[{"Heartbeats":{"From":2,"Rx":[7,0,0],"Tx":[0,0,0],"Whole":[{"Host":2,"Rx":"7B","Tx":"0B","At":11},{"Host":0,"Rx":"0B","Tx":"0B","At":13},{"Host":1,"Rx":"0B","Tx":"0B"}],"Places":[0,1,2]}}]}
{"t":25,"events":[{"Heartbeats":{"From":2,"Rx":[0,0],"Tx":[0,5]}},{"TransferFinished":{"Flow":9}}]}
{"t":26,"events":[{"Heartbeats":{"From":1,"Rx":[0],"Tx":[0]}}]}
{"t":40,"events":[{"Heartbeats":{"From":2,"Rx":[1,0,0],"Tx":[0,0,0],"Whole":[{"Host":0,"Rx":"0B","Tx":"5B","At":34}],"Places":[1]}},{"TransferFinished":{"Flow":9}}]}
`
	if d := cmp.Diff(want, buf.String()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	all[0][2] = Heartbeat{Host: 1} // at the time of its step
	if d := cmp.Diff(all, logged(t, buf.Bytes(), 3)); d != "" {
		t.Errorf("(-logged +read):\n%s", d)
	}
}

func TestDamagedHeartbeats(t *testing.T) {
	for _, text := range []string{
		`{"Heartbeats":{"From":0,"Rx":[1,2],"Tx":[1]}}`,
		`{"Heartbeats":{"From":-1,"Rx":[1],"Tx":[1]}}`,
		`{"Heartbeats":{"From":2,"Rx":[1,2],"Tx":[1,2]}}`,
		`{"Heartbeats":{"From":9223372036854775807,"Rx":[1],"Tx":[1]}}`,
		`{"Heartbeats":{"From":0,"Rx":[1],"Tx":[1],"Whole":[{"Host":1}],"Places":[0]}}`,
		`{"Heartbeats":{"From":0,"Rx":[1],"Tx":[1],"Whole":[{"Host":0}],"Places":[1]}}`,
		`{"Heartbeats":{"From":0,"Rx":[1],"Tx":[1],"Whole":[{"Host":0}]}}`,
		`{"Heartbeats":[]}`,
	} {
		var told beats
		evs, err := untag(nil, json.RawMessage(text), 0, &told, 3)
		if err == nil || len(evs) > 0 {
			t.Errorf("%s: %v, %v, want an error", text, evs, err)
		} else if !strings.HasPrefix(err.Error(), "heartbeats from host") && !strings.HasPrefix(err.Error(), "json:") {
			t.Errorf("%s: %v", text, err)
		}
	}
}
