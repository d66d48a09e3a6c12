package alloc

import "testbed/policies"

// proportional applies rule Proportional. It computes the factor by which the flows of each
// link can grow, and raises every flow by the minimum factor of its path.
func (s *Allocator) proportional(st *policies.Step) {
	p := of(st.Part)
	for _, c := range st.Coflows {
		if d := s.demands[c]; s.takes(st, c) && d.serves(p) > 0 {
			d.write() // their rates are needed
			s.list = d.places(p, s.list)
			for _, i := range s.list {
				if rate := d.given(i); rate > 0 {
					for _, l := range d.route(i) {
						s.used[l] += rate
					}
				}
			}
		}
	}
	none := len(s.used) - 1
	for l, used := range s.used[:none] {
		s.share[l] = 0
		if used > 0 && s.open(int32(l)) {
			s.share[l] = s.avail[l] / used
		}
	}
	clear(s.used)
	for _, c := range st.Coflows {
		if d := s.demands[c]; s.takes(st, c) && d.serves(p) > 0 {
			s.list = d.places(p, s.list)
			s.gift.begin(p)
			for _, i := range s.list {
				path := d.route(i)
				by := s.share[path[0]]
				for _, l := range path[1:] {
					by = min(by, s.share[l])
				}
				if rate := d.given(i); rate > 0 && by > 0 {
					s.grant(i, path, rate*by)
				}
			}
			d.receive(&s.gift)
		}
	}
}

// given returns the rate of a flow from the steps so far. For a Joint demand it includes the
// rate of MADD, which is added to rate only at the end.
func (d *Demand) given(place int32) float64 {
	if d.is {
		return d.rate[place] + d.Left[place]*d.scale*d.pace
	}
	return d.rate[place]
}
