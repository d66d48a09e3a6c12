package conversations

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Order is the sort order of conversations.
type Order string

// The orders. All except ByStart put the largest first.
const (
	ByBytes           Order = "bytes"
	ByPackets         Order = "packets"
	ByDuration        Order = "duration"
	ByRetransmissions Order = "retransmissions"
	ByStart           Order = "start"
)

// Orders returns all orders.
func Orders() []Order {
	return []Order{ByBytes, ByPackets, ByDuration, ByRetransmissions, ByStart}
}

// ParseOrder returns the order with a name.
func ParseOrder(s string) (Order, error) {
	if o := Order(s); slices.Contains(Orders(), o) {
		return o, nil
	}
	var names []string
	for _, o := range Orders() {
		names = append(names, string(o))
	}
	return "", fmt.Errorf("order %q: must be one of %s", s, strings.Join(names, ", "))
}

// Compare compares two conversations in an order.
func (o Order) Compare(a, b *Conversation) int {
	switch o {
	case ByBytes:
		return cmp.Compare(b.Bytes(), a.Bytes())
	case ByPackets:
		return cmp.Compare(b.Packets(), a.Packets())
	case ByDuration:
		return cmp.Compare(b.Duration(), a.Duration())
	case ByRetransmissions:
		return cmp.Compare(b.Retransmissions(), a.Retransmissions())
	}
	return cmp.Compare(a.From, b.From)
}

// Match reports whether a conversation has the endpoint, protocol or transfer that text
// names: an address or the first parts of one ("10.0.3", "fe80:"), a port (":50060"), both
// ("10.0.3.1:50060"), tcp or udp, or a part of the transfer's name ("coflow 3").
func (c *Conversation) Match(text string) bool {
	if text == "" || text == c.Protocol() || c.Transfer != nil && (strings.Contains(c.Transfer.String(), text) || strings.Contains(c.Transfer.Short(), text)) {
		return true
	}
	return matchEnd(c.A(), text) || matchEnd(c.B(), text)
}

func matchEnd(end netip.AddrPort, text string) bool {
	addr := end.Addr().String()
	if end.String() == text || addr == text {
		return true
	}
	if port, ok := strings.CutPrefix(text, ":"); ok && port == strconv.Itoa(int(end.Port())) {
		return true
	}
	sep := "."
	if end.Addr().Is6() {
		sep = ":"
	}
	// Whole parts only: 10.0.3 does not match 10.0.33.1.
	return strings.HasPrefix(addr, strings.TrimSuffix(text, sep)+sep) && text != sep
}
