package flows

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"testbed/hosts/wire"
	"testbed/results/pcap"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// mostNamed is the maximum number of transfers that a problem lists; it only counts the others.
const mostNamed = 5

// mostReplicas is the maximum number of replicas that a block's header may claim.
const mostReplicas = 1000

// transfer is a connection assembled from the captures of its two ends.
type transfer struct {
	connID
	atClient *conn // nil if the client's capture lacks it
	atServer *conn
	standing standing
	header   wire.Header
}

// first returns the client's end, or the server's if the client's capture lacks the connection.
func (t *transfer) first() *conn {
	if t.atClient != nil {
		return t.atClient
	}
	return t.atServer
}

// begun returns the time of the connection's first payload, by which transfers are sorted.
func (t *transfer) begun() int64 { return t.first().start }

// member identifies a flow of a coflow, or a hop of one of a block's pipelines.
type member struct{ group, generation, member uint32 }

// assembly combines captures into a Result.
type assembly struct {
	Result
	opt       Options
	captures  []*hostCapture
	have      map[string]bool // hosts with a capture
	problems  []string
	transfers []*transfer
	marks     map[groupKey]mark
	failures  map[failureKey]mark
	byGroup   map[groupKey][]mark // of failures; see failuresOf
	arrival   map[groupKey]int64  // Unix ns
	moments   []moment            // of tasks
	consumed  []moment            // ends of reads
	zero      int64
	fabric    *topo.Fabric // nil if the captures do not describe it
	paths     *paths
	loads     []*fabricLoad
	switches  []*switchCapture
	carried   []*transfer // carried[i] is the transfer of Trails[i]
}

func newAssembly(opt Options, captures []*hostCapture) *assembly {
	return &assembly{opt: opt, captures: captures, have: map[string]bool{}, marks: map[groupKey]mark{}, failures: map[failureKey]mark{}, arrival: map[groupKey]int64{},
		Result: Result{Groups: wire.Notes{Coflows: map[uint32]wire.Note{}, Blocks: map[uint32]wire.Note{}}}}
}

func (a *assembly) problemf(format string, args ...any) {
	a.problems = append(a.problems, fmt.Sprintf(format, args...))
}

func (a *assembly) notef(format string, args ...any) {
	a.Notes = append(a.Notes, fmt.Sprintf(format, args...))
}

func (a *assembly) assemble() Result {
	for _, c := range a.captures {
		a.have[c.Host] = true
		a.Result.Captures = append(a.Result.Captures, c.Capture)
		a.captureProblems(c)
	}
	for _, c := range a.switches {
		a.Result.Switches = append(a.Result.Switches, c.SwitchCapture)
		a.Notes = append(a.Notes, fileProblems(c.Switch, c.problem, c.Stats, c.skipped)...)
	}
	for _, host := range a.opt.Hosts {
		if !a.have[host] {
			a.problemf("%s: no capture", host)
		}
	}
	a.join()
	a.settleMarks()
	flows, hops := a.sort()
	a.flows(flows)
	a.blocks(hops)
	a.settleFailures()
	a.trails()
	a.causality()
	a.linkSeries()
	a.Result.Problems = a.problems
	a.tasks()
	return a.Result
}

// fileProblems returns the problems of a capture file.
func fileProblems(name, broken string, stats pcap.Stats, skipped []pcap.Skip) (list []string) {
	if broken != "" {
		list = append(list, broken)
	}
	if stats.Dropped > 0 {
		list = append(list, fmt.Sprintf("%s: the kernel dropped %d packets of its capture", name, stats.Dropped))
	}
	for _, s := range skipped {
		list = append(list, fmt.Sprintf("%s: %d packets of its capture are not used: %s", name, s.Packets, s.Why))
	}
	return list
}

