package summary

import (
	"fmt"
	"slices"

	"testbed/results/metrics"
)

// Placement is the effect of an arm's block placement on links and disks: averages over its repeats.
type Placement struct {
	// Bytes of frames, or payload on the fluid model.
	CrossRack      Average `json:"cross_rack_bytes" head:"cross-rack" drop:"6"`
	CrossRackWrite Average `json:"cross_rack_write_bytes"`
	Writes         string  `json:"-" head:"block writes"`
	// NotLikeForLike are the reasons why a speed-up over the baseline does not measure the choice of places alone.
	NotLikeForLike []string `json:"not_like_for_like,omitempty"`
	DiskImbalance  Average  `json:"disk_imbalance,omitzero" unit:"fine" head:"disk imbalance" place:"1"`
	Wait           Average  `json:"wait_us"`
	Waited         string   `json:"-" head:"wait" drop:"5" place:"1"` // "" for 0
	Cv             *Cv      `json:"cv,omitempty"`
	Bounds         *Bounds  `json:"bounds,omitempty"`
}

// Cv is the distribution of the coefficient of variation of the receiving bottleneck links' utilisation, over the
// intervals of all repeats.
type Cv struct {
	Interval  float64 `json:"interval_us"`
	Links     int     `json:"links"`
	N         int     `json:"n"`
	P5        float64 `json:"p5" unit:"index"`
	P25       float64 `json:"p25" unit:"index"`
	Median    float64 `json:"median" unit:"index" head:"median Cv"`
	Range     string  `json:"-" head:"Cv P5–P95" drop:"4"`
	Reduction Average `json:"-" unit:"index" head:"Cv reduction"`
	P75       float64 `json:"p75" unit:"index"`
	P95       float64 `json:"p95" unit:"index"`
}

// Bounds compare block writes with lower bounds.
type Bounds struct {
	Lone      Average `json:"lone_us"`
	Fluid     Average `json:"fluid_us,omitzero"`
	OverLone  Average `json:"over_lone" unit:"times" head:"vs lone bound" drop:"3" place:"2"`
	OverFluid Average `json:"over_fluid,omitzero" unit:"times" head:"vs fluid bound" drop:"2" place:"2"`
}

// UnlikeMark marks the bytes of an arm that is not like for like with the baseline.
const UnlikeMark = "≠"

// placementOf returns the figures of an arm; nil if no repeat has any.
func placementOf(repeats []Repeat) *Placement {
	var p *Placement
	var cvs []float64
	var b Bounds
	written := 0
	for _, r := range repeats {
		x := r.Placement
		if x == nil {
			continue
		}
		if p == nil {
			p = &Placement{}
		}
		p.CrossRack.Add(one(x.CrossRack.All))
		p.CrossRackWrite.Add(one(x.CrossRack.Writes))
		if x.Disk != nil {
			p.DiskImbalance.Add(one(*x.Disk))
		}
		for _, block := range r.Records.Blocks {
			p.Wait.Add(one(micros(block.Waited)))
		}
		for _, w := range metrics.WriteTimes(0, r.Records) {
			b.OverLone.Sum += micros(w.Time)
			written++
		}
		n := float64(x.Bounds.Blocks)
		b.Lone.Add(Average{Sum: micros(x.Bounds.Lone) * n, N: n})
		if x.Bounds.Fluid > 0 {
			b.Fluid.Add(Average{Sum: micros(x.Bounds.Fluid) * n, N: n})
		}
		if of := x.Balance; of != nil && len(of.Samples) > 0 {
			if p.Cv == nil {
				p.Cv = &Cv{Interval: micros(of.Interval), Links: of.Links}
			}
			cvs = append(cvs, of.Cvs()...)
		}
	}
	if p == nil {
		return nil
	}
	p.Writes = Bytes.Show(metrics.Round6(value(p.CrossRackWrite)))
	if wait := metrics.Round6(value(p.Wait)); wait > 0 {
		p.Waited = Micros.Show(wait)
	}
	if c := p.Cv; c != nil {
		slices.Sort(cvs)
		at := func(p float64) float64 { return metrics.Round6(metrics.Quantile(p, cvs)) }
		c.N, c.P5, c.P25, c.Median, c.P75, c.P95 = len(cvs), at(0.05), at(0.25), at(0.5), at(0.75), at(0.95)
		c.Range = fmt.Sprintf("%.2f–%.2f", c.P5, c.P95)
	}
	if b.Lone.N == float64(written) && b.Lone.Sum > 0 {
		b.OverLone.N = b.Lone.Sum
		if b.Fluid.N == b.Lone.N {
			b.OverFluid = Average{Sum: b.OverLone.Sum, N: b.Fluid.Sum}
		} else {
			b.Fluid = Average{}
		}
		p.Bounds = &b
	}
	return p
}

// against fills in the differences from the baseline.
func (p *Placement) against(base *Placement) {
	if p == nil || base == nil {
		return
	}
	if p.NotLikeForLike = p.Bytes().Unlike(base.Bytes(), metrics.DefaultAlike); p.NotLikeForLike != nil {
		p.Writes += " " + UnlikeMark
	}
	if p.Cv != nil && base.Cv != nil {
		p.Cv.Reduction = one(base.Cv.Median - p.Cv.Median)
	}
}

// Bytes returns the bytes between racks.
func (p *Placement) Bytes() metrics.CrossRack {
	return metrics.CrossRack{All: metrics.Round6(value(p.CrossRack)), Writes: metrics.Round6(value(p.CrossRackWrite))}
}
