"""Placement by load: the writer, then the hosts that receive least, the first of them in another rack."""

import random

import testbed


class LeastLoaded:
    needs = ["link_load", "disk_use"]

    def start(self, hello):
        self.racks = hello["fabric"]["host_racks"]

    def place(self, view):
        block, hosts = view.block, list(range(len(self.racks)))
        random.Random(view.seed).shuffle(hosts)  # ties, as under every policy

        def column(values, host):
            return values[host] if values else 0

        def has_room(host):
            disk = column(view.disk, host)
            return not column(view.lost, host) and (disk == 0 or column(view.used, host) + block.size <= disk)

        # Placements of this heartbeat interval are not in rx yet.
        recent = [h for p in view.placements for h in p.get("hosts", ()) if h != p.get("client", 0)]
        left = sorted(filter(has_room, hosts), key=lambda h: (recent.count(h), column(view.rx, h)))
        if len(left) < block.replicas:
            raise testbed.NoPlace(f"{len(left)} disks have room for {block.replicas} replicas")
        chosen = []
        while len(chosen) < block.replicas:
            others = [h for h in left if self.racks[h] != self.racks[chosen[0]]] if len(chosen) == 1 else []
            at = block.client if not chosen and block.client in left else (others or left)[0]
            chosen.append(at)
            left.remove(at)
        return chosen


if __name__ == "__main__":
    testbed.run(LeastLoaded())
