package flows

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"slices"
	"testing"
	"time"

	"testbed/results/pcap"
)

// fuzzNetwork has a flow with losses, one between racks, a pipeline and a job of tasks.
func fuzzNetwork(t testing.TB) *network {
	n := newNetwork(t, a, b)
	n.meta.Seed, n.meta.Fabric = 7, generatedFabric()
	stalls(n)
	pipeline(n)
	mapReduce(n)
	return n
}

// FuzzReduce feeds files of any content through the whole reduction.
func FuzzReduce(f *testing.F) {
	n := fuzzNetwork(f)
	one, two := n.file(a), n.file(b)
	f.Add(one, two)
	f.Add(one, two[:len(two)/2])
	f.Add(two, one)
	f.Fuzz(func(t *testing.T, one, two []byte) {
		checkReduced(t, map[string][]byte{a: one, b: two, "leaf0": one})
	})
}

// FuzzPackets feeds packets of a valid capture through the reduction that were dropped,
// doubled, moved and changed: every 8 bytes of the script are one such edit.
func FuzzPackets(f *testing.F) {
	n := fuzzNetwork(f)
	f.Add([]byte{})
	for kind := byte(0); kind < 6; kind++ {
		for i := byte(0); i < 30; i += 3 {
			f.Add([]byte{kind, 0, i, 38, 0xff, 0, 0x7f, i, kind, 1, i, 47, 4, 0, 0, 1})
		}
	}
	f.Fuzz(func(t *testing.T, script []byte) {
		edited := &network{t: t, snap: n.snap, run: n.run, meta: n.meta, packets: map[string][]seen{}}
		for _, host := range []string{a, b} {
			edited.packets[host] = slices.Clone(n.packets[host])
		}
		for ; len(script) >= 8; script = script[8:] {
			host := []string{a, b}[script[1]&1]
			list := edited.packets[host]
			if len(list) == 0 {
				continue
			}
			i := int(script[2]) % len(list)
			if len(list[i].frame) == 0 {
				continue
			}
			value := binary.BigEndian.Uint32(script[4:])
			switch script[0] % 6 {
			case 0: // lost from the capture
				edited.packets[host] = slices.Delete(list, i, i+1)
			case 1: // there twice
				edited.packets[host] = slices.Insert(list, i, list[i])
			case 2: // at another time
				list[i].at = time.Duration(int32(value)) * us
			case 3: // another byte
				list[i].frame = slices.Clone(list[i].frame)
				list[i].frame[int(script[3])%len(list[i].frame)] = byte(value)
			case 4: // another number
				list[i].frame = slices.Clone(list[i].frame)
				if at := int(script[3]); at+4 <= len(list[i].frame) {
					binary.BigEndian.PutUint32(list[i].frame[at:], value)
				}
			case 5: // cut short on the wire
				list[i].frame = list[i].frame[:int(value)%(len(list[i].frame)+1)]
			}
		}
		checkReduced(t, map[string][]byte{a: edited.file(a), b: edited.file(b)})
	})
}

// slowest is the longest that files as small as those of a fuzz target may take, many
// times what any of them does: work must be bounded by what a file has, not by what it
// states.
const slowest = 10 * time.Second

// checkReduced reduces files and checks what holds of any result.
func checkReduced(t *testing.T, files map[string][]byte) {
	began := time.Now()
	defer func() {
		if took := time.Since(began); took > slowest {
			t.Errorf("took %v, want at most %v", took, slowest)
		}
	}()
	r := NewReducer(Options{Run: testRun, Points: 5, Spans: 3, Intervals: 50})
	for _, name := range []string{a, b, "leaf0"} {
		p, err := pcap.NewReader(bytes.NewReader(files[name]))
		var bad *pcap.Error
		if err != nil {
			if !errors.As(err, &bad) && err != io.EOF {
				t.Fatalf("error %v is not typed", err)
			}
			continue
		}
		if err := r.Add(t.Context(), name, p); err != nil {
			t.Fatal(err)
		}
	}
	got, err := r.Result()
	if err != nil {
		return // nothing could be used
	}
	for _, f := range got.Flows {
		if f.Size < 0 || f.Resent > f.Packets || f.ResentBytes < 0 || f.RTTMin < 0 || f.RTTMedian < f.RTTMin {
			t.Errorf("%+v", f)
		}
	}
	for _, v := range got.Trails {
		if len(v.Sent) > 7 || len(v.Received) > 7 || len(v.Acks) > 7 || v.Lost < 0 || v.Size < 0 {
			t.Errorf("%+v", v)
		}
		for i := 1; i < len(v.Sent); i++ {
			if v.Sent[i].Bytes <= v.Sent[i-1].Bytes {
				t.Errorf("sent %v", v.Sent)
			}
		}
		for i := range min(len(v.Sent), len(v.Received)) {
			if v.Sent[i].Bytes != v.Received[i].Bytes {
				t.Errorf("sent %v, received %v", v.Sent, v.Received)
			}
		}
		for _, list := range [][]Span{v.Quiet, v.Recovery, v.Stalled, v.Closed} {
			for _, s := range list {
				if len(list) > 3 || s.To <= s.From {
					t.Errorf("spans %v", list)
				}
			}
		}
		if v.QuietRest < 0 || v.RecoveryRest < 0 || v.ClosedRest < 0 {
			t.Errorf("%+v", v)
		}
	}
	for _, l := range got.Links {
		if len(l.Bytes) > 50 || len(l.Queue) != len(l.Bytes) || l.Interval <= 0 {
			t.Errorf("%d intervals, %d queues of %v", len(l.Bytes), len(l.Queue), l.Interval)
		}
		for i := range l.Bytes {
			if l.Bytes[i] < 0 || l.Queue[i] < 0 {
				t.Errorf("%s: %d bytes, a queue of %d", l.Name, l.Bytes[i], l.Queue[i])
			}
		}
	}
}
