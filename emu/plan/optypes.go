package plan

// OpTypes returns one value of each type of Op.
func OpTypes() []Op {
	return []Op{Namespace{}, Sysctl{}, Veth{}, Offloads{}, Delay{}, Shaper{}, RED{}, Address{}, Up{}, Ready{}, Neighbour{}, Route{}}
}
