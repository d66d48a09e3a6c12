// Package conversations tells what any capture holds: its facts, and its TCP and
// UDP conversations with packets, bytes, times, retransmissions and set-up time
// each way. It needs nothing from the capture but packets; where conversations
// begin with this project's transfer header it names the transfer.
//
// What each figure is:
//
//   - Bytes are those of Ethernet frames without check sequence, as long as they
//     were on the wire. Payload is what TCP or UDP carried, by the lengths that IP
//     states, so that captures that keep only the first bytes of packets count in
//     full.
//   - Stream numbers the conversations of one protocol in one capture from 0, in
//     order of their first packets. As in tcp.stream of Wireshark 4.0, a SYN without ACK
//     begins a new conversation between the same ports where its sequence number is
//     not the one with which that side began.
//   - A retransmission is a packet with payload, SYN or FIN of which the capture
//     holds some already, or whose payload is acknowledged already. Out of order is one below the highest sequence number seen
//     of which it holds nothing: sent late, overtaken, or sent again for one that was
//     lost before the point of capture. At a sender the distinction is exact.
//     Wireshark and tshark tell the two apart by times instead; their sum is the same.
//   - A keep-alive (at most one byte, just below the highest) and the probe of a
//     closed window (one byte) are neither, and bring no new bytes.
//   - Zero windows are packets, but SYN, FIN and RST, that state a window of 0.
//   - The handshake is the time from the last SYN to the first packet with ACK from
//     the same side after the other's SYN: a round trip, seen from the point of
//     capture.
//   - Goodput is payload, each byte once, over the time from the first packet with
//     payload to the last of that direction.
//
// Addresses and ports alone tell conversations apart, not VLANs or interfaces.
// Fragments of IP packets, other protocols, packets captured too short for their
// headers and those whose headers contradict themselves belong to no conversation
// and are counted by what they are. Tunnels are not looked into.
//
// Memory grows with the number of conversations, not with packets: of each direction
// at most Options.Holes gaps are kept.
package conversations
