package report

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"testbed/results/breakdown"
	"testbed/results/metrics"
	"testbed/results/summary"
	"testbed/topo"
	"testbed/topo/units"
)

// DefaultFluidMargin is the default of Input.FluidMargin.
const DefaultFluidMargin = 0.10

// The set-up and latency of each coflow and block explain at most slowest, and mostRounds round trips of the
// longest path: a window or a pace that something else limits is none of the transport's.
const (
	slowest    = 100 * time.Millisecond
	mostRounds = 20
)

// overhead is what transport adds to the times of the transfers of a repeat.
type overhead struct {
	transfers int
	all       time.Duration // the sum of their times
	latency   time.Duration // of these, set-up and latency
	recovery  time.Duration // of these, waiting for lost segments
}

func ofCoflows(r summary.Repeat) overhead {
	s := r.Timing.CoflowTotal
	return overhead{
		transfers: len(r.Records.Coflows), all: breakdown.Sum(s), recovery: breakdown.Total(s, breakdown.Retransmission),
		latency: breakdown.Total(s, breakdown.Setup) + breakdown.Total(s, breakdown.Latency),
	}
}

func ofBlocks(r summary.Repeat) overhead {
	o := overhead{transfers: len(r.Timing.Blocks), all: breakdown.Sum(r.Timing.BlockTotal)}
	for _, b := range r.Timing.Blocks {
		o.latency += b.Setup
	}
	return o
}

// explained returns the ratio of the measured time of transfers to the fluid model's that transport explains: set-up,
// retransmission and latency make them slower by their share of the time, and bytes that are sent again occupy links.
func explained(repeats []summary.Repeat, of func(summary.Repeat) overhead) float64 {
	var all, own time.Duration
	resent, packets := 0, 0
	for _, r := range repeats {
		if r.Timing == nil {
			continue
		}
		o := of(r)
		if r.Fabric != nil {
			o.latency = min(o.latency, time.Duration(o.transfers)*(slowest+mostRounds*longest(r.Fabric)))
		}
		all += o.all
		own += o.recovery + o.latency
		for _, f := range r.Records.Flows {
			resent, packets = resent+f.Resent, packets+f.Packets
		}
	}
	if all <= 0 {
		return 0
	}
	by := 1 / (1 - min(float64(own)/float64(all), 0.99))
	if packets > resent {
		by *= float64(packets) / float64(packets-resent)
	}
	return metrics.Round6(by)
}

// longest returns the round-trip time of the longest path of an idle fabric.
func longest(f *topo.Fabric) time.Duration {
	delays := map[topo.LinkKind]time.Duration{}
	for _, l := range f.Links() {
		delays[l.Kind] = max(delays[l.Kind], l.Delay)
	}
	var all time.Duration
	for _, d := range delays {
		all += 2 * d
	}
	return all
}

// Compared is an average of a repeat relative to the fluid model's.
type Compared struct {
	What string // such as "CCT"
	summary.FluidPrediction
	Cause string // the likeliest one of what transport does not explain; "" if it is not known
}

// Compare compares the averages of a repeat's CCT, block write times and job times with the fluid model's, where it has them.
func Compare(r summary.Repeat) (out []Compared) {
	arm := Arm{Repeats: []summary.Repeat{r}}
	in := Input{Arms: []Arm{arm}}
	for _, m := range allMetrics() {
		if m.Key == "fct" || m.Key == "request_time" {
			continue // they follow those of coflows and blocks
		}
		if f := in.metric(0, m, 0); f != nil && f.Fluid != nil {
			c := Compared{What: m.Short(), FluidPrediction: *f.Fluid}
			switch {
			case r.Timing == nil:
			case m.Key == "cct":
				c.Explained = explained(arm.Repeats, ofCoflows)
				c.Cause = slower(r.Timing.CoflowTotal, breakdown.Sum(r.Timing.CoflowTotal))
			case m.Key == "write_time":
				c.Explained = explained(arm.Repeats, ofBlocks)
			}
			out = append(out, c)
		}
	}
	return out
}

// explain compares the measured average of CCT with the fluid model's. If the ratio is outside what transport explains, the note
// states the likeliest cause.
func (in Input) explain(s *summary.Arm, arm Arm) {
	if s.CCT == nil || s.CCT.Fluid == nil || s.Time == nil {
		return
	}
	all := breakdown.Sum(s.Time.Coflows)
	if all <= 0 {
		return
	}
	f := s.CCT.Fluid
	f.Explained = explained(arm.Repeats, ofCoflows)
	margin := cmp.Or(in.FluidMargin, DefaultFluidMargin)
	switch {
	case f.Ratio > f.Explained*(1+margin):
		f.Note = fmt.Sprintf("%s: the average CCT is %.2f times that of the fluid model. Set-up, retransmission and latency "+
			"explain %.2f times; %s.", s.Name, f.Ratio, f.Explained, slower(s.Time.Coflows, all))
	case f.Ratio < 1-margin:
		f.Note = fmt.Sprintf("%s: the average CCT is %.2f times that of the fluid model, although packets have headers, set-up and losses besides; %s.", s.Name, f.Ratio, faster(s))
	}
}

// slower returns the likeliest cause of a coflow's time that the fluid model does not predict.
func slower(shares []breakdown.Share, all time.Duration) string {
	if host := breakdown.Total(shares, breakdown.Host); float64(host) > 0.05*float64(all) {
		return fmt.Sprintf("the likeliest cause of the rest is hosts, for which coflows waited %s of their time: senders had nothing in flight, or receivers' windows were closed", units.Percent(float64(host)/float64(all), 0))
	}
	at := map[string]time.Duration{}
	var links []string
	for _, s := range shares {
		if s.Cause == breakdown.Queueing {
			if at[s.Link] == 0 {
				links = append(links, s.Link)
			}
			at[s.Link] += s.Time
		}
	}
	held, queued := breakdown.Total(shares, breakdown.Held), breakdown.Total(shares, breakdown.Queueing)
	if held > queued || len(links) == 0 {
		return fmt.Sprintf("the likeliest cause of the rest is the policy, which held flows back for %s of the time", units.Percent(float64(held)/float64(all), 0))
	}
	longest := slices.MaxFunc(links, func(a, b string) int { return cmp.Or(cmp.Compare(at[a], at[b]), cmp.Compare(b, a)) })
	return fmt.Sprintf("the likeliest cause of the rest is queueing, %s of the time, most of it at %s (%s): TCP shares links unequally, or a link or disk is slower than in the scenario (see the verdict)",
		units.Percent(float64(queued)/float64(all), 0), longest, units.Percent(float64(at[longest])/float64(all), 0))
}

func faster(s *summary.Arm) string {
	if s.FCT != nil && slices.Contains(s.FCT.Early, "mean_us") {
		return "the likeliest cause is short flows on idle links, which end early (see the table of FCT)"
	}
	return "the likeliest cause is that TCP shares links unequally, so that some coflows end before others that would end at the same time, or that a link is faster than in the scenario (see the verdict)"
}

// fluidNotes returns the notes of arms whose CCT transport does not explain.
func (r *Report) fluidNotes() (notes []string) {
	for _, a := range r.Summary.Arms {
		if a.CCT != nil && a.CCT.Fluid != nil && a.CCT.Fluid.Note != "" {
			notes = append(notes, a.CCT.Fluid.Note)
		}
	}
	return notes
}