func (a *assembly) captureProblems(c *hostCapture) {
	a.problems = append(a.problems, fileProblems(c.Host, c.broken, c.Stats, c.skipped)...)
	if c.short.Packets > 0 {
		a.problemf("%s: %d packets were captured too short for their headers: the capture's snapshot length must be at least 160 bytes", c.Host, c.short.Packets)
	}
	if c.orphans.Packets > 0 {
		a.problemf("%s: %d packets with payload belong to connections whose SYN is not in its capture, nor a transfer header at the start of a packet", c.Host, c.orphans.Packets)
	}
	if c.OtherRun.Packets > 0 {
		a.problemf("%s: %d packets belong to another run (%#x) and are not used", c.Host, c.OtherRun.Packets, c.stray)
	}
	if c.badMark != nil {
		a.problemf("%s: a mark cannot be read: %v", c.Host, c.badMark)
	}
}

// join pairs the two ends of each connection and sorts the transfers by time.
func (a *assembly) join() {
	index := map[connID]*transfer{}
	for _, c := range a.captures {
		for _, v := range c.conns {
			t := index[v.connID]
			if t == nil {
				t = &transfer{connID: v.connID}
				index[v.connID] = t
				a.transfers = append(a.transfers, t)
			}
			// On lo, one capture has both ends.
			if hostName(v.client) == c.Host {
				t.atClient = v
			}
			if hostName(v.server) == c.Host {
				t.atServer = v
			}
			if t.standing == pending || v.standing == ours {
				t.standing, t.header = v.standing, v.header
			}
		}
	}
	slices.SortFunc(a.transfers, func(x, y *transfer) int {
		return cmp.Or(cmp.Compare(x.begun(), y.begun()), cmp.Compare(x.client, y.client), cmp.Compare(x.server, y.server),
			cmp.Compare(x.clientPort, y.clientPort), cmp.Compare(x.serverPort, y.serverPort), cmp.Compare(x.isn, y.isn))
	})
}

func (a *assembly) since(stamp int64) time.Duration { return time.Duration(stamp - a.zero) }

// sort classifies transfers and indexes those of this run.
func (a *assembly) sort() (flows, hops map[member]*transfer) {
	flows, hops = map[member]*transfer{}, map[member]*transfer{}
	lacking, noSYN := map[string]int{}, map[string]int{} // by host
	for _, t := range a.transfers {
		n := &a.Connections
		switch t.standing {
		case foreign:
			n.Foreign++
			continue
		case otherRun:
			n.OtherRun++
			continue
		case damaged:
			a.problemf("connection %s: %v", t.name(), t.headErr())
			continue
		case pending:
			switch v := t.first(); {
			case v.sent.seen() == 0:
				n.Empty++
			case v.head.cut:
				a.problemf("connection %s: its transfer header was cut off by the capture's snapshot length, which must be at least 160 bytes", t.name())
			default:
				a.problemf("connection %s: ends after %d bytes, before its transfer header is complete", t.name(), v.sent.seen())
			}
			continue
		}
		n.Ours++
		a.observe(t)
		for _, end := range []struct {
			view *conn
			host string
		}{{t.atClient, hostName(t.client)}, {t.atServer, hostName(t.server)}} {
			switch {
			case end.view == nil:
				lacking[end.host]++
			case end.view.noSYN:
				noSYN[end.host]++
			}
		}
		a.index(t, flows, hops)
	}
	for _, h := range slices.Sorted(maps.Keys(noSYN)) {
		a.notef("%s: its capture lacks the SYN of %d transfers, which were known by their headers", h, noSYN[h])
	}
	for _, h := range slices.Sorted(maps.Keys(lacking)) {
		if a.have[h] {
			a.problemf("%s: its capture lacks %d transfers that captures of other hosts have", h, lacking[h])
		} else if !slices.Contains(a.opt.Hosts, h) { // assemble reports those of opt.Hosts
			a.problemf("%s: no capture; it was one end of %d transfers", h, lacking[h])
		}
	}
	return flows, hops
}

