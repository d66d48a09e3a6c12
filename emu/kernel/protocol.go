package kernel

import (
	"errors"
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
	return counters(n, "snmp", "Ip:", func(at map[string]uint64) IPStats {
		s := IPStats{Received: at["InReceives"], Delivered: at["InDelivers"], Forwarded: at["ForwDatagrams"],
			Refused: at["InHdrErrors"] + at["InAddrErrors"] + at["InUnknownProtos"] + at["InDiscards"], Sent: at["OutRequests"]}
		// Before Linux 6.7, which added OutTransmits, OutRequests included forwarded packets.
		if _, ok := at["OutTransmits"]; ok {
			s.Sent += s.Forwarded
		}
		return s
	}, "InReceives", "InDelivers", "ForwDatagrams", "OutRequests")
}

// Duplicates returns how many segments with data TCP of the namespace received, since its creation, whose data it had
// already. The sender is notified of each (RFC 2883).
func (n *Namespace) Duplicates() (uint64, error) {
	return counters(n, "netstat", "TcpExt:", func(at map[string]uint64) uint64 {
		return at["TCPDSACKOldSent"] + at["TCPDSACKOfoSent"]
	}, "TCPDSACKOldSent", "TCPDSACKOfoSent")
}

// counters reads a group of counters from a file of /proc/net of a namespace, which has those of the given names.
func counters[T any](n *Namespace, file, group string, of func(map[string]uint64) T, names ...string) (out T, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	path := "/proc/thread-self/net/" + file // /proc/net would be the namespace of the process
	var text []byte
	if err = errClosed; !n.closed {
		err = n.do(func() (err error) {
			text, err = os.ReadFile(path)
			return err
		})
	}
	var at map[string]uint64
	if err == nil {
		at, err = parseCounters(string(text), group, names...)
	}
	if err != nil {
		return out, fmt.Errorf("%s counters of %q: %w", strings.TrimSuffix(group, ":"), n.name, err)
	}
	return of(at), nil
}

// parseCounters parses the two lines that begin with group: the first contains names, the second values, of which
// those below 0 are left out.
func parseCounters(text, group string, needed ...string) (map[string]uint64, error) {
	var names []string
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) == 0 || words[0] != group {
			continue
		}
		if names == nil {
			names = words
			continue
		}
		if len(words) != len(names) {
			return nil, fmt.Errorf("%d names and %d values", len(names)-1, len(words)-1)
		}
		at := map[string]uint64{}
		for i, name := range names[1:] {
			v, err := strconv.ParseInt(words[i+1], 10, 64)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			if v >= 0 {
				at[name] = uint64(v)
			}
		}
		for _, name := range needed {
			if _, ok := at[name]; !ok {
				return nil, fmt.Errorf("no %s", name)
			}
		}
		return at, nil
	}
	return nil, errors.New("no such counters")
}
