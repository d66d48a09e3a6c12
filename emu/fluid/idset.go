package fluid

// idSet is a set of IDs. IDs of a run are close to each other, so that it takes about a bit for each.
type idSet map[int]*[idPage / 64]uint64

const idPage = 1 << 12

func (s idSet) add(id int) {
	page := s[id&^(idPage-1)]
	if page == nil {
		page = new([idPage / 64]uint64)
		s[id&^(idPage-1)] = page
	}
	page[inPage(id)/64] |= 1 << (inPage(id) % 64)
}

func (s idSet) has(id int) bool {
	page := s[id&^(idPage-1)]
	return page != nil && page[inPage(id)/64]>>(inPage(id)%64)&1 == 1
}

func inPage(id int) int { return id & (idPage - 1) }
