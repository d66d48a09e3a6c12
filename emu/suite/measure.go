package suite

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"testbed/results/rundir"
)

// mostOpen is the number of runs that are kept in memory.
const mostOpen = 3

// run1 reads a run of a variant, nil if there is none.
func (p *Plan) run1(v *variant, on string) (*rundir.Run, error) {
	dir := p.dirs[dirKey{v, on}]
	if dir == "" {
		return nil, nil
	}
	if i := slices.IndexFunc(p.open, func(r *rundir.Run) bool { return r.Dir == dir }); i >= 0 {
		r := p.open[i]
		p.open = append(slices.Delete(p.open, i, i+1), r)
		return r, nil
	}
	r, err := rundir.Open(dir)
	if err == nil {
		p.open = append(p.open, r)
		p.open = p.open[max(0, len(p.open)-mostOpen):]
	}
	return r, err
}

// evaluate measures a figure of variants on a backend.
func (p *Plan) evaluate(of *part, variants []*variant, x pair, f *figure, on string) (result, error) {
	base, arm := f.arms(x)
	if variants[0].ofTrace() {
		return f.measureTrace(p.simulated[variants[0]], base, arm)
	}
	if f.of.packets && on != onPackets {
		return none, nil
	}
	var runs, others []*rundir.Run
	for _, v := range variants {
		r, err := p.run1(v, on)
		if err != nil || r == nil {
			return none, err
		}
		runs = append(runs, r)
	}
	if f.over != "" {
		v, other := variants[0], onFluid
		if f.over == overFirst {
			v, other = p.part(of.name).variants[0], on
		} else if on == onFluid {
			return none, nil
		}
		r, err := p.run1(v, other)
		if err != nil || r == nil {
			return none, err
		}
		others = append(others, r)
	}
	return f.measure(runs, others, base, arm)
}

// backends returns what a variant ran on; the last is what claims are measured on.
func (p *Plan) backends(v *variant) []string {
	switch {
	case v.ofTrace():
		return []string{simulator}
	case p.onPackets(v):
		return []string{onFluid, onPackets}
	}
	return []string{onFluid}
}

// rows returns the rows of a variant in the table of its part. The paper's figure stands next to ours where there is a
// claim.
func (p *Plan) rows(of *part, v *variant) (rows [][]string, err error) {
	var arms []string
	if v.ofTrace() {
		for _, x := range v.policies {
			arms = append(arms, x.String())
		}
	} else {
		r, err := p.run1(v, onFluid)
		if err != nil {
			return nil, err
		}
		arms = r.Arms()
	}
	for _, x := range v.over(arms) {
		for _, on := range p.backends(v) {
			row := []string{cmp.Or(strings.Trim(v.title+", "+x.title, ", "), of.title), on}
			for _, f := range of.columns {
				r, err := p.evaluate(of, []*variant{v}, x, f, on)
				if err != nil {
					return nil, err
				}
				cell := r.text(f.unit())
				for _, c := range p.Claims.Claims {
					if t := c.target; t != nil && c.Paper != nil && t.figure == f && t.pair == x && slices.Equal(t.variants, []*variant{v}) {
						cell += fmt.Sprintf(" (paper %s)", c.Paper.text(c.Unit))
					}
				}
				row = append(row, cell)
			}
			rows = append(rows, row)
		}
	}
	return rows, nil
}

// measure records the claims that a variant completes.
func (p *Plan) measure(of *part, v *variant, done map[*variant]bool) error {
	for i := range p.Claims.Claims {
		c := &p.Claims.Claims[i]
		t := c.target
		if t == nil || c.NotRun != "" || !slices.Contains(t.variants, v) ||
			slices.ContainsFunc(t.variants, func(v *variant) bool { return !done[v] }) {
			continue
		}
		on := p.backends(v)
		last := on[len(on)-1]
		if (t.figure.of.packets || t.figure.over == overFluid) && last != onPackets {
			c.NotRun = "needs packets"
			continue
		}
		r, err := p.result(of, t, last)
		if err != nil {
			return fmt.Errorf("claim %s: %w", c.ID, err)
		}
		c.record(r, last)
	}
	return nil
}

// result measures the target of a claim.
func (p *Plan) result(of *part, t *target, on string) (result, error) {
	if !t.references {
		return p.evaluate(of, t.variants, t.pair, t.figure, on)
	}
	worst := 0.0
	for _, v := range t.variants {
		value := *t.figure
		value.as = "value"
		r, err := p.evaluate(of, []*variant{v}, t.pair, &value, on)
		if err != nil {
			return none, err
		}
		worst = max(worst, v.distance(r)) // NaN if there is none
	}
	return exactly(worst), nil
}
