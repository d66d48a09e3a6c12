package plan

// Kernel parameters of the namespaces. The TCP parameters have the kernel's documented
// defaults. They are set because a distribution or an administrator's sysctl.d may have
// changed the defaults of new namespaces. For congestion control see Options.
var (
	// noIPv6 prevents router solicitations and multicast reports on the links. It is
	// separate because a kernel may be built without IPv6.
	noIPv6 = []Setting{
		{"net.ipv6.conf.all.disable_ipv6", "1"},
		{"net.ipv6.conf.default.disable_ipv6", "1"},
	}

	// Reverse path filters would drop packets that return over another spine.
	common = []Setting{
		{"net.ipv4.conf.all.rp_filter", "0"},
		{"net.ipv4.conf.default.rp_filter", "0"},
	}

	// Multipath hashes use addresses, protocol and ports (fields 1, 2, 4, 16 and 32), as
	// in policy 1. But policy 1 prefers a hash stored with the packet. A packet from a
	// socket of the same machine has its socket's random hash, which changes with every
	// connection and after every timeout, so flows would change spines. Policy 3
	// (Linux 5.13) always hashes the packet's fields.
	switchSettings = append([]Setting{
		{"net.ipv4.ip_forward", "1"},
		{"net.ipv4.fib_multipath_hash_fields", "55"},
		{"net.ipv4.fib_multipath_hash_policy", "3"},
	}, common...)

	// Connections within a host use no route that could state their congestion control.
	congestionKey = "net.ipv4.tcp_congestion_control"

	hostSettings = append([]Setting{
		{"net.ipv4.tcp_no_metrics_save", "1"}, // flows do not inherit ssthresh and round-trip time of earlier flows
		{"net.ipv4.tcp_ecn", "0"},
		{"net.ipv4.tcp_sack", "1"},
		{"net.ipv4.tcp_timestamps", "1"}, // 12 bytes of each segment
		{"net.ipv4.tcp_window_scaling", "1"},
		{"net.ipv4.tcp_slow_start_after_idle", "1"},
		{"net.ipv4.tcp_mtu_probing", "0"},
		{"net.ipv4.tcp_moderate_rcvbuf", "1"},
		{"net.ipv4.tcp_rmem", "4096 131072 6291456"},
		{"net.ipv4.tcp_wmem", "4096 16384 4194304"},
		{"net.ipv4.tcp_max_syn_backlog", "4096"}, // all mappers may connect to a reducer at once
		{"net.core.somaxconn", "4096"},
	}, common...)
)
