package rates

import "testbed/policies"

// proportional is rule Proportional: by what part the flows of each link can grow, and
// every flow by the least of its path.
func (s *Sharer) proportional(st *policies.Step) {
	p := of(st.Part)
	for _, c := range st.Coflows {
		if d := s.demands[c]; s.takes(st, c) && d.serves(p) > 0 {
			d.write() // what they have is asked for
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
			for _, i := range s.list {
				path := d.route(i)
				by := s.share[path[0]]
				for _, l := range path[1:] {
					by = min(by, s.share[l])
				}
				if rate := d.given(i); rate > 0 && by > 0 {
					s.grant(d, i, path, rate*by)
				}
			}
		}
	}
}

// given is what steps have given a flow so far. Of a demand that is Joint, what it has by
// MADD is added to Rate in the end.
func (d *Demand) given(place int32) float64 {
	if d.is {
		return d.rate[place] + d.Left[place]*d.scale*d.pace
	}
	return d.rate[place]
}
