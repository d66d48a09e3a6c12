"""Smallest effective bottleneck first (Varys, SIGCOMM 2014): the same decisions as the policy sebf of testbed."""

import functools

import testbed


def bottleneck(coflow, capacity):
    """The longest time that a link needs for the coflow's remaining bytes, as bytes and rate."""
    most, of = 0, 1
    for link, remaining in zip(coflow.links, coflow.link_remaining):
        rate = capacity[link]
        if rate == 0:
            return 1, 0  # it never ends
        if remaining * of > most * rate:
            most, of = remaining, rate
    return most, of


def compare(a, b):
    """Order times exactly, ties by ID."""
    (x, p, i), (y, q, j) = a[:3], b[:3]
    return x * q - y * p or i - j


class SEBF:
    needs = ["sizes", "links"]
    triggers = {"coflows": True, "flows": True}

    def decide(self, view, schedule):
        keys = [(*bottleneck(c, view.capacity), c.id, i) for i, c in enumerate(view.coflows)]
        if len({key[1] for key in keys}) == 1:  # equal rates: bytes decide
            keys.sort(key=lambda key: (key[0], key[2]))
        else:
            keys.sort(key=functools.cmp_to_key(compare))
        order = [key[3] for key in keys]
        if order:
            schedule.step("madd", order)
            schedule.step("greedy", order)


if __name__ == "__main__":
    testbed.run(SEBF())
