package engine

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"testbed/policies"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// TestScripts runs the scripts testdata/*.txt; -rewrite replaces their outputs. Host 3 is
// h1-01: each of 2 racks has 2 hosts. Blocks have 1 KB. The directives are:
//
//	run     starts an engine with the options of config, and steps it
//	steps   continues with that engine
//	each    for each line, repeats run with an engine of its own and continues; only the
//	        output of the continuation is printed
//
// A step is a time and events, separated by ";" (event). Steps are lines, or in each
// separated by "|". The output of a step is what its policies saw, its commands (command)
// and the state that the option show lists, or its error. The unfinished work and the next
// wake time follow. The log of every engine replays, and not with another command.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, path := range files {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			var s script
			datadriven.RunTest(t, path, s.directive)
			s.start(s.cfg)
		})
	}
}

// script is the state of a script: its engine and what it has logged.
type script struct {
	t    *testing.T
	cfg  Config
	e    *Engine  // nil after an error
	run  []string // steps of run
	show []string
	seen []string // output of this step
	log  bytes.Buffer
	done int // steps in log
}

func (s *script) directive(t *testing.T, d *datadriven.TestData) (out string) {
	s.t = t
	lines := strings.Split(d.Input, "\n")
	switch d.Cmd {
	case "run":
		s.start(s.config(d))
		s.run = lines
	case "each":
		for _, line := range lines {
			s.start(s.cfg)
			s.steps(s.run, false)
			out += s.steps(strings.Split(line, "|"), true)
		}
		return out
	}
	return s.steps(lines, false)
}

// start replays the log of the current engine, as it is and with another first command, and
// starts one with another configuration.
func (s *script) start(c Config) {
	if s.e != nil {
		again, left := newEngine(s.t, s.cfg), ""
		got, err := Replay(s.t.Context(), bytes.NewReader(s.log.Bytes()), again)
		if !s.e.Idle() {
			left = s.e.Unfinished()
		}
		if err != nil || got.Differs != nil || got.Steps != s.done || got.Unfinished != left || again.Stats() != s.e.Stats() {
			s.t.Errorf("replay of %d steps: %+v, %v, stats %+v, want %q left and %+v", s.done, got, err, again.Stats(), left, s.e.Stats())
		}
		other := bytes.Replace(s.log.Bytes(), []byte(`"commands":[{"`), []byte(`"commands":[{"No`), 1)
		if got, err := Replay(s.t.Context(), bytes.NewReader(other), newEngine(s.t, s.cfg)); err != nil || got.Differs == nil && len(other) > s.log.Len() {
			s.t.Errorf("replay of another log: %+v, %v", got, err)
		}
	}
	s.log.Reset()
	s.cfg, s.e, s.done = c, newEngine(s.t, c), 0
}

// config returns the configuration of the options of a directive:
//
//	place=(3,2)   hosts of replicas: the first that are not lost and have room
//	every         requests are placed every 10 s, those of the writer with the fewest
//	              unplaced blocks first
//	disk=100KB, stuck=3s
//	show=(…)      after each step: disk3 the disk use of host 3, load3 its load, wake; at each
//	              placement: placed (the blocks placed since reports), disks
func (s *script) config(d *datadriven.TestData) Config {
	c := testConfig(s.t, always(free), nil)
	s.show = nil
	for _, arg := range d.CmdArgs {
		v := arg.Vals
		switch arg.Key {
		case "place":
			var hosts []topo.HostID
			for _, h := range v {
				hosts = append(hosts, topo.HostID(must(strconv.Atoi(h))))
			}
			c.Placement = placeFunc(func(v *policies.PlacementView, b workloads.Block, rng *rand.Rand) ([]topo.HostID, error) {
				s.sees(v, b)
				return onHosts(hosts...)(v, b, rng)
			})
		case "every":
			c.Placement = batchFunc{placeFunc: c.Placement.(placeFunc)}
		case "stuck":
			c.Stuck = must(time.ParseDuration(v[0]))
		case "disk":
			c.DiskSize = must(units.ParseBytes(v[0]))
		case "show":
			s.show = v
		default:
			d.Fatalf(s.t, "unknown option %s", arg.Key)
		}
	}
	return c
}

