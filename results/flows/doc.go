// Package flows reduces the captures of a run, one file a host, to records: one
// for each flow, coflow and block, with times as they stand on the wire.
//
// What each figure is:
//
//   - A flow starts with its first packet with payload at the sender's interface
//     and ends with the packet, at the receiver's interface, that completes
//     contiguous coverage of the transfer header and the flow's size. Out of order
//     and resent segments are put in place by sequence number; payload lengths
//     come from the IP header, so the capture may keep only the first bytes of
//     packets.
//   - A flow's Packets are those with payload at the sender, Resent those of them
//     that carry bytes sent before, and Wire the Ethernet frames, without check
//     sequence, of all packets the sender put on the wire for the flow, with and
//     without payload.
//   - A coflow arrives with its mark and ends with its last flow. It has a record
//     only if all its flows have one.
//   - A block write is requested with its mark and ends with the packet, at the
//     client's interface, that completes the acknowledgements of the first hop of
//     its pipeline. Where pipelines broke, and the client made others without the
//     hosts that were lost, it is that of the last one, whose hosts hold the block.
//   - What a fault ended is marked on the wire (Failure): a failed flow or block has
//     no record, and neither has the coflow of a failed flow. That is no problem;
//     a transfer that did not end and has no such mark is one.
//   - A mark's moment of arrival is what the mark states, because the datagram may
//     wait in its host's queue, unless that is not within a bound before its time
//     on the wire.
//
// Memory grows with transfers, not with packets.
//
// It does not judge whether a run may be believed (emu/fidelity), but counts
// what that needs: packets, bytes and spacing at each host's interface, and
// losses of the capture. It computes no distribution (results/metrics).
package flows
