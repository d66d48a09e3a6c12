package plan

// OpTypes is one value of each type of Op, for who must know them all.
func OpTypes() []Op {
	return []Op{Namespace{}, Sysctl{}, Veth{}, Offloads{}, Delay{}, Shaper{}, RED{}, Address{}, Up{}, Ready{}, Neighbour{}, Route{}}
}
