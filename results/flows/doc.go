// Package flows reduces the captures of a run, one file per host, to one record for each
// flow, coflow and block, with times observed on the wire. It also returns the progress
// of each transfer (Trail) and the load of each link of the fabric (LinkSeries), which
// captures of switch ports make more exact.
//
// Definitions of the figures:
//
//   - A flow starts with its first packet with payload at the sender's interface
//     and ends with the packet, at the receiver's interface, that completes
//     contiguous coverage of the transfer header and the flow's bytes. Reordered
//     and resent segments are placed by sequence number. Payload lengths come from
//     the IP header, so the capture may keep only the first bytes of packets.
//   - A flow's Packets are the packets with payload at the sender, and Resent those
//     among them that carry bytes sent before. Wire is the size of the Ethernet frames,
//     without check sequence, of all packets that the sender sent for the flow, with
//     and without payload.
//   - A coflow arrives with its mark and ends with its last flow. It has a record
//     only if all its flows have one.
//   - A block write is requested with its mark and ends with the packet, at the
//     client's interface, that completes the acknowledgements of the first hop of
//     its pipeline. If a pipeline broke and the client rebuilt it without the lost
//     hosts, the last pipeline counts, whose hosts store the block.
//   - A mark on the wire (Failure) records each transfer that a fault ended. A failed
//     flow or block has no record, and neither has the coflow of a failed flow. That
//     is not a problem, but a transfer that did not end and has no such mark is one.
//   - A flow of a task arrives when it is released (wire.Header.Released). The shuffle of a
//     job of tasks is an open coflow: it ends with the last of the flows that joined it, and has a
//     record once its end is marked and each of them has ended, failed or been stopped. The coflow
//     of a flow that carries an input block has no record.
//   - A flow or block of a task that is marked as stopped has no record. It did not fail, and
//     is not a problem. Jobs of tasks and attempts are recorded from the marks of their moments.
//   - The arrival time is the time stated in the mark, because the datagram may wait in
//     its host's queue. If that time is after the capture's timestamp, or too long
//     before it (Options.MarkBound), the timestamp is used.
//
// If a capture lacks the SYN of a connection, because it began later or lost the packet,
// the connection is recognized by the transfer header at the start of a packet.
//
// Packets are read once, in the order of the file, and not kept. Memory grows with the
// number of transfers, not of packets. With the default Options, each end of a transfer
// takes up to about 5 KB: 1 KB of state for packets, and bounded numbers of checkpoints,
// spans and round-trip times. Each gap in the bytes seen takes another 32 bytes; a
// stream has a few at a time. Each link takes at most 32 bytes per interval
// (Options.Intervals).
//
// The package measures the inputs of a run's verdict (decided by emu/fidelity): packets,
// bytes and spacing at each host's interface, and packets lost by the capture. Package
// metrics computes distributions.
package flows