// headErr returns the error that reading the header of a damaged transfer gave.
func (t *transfer) headErr() error {
	if t.atClient != nil && t.atClient.headErr != nil {
		return t.atClient.headErr
	}
	return t.atServer.headErr
}

func (t *transfer) name() string {
	return fmt.Sprintf("%s:%d>%s:%d", hostName(t.client), t.clientPort, hostName(t.server), t.serverPort)
}

// observe counts the irregularities of a transfer of this run.
func (a *assembly) observe(t *transfer) {
	n := &a.Connections
	v := t.first()
	if v.synAgain > 0 {
		n.SYNResent++
		a.notef("%s: its SYN was sent %d times", t.what(), 1+v.synAgain)
	}
	if v.head.parts > 1 {
		n.HeaderSplit++
	}
	if v.head.resent > 0 {
		n.HeaderResent++
	}
	if v.resets > 0 || t.atServer != nil && t.atServer.resets > 0 {
		n.Resets++
	}
	if s := t.atClient; s != nil {
		n.Resent += s.resent
		n.ZeroWindows += s.zeroWindows
	}
	if r := t.atServer; r != nil {
		n.Reordered += r.in.reordered
	}
}

// what returns the name of the flow or hop that t carries.
func (t *transfer) what() string {
	if t.header.Kind == wire.KindBlock {
		return fmt.Sprintf("%s of block %d", t.hop(), t.header.Group)
	}
	return fmt.Sprintf("flow %d of coflow %d", t.header.Member, t.header.Group)
}

func (a *assembly) index(t *transfer, flows, hops map[member]*transfer) {
	into := flows
	switch {
	case t.header.Kind == wire.KindFlow && t.serverPort == wire.ShufflePort:
	case t.header.Kind == wire.KindBlock && t.serverPort == wire.BlockPort:
		into = hops
	default:
		a.problemf("connection %s: a transfer of kind %v does not belong on port %d", t.name(), t.header.Kind, t.serverPort)
		return
	}
	key := member{t.header.Group, t.header.Generation, t.header.Member}
	old := into[key]
	if old == nil {
		into[key] = t
		return
	}
	// The transfer was attempted again. Transfers are in order of time, and the first
	// complete attempt counts.
	a.problemf("%s: carried by more than one connection (%s and %s): the first that is complete counts", t.what(), old.name(), t.name())
	if !old.complete() {
		into[key] = t
	}
}

// complete reports whether both ends captured the whole transfer.
func (t *transfer) complete() bool {
	if t.atClient == nil || t.atServer == nil {
		return false
	}
	if t.header.Kind == wire.KindBlock {
		return t.atClient.hop != nil && t.atClient.hop.end != 0
	}
	return t.atServer.end != 0
}

// missing returns the reason why t is not complete, as a predicate.
func (t *transfer) missing() string {
	switch {
	case t.atServer == nil:
		return "is not in the capture of " + hostName(t.server)
	case t.atClient == nil:
		return "is not in the capture of " + hostName(t.client)
	case t.header.Kind == wire.KindFlow && t.atServer.standing != ours:
		return "has an incomplete header in the capture of " + hostName(t.server)
	case t.header.Kind == wire.KindBlock && t.header.Packet == 0:
		return "states a packet size of 0"
	case t.header.Kind == wire.KindBlock && !t.atClient.hasAcks:
		return fmt.Sprintf("has no acknowledgement stream at %s", hostName(t.client))
	case t.header.Kind == wire.KindBlock:
		return fmt.Sprintf("has %d of %d acknowledgement bytes at %s", t.atClient.hop.acks.seen(), ackBytes(t.header), hostName(t.client))
	}
	return fmt.Sprintf("has %d of %d bytes at %s", max(0, t.atServer.sent.seen()-int64(t.header.Len())), t.header.Size, hostName(t.server))
}

