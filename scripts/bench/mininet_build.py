"""Builds and stops one Mininet network of the shape of the build benchmark:
racks of hosts under one spine, Linux bridges, TBF links, no controller. It prints
the seconds that start and stop took, as one line of JSON.

main.go runs it in a network namespace of its own, so that it creates no bridges
in the machine's. It does not use Mininet's clean-up (mn -c), which deletes objects
by name pattern, also those of others.
"""
import json
import sys
import time

from mininet.link import TCLink
from mininet.log import setLogLevel
from mininet.net import Mininet
from mininet.nodelib import LinuxBridge
from mininet.topo import Topo


class LeafSpine(Topo):
    def build(self, leaves, hosts, mbps):
        spine = self.addSwitch("s0")
        for r in range(leaves):
            leaf = self.addSwitch("s%d" % (r + 1))
            self.addLink(leaf, spine, bw=mbps, use_tbf=True)
            for h in range(hosts):
                host = self.addHost("h%d" % (r * hosts + h))
                self.addLink(host, leaf, bw=mbps, use_tbf=True)


def main():
    leaves, hosts, mbps = (int(a) for a in sys.argv[1:4])
    setLogLevel("error")
    Mininet.inited = True  # else Mininet changes limits and sysctls of the machine
    start = time.monotonic()
    net = Mininet(topo=LeafSpine(leaves=leaves, hosts=hosts, mbps=mbps),
                  switch=LinuxBridge, link=TCLink, controller=None)
    try:
        net.start()
        up = time.monotonic() - start
        shaped = net.get("h0").cmd("tc qdisc show dev h0-eth0")
    finally:
        start = time.monotonic()
        net.stop()
        down = time.monotonic() - start
    if "tbf" not in shaped:
        sys.exit("links are not shaped: tc prints %r" % shaped)
    print(json.dumps({"up_s": up, "down_s": down}))


main()
