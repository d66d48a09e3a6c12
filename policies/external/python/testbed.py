"""Policies for testbed in Python: one file without dependencies, for Python 3.8 and later.

A policy of coflows is an object with needs, triggers and decide; run(policy) holds the conversation. fair.py and
least_loaded.py are policies of tasks and of placement. The messages and all fields are in docs/writing-a-policy.md.
Example:

    class SmallestFirst:
        needs = ["sizes"]
        triggers = {"coflows": True, "flows": True}

        def decide(self, view, schedule):
            order = sorted(range(len(view.coflows)), key=lambda i: (view.coflows[i].remaining, view.coflows[i].id))
            schedule.step("greedy", order)

    testbed.run(SmallestFirst())

Times are in nanoseconds, sizes in bytes, rates in bit/s.
"""

import array
import gc
import json
import sys

VERSION = 2


class Coflow:
    """An unfinished coflow. What needs does not declare is 0 or empty."""

    # links, link_flows, link_remaining and, empty without pilot flows, link_pilots are parallel arrays.
    # flows are rows (id, src, dst, pilot, sent, size, remaining, links).

    def __init__(self, numbers, at):
        """Read a coflow, whose numbers begin at a place."""
        (
            self.id, self.arrival, self.width, self.senders, self.receivers, self.left, self.sent, self.most_sent,
            self.queue, self.since, self.finished, self.median, self.pilots, self.pilots_left, self.pilot_sent,
            self.size, self.largest, self.remaining, self.bound, links, idle, flows,
        ) = numbers[at : at + 22]  # fmt: skip
        half = (links + 1) // 2
        at += 22
        self.links = array.array("i", numbers[at : at + half].tobytes())[:links]
        at += half
        self.link_flows = array.array("i", numbers[at : at + half].tobytes())[:links]
        at += half
        self.link_remaining = numbers[at : at + links]
        at += links
        pilots = links if self.pilots_left > 0 else 0
        self.link_pilots = numbers[at : at + pilots]
        at += pilots
        self.idle_links = numbers[at : at + idle]
        at += idle
        self.flows = []
        for _ in range(flows):
            end = at + 8 + numbers[at + 7]
            self.flows.append((*numbers[at : at + 7], numbers[at + 8 : end]))
            at = end
        self.end = at


class View:
    """The state that a decision sees: now, capacity (by link) and coflows (by arrival, ties by ID)."""

    def __init__(self):
        self.n, self.now, self.capacity, self.coflows = 0, 0, [], []

    def update(self, numbers):
        """Read 64-bit integers. Capacities that they leave out are as before."""
        self.n, self.now, links = numbers[:3]
        if links:
            self.capacity = numbers[3 : 3 + links].tolist()
        at = 4 + links
        self.coflows = []
        for _ in range(numbers[at - 1]):
            c = Coflow(numbers, at)
            self.coflows.append(c)
            at = c.end


def integers(data):
    """The integers of a binary message."""
    numbers = array.array("q", data)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


class Schedule:
    """A decision. Coflows are indices into View.coflows."""

    def __init__(self):
        self.steps, self.budgets, self.queues, self.watch, self.watch_most, self.pilots, self.wake = [], [], [], [], [], [], 0

    def step(self, rule, coflows=(), **options):
        """Serve coflows, in order, by a rule. Options: part, only, budget, within, rates."""
        self.steps.append({"rule": rule, "coflows": list(coflows), **options})


def objects(kind, messages):
    """One object of a class for each mapping of fields."""
    out = []
    for fields in messages:
        x = kind()
        x.__dict__ = fields
        out.append(x)
    return out


MAP, REDUCE = 0, 1  # kinds of tasks and slots
NODE_LOCAL, RACK_LOCAL, OFF_RACK = 0, 1, 2  # localities


class Slots:
    """The use of a host by tasks. Capacities are 0, and space is negative, if there is no limit."""

    total = used = (0, 0)  # by kind
    cpu = memory = cpu_capacity = memory_capacity = space = committed = committed_time = lost = 0

    def free(self, kind):
        return self.total[kind] - self.used[kind]

    def fits(self, stage):
        """Whether one more task of a stage fits."""
        return (
            not self.lost
            and self.free(stage.kind) > 0
            and (self.cpu_capacity <= 0 or self.cpu + stage.cpu <= self.cpu_capacity * (1 + 1e-9))
            and (self.memory_capacity <= 0 or self.memory + stage.memory <= self.memory_capacity)
            and (stage.output == 0 or self.space < 0 or stage.output <= self.space)
        )


