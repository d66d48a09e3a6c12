"""The coflow with the fewest remaining bytes goes first; the others get the capacity that it leaves.

The same decisions as the policy {name: lcf, allocation: greedy} of testbed.
"""

import testbed


class SmallestFirst:
    needs = ["sizes"]  # what the policy needs to know
    triggers = {"coflows": True, "flows": True}  # it decides when a coflow arrives or a flow or coflow ends

    def decide(self, view, schedule):
        """Order the coflows, ties by ID."""
        coflows = view.coflows
        order = sorted(range(len(coflows)), key=lambda i: (coflows[i].remaining, coflows[i].id))
        schedule.step("greedy", order)


if __name__ == "__main__":
    testbed.run(SmallestFirst())
