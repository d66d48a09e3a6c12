package plan

// Kernel parameters of the namespaces. Those of TCP are the kernel's documented
// defaults, pinned because a distribution, or an administrator's sysctl.d, may
// have changed them for namespaces made later. Congestion control is not here:
// an unprivileged choice of sockets decides it, and kernels refuse it as a
// namespace's parameter where the root namespace does not allow it.
var (
	// noIPv6 keeps router solicitations and multicast reports off the links. It is
	// a pair of its own since a kernel may be built without IPv6.
	noIPv6 = []Setting{
		{"net.ipv6.conf.all.disable_ipv6", "1"},
		{"net.ipv6.conf.default.disable_ipv6", "1"},
	}

	// Reverse path filters would drop what returns over the other spine.
	common = []Setting{
		{"net.ipv4.conf.all.rp_filter", "0"},
		{"net.ipv4.conf.default.rp_filter", "0"},
	}

	// Multipath hashes over addresses, protocol and ports (fields 1, 2, 4, 16 and
	// 32), as policy 1 does. But policy 1 prefers a hash that a packet already
	// carries, and a packet from a socket of the same machine carries its socket's
	// random one, which changes with every connection and after every time-out:
	// flows would change spines. Policy 3 (Linux 5.13) looks at the packet.
	switchSettings = append([]Setting{
		{"net.ipv4.ip_forward", "1"},
		{"net.ipv4.fib_multipath_hash_fields", "55"},
		{"net.ipv4.fib_multipath_hash_policy", "3"},
	}, common...)

	hostSettings = append([]Setting{
		{"net.ipv4.tcp_no_metrics_save", "1"}, // a flow does not inherit the last one's ssthresh and round-trip time
		{"net.ipv4.tcp_ecn", "0"},
		{"net.ipv4.tcp_sack", "1"},
		{"net.ipv4.tcp_timestamps", "1"}, // 12 bytes of each segment
		{"net.ipv4.tcp_window_scaling", "1"},
		{"net.ipv4.tcp_slow_start_after_idle", "1"},
		{"net.ipv4.tcp_mtu_probing", "0"},
		{"net.ipv4.tcp_moderate_rcvbuf", "1"},
		{"net.ipv4.tcp_rmem", "4096 131072 6291456"},
		{"net.ipv4.tcp_wmem", "4096 16384 4194304"},
		{"net.ipv4.tcp_max_syn_backlog", "4096"}, // a reducer hears from all mappers at once
		{"net.core.somaxconn", "4096"},
	}, common...)
)
