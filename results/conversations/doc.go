// Package conversations summarizes any capture: its properties, and its TCP and UDP
// conversations with packets, bytes, times, retransmissions and handshake time in each
// direction. It needs only packets; it names the transfer of conversations that begin with
// this project's transfer header.
//
// Definitions of the figures:
//
//   - Bytes are those of frames with the headers of their link type, without frame check
//     sequence, in their length on the wire: that of the record, or that of the IP header if
//     it is more and the record states no more than was captured. Payload is the data of TCP
//     or UDP by the lengths in the headers of IP and UDP, so captures that keep only the
//     first bytes of packets count in full.
//   - Stream numbers the conversations of one protocol in one capture from 0, in order of
//     their first packets. As in tcp.stream of Wireshark 4.0, a SYN without ACK begins a new
//     conversation between the same ports if its sequence number differs from that of the
//     side's first SYN.
//   - A retransmission is a packet with payload, SYN or FIN that the capture partly has
//     already, or whose payload has been acknowledged. An out-of-order packet is below the
//     highest sequence number seen, and the capture has none of it: it was sent late,
//     overtaken, or resent for one lost before the capture point. At a sender the
//     distinction is exact. Wireshark and tshark distinguish the two by times instead; the
//     sums are equal.
//   - A keep-alive (at most one byte, just below the highest) and a probe of a closed window
//     (one byte) are neither, and add no new bytes.
//   - Zero windows are packets with a window of 0, except SYN, FIN and RST.
//   - The handshake is the time from the last SYN to the first packet with ACK from the same
//     side after the other's SYN: a round trip as seen at the capture point.
//   - Goodput is payload, each byte once, over the time from the first packet with payload
//     to the last in that direction.
//
// Addresses and ports identify conversations; VLANs and interfaces do not. Fragments of IP
// packets, other protocols, packets captured too short for their headers and packets with
// inconsistent headers belong to no conversation and are counted by kind. Tunnels are not
// decoded.
//
// Memory grows with the number of conversations, not of packets: each takes about 300 bytes, and
// each direction keeps at most Options.Holes gaps. The conversations of one capture can be shared
// among goroutines (Options.Lanes), with the same result.
package conversations
