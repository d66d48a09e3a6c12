package engine

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"testbed/topo"
	"testbed/topo/units"
)

// beats writes heartbeats to a log and reads them back, in rows of hosts that report one after the other, as
// they did before. It stores the first host and the increase of each host's counters since its previous
// heartbeat, and the disk report only if it has changed. Thousands of hosts, most of them idle, report every
// second.
type beats struct {
	hosts []beating // by HostID
	last  topo.HostID
	begun bool // last is the host of the newest heartbeat

	rx, tx []int64 // memory for reuse
	whole  []Heartbeat
	places []int
}

// beating is what the log shows of a host.
type beating struct {
	latest Heartbeat
	at     time.Duration // arrival of latest
	every  time.Duration // time since the heartbeat before latest
	next   topo.HostID   // whose heartbeat followed latest
	known  bool          // next is valid
}

// row is the content of the event Heartbeats in the log.
type row struct {
	From   topo.HostID
	Rx, Tx []int64     // bytes, parallel
	Whole  []Heartbeat // complete heartbeats of hosts for which more than the counters changed
	Places []int       // of Whole in the row
}

func (t *beats) host(h topo.HostID) *beating {
	for int(h) >= len(t.hosts) {
		t.hosts = append(t.hosts, beating{})
	}
	return &t.hosts[h]
}

// note stores the newest logged heartbeat of a host, which arrived at a time.
func (t *beats) note(hb *Heartbeat, at time.Duration) {
	x := t.host(hb.Host)
	x.latest, x.at, x.every = *hb, at, at-x.at
	if t.begun {
		last := &t.hosts[t.last]
		last.next, last.known = hb.Host, true
	}
	t.last, t.begun = hb.Host, true
}

// after returns the host whose heartbeat is expected after that of h.
func (t *beats) after(h topo.HostID) topo.HostID {
	if x := &t.hosts[h]; x.known {
		return x.next
	}
	return h + 1
}

// expected returns when the next heartbeat of a host is expected, as Heartbeat.At in a step at the time now.
func (x *beating) expected(now time.Duration) time.Duration {
	if at := x.at + x.every; at != now {
		return at
	}
	return 0
}

func (d *DiskReport) equal(o *DiskReport) bool {
	if d == nil || o == nil {
		return d == o
	}
	return d.Used == o.Used && slices.Equal(d.Writing, o.Writing) && slices.Equal(d.Ended, o.Ended)
}

// append appends the row of heartbeats with which evs begins, and returns its length, at least 1.
func (t *beats) append(b []byte, now time.Duration, evs []Event) ([]byte, int) {
	t.rx, t.tx, t.whole, t.places = t.rx[:0], t.tx[:0], t.whole[:0], t.places[:0]
	first, n := evs[0].(Heartbeat).Host, 0
	for ; n < len(evs); n++ {
		hb, ok := evs[n].(Heartbeat)
		if !ok || n > 0 && hb.Host != t.after(t.last) {
			break
		}
		if hb.At == now {
			hb.At = 0
		}
		x := t.host(hb.Host)
		t.rx, t.tx = append(t.rx, int64(hb.Rx-x.latest.Rx)), append(t.tx, int64(hb.Tx-x.latest.Tx))
		if hb.Made != 0 || hb.At != x.expected(now) || !hb.Disk.equal(x.latest.Disk) {
			t.whole, t.places = append(t.whole, hb), append(t.places, n)
		}
		t.note(&hb, cmp.Or(hb.At, now))
	}
	if n == 1 && len(t.whole) == 1 {
		return append(appendHeartbeat(append(b, `{"Heartbeat":`...), t.whole[0]), '}'), n
	}
	b = strconv.AppendInt(append(b, `{"Heartbeats":{"From":`...), int64(first), 10)
	b = appendInts(append(b, `,"Rx":`...), t.rx)
	b = appendInts(append(b, `,"Tx":`...), t.tx)
	if len(t.whole) > 0 {
		b = appendList(append(b, `,"Whole":`...), t.whole, appendHeartbeat)
		b = appendInts(append(b, `,"Places":`...), t.places)
	}
	return append(b, `}}`...), n
}

// read decodes a row in a step at the time now. hosts is the number of hosts.
func (t *beats) read(evs []Event, body json.RawMessage, now time.Duration, hosts int) ([]Event, error) {
	var r row
	if err := json.Unmarshal(body, &r); err != nil {
		return nil, err
	}
	if len(r.Tx) != len(r.Rx) || len(r.Places) != len(r.Whole) {
		return nil, fmt.Errorf("heartbeats from host %d on with %d and %d counts, and %d whole with %d places: must have equal numbers", r.From, len(r.Rx), len(r.Tx), len(r.Whole), len(r.Places))
	}
	whole := 0
	h := r.From
	for i := range r.Rx {
		if i > 0 {
			h = t.after(h)
		}
		if h < 0 || int(h) >= hosts {
			return nil, fmt.Errorf("heartbeats from host %d on: heartbeat %d is of host %d: must be from 0 to %d", r.From, i, h, hosts-1)
		}
		x := t.host(h)
		hb := Heartbeat{Host: h, Rx: x.latest.Rx + units.Bytes(r.Rx[i]), Tx: x.latest.Tx + units.Bytes(r.Tx[i]), At: x.expected(now), Disk: x.latest.Disk}
		if whole < len(r.Whole) && r.Places[whole] == i {
			if hb = r.Whole[whole]; hb.Host != h {
				return nil, fmt.Errorf("heartbeats from host %d on: heartbeat %d is of host %d, the whole one of host %d", r.From, i, h, hb.Host)
			}
			whole++
		}
		t.note(&hb, cmp.Or(hb.At, now))
		evs = append(evs, hb)
	}
	if whole < len(r.Whole) {
		return nil, fmt.Errorf("heartbeats from host %d on with %d counts: whole heartbeat at place %d: must be in the row, in order", r.From, len(r.Rx), r.Places[whole])
	}
	return evs, nil
}
