// Package pcap writes the capture of one host or switch as a pcapng file
// (draft-ietf-opsawg-pcapng). It reads captures of any program: pcapng of either byte
// order with any number of sections and interfaces, and the older pcap format, versions 2.0
// to 2.4, with timestamps in microseconds or nanoseconds, plain or compressed.
//
// Its files have nanosecond timestamps, the original length of every packet, the
// identity of the capture (Meta), the link at each interface, the direction of
// every packet, the number of packets that the kernel lost, and a comment on the first
// packet of each transfer (Commenter). Any tool that reads pcapng reads these files.
// Compress and CompressFile compress them to about a fifth with zstd, from which OpenPlain
// restores the file byte for byte.
//
// The package does not use gopacket's reader, which returns plain io.EOF for a file that
// is truncated within a block, divides by zero on a time resolution that it cannot
// represent, and allocates any length that a damaged block states. gopacket's writer does
// not support interface speeds and packet options. Tests compare the results of both
// packages on complete files.
//
// The package does not capture and does not decode packets. It skips and counts those of link
// types that its caller does not accept.
package pcap
