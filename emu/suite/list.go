package suite

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"testbed/results/summary"
	"testbed/results/table"
)

// PartList describes a part.
type PartList struct {
	Name     string        `json:"name"`
	Title    string        `json:"title"`
	Optional bool          `json:"optional,omitempty"` // runs only if --only names it
	Variants []VariantList `json:"variants"`
	Claims   []string      `json:"claims"`
}

// VariantList describes what a variant runs.
type VariantList struct {
	Name    string   `json:"name,omitempty"`
	On      string   `json:"on"`
	Runs    string   `json:"runs"` // scenario, or number of policies
	Repeats int      `json:"repeats,omitempty"`
	Needs   []string `json:"needs,omitempty"` // inputs
}

// List describes the parts, with the default number of repeats.
func (s *Suite) List() (out []PartList) {
	for _, p := range s.parts {
		x := PartList{Name: p.name, Title: p.title, Optional: p.optional, Claims: []string{}}
		for _, v := range p.variants {
			l := VariantList{Name: v.name, On: v.on, Runs: v.scenario, Needs: v.needs}
			if v.ofTrace() {
				l.Runs = fmt.Sprintf("%d policies", len(v.policies))
			} else {
				l.Repeats = v.repeats(DefaultRepeat, v.on == onPackets)
			}
			x.Variants = append(x.Variants, l)
		}
		for _, c := range s.Claims.Claims {
			if c.part() == p.name {
				x.Claims = append(x.Claims, c.ID)
			}
		}
		out = append(out, x)
	}
	return out
}

// WriteList writes the list as text.
func (s *Suite) WriteList(w io.Writer) error {
	t := table.Table{
		Head:    []string{"part", "runs", "on", "repeats", "claims"},
		Columns: []table.Column{table.Names(), table.Prose(), {Left: true}, {}, {}},
	}
	for _, p := range s.List() {
		n := fmt.Sprint(len(p.Claims))
		name := p.Name
		for _, v := range p.Variants {
			runs, repeats := v.Runs, "–"
			if v.Name != "" {
				name = p.Name + "/" + v.Name
			}
			if v.Needs != nil {
				runs += " with " + strings.Join(v.Needs, ", ")
			}
			if p.Optional {
				runs += " (optional)"
			}
			if v.Repeats > 0 {
				repeats = fmt.Sprint(v.Repeats)
			}
			t.Rows = append(t.Rows, []string{name, runs, v.On, repeats, n})
			n = ""
		}
	}
	if _, err := t.Draw(w, table.Style{Plain: true}); err != nil {
		return err
	}
	for _, p := range s.List() {
		if len(p.Claims) > 0 {
			if _, err := fmt.Fprintf(w, "\n%s: %s\n  %s\n", p.Name, p.Title, strings.Join(p.Claims, "\n  ")); err != nil {
				return err
			}
		}
	}
	return nil
}

// Quantity describes a quantity, or a relation of one.
type Quantity struct {
	Name string `json:"name"`
	Unit string `json:"unit"`
	As   string `json:"as"` // relations that it has
	Doc  string `json:"doc"`
}

// Quantities describes what figures can be of.
func Quantities() (out []Quantity) {
	for i := range quantities {
		q := &quantities[i]
		as := []string{"value"}
		switch {
		case q.trace != nil:
		case q.coflows != nil:
			as = append(as, "speedup (flow-level simulator)")
			if q.compared {
				as = append(as, "compared (scenarios)")
			}
		case q.compared && q.job == nil:
			as = []string{"compared"}
		default:
			as = append(as, "base", "ratio", "speedup", "saved", "added", "drop", "difference")
			if q.job != nil {
				as = append(as, "paired")
			}
			if q.compared {
				as = append(as, "compared")
			}
		}
		out = append(out, Quantity{q.name, cmp.Or(q.unit, "none"), strings.Join(as, ", "), q.doc})
	}
	return out
}

// WriteQuantities writes the quantities, relations and derivations of traces as text.
func WriteQuantities(w io.Writer) error {
	for _, q := range Quantities() {
		if _, err := fmt.Fprintf(w, "%s (%s): %s\n    as %s\n", q.Name, q.Unit, q.Doc, q.As); err != nil {
			return err
		}
	}
	for _, f := range summary.Figures() {
		if !f.Number || f.List != nil {
			continue
		}
		if _, err := fmt.Fprintf(w, "%s (%s): %s\n", f.Key, cmp.Or(unitOf(f.Unit).name, "none"), f.Doc); err != nil {
			return err
		}
	}
	for _, r := range relations {
		if _, err := fmt.Fprintf(w, "as %s (%s): %s\n", r.name, cmp.Or(r.unit, "unit of the quantity"), r.doc); err != nil {
			return err
		}
	}
	for _, d := range derivations {
		if _, err := fmt.Fprintf(w, "derive %s: %s\n", d.name, d.doc); err != nil {
			return err
		}
	}
	return nil
}