// sees notes what a placement policy sees.
func (s *script) sees(v *policies.PlacementView, b workloads.Block) {
	for _, what := range s.show {
		var seen []string
		switch what {
		case "placed":
			for _, p := range v.Placements {
				seen = append(seen, strconv.Itoa(int(p.Block)))
			}
		case "disks":
			for _, h := range v.Hosts {
				seen = append(seen, fmt.Sprintf("%v/%v", h.Used, h.Disk))
			}
		default:
			continue
		}
		s.seen = append(s.seen, fmt.Sprintf("b%d sees %s %v", b.ID, what, seen))
	}
}

// steps returns the output of steps and of the state after them, in lines of at most about
// 115 columns, each step on a line of its own unless they are joined.
func (s *script) steps(steps []string, join bool) (out string) {
	line := ""
	add := func(text string, first bool) {
		switch {
		case line == "":
			line = text
		case first && !join:
			out, line = out+line+"\n", text
		case len(line)+len(text) > 115:
			out, line = out+line+" |\n", "      "+text
		default:
			line += " | " + text
		}
	}
	for _, text := range steps {
		at, events, _ := strings.Cut(strings.TrimSpace(text), " ")
		var evs []Event
		for text := range strings.SplitSeq(events, ";") {
			if text = strings.TrimSpace(text); text != "" {
				evs = append(evs, s.event(text))
			}
		}
		s.seen = nil
		for _, facts := range []policies.Facts{0, policies.LinkLoad | policies.DiskUse} {
			s.e.cluster(facts)
		}
		now := must(time.ParseDuration(at))
		due := len(evs) > 0 || now >= s.e.NextWake()
		cmds, err := s.e.Step(now, evs...)
		if err != nil {
			s.e = nil
			add(err.Error(), true)
			return out + line + "\n"
		}
		for _, shown := range s.e.clusters {
			for h := range shown.Hosts {
				if want := s.e.hostState(topo.HostID(h), shown.facts); shown.Hosts[h] != want {
					s.t.Errorf("after %s: host %d is shown as %+v, want %+v", line, h, shown.Hosts[h], want)
				}
			}
		}
		if due { // a run has no other steps
			log := NewLog(&s.log)
			log.begun = s.done > 0
			s.done++
			check(s.t, errors.Join(log.Observe(now, evs, cmds), log.Flush()))
		}
		for _, c := range cmds {
			s.seen = append(s.seen, command(c))
		}
		for _, what := range s.show {
			var n int
			if what == "wake" {
				s.seen = append(s.seen, s.wake())
			} else if _, err := fmt.Sscanf(what, "disk%d", &n); err == nil {
				s.seen = append(s.seen, s.disk(topo.HostID(n)))
			} else if _, err := fmt.Sscanf(what, "load%d", &n); err == nil {
				h := s.e.hosts[n]
				s.seen = append(s.seen, fmt.Sprintf("%.8gB/s, reported at %v, next at %v", h.rx/8, h.lastReport, h.nextReport))
			}
		}
		for i, text := range s.seen {
			if i == 0 {
				text = at + ": " + text
			}
			add(text, i == 0)
		}
	}
	left := "idle"
	if !s.e.Idle() {
		left = s.e.Unfinished()
	}
	add("= "+left+", "+s.wake(), true)
	return out + line + "\n"
}

