// Package flows reduces the captures of a run, one file a host, to records: one
// for each flow, coflow and block, with times as they stand on the wire. Beside them
// it tells how each transfer went (Trail) and what each link of the fabric carried
// (LinkSeries), to which captures of switch ports add where they are there.
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
// A connection whose SYN its capture lacks, because it began later or lost it, is
// known by the transfer header at the start of a packet.
//
// Packets are read once, in the order of the file, and not kept. Memory grows with
// transfers, and not with packets: up to about 5 KB for each end of a transfer with the
// default Options, of which 1 KB is for every packet's sake and the rest is checkpoints,
// spans and round-trip times, whose numbers are bounded; besides, 32 bytes for each gap in
// what an end has seen, of which there are a few at a time. Links take at most 8 bytes for
// each of four parts of each of Options.Intervals.
//
// It does not judge whether a run may be believed (emu/fidelity), but counts
// what that needs: packets, bytes and spacing at each host's interface, and
// losses of the capture. It computes no distribution (results/metrics).
package flows
