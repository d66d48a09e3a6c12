package live

import (
	"runtime"
	"time"

	"testbed/emu/kernel"
	"testbed/emu/plan"
	"testbed/hosts"
	"testbed/topo"
	"testbed/topo/units"
)

// Settings are the limits of a packet run that a scenario does not state. They
// are printed in the manifest.
type Settings struct {
	// Procs is how many goroutines run at once (GOMAXPROCS), more than there are
	// processors: while one writes to a file it keeps its place until the runtime
	// notices, up to 10 ms later, and with as many places as processors all others
	// wait for that.
	Procs int `json:"procs"`
	// Garbage is how much memory a run may take before garbage is collected. Marking
	// takes a quarter of Procs, on processors that are fewer: all others wait for it,
	// for tens of milliseconds.
	Garbage units.Bytes `json:"garbage"`
	// RealTime is the program's real-time priority during a run (sched(7)), 1 to 99:
	// the kernel lets any other program that has a processor end its turn first, some
	// milliseconds, even where it is idle at another. The program sleeps for most of a
	// run; were it not to, the kernel keeps a part of each processor for others.
	// 0 is none. Where the kernel refuses it, Nice applies: -20, the highest priority, to 19. A
	// program that was started with a higher priority keeps it.
	RealTime int `json:"real_time"`
	Nice     int `json:"nice"`
	// Setup is the number of connections that are set up at a time, and SetupTime the maximum
	// time that one counts, for example while its first packet waits in a queue: see setup. A
	// greater number starts a wide coflow sooner, and reports arrivals meanwhile later.
	Setup     int           `json:"setup"`
	SetupTime time.Duration `json:"setup_time_ns"`
	// SetupMode is when the connections of flows that are known beforehand are opened:
	// SetupSerial or SetupSimultaneous. In the latter, SetupAhead is how long before the
	// arrival of their coflow, long enough for a SYN that is lost to be sent again, and
	// SetupGather how long the first segment of a flow waits at most for those of the others
	// that were let go with it, to leave at one moment.
	SetupMode   string        `json:"setup_mode"`
	SetupAhead  time.Duration `json:"setup_ahead_ns"`
	SetupGather time.Duration `json:"setup_gather_ns"`
	// Quantum is the tick on which paced flows send. A flow that is paused stops
	// within one quantum and what its socket holds: what is in flight, at most
	// SendBuffer, and at most NotSent that is not.
	Quantum time.Duration `json:"quantum_ns"`
	// SendBuffer and ReceiveBuffer bound what a socket holds, with the kernel's
	// own overhead. They hold a full queue and the packets on the way.
	SendBuffer    units.Bytes `json:"send_buffer"`
	ReceiveBuffer units.Bytes `json:"receive_buffer"`
	// NotSent is TCP_NOTSENT_LOWAT: bytes a socket takes before it has sent them.
	NotSent units.Bytes `json:"not_sent"`
	// BlockBuffer is the send buffer of block pipelines, which have no NotSent: a
	// host forwards a packet before it writes it, and must not wait for the wire
	// with its disk idle. The client's window bounds what is under way.
	BlockBuffer units.Bytes `json:"block_buffer"`
	// PeerTimeout is how long a host of a block pipeline may be silent, or not
	// acknowledge what was sent to it, before the pipeline goes on without it. Flows
	// have no such bound: they go on when a link is back.
	PeerTimeout time.Duration `json:"peer_timeout_ns"`
	// Jitter delays the start of each flow by a time drawn between 0 and it, the
	// same in every arm: senders in one clock domain that start as one can starve
	// one another at a full queue for good.
	Jitter time.Duration `json:"jitter_ns"`
	// Sample is the time between two looks for links with a long queue. What those
	// deliver is measured over half of Interval to all of it, up to Spell times in a row.
	Sample   time.Duration `json:"sample_ns"`
	Interval time.Duration `json:"interval_ns"`
	Spell    int           `json:"spell"`
	// SampleRows bounds the file of samples, about 3 bytes a row: as it fills, looks become rarer (samples.Writer).
	SampleRows int64 `json:"sample_rows"`
	// FlowSample is the time between two readings of the connections of flows, of which FlowsRead are read at a time,
	// in turn.
	FlowSample time.Duration `json:"flow_sample_ns"`
	FlowsRead  int           `json:"flows_read"`
	// Watch is how many links of hosts that have little waiting are followed from a
	// look, as often: their packets' spacing is judged while some wait at every look.
	Watch int `json:"watch"`
	// Probe is the sleep whose overshoot is the scheduling lateness.
	Probe time.Duration `json:"probe_ns"`
	// Look is the time over which loads of all links are measured for a policy that
	// needs them, one look after the other (policies.OracleLoad).
	Look time.Duration `json:"look_ns"`
	// Beats is the largest number of hosts and leaves that report at one moment, and BeatGap the time until
	// the next ones do that are due, so that ends of transfers need not wait until the engine has handled
	// the reports of all hosts. A round takes a quarter of the interval between heartbeats at most.
	Beats   int           `json:"beats"`
	BeatGap time.Duration `json:"beat_gap_ns"`
	// RoundTrips is the number of connections with which the round-trip time of an idle path is measured, before and
	// after the transfers, and RoundTripTime how long each may take to be answered.
	RoundTrips    int           `json:"round_trips"`
	RoundTripTime time.Duration `json:"round_trip_time_ns"`
	// Settle bounds the wait for the last packets after the last completion, and
	// Quiet is how long all counters must stand still.
	Settle time.Duration `json:"settle_ns"`
	Quiet  time.Duration `json:"quiet_ns"`
	// Stop bounds every wait for agents and captures to end.
	Stop time.Duration `json:"stop_ns"`
}

