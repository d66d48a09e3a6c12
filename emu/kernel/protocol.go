package kernel

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// IPStats count the IPv4 packets of a namespace since its creation (RFC 4293).
type IPStats struct {
	Received  uint64 // arrived on any device, including packets dropped later
	Delivered uint64 // handed to TCP, UDP or another protocol of the namespace
	Forwarded uint64 // forwarded from one device to another
	Sent      uint64 // created here or forwarded, before output filters and queues
	Refused   uint64 // with an error in the header or address, or without a route
}

// IP returns the namespace's IPv4 counters.
func (n *Namespace) IP() (IPStats, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return IPStats{}, fmt.Errorf("IP counters of %q: %w", n.name, errClosed)
	}
	var text []byte
	err := n.do(func() (err error) {
		text, err = os.ReadFile("/proc/thread-self/net/snmp") // /proc/net would be the namespace of the process
		return err
	})
	var s IPStats
	if err == nil {
		s, err = parseIPStats(string(text))
	}
	if err != nil {
		return IPStats{}, fmt.Errorf("IP counters of %q: %w", n.name, err)
	}
	return s, nil
}

// parseIPStats parses the lines of /proc/net/snmp that begin with "Ip:": the first contains names,
// the second values.
func parseIPStats(text string) (IPStats, error) {
	var names []string
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) == 0 || words[0] != "Ip:" {
			continue
		}
		if names == nil {
			names = words
			continue
		}
		if len(words) != len(names) {
			return IPStats{}, fmt.Errorf("/proc/net/snmp: %d names and %d values of IP counters", len(names)-1, len(words)-1)
		}
		at := map[string]uint64{}
		for i, name := range names[1:] {
			if name == "Forwarding" || name == "DefaultTTL" {
				continue
			}
			v, err := strconv.ParseUint(words[i+1], 10, 64)
			if err != nil {
				return IPStats{}, fmt.Errorf("/proc/net/snmp: %s: %w", name, err)
			}
			at[name] = v
		}
		for _, name := range []string{"InReceives", "InDelivers", "ForwDatagrams", "OutRequests"} {
			if _, ok := at[name]; !ok {
				return IPStats{}, fmt.Errorf("/proc/net/snmp has no %s", name)
			}
		}
		s := IPStats{Received: at["InReceives"], Delivered: at["InDelivers"], Forwarded: at["ForwDatagrams"],
			Refused: at["InHdrErrors"] + at["InAddrErrors"] + at["InUnknownProtos"] + at["InDiscards"], Sent: at["OutRequests"]}
		// Before Linux 6.7, which added OutTransmits, OutRequests included forwarded packets.
		if _, ok := at["OutTransmits"]; ok {
			s.Sent += s.Forwarded
		}
		return s, nil
	}
	return IPStats{}, fmt.Errorf("/proc/net/snmp has no IP counters")
}
