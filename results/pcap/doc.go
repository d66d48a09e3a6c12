// Package pcap writes and reads the capture of one host as a pcapng file
// (draft-ietf-opsawg-pcapng): nanosecond stamps, the original length of every
// packet, several interfaces, what the capture is of, and what the kernel lost.
// Any tool that reads pcapng reads these files.
//
// The writer is gopacket's. The reader is our own, because gopacket's returns
// plain io.EOF for a file that was cut in the middle of a block, divides by zero
// on a time resolution it cannot hold, and allocates whatever length a damaged
// block states; the tests hold the two against each other on whole files.
//
// It does not capture, does not look into packets and does not read the older
// pcap format.
package pcap
