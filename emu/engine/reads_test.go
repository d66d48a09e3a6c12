package engine

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"testbed/topo"
	"testbed/workloads"
)

// readOf returns a read of a block().
func readOf(id workloads.BlockID) workloads.Read { return workloads.Read{Block: id, Size: 1000} }

func readerOn(client topo.HostID, reads ...workloads.Read) ReaderArrived {
	return ReaderArrived{workloads.Reader{ID: workloads.ReaderID(client), Client: client, Reads: reads}}
}

// began returns the transfers that commands start; gaveUp returns the failures that they mark.
func began(cmds []Command) (out []StartTransfer, gaveUp map[int]string) {
	gaveUp = map[int]string{}
	for _, c := range cmds {
		switch c := c.(type) {
		case StartTransfer:
			out = append(out, c)
		case Mark:
			if c.Kind == MarkFlowFailed {
				gaveUp[c.ID] = c.Why
			}
		}
	}
	return out, gaveUp
}

// durableOn returns an engine with durable blocks from 0 on the given hosts, of racks {0, 1}
// and {2, 3}.
func durableOn(t *testing.T, hosts ...[]topo.HostID) *Engine {
	t.Helper()
	var on []topo.HostID
	e := newEngine(t, testConfig(t, always(free), nil))
	for i, list := range hosts {
		on = list
		e.cfg.Placement = onHosts(on...)
		step(t, e, 0, writerOf(block(workloads.BlockID(i), 0, len(list))))
		step(t, e, 0, BlockDurable{workloads.BlockID(i)})
	}
	return e
}

// Among equally near replicas the choice is random, and the same for the same reader and
// block.
func TestReaderChoosesByLuck(t *testing.T) {
	from := map[topo.HostID]int{}
	for i := range 40 {
		var was topo.HostID
		for again := range 2 {
			e := durableOn(t, []topo.HostID{3, 2})
			rd := readerOn(0, readOf(0))
			rd.Reader.ID = workloads.ReaderID(i)
			got, _ := began(step(t, e, time.Second, rd))
			if again == 1 && got[0].Flow.Src != was {
				t.Fatalf("reader %d reads from host %d, and again from host %d", i, was, got[0].Flow.Src)
			}
			was = got[0].Flow.Src
		}
		from[was]++
	}
	if from[2] < 8 || from[3] < 8 || from[2]+from[3] != 40 {
		t.Errorf("of 40 readers so many read from each host: %v", from)
	}
}

// Two arms whose reads have different IDs, because reads of another reader were repeated in
// one of them, meet the same draws: source and path. Reads differ from one another, and so do
// attempts.
func TestReadsDrawByIdentity(t *testing.T) {
	var arms [2][]StartTransfer // of reader 1: the first read, its retry, the second read
	for arm := range arms {
		e := durableOn(t, []topo.HostID{2, 3}, []topo.HostID{3, 2})
		got, _ := began(step(t, e, time.Second, readerOn(0, readOf(0), readOf(1))))
		if arm == 1 {
			got, _ = began(step(t, e, 2*time.Second, TransferFailed{got[0].Flow.ID, "broke"}))
			step(t, e, 3*time.Second, TransferFailed{got[0].Flow.ID, "broke"})
		}
		for _, ev := range []func() Event{
			func() Event { return readerOn(1, readOf(0), readOf(0)) },
			func() Event { return TransferFailed{arms[arm][0].Flow.ID, "broke"} },
			func() Event { return TransferFinished{arms[arm][1].Flow.ID} },
		} {
			got, _ := began(step(t, e, 4*time.Second, ev()))
			arms[arm] = append(arms[arm], got...)
		}
	}
	seen := map[uint32]bool{}
	for i, a := range arms[0] {
		b := arms[1][i]
		if a.Flow.ID == b.Flow.ID || a.Coflow == b.Coflow || a.Hash != b.Hash || a.Flow.Src != b.Flow.Src {
			t.Errorf("in one arm the read is %+v, in the other %+v: want other IDs, and the same source and hash", a, b)
		}
		seen[a.Hash] = true
	}
	if len(seen) != 3 {
		t.Errorf("hashes %v, want three different ones", seen)
	}
}

func TestInvalidReadersAreRejected(t *testing.T) {
	for name, x := range map[string]struct {
		ev   ReaderArrived
		want string
	}{
		"no blocks":   {readerOn(0), "must have at least one block"},
		"no host":     {readerOn(9, readOf(0)), "a host of the fabric"},
		"wrong size":  {readerOn(0, workloads.Read{Block: 0, Size: 999}), "but the read has 999B"},
		"no capacity": {readerOn(0, workloads.Read{Block: 0, Size: 0}), "a positive size"},
	} {
		e := durableOn(t, []topo.HostID{2, 3})
		if _, err := e.Step(time.Second, x.ev); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %v, want %q", name, err, x.want)
		}
	}
}

// A log of another format is refused, with both formats.
func TestReplayOfOtherFormats(t *testing.T) {
	cfg := testConfig(t, always(free), onHosts(1, 2))
	var buf bytes.Buffer
	log := NewLog(&buf)
	e := newEngine(t, cfg)
	for i, ev := range []Event{writerOf(block(0, 3, 2)), BlockDurable{0}} {
		check(t, log.Observe(time.Duration(i), []Event{ev}, step(t, e, time.Duration(i), ev)))
	}
	check(t, log.Flush())
	const this = `{"format":3,`
	if !strings.HasPrefix(buf.String(), this) {
		t.Fatalf("log %s", buf.String())
	}
	for name, x := range map[string]struct{ log, want string }{
		"this format":           {buf.String(), ""},
		"no format":             {strings.Replace(buf.String(), this, "{", 1), "log line 1: format 0: this version replays logs of format 3"},
		"another format":        {strings.Replace(buf.String(), this, `{"format":2,`, 1), "log line 1: format 2: this version replays logs of format 3"},
		"not on the first line": {buf.String() + buf.String(), "log line 3: format 3: "},
	} {
		got, err := Replay(t.Context(), strings.NewReader(x.log), newEngine(t, cfg))
		if x.want == "" && (err != nil || got.Differs != nil || got.Steps != 2) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		if x.want != "" && (err == nil || !strings.HasPrefix(err.Error(), x.want)) {
			t.Errorf("%s: %v, want %q", name, err, x.want)
		}
	}
}
