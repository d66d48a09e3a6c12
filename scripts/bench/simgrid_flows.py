"""Simulates a trace of coflows with SimGrid: one switch, on which a port sends and receives at its rate,
and max-min fair flows without latency, as testbed trace simulate does with policy fair.

It prints the completion time of each coflow: its number in the trace, a comma, and seconds.
"""
import sys

import simgrid

# Bare max-min fairness: what models TCP is off.
MODEL = ["network/model:CM02", "network/crosstraffic:0", "network/TCP-gamma:0", "network/weight-S:0",
         "network/bandwidth-factor:1", "network/latency-factor:1"]


def read(path):
    """Returns the number of ports, and the coflows: number, arrival in seconds, flows of (from, to, bytes)."""
    with open(path) as trace:
        ports, _ = map(int, trace.readline().split())
        coflows = []
        for line in trace:
            fields = line.split()
            mappers = int(fields[2])
            senders = [int(p) for p in fields[3:3 + mappers]]
            flows = []
            for reducer in fields[4 + mappers:]:
                port, megabytes = reducer.split(":")
                size = round(float(megabytes) * 1e6 / mappers)
                flows += [(s, int(port), size) for s in senders]
            coflows.append((fields[0], int(fields[1]) / 1000, flows))
    return ports, sorted(coflows, key=lambda c: c[1])


def send(hosts, coflows):
    sent = []
    for number, arrival, flows in coflows:
        simgrid.this_actor.sleep_until(arrival)
        sent.append((number, arrival, [simgrid.Comm.sendto_async(hosts[a], hosts[b], n) for a, b, n in flows]))
    for number, arrival, comms in sent:
        simgrid.Comm.wait_all(comms)
        print("%s,%.9f" % (number, max(c.finish_time for c in comms) - arrival))


def main():
    path, rate = sys.argv[1], float(sys.argv[2])
    engine = simgrid.Engine(["bench", "--log=root.thres:error"] + ["--cfg=" + m for m in MODEL])
    ports, coflows = read(path)
    zone = simgrid.NetZone.create_star_zone("switch")
    hosts = []
    for p in range(ports):
        host = zone.create_host("p%d" % p, 1e9)
        link = zone.create_split_duplex_link("l%d" % p, rate / 8)
        link.set_latency(0)
        zone.add_route(host.netpoint, None, None, None, [simgrid.LinkInRoute(link, simgrid.LinkInRoute.UP)], True)
        hosts.append(host)
    zone.seal()
    simgrid.Actor.create("sender", hosts[0], send, hosts, coflows)
    engine.run()


main()