// flows builds the records of flows and coflows.
func (a *assembly) flows(all map[member]*transfer) {
	byCoflow := map[uint32][]*transfer{}
	for _, k := range ordered(all) {
		byCoflow[k.group] = append(byCoflow[k.group], all[k])
	}
	for _, key := range a.groups() {
		if key.kind == wire.KindCoflowMark {
			a.coflow(key, byCoflow[key.group])
			delete(byCoflow, key.group)
		}
	}
	a.unmarked("coflow", "flows", byCoflow)
	for _, list := range [][]FlowRecord{a.Flows, a.Stopped} {
		slices.SortFunc(list, func(x, y FlowRecord) int {
			return cmp.Or(cmp.Compare(x.Flow, y.Flow), cmp.Compare(x.Coflow, y.Coflow))
		})
	}
}

func ordered(all map[member]*transfer) []member {
	return slices.SortedFunc(maps.Keys(all), func(x, y member) int {
		return cmp.Or(cmp.Compare(x.group, y.group), cmp.Compare(x.generation, y.generation), cmp.Compare(x.member, y.member))
	})
}

func (a *assembly) unmarked(what, parts string, rest map[uint32][]*transfer) {
	ids := make([]uint32, 0, len(rest))
	for id := range rest {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for _, id := range ids {
		a.problemf("%s %d: no mark of its arrival: its %d %s have no record", what, id, len(rest[id]), parts)
	}
}

func (a *assembly) coflow(key groupKey, transfers []*transfer) {
	m, arrival := a.marks[key], a.since(a.arrival[key])
	cut := a.cutFlows(key.group)
	open := m.Parts == 0
	var size uint64 // of cut flows
	closed := !open
	if open {
		m, closed = a.marks[groupKey{wire.KindCoflowClosed, key.group}]
	}
	c := CoflowRecord{Coflow: workloads.CoflowID(key.group), Width: int(m.Parts), Arrival: arrival}
	var missing []string
	complete, failed := 0, len(cut)
	for _, m := range cut {
		size += m.Size
	}
	never, inputs := int(m.Parts)-len(transfers)-failed, 0
	for _, t := range transfers {
		if t.header.Task.Job > 0 && t.header.Task.Outputs == 0 {
			inputs++
		}
		if a.flowCut(t) {
			never++
			a.stopped(t, arrival)
			continue
		}
		if !t.complete() {
			missing = append(missing, fmt.Sprintf("flow %d %s", t.header.Member, t.missing()))
			continue
		}
		f := FlowRecord{
			Coflow: c.Coflow, Flow: workloads.FlowID(t.header.Member),
			Src: hostName(t.client), Dst: hostName(t.server),
			Size: units.Bytes(t.header.Size), Arrival: arrival,
			Start: a.since(t.atClient.start), End: a.since(t.atServer.end),
			Packets: t.atClient.packets, Resent: t.atClient.resent, Wire: t.atClient.wire,
			FirstByte: a.since(t.atServer.start), ResentBytes: t.atClient.out.resentBytes,
			RTTMin: time.Duration(t.atClient.out.rtt.least), RTTMedian: time.Duration(t.atClient.out.rtt.median()),
			Setup: a.setup(t, arrival), Task: taskTransfer(t.header.Task),
		}
		if at, ok := t.header.Released(); ok && f.Task != nil {
			f.Arrival = max(arrival, a.since(at.UnixNano())) // it joined the coflow after its mark
		}
		if extra := t.atServer.sent.end() - streamLen(t.header); extra > 0 {
			a.problemf("%s: received %d bytes beyond its size of %d", t.what(), extra, t.header.Size)
		}
		if f.Start < arrival {
			a.problemf("%s: starts %v before its coflow is marked as arrived", t.what(), arrival-f.Start)
		}
		a.Flows = append(a.Flows, f)
		complete++
		c.Size += f.Size
		c.End = max(c.End, f.End)
	}
	if !closed {
		a.problemf("%s: no mark of its end, so it has no record", groupName(key))
		return
	}
	if never > 0 {
		missing = append(missing, fmt.Sprintf("%d never started", never))
	} else if never < 0 {
		a.problemf("%s: its mark announces %d flows, the captures have %d: it has no record", groupName(key), m.Parts, int(m.Parts)-never)
		return
	}
	if len(missing) > 0 {
		a.problemf("%s: %d of its %d flows are complete, so it has no record: %s", groupName(key), complete, m.Parts, some(missing))
		return
	}
	// The coflow of a flow that carries an input block exists for policies alone.
	if inputs > 0 || failed > 0 && !open || complete == 0 && open {
		return
	}
	if all := uint64(c.Size) + size; all != m.Size {
		a.problemf("%s: its mark announces %d bytes, its flows have %d", groupName(key), m.Size, all)
	}
	c.Size = units.Bytes(m.Size)
	a.Coflows = append(a.Coflows, c)
}

// stopped adds the record of a flow of a task that was stopped or failed after its first payload.
func (a *assembly) stopped(t *transfer, arrival time.Duration) {
	c := t.first()
	size := min(c.sent.seen()-int64(t.header.Len()), int64(t.header.Size))
	if t.header.Task.Job == 0 || size <= 0 {
		return
	}
	m, failed := a.failures[failureKey{wire.KindFlowFailed, t.header.Group, t.header.Member}]
	if !failed {
		m = a.failures[failureKey{wire.KindFlowStopped, t.header.Group, t.header.Member}]
	}
	f := FlowRecord{Coflow: workloads.CoflowID(t.header.Group), Flow: workloads.FlowID(t.header.Member), Src: hostName(t.client), Dst: hostName(t.server),
		Size: units.Bytes(size), Arrival: arrival, Start: a.since(c.start), End: a.since(max(c.start, m.Sent.UnixNano())),
		Packets: c.packets, Resent: c.resent, Wire: c.wire, Task: taskTransfer(t.header.Task)}
	if at, ok := t.header.Released(); ok {
		f.Arrival = max(arrival, a.since(at.UnixNano()))
	}
	a.Stopped = append(a.Stopped, f)
}

// setup computes FlowRecord.Setup of a complete flow.
func (a *assembly) setup(t *transfer, arrival time.Duration) time.Duration {
	from, to, s := arrival, a.since(t.atClient.start), t.atClient.out
	if t.header.Read && s.setUp != 0 {
		to = min(to, a.since(s.setUp))
	}
	if at, ok := t.header.Released(); ok {
		from = max(from, a.since(at.UnixNano()))
	} else if a.Meta.Holds && s.syn != 0 {
		from = max(from, a.since(s.syn))
	}
	return max(0, to-from)
}

func some(list []string) string {
	if len(list) > mostNamed {
		return fmt.Sprintf("%s; and %d more", strings.Join(list[:mostNamed], "; "), len(list)-mostNamed)
	}
	return strings.Join(list, "; ")
}

// blocks builds the records of block writes.
func (a *assembly) blocks(all map[member]*transfer) {
	byBlock := map[uint32][]*transfer{}
	for _, k := range ordered(all) {
		byBlock[k.group] = append(byBlock[k.group], all[k])
	}
	for _, key := range a.groups() {
		if key.kind == wire.KindWriteMark {
			a.block(key, byBlock[key.group])
			delete(byBlock, key.group)
		}
	}
	a.unmarked("block", "hops", byBlock)
}

func (a *assembly) block(key groupKey, hops []*transfer) {
	m := a.marks[key]
	if m.Parts == 0 || m.Parts > mostReplicas {
		a.problemf("%s: no record: its mark announces %d replicas", groupName(key), m.Parts)
		return
	}
	b := BlockRecord{Block: workloads.BlockID(key.group), Client: m.host, Size: units.Bytes(m.Size), Requested: a.since(a.arrival[key]), Waited: m.Waited()}
	if n := m.note; n.Job > 0 && n.Blocks == 0 {
		b.Attempt = AttemptKey{workloads.JobID(n.Job), int(n.Stage), int(n.Index), int(n.Attempt)}
	}
	lost := a.lostReplicas(key.group)
	for i, t := range hops { // sorted by generation
		if i == 0 || t.header.Generation != hops[i-1].header.Generation {
			b.Pipelines++
		}
		if t.header.Size != m.Size {
			a.problemf("%s: its mark announces %d bytes, %s has %d", groupName(key), m.Size, t.hop(), t.header.Size)
		}
	}
	if a.blockCut(key.group) {
		if stop, ok := a.failures[failureKey{wire.KindBlockStopped, key.group, 0}]; ok {
			a.stoppedWrite(b, stop, hops)
		}
		return
	}
	// Only the last pipeline can have completed the block.
	generation, want := uint32(0), m.Parts-min(m.Parts, uint32(len(lost)))
	if len(hops) > 0 {
		generation = hops[len(hops)-1].header.Generation
		hops = slices.DeleteFunc(slices.Clone(hops), func(t *transfer) bool { return t.header.Generation != generation })
	}
	var missing []string
	for i := range want {
		at := slices.IndexFunc(hops, func(t *transfer) bool { return t.header.Member == i })
		if at < 0 {
			missing = append(missing, fmt.Sprintf("%s never started", hopName(i, generation)))
			continue
		}
		t := hops[at]
		// The last acknowledgement of hop 0 confirms all of the pipeline.
		if i == 0 && !t.complete() {
			missing = append(missing, fmt.Sprintf("%s %s", t.hop(), t.missing()))
		}
		from := b.Client
		if i > 0 && len(b.Hosts) == int(i) {
			from = b.Hosts[i-1]
		}
		if got := hostName(t.client); got != from {
			a.problemf("%s: %s comes from %s, not from %s", groupName(key), t.hop(), got, from)
		}
		b.Hosts = append(b.Hosts, hostName(t.server))
	}
	if extra := len(hops) - int(want); extra > 0 && len(missing) == 0 {
		if len(lost) > 0 {
			a.problemf("%s: its mark announces %d replicas, of which %d were lost, its last pipeline has %d hops", groupName(key), m.Parts, len(lost), len(hops))
		} else {
			a.problemf("%s: its mark announces %d replicas, the captures have %d hops", groupName(key), m.Parts, len(hops))
		}
	}
	if len(missing) == 0 && want == 0 {
		missing = append(missing, "all its replicas were lost")
	}
	if len(missing) > 0 {
		a.problemf("%s: no record: %s", groupName(key), some(missing))
		return
	}
	for _, l := range lost {
		b.Lost = append(b.Lost, l.note.Host) // settleFailures checks the name
	}
	first := slices.IndexFunc(hops, func(t *transfer) bool { return t.header.Member == 0 })
	b.End = a.since(hops[first].atClient.hop.end)
	a.Blocks = append(a.Blocks, b)
}

// stoppedWrite adds the record of a block write that was stopped, from the hops of all its pipelines.
func (a *assembly) stoppedWrite(b BlockRecord, stop mark, hops []*transfer) {
	w := StoppedWrite{Block: b.Block, Client: b.Client, Requested: b.Requested, End: a.since(stop.Sent.UnixNano()), Attempt: b.Attempt}
	for _, t := range hops {
		if t.client != t.server {
			w.Sent += units.Bytes(max(0, min(t.first().sent.seen(), streamLen(t.header))-int64(t.header.Len())-wire.TargetsSize))
		}
	}
	a.StoppedWrites = append(a.StoppedWrites, w)
}

// hop returns the name of t within its block.
func (t *transfer) hop() string { return hopName(t.header.Member, t.header.Generation) }

func hopName(hop, generation uint32) string {
	if generation > 0 {
		return fmt.Sprintf("hop %d of pipeline %d", hop, generation)
	}
	return fmt.Sprintf("hop %d", hop)
}