// disk returns the disk use of a host as the master knows it, and as policies see it.
func (s *script) disk(id topo.HostID) string {
	h, shown := s.e.hosts[id], s.e.hostState(id, policies.DiskUse)
	out := fmt.Sprintf("host %d has %v, %d writing", id, h.used, h.writing)
	if shown.Used != h.used || shown.Writing != h.writing {
		out += fmt.Sprintf(" (shown %v, %d)", shown.Used, shown.Writing)
	}
	if h.writing == 0 && len(h.allocated) > 0 {
		out += fmt.Sprintf(", %d allocated", len(h.allocated))
	}
	return out + map[bool]string{true: ", lost"}[h.lost]
}

func (s *script) wake() string {
	if s.e.NextWake() == NextNever {
		return "wake never"
	}
	return fmt.Sprintf("wake at %v", s.e.NextWake())
}

// event parses an event:
//
//	coflow 7: 0 0>3 100B, 1 3>1 200B, then 4x2 by 1 after 2s   flows, and writers of the job
//	write 4x2 5x2 by 3 / read 4 5 by 0          blocks 4 and 5, of 2 replicas, by host 3
//	finish 0 / fail 0 why / progress 0=60B 1=5B / path 0 1           flow 0 (to spine 1)
//	durable 4 / fail-block 4 why / drop 4 2 [full]                   block 4 (on host 2)
//	lost 3 / back 3 [empty] / beat 3 rx=5B made=2s used=5B writing=4,5 ended=4 / leaf 1
//	link leaf0>spine0 5Mbps
func (s *script) event(text string) Event {
	words := strings.Fields(text)
	why := strings.Join(words[2:], " ")
	var rate string
	var flow workloads.FlowID
	var block workloads.BlockID
	var host topo.HostID
	is := func(format string, to ...any) bool {
		_, err := fmt.Sscanf(text, format, to...)
		return err == nil
	}
	switch n := 0; {
	case is("coflow %d:", &n):
		return parseCoflow(n, text)
	case is("write %d", &n):
		return WriterArrived{parseWriter(text)}
	case is("read %d", &n):
		w := parseWriter(text)
		ev := readerOn(w.Client)
		for _, b := range w.Blocks {
			ev.Reader.Reads = append(ev.Reader.Reads, readOf(b.ID))
		}
		return ev
	case is("finish %d", &flow):
		return TransferFinished{flow}
	case is("fail %d", &flow):
		return TransferFailed{flow, why}
	case is("progress %d", &flow):
		return parseProgress(words[1:])
	case is("path %d %d", &flow, &n):
		return PathChanged{flow, n}
	case is("durable %d", &block):
		return BlockDurable{block}
	case is("fail-block %d", &block):
		return BlockFailed{block, why}
	case is("drop %d %d", &block, &host):
		return ReplicaLost{block, host, len(words) > 3}
	case is("lost %d", &host):
		return HostLost{host}
	case is("back %d", &host):
		return HostBack{host, why == "empty"}
	case is("leaf %d", &host):
		return RackReport{Rack: topo.RackID(host)}
	case is("beat %d", &host):
		return parseHeartbeat(host, words[2:])
	case is("link %s %s", new(string), &rate):
		return LinkChanged{must(s.cfg.Fabric.FindLinks(words[1]))[0], must(units.ParseRate(rate))}
	}
	panic("unknown event " + text)
}

func parseCoflow(id int, text string) CoflowArrived {
	ev := coflowOf(workloads.CoflowID(id))
	for part := range strings.SplitSeq(text[strings.Index(text, ":")+1:], ",") {
		var f workloads.Flow
		var size string
		if strings.HasPrefix(part, " then ") {
			ev.Then = append(ev.Then, parseWriter(part[1:]))
			ev.Then[len(ev.Then)-1].Job = 1
			continue
		}
		must(fmt.Sscanf(part, "%d %d>%d %s", &f.ID, &f.Src, &f.Dst, &size))
		f.Size = must(units.ParseBytes(size))
		ev.Coflow.Flows = append(ev.Coflow.Flows, f)
	}
	return ev
}

