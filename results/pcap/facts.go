package pcap

import "fmt"

// Format is what the file is: "pcapng", "pcap" or, of the same format with finer
// stamps, "pcap (ns)".
func (p *Reader) Format() string {
	switch {
	case p.record == 0:
		return "pcapng"
	case p.interfaces[0].times == 1:
		return "pcap (ns)"
	}
	return "pcap"
}

// Facts are what a capture states of one interface besides its description.
type Facts struct {
	LinkType string // such as "Ethernet"; packets of others are skipped
	Stats    Stats  // of its latest statistics block
	// HasReceived and HasDropped tell which of Stats are stated.
	HasReceived, HasDropped bool
}

// Facts are those of Interfaces, in the same order.
func (p *Reader) Facts() []Facts {
	out := make([]Facts, len(p.interfaces))
	for i := range p.interfaces {
		out[i] = p.interfaces[i].facts
	}
	return out
}

func linkName(link uint32) string {
	if link == linkEthernet {
		return "Ethernet"
	}
	if name, ok := linkTypes[link]; ok {
		return name
	}
	return fmt.Sprintf("link type %d", link)
}
