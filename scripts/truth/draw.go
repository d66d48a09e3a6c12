package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"testbed/results/safefile"
	"testbed/workloads"
)

const kB workloads.Megabytes = 1000 // a thousandth of a MB of 10⁶ bytes

// draw writes a scenario and its trace, drawn from a seed, and returns its path: a fabric of 6 to 16 hosts
// at 20 to 50 Mbps, 16 to 24 coflows within 5 s under two policies, and in every second scenario writers
// of blocks. With pairs, it has two equal arms instead, and as many repeats.
func draw(dir string, seed uint64, pairs int) (file string, err error) {
	r := workloads.Stream(seed, "truth")
	pick := func(list ...string) string { return list[r.IntN(len(list))] }
	leaves, hosts := 2+r.IntN(3), 3+r.IntN(2)
	trace, err := workloads.Synthetic{
		Name: "coflows.txt", Ports: leaves * hosts, Coflows: 16 + r.IntN(9), Span: 5 * time.Second,
		Bins: []workloads.SyntheticBin{
			{Share: 60, Mappers: [2]int{1, 3}, Reducers: [2]int{1, 3}, Flow: [2]workloads.Megabytes{100 * kB, 800 * kB}},
			{Share: 25, Mappers: [2]int{1, 2}, Reducers: [2]int{1, 2}, Flow: [2]workloads.Megabytes{1000 * kB, 3000 * kB}},
			{Share: 15, Mappers: [2]int{3, 5}, Reducers: [2]int{3, 5}, Flow: [2]workloads.Megabytes{100 * kB, 800 * kB}},
		},
	}.Generate(seed)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "name: drawn-%02d\nfabric:\n  leaves: %d\n  hosts_per_leaf: %d\n  spines: %d\n  host_link: %sMbps\n", seed, leaves, hosts, 1+r.IntN(2), pick("20", "30", "50"))
	fmt.Fprintf(&b, "  oversubscription: %q\n  queue: %sms\n  mtu: %s\n", pick("1:1", "2:1", "4:1"), pick("20", "40"), pick("1500", "3000"))
	b.WriteString("workload:\n  - {kind: trace, path: coflows.txt, mb: MB}\n")
	arms := "arms: {coflow: [fair, " + pick("sebf", "aalo", "sincronia") + "]"
	if seed%2 == 1 {
		fmt.Fprintf(&b, "  - {kind: writers, count: %d, blocks: 3, block: 1MB, replicas: %d, packet: 16KB, window: 6, spread: 3s}\n", 3+r.IntN(4), 2+r.IntN(2))
		b.WriteString("disk: {write: 2MB/s, size: 256MB}\n")
		arms += ", placement: [" + pick("hdfs", "sinbad") + "]"
	}
	arms += "}\ntries: 3"
	if pairs > 0 {
		arms = fmt.Sprintf("arms:\n  - {name: fair, coflow: fair}\n  - {name: same, coflow: fair}\nrepeat: %d", pairs)
	}
	fmt.Fprintf(&b, "%s\nseed: %d\n", arms, seed)

	if err := safefile.MkdirAll(dir); err != nil {
		return "", err
	}
	var text strings.Builder
	if err := workloads.WriteTrace(&text, trace); err != nil {
		return "", err
	}
	file = filepath.Join(dir, "scenario.yaml")
	for name, content := range map[string]string{"coflows.txt": text.String(), "scenario.yaml": b.String()} {
		if err := safefile.WriteData(filepath.Join(dir, name), []byte(content)); err != nil {
			return "", err
		}
	}
	return file, nil
}
