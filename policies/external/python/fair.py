"""FAIR with delay scheduling (UCB/EECS-2009-55): the same decisions as {name: fair, with: [delay]} of testbed.

Parameters t1 and t2, in seconds, are the waits for a local map. Pools have equal weights and never starve.
"""

import testbed
from testbed import MAP, NODE_LOCAL, OFF_RACK, RACK_LOCAL, REDUCE


class Wait:
    """What delay scheduling remembers of a job."""

    level, time, skipped = NODE_LOCAL, 0, False


class Fair:
    needs = ["every_heartbeat"]

    def start(self, hello):
        p = hello["parameters"] or {}
        self.t1, self.t2 = (round(p.get(name, 15) * 1e9) for name in ("t1", "t2"))
        self.waits, self.last = {}, 0

    def assign(self, view, assignment):
        self.waits = {job.id: self.waits.get(job.id) or Wait() for job in view.jobs}
        for wait in self.waits.values():
            if wait.skipped:  # at the previous heartbeat of any host
                wait.time, wait.skipped = wait.time + view.now - self.last, False
        self.last = view.now
        for kind in MAP, REDUCE:
            if view.own.free(kind) > 0 and self.launch(view, assignment, kind):
                return  # one task a heartbeat

    def launch(self, view, assignment, kind):
        for i in order(view.jobs, kind):
            wait = self.waits[view.jobs[i].id]
            farthest = self.allowed(wait) if kind == MAP else OFF_RACK
            best, stage, passed = OFF_RACK + 1, None, False
            for s, st in enumerate(view.jobs[i].stages):
                near = next((near for near, n in enumerate(st.pending) if n > 0), best)
                if st.kind != kind or near >= best or not view.own.fits(st):
                    continue
                if near > farthest and not st.anywhere:
                    passed = True
                else:
                    best, stage = near, s
            if stage is not None:
                if kind == MAP and not view.jobs[i].stages[stage].anywhere:
                    wait.level, wait.time = best, 0
                assignment.start(i, stage, best)
                return True
            wait.skipped = wait.skipped or passed
        return False

    def allowed(self, wait):
        """The farthest input with which a job may launch a map."""
        if wait.level == OFF_RACK or wait.level == RACK_LOCAL and wait.time >= self.t2 or wait.time >= self.t1 + self.t2:
            return OFF_RACK
        return RACK_LOCAL if wait.level == RACK_LOCAL or wait.time >= self.t1 else NODE_LOCAL


def order(jobs, kind):
    """The jobs with pending tasks: pools with the fewest running tasks first, in a pool such jobs; ties by submission."""
    running = [sum(st.running for st in job.stages if st.kind == kind) for job in jobs]
    pools, first = {}, {}
    for i, job in enumerate(jobs):
        pools[job.user] = pools.get(job.user, 0) + running[i]
        first.setdefault(job.user, i)
    pending = [i for i, job in enumerate(jobs) if any(st.kind == kind and any(st.pending) for st in job.stages)]
    return sorted(pending, key=lambda i: (pools[jobs[i].user], first[jobs[i].user], running[i], i))


if __name__ == "__main__":
    testbed.run(Fair())
