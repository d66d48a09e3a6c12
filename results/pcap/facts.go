package pcap

// Format returns the format of the file: "pcapng", "pcap" or, with nanosecond timestamps,
// "pcap (ns)".
func (p *Reader) Format() string {
	switch {
	case p.record == 0:
		return "pcapng"
	case p.interfaces[0].times == 1:
		return "pcap (ns)"
	}
	return "pcap"
}

// Facts are the properties of one interface that a capture states besides Interface.
type Facts struct {
	LinkType LinkType
	Stats    Stats // from its latest statistics block
	// HasReceived and HasDropped report which of Stats the file states.
	HasReceived, HasDropped bool
}

// Facts returns the facts of all interfaces, in the order of Interfaces.
func (p *Reader) Facts() []Facts {
	out := make([]Facts, len(p.interfaces))
	for i := range p.interfaces {
		out[i] = p.interfaces[i].facts
	}
	return out
}