func parseWriter(text string) (w workloads.Writer) {
	blocks, by, _ := strings.Cut(text, " by ")
	by, after, late := strings.Cut(by, " after ")
	if w.Client = topo.HostID(must(strconv.Atoi(by))); late {
		w.Start = must(time.ParseDuration(after))
	}
	for _, word := range strings.Fields(blocks)[1:] {
		b := block(0, w.Client, 0)
		must(fmt.Sscanf(word+"x1", "%dx%d", &b.ID, &b.Replicas))
		w.Blocks = append(w.Blocks, b)
	}
	w.ID = workloads.WriterID(w.Blocks[0].ID)
	return w
}

func parseBlocks(words []string) (out []workloads.BlockID) {
	for _, word := range words {
		out = append(out, workloads.BlockID(must(strconv.Atoi(word))))
	}
	return out
}

func parseProgress(words []string) (ev TransferProgressed) {
	for _, word := range words {
		flow, size, _ := strings.Cut(word, "=")
		ev.Flows = append(ev.Flows, workloads.FlowID(must(strconv.Atoi(flow))))
		ev.Received = append(ev.Received, must(units.ParseBytes(size)))
	}
	return ev
}

func parseHeartbeat(h topo.HostID, words []string) Heartbeat {
	hb := Heartbeat{Host: h}
	var disk DiskReport
	for _, word := range words {
		switch key, value, _ := strings.Cut(word, "="); key {
		case "rx":
			hb.Rx = must(units.ParseBytes(value))
		case "made":
			hb.Made = must(time.ParseDuration(value))
		case "used":
			disk.Used, hb.Disk = must(units.ParseBytes(value)), &disk
		case "writing":
			disk.Writing = parseBlocks(strings.Split(value, ","))
		case "ended":
			disk.Ended = parseBlocks(strings.Split(value, ","))
		}
	}
	return hb
}

// command returns a command, without hashes: f0 is flow 0, c7 coflow 7, b4 block 4, and x2 is
// with 2 replicas.
func command(c Command) (out string) {
	switch c := c.(type) {
	case Mark:
		format := []string{"", "mark c%d, %d flows, %v, on %d", "mark b%d x%d, %v, on %d", "failed f%d of c%d, %v, on %d: %s", "failed b%d x%d, %v, on %d: %s"}[c.Kind]
		out = fmt.Sprintf(format, []any{c.ID, c.Parts, c.Size, c.Host, c.Why}[:strings.Count(format, "%")]...)
		if c.Waited > 0 {
			out += fmt.Sprintf(", waited %v", c.Waited)
		}
	case StartTransfer:
		out = fmt.Sprintf("start f%d of c%d, %d>%d, %v", c.Flow.ID, c.Coflow, c.Flow.Src, c.Flow.Dst, c.Flow.Size)
		if c.Read != nil {
			out += fmt.Sprintf(", b%d", *c.Read)
		}
		if c.Ceiling != policies.NoLimit {
			out += fmt.Sprintf(", at most %v", c.Ceiling)
		}
	case StartChain:
		out = fmt.Sprintf("write b%d, %d>%v", c.Block.ID, c.Block.Client, c.Targets)
		if len(c.Hashes) != len(c.Targets) {
			out += fmt.Sprintf(" on %d hops", len(c.Hashes))
		}
	case ReadDisk:
		out = fmt.Sprintf("read f%d, b%d, %v, on %d", c.ID, c.Block, c.Size, c.Host)
	case StopTransfer:
		out = fmt.Sprintf("stop f%d, %d>%d", c.Flow, c.Src, c.Dst)
	case StopRead:
		out = fmt.Sprintf("stop reading f%d, on %d", c.ID, c.Host)
	case StopChain:
		out = fmt.Sprintf("stop b%d", c.Block)
	case DropBlock:
		out = fmt.Sprintf("drop b%d, %v, on %v, durable at %v", c.Block, c.Size, c.Hosts, c.Durable)
	default:
		panic(fmt.Sprintf("unknown command %T", c))
	}
	return out
}
