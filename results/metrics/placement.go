package metrics

import (
	"fmt"
	"math"
	"time"

	"gonum.org/v1/gonum/stat"

	"testbed/results/flows"
	"testbed/topo"
	"testbed/topo/units"
)

// Placement is the effect of block placement on links and disks in one repeat.
type Placement struct {
	CrossRack CrossRack
	// Disk is the standard deviation of the bytes of completed blocks over hosts, over the
	// capacity of all disks of a host; nil if disks are never full.
	Disk *float64
	// Balance is nil if it was not measured.
	Balance *Balance
	Bounds  Bounds
}

// CrossRack is the number of bytes that left racks, each counted once: bytes of frames on
// packets, of payload on the fluid model.
type CrossRack struct {
	All    float64
	Writes float64 // the part of block pipelines
}

// DefaultAlike is the largest difference of the bytes between racks of two arms, relative
// to the baseline's, at which their times are comparable like for like.
const DefaultAlike = 0.05

// Unlike returns the reasons why the times of two arms are not comparable like for like:
// one moves clearly more bytes between racks, in total or for block writes. It is nil if
// they are comparable.
func (x CrossRack) Unlike(base CrossRack, within float64) []string {
	var out []string
	for _, of := range []struct {
		what      string
		base, arm float64
	}{{"block-write", base.Writes, x.Writes}, {"total", base.All, x.All}} {
		switch apart := math.Abs(of.arm - of.base); {
		case apart <= within*of.base:
		case of.base == 0:
			out = append(out, fmt.Sprintf("%.0f %s bytes between racks, none in the baseline", of.arm, of.what))
		default:
			out = append(out, fmt.Sprintf("%.2f times the baseline's %s bytes between racks", of.arm/of.base, of.what))
		}
	}
	return out
}

// Payload returns the bytes that completed flows and blocks moved between racks, without
// headers and retransmissions.
func Payload(r flows.Records) CrossRack {
	var x CrossRack
	apart := func(a, b string) bool {
		from, _, ok1 := topo.ParseHostName(a)
		to, _, ok2 := topo.ParseHostName(b)
		return ok1 && ok2 && from != to
	}
	for f := range r.Transfers() {
		if apart(f.Src, f.Dst) {
			x.All += float64(f.Size)
		}
	}
	for _, b := range r.Blocks {
		from := b.Client
		for _, to := range b.Hosts {
			if apart(from, to) {
				x.Writes += float64(b.Size)
			}
			from = to
		}
	}
	x.All += x.Writes
	return x
}

// Uplinks returns the bytes that links carried out of racks. The series are those of a
// fabric's links in order of ID.
func Uplinks(f *topo.Fabric, all []flows.LinkSeries) units.Bytes {
	var sum units.Bytes
	for _, l := range f.Links() {
		if l.Kind == topo.LeafUp {
			for _, b := range all[l.ID].Bytes {
				sum += b
			}
		}
	}
	return sum
}

// DiskImbalance returns the standard deviation over hosts of the bytes of completed blocks
// stored there, over the capacity of all disks of a host; nil for a capacity of 0.
func DiskImbalance(f *topo.Fabric, r flows.Records, capacity units.Bytes) *float64 {
	if capacity <= 0 {
		return nil
	}
	stored := make([]float64, f.Hosts())
	for _, b := range r.Blocks {
		for _, name := range b.Hosts {
			if h, err := f.FindHost(name); err == nil {
				stored[h] += float64(b.Size)
			}
		}
	}
	_, deviation := stat.PopMeanStdDev(stored, nil)
	out := deviation / float64(capacity)
	return &out
}

// Balance is the balance of the receiving bottleneck links: a coefficient of variation for
// each interval in which any of them carried data.
type Balance struct {
	Interval time.Duration // the heartbeat, rounded up to a multiple of the measured interval
	Links    int
	Samples  []BalanceSample
}

// BalanceSample is the balance in one interval.
type BalanceSample struct {
	From time.Duration // since the start of the repeat
	Cv   float64       // standard deviation over mean of the links' utilisation
}

// Cvs returns the samples without their times.
func (b *Balance) Cvs() []float64 {
	out := make([]float64, len(b.Samples))
	for i, s := range b.Samples {
		out[i] = s.Cv
	}
	return out
}

// ReceivingLinks returns the bottleneck links toward hosts, with the links of Sinbad
// (SIGCOMM 2013): all that lead down to one rack together if racks are the bottleneck
// (BottleneckLinks), else the link of each host. Placement chooses the receivers; how
// routing spreads a rack's bytes over spines does not depend on it.
func ReceivingLinks(f *topo.Fabric) [][]topo.LinkID {
	if !racksDecide(f) {
		out := make([][]topo.LinkID, f.Hosts())
		for h := range out {
			out[h] = []topo.LinkID{f.HostDown(topo.HostID(h))}
		}
		return out
	}
	out := make([][]topo.LinkID, f.Racks())
	for _, l := range f.Links() {
		if l.Kind == topo.LeafDown {
			out[l.Rack] = append(out[l.Rack], l.ID)
		}
	}
	return out
}

// BalanceOf returns the balance that captures show, in heartbeat intervals. The series are
// those of a fabric's links in order of ID, with one interval.
func BalanceOf(f *topo.Fabric, all []flows.LinkSeries, heartbeat time.Duration) *Balance {
	m := NewMeter(f, heartbeat)
	if len(all) == 0 || len(all) != len(f.Links()) {
		return m.Balance()
	}
	n, carried := 0, make([]float64, len(all))
	series := make([]flows.LinkSeries, len(all))
	for _, group := range m.groups {
		for _, l := range group {
			series[l] = Rebin(all[l], heartbeat)
			n = max(n, len(series[l].Bytes))
			m.balance.Interval = series[l].Interval
		}
	}
	for i := range n {
		for _, group := range m.groups {
			for _, l := range group {
				if i < len(series[l].Bytes) {
					carried[l] += float64(series[l].Bytes[i])
				}
			}
		}
		m.Read(time.Duration(i)*m.balance.Interval, carried)
	}
	return m.Balance()
}

// Meter computes a Balance from counters of links.
type Meter struct {
	groups  [][]topo.LinkID
	rate    []float64 // rate of each group, bit/s
	last    []float64 // bytes that each group had carried
	use     []float64
	balance Balance
}

// NewMeter returns a meter of a fabric's receiving links, with all counters at 0.
func NewMeter(f *topo.Fabric, interval time.Duration) *Meter {
	m := &Meter{groups: ReceivingLinks(f), balance: Balance{Interval: interval}}
	m.balance.Links = len(m.groups)
	m.rate, m.last, m.use = make([]float64, len(m.groups)), make([]float64, len(m.groups)), make([]float64, len(m.groups))
	for i, group := range m.groups {
		for _, l := range group {
			m.rate[i] += float64(f.Link(l).Rate)
		}
	}
	return m
}

// Read adds the interval that begins at from. Carried is the number of bytes that each
// link, by LinkID, has carried from the start to the end of the interval.
func (m *Meter) Read(from time.Duration, carried []float64) {
	any := false
	for i, group := range m.groups {
		var sum float64
		for _, l := range group {
			sum += carried[l]
		}
		m.use[i] = 0
		if m.rate[i] > 0 {
			m.use[i] = (sum - m.last[i]) / m.rate[i]
		}
		any = any || m.use[i] > 0
		m.last[i] = sum
	}
	if any {
		m.balance.Samples = append(m.balance.Samples, BalanceSample{from, Cv(m.use)})
	}
}

// Balance returns the balance of all intervals so far.
func (m *Meter) Balance() *Balance { return &m.balance }
