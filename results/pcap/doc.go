// Package pcap writes the capture of one host or switch as a pcapng file
// (draft-ietf-opsawg-pcapng) and reads captures, these and others: pcapng of
// either byte order with any number of sections and interfaces, and the older
// pcap format with stamps in microseconds or nanoseconds.
//
// What it writes has nanosecond stamps, the original length of every packet, what
// the capture is of, which link each interface is the end of, the direction of
// every packet, what the kernel lost, and a comment on the first packet of each
// transfer (Commenter). Any tool that reads pcapng reads these files.
//
// Both the reader and the writer are our own. gopacket's reader returns plain
// io.EOF for a file that was cut in the middle of a block, divides by zero on a
// time resolution it cannot hold, and allocates whatever length a damaged block
// states; its writer knows no interface speed and no options of packets. The tests
// hold them against each other on whole files.
//
// It does not capture, reads no packets of other link types than Ethernet (they
// are counted), and does not unpack compressed files.
package pcap
