package engine

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"testbed/topo"
	"testbed/topo/units"
)

// beats writes the heartbeats of consecutive hosts to a log and reads them back. It stores
// the first host and the increase of each host's counters since its previous entry, and the
// disk report only if it has changed. Thousands of hosts, most of them idle, report every
// second.
type beats struct {
	latest []Heartbeat // newest logged heartbeat, by HostID
	whole  []Heartbeat // memory for reuse
}

// consecutive is the content of the event Heartbeats in the log.
type consecutive struct {
	From   topo.HostID
	Rx, Tx []int64     // bytes, parallel
	Whole  []Heartbeat // complete heartbeats of hosts for which more than the counters changed
}

// note stores the newest logged heartbeat of a host.
func (t *beats) note(hb Heartbeat) {
	if hb.Host < 0 {
		return // invalid; the engine rejects it
	}
	for int(hb.Host) >= len(t.latest) {
		t.latest = append(t.latest, Heartbeat{})
	}
	t.latest[hb.Host] = hb
}

func (t *beats) before(h topo.HostID) Heartbeat {
	if h < 0 || int(h) >= len(t.latest) {
		return Heartbeat{}
	}
	return t.latest[h]
}

// grown returns the previous heartbeat with new counters: the common case.
func (before Heartbeat) grown(h topo.HostID, rx, tx units.Bytes) Heartbeat {
	return Heartbeat{Host: h, Rx: rx, Tx: tx, Disk: before.Disk}
}

func (d *DiskReport) equal(o *DiskReport) bool {
	if d == nil || o == nil {
		return d == o
	}
	return d.Used == o.Used && slices.Equal(d.Writing, o.Writing) && slices.Equal(d.Ended, o.Ended)
}

// row returns the number of leading events that are heartbeats of consecutive hosts.
func row(evs []Event) int {
	n := 0
	for ; n < len(evs); n++ {
		hb, ok := evs[n].(Heartbeat)
		if !ok || hb.Host < 0 || n > 0 && hb.Host != evs[n-1].(Heartbeat).Host+1 {
			break
		}
	}
	return n
}

// append appends the heartbeats of consecutive hosts.
func (t *beats) append(b []byte, evs []Event) ([]byte, error) {
	b = append(b, `{"Heartbeats":{"From":`...)
	b = strconv.AppendInt(b, int64(evs[0].(Heartbeat).Host), 10)
	b = append(b, `,"Rx":[`...)
	for i, ev := range evs {
		hb := ev.(Heartbeat)
		b = appendNext(b, i, hb.Rx-t.before(hb.Host).Rx)
	}
	b = append(b, `],"Tx":[`...)
	t.whole = t.whole[:0]
	for i, ev := range evs {
		hb := ev.(Heartbeat)
		before := t.before(hb.Host)
		b = appendNext(b, i, hb.Tx-before.Tx)
		if hb.Made != 0 || !hb.Disk.equal(before.Disk) {
			t.whole = append(t.whole, hb)
		}
		t.note(hb)
	}
	b = append(b, ']')
	for i, hb := range t.whole {
		if i == 0 {
			b = append(b, `,"Whole":[`...)
		} else {
			b = append(b, ',')
		}
		b = appendHeartbeat(b, hb)
	}
	if len(t.whole) > 0 {
		b = append(b, ']')
	}
	return append(b, `}}`...), nil
}

func appendNext(b []byte, i int, n units.Bytes) []byte {
	if i > 0 {
		b = append(b, ',')
	}
	return strconv.AppendInt(b, int64(n), 10)
}

// read decodes the output of append. hosts is the number of hosts.
func (t *beats) read(evs []Event, body json.RawMessage, hosts int) ([]Event, error) {
	var r consecutive
	if err := json.Unmarshal(body, &r); err != nil {
		return nil, err
	}
	n := len(r.Rx)
	if len(r.Tx) != n || r.From < 0 || n > hosts || int(r.From) > hosts-n {
		return nil, fmt.Errorf("heartbeats from host %d on with %d and %d counts: must have equal numbers for hosts from 0 to %d", r.From, n, len(r.Tx), hosts-1)
	}
	for i := range n {
		before := t.before(r.From + topo.HostID(i))
		hb := before.grown(r.From+topo.HostID(i), before.Rx+units.Bytes(r.Rx[i]), before.Tx+units.Bytes(r.Tx[i]))
		t.note(hb)
		evs = append(evs, hb)
	}
	for _, hb := range r.Whole {
		i := hb.Host - r.From
		if i < 0 || int(i) >= n {
			return nil, fmt.Errorf("heartbeats from host %d on with %d counts: host %d is not one of them", r.From, n, hb.Host)
		}
		evs[len(evs)-n+int(i)] = hb
		t.note(hb)
	}
	return evs, nil
}
