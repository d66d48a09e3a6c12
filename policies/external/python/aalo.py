"""Aalo (SIGCOMM 2015) with strict priority of queues: the same decisions as the policy aalo of testbed."""

import testbed

MS = 1_000_000


class Aalo:
    needs = ["progress"]
    triggers = {"coflows": True, "flows": True, "every": 8 * MS}

    def start(self, hello):
        p = hello["parameters"] or {}
        first, growth, queues = p.get("first_queue", 10 << 20), p.get("growth", 10), p.get("queues", 10)
        self.ends = [int(first * growth**i) for i in range(queues - 1)]

    def decide(self, view, schedule):
        entered = []
        for c in view.coflows:
            queue = max(sum(end < c.sent for end in self.ends), c.queue)
            schedule.queues.append(queue)
            schedule.watch.append(self.ends[queue] if queue < len(self.ends) else 0)
            entered.append(c.since if queue == c.queue else view.now)
        for i in sorted(range(len(view.coflows)), key=lambda i: (schedule.queues[i], entered[i], i)):
            schedule.step("equal_split", [i])


if __name__ == "__main__":
    testbed.run(Aalo())
