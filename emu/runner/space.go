package runner

import (
	"fmt"
	"time"

	"testbed/emu/kernel"
	"testbed/emu/scenario"
	"testbed/results/flows"
	"testbed/results/pcap"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// Disk space of a run, as measured on the quickstart.
const (
	// ackShare is the acknowledgements for each packet with payload; TCP acknowledges every
	// second one, and more while packets are lost or late.
	ackShare = 0.6
	// blockOverhead is what a packet takes in a plain capture besides its kept bytes: the head
	// and end of its block, padding and flags.
	blockOverhead = 46
	// keptHeaders is what is kept of a segment of a transfer: Ethernet, IP and TCP with time
	// stamps.
	keptHeaders = 66
	// compressedPacket is what a packet takes in a compressed capture, bytes.
	compressedPacket = 21
	// tablesOfRepeat is what a repeat of an arm adds to logs, records and tables.
	tablesOfRepeat = 2500 * units.KB
	// sampledHost is what samples take for each host and second, bytes, and sampledRow for each row.
	sampledHost = 1700
	sampledRow  = 3
)

// sampled predicts the size of the samples of a trial, which live.Settings.SampleRows bounds.
func sampled(hosts int, d time.Duration, rows int64) float64 {
	return min(sampledHost*float64(hosts)*d.Seconds(), sampledRow*float64(rows))
}

// DiskSpace is the predicted size of a run directory, bytes.
type DiskSpace struct {
	Captures Captures `json:"captures"`
	// Peak is the largest size during the run: that of plain captures and emulated disks of one
	// repeat, and of what the repeats before have left. Left is the size after the run.
	Peak int64 `json:"peak_bytes"`
	Left int64 `json:"left_bytes"`
	// trial is the largest size of one trial: its plain captures and emulated disks.
	trial int64
	// Free is the free space of the file system of Directory; unknown if 0.
	Directory string `json:"directory"`
	Free      int64  `json:"free_bytes"`
}

// String is the forecast in one line.
func (d *DiskSpace) String() string {
	text := fmt.Sprintf("disk space: up to %s during the run, %s after it (--captures %s)", units.Short(float64(d.Peak), "B"), units.Short(float64(d.Left), "B"), d.Captures)
	if d.Free > 0 {
		text += fmt.Sprintf("; %s free in %s", units.Short(float64(d.Free), "B"), d.Directory)
	}
	return text
}

// captured returns the packets that the captures of one repeat of an arm have, as predicted on the
// fluid model: what passes a host's link is in its capture.
func (c *carried) captured(f *topo.Fabric, links []topo.LinkID) float64 {
	sum := 0.0
	for _, l := range f.Links() {
		if l.Kind == topo.HostUp || l.Kind == topo.HostDown {
			sum += c.total[l.ID]
		}
	}
	for _, id := range links {
		sum += c.total[id]
	}
	return sum * (1 + ackShare)
}

// space predicts the size of a run directory from the workload of a repeat and the packets captured
// in a repeat of each arm, and the sizes of its samples.
func space(s *scenario.Scenario, w work, packets, samples []float64, records []flows.Records, o Options) *DiskSpace {
	mode := o.Captures
	if mode == "" {
		mode = CompressCaptures
	}
	plainPacket, compressed := float64(blockOverhead+keptHeaders), float64(compressedPacket)
	if n := s.Spec.Capture.Snaplen; n > pcap.HeaderSnaplen { // data that does not compress
		plainPacket, compressed = float64(blockOverhead+n), compressed+float64(n-keptHeaders)
	}
	var left, most float64
	for i, n := range packets {
		plain, stored := n*plainPacket, 0.0
		if d := s.Spec.Disk; d != nil && d.Dir == "" {
			for _, b := range records[i].Blocks {
				stored += float64(b.Size) * float64(len(b.Hosts))
			}
			// Outputs for later stages are dropped when their job ends. Input blocks are sparse files.
			stored += float64(w.shuffled())
		}
		most = max(most, plain+stored+samples[i])
		kept := 0.0
		switch mode {
		case KeepCaptures:
			kept = plain
		case CompressCaptures:
			kept = n * compressed
		}
		left += (kept + float64(tablesOfRepeat) + samples[i]) * float64(s.Spec.Repeat.AtMost)
	}
	if o.CheckScale != (workloads.Factor{}) {
		left *= 2
	}
	return &DiskSpace{Captures: mode, trial: int64(most), Peak: int64(left + most), Left: int64(left), Directory: o.Out}
}

// missing returns how much space is missing, "" if it suffices or is not known, and completes the
// forecast by the free space.
func (d *DiskSpace) missing(free func(string) (units.Bytes, error)) string {
	if free == nil {
		free = kernel.FreeSpace
	}
	n, err := free(d.Directory)
	if err != nil {
		return "" // making the run directory shows the reason
	}
	if d.Free = int64(n); d.Peak <= d.Free {
		return ""
	}
	remedy := "free some space, or choose another directory with --output"
	if d.Captures == KeepCaptures {
		remedy += ", or use --captures " + string(CompressCaptures)
	}
	return fmt.Sprintf("disk space in %s: about %s, of which %s are free (%s)", d.Directory, units.Short(float64(d.Peak), "B"), units.Short(float64(d.Free), "B"), remedy)
}
