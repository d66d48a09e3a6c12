package report

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"testbed/results/breakdown"
	"testbed/results/metrics"
	"testbed/topo/units"
)

// DefaultFluidMargin is the default of Input.FluidMargin.
const DefaultFluidMargin = 0.10

// transport are the causes of a coflow's time that the fluid model does not have.
var transport = []breakdown.Cause{breakdown.Setup, breakdown.Retransmission, breakdown.Latency}

// explain compares the measured average of CCT with the fluid model's: set-up, retransmission and
// latency make coflows slower by their share of the time, and bytes that are sent again occupy links. If
// the ratio is outside what that explains, the note states the likeliest cause.
func (in Input) explain(s *ArmSummary, arm Arm) {
	if s.CCT == nil || s.CCT.Fluid == nil || s.Time == nil {
		return
	}
	all := breakdown.Sum(s.Time.coflows)
	if all <= 0 {
		return
	}
	var own time.Duration
	for _, c := range transport {
		own += breakdown.Total(s.Time.coflows, c)
	}
	resent, packets := 0, 0
	for _, r := range arm.Repeats {
		for _, f := range r.Records.Flows {
			resent, packets = resent+f.Resent, packets+f.Packets
		}
	}
	f := s.CCT.Fluid
	f.Explained = 1 / (1 - min(float64(own)/float64(all), 0.99))
	if packets > resent {
		f.Explained *= float64(packets) / float64(packets-resent)
	}
	f.Explained = metrics.Round6(f.Explained)
	margin := cmp.Or(in.FluidMargin, DefaultFluidMargin)
	switch {
	case f.Ratio > f.Explained*(1+margin):
		f.Note = fmt.Sprintf("%s: the average CCT is %.2f times that of the fluid model. Set-up, retransmission and latency explain %.2f times; %s.", s.Name, f.Ratio, f.Explained, slower(s.Time.coflows, all))
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

func faster(s *ArmSummary) string {
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