// Setup modes.
const (
	// SetupSerial opens connections when their flows may first send, a few at once.
	SetupSerial = "serial"
	// SetupSimultaneous opens connections before their coflow arrives, and writes the first
	// segments of all flows that are let go with it at one moment.
	SetupSimultaneous = "simultaneous"
)

// DefaultSettings are those for a fabric. A send buffer holds, twice over, the
// largest queue on its way and 64 KB: the kernel counts about two bytes of
// memory for a byte of payload when segments are cut to the MTU. Where links have
// delays, what is on its way in a round trip counts as queue. Jitter is up to the
// time of one frame on the slowest host's link.
func DefaultSettings(f *topo.Fabric) Settings {
	queue := units.Bytes(0)
	slowest := f.Link(0).Rate // of hosts
	var fastest units.Rate
	var host, uplink time.Duration // the longest delays
	for _, l := range f.Links() {
		queue = max(queue, l.Queue)
		if l.Kind == topo.HostUp || l.Kind == topo.HostDown {
			slowest, fastest, host = min(slowest, l.Rate), max(fastest, l.Rate), max(host, l.Delay)
		} else {
			uplink = max(uplink, l.Delay)
		}
	}
	queue += fastest.BytesIn(4 * (host + uplink)) // what is on its way in a round trip of four links and back
	buffer := 2*queue + 64*units.KiB
	return Settings{
		Procs: max(16, 2*runtime.NumCPU()), Garbage: 1 * units.GiB, RealTime: kernel.RealTimeForPackets, Nice: kernel.NiceForPackets, Setup: 4 * runtime.NumCPU(), SetupTime: 500 * time.Microsecond, SetupMode: SetupSerial, SetupAhead: 2 * time.Second, SetupGather: 5 * time.Millisecond, Quantum: 5 * time.Millisecond, SendBuffer: buffer, ReceiveBuffer: 2 * buffer, NotSent: 16 * units.KiB, BlockBuffer: 2*queue + 1*units.MiB,
		PeerTimeout: hosts.DefaultPeerTimeout,
		Jitter:      slowest.TimeToSend(f.Shape().MTU + plan.EthernetHeader),
		Sample:      200 * time.Millisecond, Interval: 8 * time.Millisecond, Spell: 12, SampleRows: 8 << 20, FlowSample: 20 * time.Millisecond, FlowsRead: 64, Watch: 8, Probe: 10 * time.Millisecond, Look: 25 * time.Millisecond,
		Beats: 4, BeatGap: 1 * time.Millisecond,
		RoundTrips: 5, RoundTripTime: 200*time.Millisecond + 4*(host+uplink),
		Settle: 3 * time.Second, Quiet: 60 * time.Millisecond, Stop: 10 * time.Second,
	}
}
