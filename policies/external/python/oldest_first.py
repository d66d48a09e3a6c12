"""The tasks of the job with the highest priority are launched first, then those of the oldest.

The same decisions as the policy {name: fifo, heartbeat_reduces: 0, heartbeat_off_rack: 0, load_factor: false} of testbed.
"""

import testbed
from testbed import MAP, OFF_RACK, REDUCE


class OldestFirst:
    needs = []  # what the policy needs to know

    def assign(self, view, assignment):
        """Fill the free slots of the host, each with the task whose input is closest."""
        order = sorted(range(len(view.jobs)), key=lambda i: -view.jobs[i].priority)
        for kind in MAP, REDUCE:
            for i in order:
                while self.launch(view, assignment, i, kind):
                    pass

    def launch(self, view, assignment, i, kind):
        best, at = OFF_RACK + 1, None
        for s, stage in enumerate(view.jobs[i].stages):
            near = next((near for near, n in enumerate(stage.pending) if n > 0), best)
            if stage.kind == kind and near < best and view.own.fits(stage):
                best, at = near, s
        if at is None:
            return False
        stage = view.jobs[i].stages[at]
        stage.pending = [n - (near == best) for near, n in enumerate(stage.pending)]
        view.own.used = [n + (k == kind) for k, n in enumerate(view.own.used)]
        view.own.cpu += stage.cpu
        view.own.memory += stage.memory
        assignment.start(i, at, best)
        return True


if __name__ == "__main__":
    testbed.run(OldestFirst())
