package flows

import (
	"testbed/topo"
)

// switchCapture is what the capture of a switch's ports amounts to.
type switchCapture struct {
	ports []port
}

// port is the side of a switch from which it sends over one link.
type port struct {
	link string // its name
	load series
	Counts
}

// observedLinks replaces what was inferred of links whose ports were captured.
func (a *assembly) observedLinks(all, spread [][]*series, observed []bool) (drops map[topo.LinkID]int) {
	return nil
}
