"""Coflow policies for testbed in Python: one file without dependencies, for Python 3.8 and later.

A policy is an object with needs, triggers and decide; run(policy) holds the conversation. The messages and
all fields are in docs/writing-a-policy.md. Example:

    class SmallestFirst:
        needs = ["sizes"]
        triggers = {"coflows": True, "flows": True}

        def decide(self, view, schedule):
            order = sorted(range(len(view.coflows)), key=lambda i: (view.coflows[i].remaining, view.coflows[i].id))
            schedule.step("greedy", order)

    testbed.run(SmallestFirst())

Times are in nanoseconds, sizes in bytes, rates in bit/s.
"""

import gc
import json
import sys

VERSION = 1


class Coflow:
    """An unfinished coflow. What needs does not declare is 0 or empty."""

    id = arrival = width = senders = receivers = left = sent = most_sent = queue = since = finished = median = 0
    pilots = pilots_left = pilot_sent = size = largest = remaining = bound = 0
    links = link_flows = link_remaining = link_pilots = ()  # parallel; link_pilots is empty without pilot flows
    idle_links = ()
    flows = ()  # rows (id, src, dst, pilot, sent, size, remaining, [links])


class View:
    """The state that a decision sees: now, capacity (by link) and coflows (by arrival, ties by ID)."""

    def __init__(self):
        self.n, self.now, self.capacity, self.coflows = 0, 0, [], []

    def update(self, message):
        self.n, self.now = message["n"], message.get("now", 0)
        self.capacity = message.get("capacity", self.capacity)
        self.coflows = []
        for fields in message["coflows"]:
            c = Coflow()
            c.__dict__ = fields
            self.coflows.append(c)


class Schedule:
    """A decision. Coflows are indices into View.coflows."""

    def __init__(self):
        self.steps, self.budgets, self.queues, self.watch, self.watch_most, self.pilots, self.wake = [], [], [], [], [], [], 0

    def step(self, rule, coflows=(), **options):
        """Serve coflows, in order, by a rule. Options: part, only, budget, within, rates."""
        self.steps.append({"rule": rule, "coflows": list(coflows), **options})


def run(policy):
    """Answer on standard output until standard input ends. What the policy prints goes to standard error."""
    gc.set_threshold(100_000)  # messages have no cycles
    lines, answers = open(0, "rb", buffering=1 << 20), sys.stdout.buffer
    sys.stdout = sys.stderr

    def send(message):
        answers.write(json.dumps(message, separators=(",", ":")).encode() + b"\n")
        answers.flush()

    view = View()
    for line in lines:
        message = json.loads(line)
        kind = message["type"]
        if kind == "hello":
            if hasattr(policy, "start"):
                policy.start(message)
            send({"type": "hello", "version": VERSION, "needs": policy.needs, "triggers": policy.triggers})
        elif kind == "decide":
            view.update(message)
            schedule = Schedule()
            policy.decide(view, schedule)
            send({"type": "schedule", "n": view.n, **schedule.__dict__})
        elif kind == "end":
            return