class Stage:
    """A stage of a job. pending is by locality on the host of the heartbeat."""

    kind = tasks = done = running = waiting = cpu = memory = output = anywhere = outputs = 0
    read = busy = consumed = produced = 0
    pending = (0, 0, 0)
    durations = ()


class Job:
    """An unfinished job. What needs does not declare is empty."""

    id = priority = submit = input = 0
    user = profile = ""
    stages = ()
    attempts = ()  # rows (stage, index, n, host, locality, start, phase, killing, paused, spare, progress)
    intermediate = rack_maps = rack_reduces = ()  # by rack; empty if all are 0
    blocks = ()  # rows (size, [racks])


class Cluster:
    """What the master knows of hosts and racks: columns, which are empty if all numbers are 0 or not declared."""

    lost = disk = used = writing = rx = tx = last_report = next_report = ()  # by host
    rack_rx = rack_tx = rack_received = rack_sent = zone = ()  # by rack
    disk_rate = 0


class TaskView(Cluster):
    """The state at a heartbeat of a host. slots is of all hosts with the need "slots", else of this one alone."""

    n = now = host = 0
    capacity = ()

    def __init__(self, message, before):
        self.__dict__.update(message)
        self.capacity = message.get("capacity", before)
        self.slots, self.jobs = objects(Slots, message["slots"]), objects(Job, message["jobs"])
        for job in self.jobs:
            job.stages = objects(Stage, job.stages)

    @property
    def own(self):
        """The slots of the host."""
        return self.slots[self.host] if len(self.slots) > 1 else self.slots[0]


class Assignment:
    """A decision at a heartbeat. Jobs are indices into TaskView.jobs."""

    def __init__(self):
        self.launch, self.backup, self.kill = [], [], []

    def start(self, job, stage, locality):
        """Launch the pending task of a stage at this locality that has the lowest index."""
        self.launch.append({"job": job, "stage": stage, "locality": locality})


class Block:
    id = client = size = replicas = 0


class PlacementView(Cluster):
    """The state at a request to place a block. seed is that of the block's random draws, the same under every policy."""

    n = now = largest_block = seed = 0
    capacity = placements = ()

    def __init__(self, message, before):
        self.__dict__.update(message)
        self.capacity = message.get("capacity", before)
        self.block = objects(Block, [message["block"]])[0]


class NoPlace(Exception):
    """The reason why a block cannot be placed."""


def run(policy):
    """Answer on standard output until standard input ends. What the policy prints goes to standard error.

    The policy has one method, by role: decide(view, schedule) for coflows, assign(view, assignment) for tasks,
    or place(view), which returns the hosts of a block.
    """
    gc.set_threshold(100_000)  # messages have no cycles
    lines, answers = open(0, "rb", buffering=1 << 20), sys.stdout.buffer
    sys.stdout = sys.stderr

    def send(message):
        answers.write(json.dumps(message, separators=(",", ":")).encode() + b"\n")
        answers.flush()

    view, capacity = View(), ()
    for line in lines:
        message = json.loads(line)
        kind = message["type"]
        capacity = message.get("capacity", capacity)
        if kind == "hello":
            if hasattr(policy, "start"):
                policy.start(message)
            triggers = getattr(policy, "triggers", {})
            views = "binary" if message["role"] == "coflow" else "json"
            send({"type": "hello", "version": VERSION, "views": views, "needs": policy.needs, "triggers": triggers})
        elif kind == "decide":
            view.update(integers(lines.read(message["bytes"])))
            schedule = Schedule()
            policy.decide(view, schedule)
            send({"type": "schedule", "n": view.n, **schedule.__dict__})
        elif kind == "assign":
            assignment = Assignment()
            policy.assign(TaskView(message, capacity), assignment)
            send({"type": "assignment", "n": message["n"], **assignment.__dict__})
        elif kind == "place":
            try:
                answer = {"hosts": policy.place(PlacementView(message, capacity))}
            except NoPlace as reason:
                answer = {"error": str(reason)}
            send({"type": "placement", "n": message["n"], **answer})
        elif kind == "end":
            return
