"""Learning environments for testbed: one file without dependencies, next to testbed.py, for Python 3.8 and later.

An environment has the interface of Gymnasium: reset, step, close and spaces. It derives from gymnasium.Env if
gymnasium is installed. An episode is a trial of a scenario on the fluid model; the agent is its coflow policy.
docs/learning.md describes observations, actions and rewards. Example:

    env = testbed_gym.Env("scenario.yaml", arm="sebf")
    observation, info = env.reset(seed=7)  # the trial of: testbed sim scenario.yaml --seed 7
    over = False
    while not over:
        observation, reward, terminated, truncated, info = env.step(env.action_space.sample())
        over = terminated or truncated
    print(info["cct"])
    env.close()

Problem states what an agent sees, does and is rewarded for; subclasses change that. run(problem, choose) makes an
agent a policy, for scenarios and packets.
"""

import json
import math
import os
import random
import select
import subprocess
import tempfile
import time
import weakref

import testbed

try:
    import gymnasium
    import numpy
except ImportError:
    gymnasium = numpy = None

SECOND = 1_000_000_000
HIGH = 64.0  # logarithms of whole numbers are below


def _map(f, shape):
    """Nested lists of a shape, of f()."""
    return [_map(f, shape[1:]) for _ in range(shape[0])] if shape else f()


class _Space:
    """What spaces have in common without gymnasium: an attribute np_random, which is a random.Random."""

    shape = dtype = None

    def __init__(self):
        self.np_random = random.Random()

    def seed(self, seed=None):
        self.np_random.seed(seed)
        return [seed]

    def __contains__(self, x):
        return self.contains(x)


class _Box(_Space):
    def __init__(self, low, high, shape, dtype=float):
        super().__init__()
        self.low, self.high, self.shape, self.dtype = low, high, tuple(shape), dtype

    def sample(self):
        return _map(lambda: self.np_random.uniform(self.low, self.high), self.shape)

    def contains(self, x):
        def inside(x, shape):
            if not shape:
                return isinstance(x, (int, float)) and self.low <= x <= self.high
            return isinstance(x, (list, tuple)) and len(x) == shape[0] and all(inside(y, shape[1:]) for y in x)

        return inside(x, self.shape)


class _Discrete(_Space):
    shape, dtype = (), int

    def __init__(self, n, start=0):
        super().__init__()
        self.n, self.start = n, start

    def sample(self):
        return self.start + self.np_random.randrange(self.n)

    def contains(self, x):
        return isinstance(x, int) and self.start <= x < self.start + self.n


class _Dict(_Space):
    def __init__(self, spaces):
        super().__init__()
        self.spaces = dict(spaces)

    def seed(self, seed=None):
        return {key: space.seed(seed) for key, space in self.spaces.items()}

    def sample(self):
        return {key: space.sample() for key, space in self.spaces.items()}

    def contains(self, x):
        return isinstance(x, dict) and x.keys() == self.spaces.keys() and all(s.contains(x[k]) for k, s in self.spaces.items())


class _Env:
    """What environments have in common without gymnasium."""

    metadata = {"render_modes": []}
    render_mode = spec = None

    @property
    def unwrapped(self):
        return self

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


if gymnasium:
    from gymnasium.spaces import Box, Dict, Discrete
else:
    Box, Discrete, Dict = _Box, _Discrete, _Dict
Base = gymnasium.Env if gymnasium else _Env


def box(high, shape):
    """Numbers from 0 to high."""
    return Box(0.0, high, shape, dtype=numpy.float32) if gymnasium else Box(0.0, high, shape)


def value(x):
    """An observation of nested lists as spaces have it."""
    if not gymnasium:
        return x
    return {k: value(v) for k, v in x.items()} if isinstance(x, dict) else numpy.asarray(x, dtype=numpy.float32)


class Problem:
    """An action is a priority from 0 to 1 for each of the coflows that have sent least; the highest is served first.

    The coflows that have no slot follow, those that have sent least first. Capacity goes by the rule, flow by flow.
    The reward is the negative growth, since the last decision, of the sum of the coflow completion times, in seconds:
    the return is minus the sum of all, the unfinished ones of an episode that is cut off included.
    """

    needs = ["progress", "links"]  # with "sizes", two features more
    triggers = {"coflows": True, "flows": True}
    rule = "greedy"
    features = ["present", "age", "sent", "width", "left", "senders", "receivers", "most_flows"]

    def __init__(self, slots=10):
        self.slots = slots

    def begin(self, fabric):
        """Called before the spaces are used, with the fabric of the message hello."""
        self.links = len(fabric["links"])
        if "sizes" in self.needs and "remaining" not in self.features:
            self.features = self.features + ["remaining", "bottleneck"]
        self.observation_space = Dict({
            "coflows": box(HIGH, (self.slots, len(self.features))),
            "links": box(HIGH, (self.links,)),
        })
        self.action_space = box(1.0, (self.slots,))

    def asks(self, view):
        """Whether the agent decides. Otherwise there is no choice, and coflows are served by arrival."""
        return len(view.coflows) > 1

    def order(self, view):
        """Indices of the coflows, those of slots first."""
        coflows = view.coflows
        return sorted(range(len(coflows)), key=lambda i: (coflows[i].sent, coflows[i].id))

    def alone(self, view, schedule):
        """Fill a schedule where the agent is not asked."""
        if view.coflows:
            schedule.step(self.rule, range(len(view.coflows)))

    def observe(self, view):
        """Logarithms of 1 + x: age in ms, sizes in KB, numbers of flows and hosts; by slot, 0 without a coflow."""
        log, now = math.log1p, view.now
        rows, links = [], [0] * self.links
        for i in self.order(view)[: self.slots]:
            c = view.coflows[i]
            row = [1.0, log((now - c.arrival) / 1e6), log(c.sent / 1e3), log(c.width), log(c.left), log(c.senders),
                   log(c.receivers), log(max(c.link_flows, default=0))]
            if "sizes" in self.needs:
                rates = view.capacity
                slowest = max((n * 8e3 / rates[l] for l, n in zip(c.links, c.link_remaining) if rates[l]), default=0)
                row += [log(c.remaining / 1e3), log(slowest)]
            rows.append(row)
        rows += [[0.0] * len(self.features) for _ in range(self.slots - len(rows))]
        for c in view.coflows:
            for l, n in zip(c.links, c.link_flows):
                links[l] += n
        return {"coflows": rows, "links": [log(n) for n in links]}

    def act(self, action, view, schedule):
        """Fill a schedule with an action."""
        order = self.order(view)
        first = sorted(range(min(self.slots, len(order))), key=lambda k: -action[k])  # stable
        schedule.step(self.rule, [order[k] for k in first] + order[self.slots :])

    def reward(self, grown, view):
        """The reward of a step in which the sum of completion times has grown by this many seconds.

        view is that of the next decision, or None after the last one.
        """
        return -grown


class Policy:
    """An agent as a policy, for testbed.run. choose maps an observation to an action."""

    def __init__(self, problem, choose):
        self.problem, self.choose, self.needs, self.triggers = problem, choose, problem.needs, problem.triggers

    def start(self, hello):
        self.problem.begin(hello["fabric"])

    def decide(self, view, schedule):
        if self.problem.asks(view):
            self.problem.act(self.choose(value(self.problem.observe(view))), view, schedule)
        else:
            self.problem.alone(view, schedule)


def run(problem, choose):
    """Run an agent as a policy outside of the program."""
    testbed.run(Policy(problem, choose))


class Error(RuntimeError):
    """The process of an environment failed."""


class _Child:
    """A process testbed gym. It ends with its standard input, so also when this process is killed."""

    def __init__(self, command, timeout):
        self.timeout, self.rest, self.errors = timeout, bytearray(), tempfile.TemporaryFile()
        try:
            # In a session of its own, so that Ctrl-C reaches this process alone.
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors,
                                            bufsize=0, start_new_session=True)
        except OSError as e:
            self.errors.close()
            raise Error(f"{command[0]}: {e.strerror} (give the path of the program testbed)") from None
        self.input, self.output = self.process.stdin.fileno(), self.process.stdout.fileno()
        os.set_blocking(self.input, False)
        self.readable, self.writable = select.poll(), select.poll()
        self.readable.register(self.output, select.POLLIN)
        self.writable.register(self.input, select.POLLOUT)

    def send(self, message):
        data = memoryview(json.dumps(message, separators=(",", ":")).encode() + b"\n")
        until = time.monotonic() + self.timeout
        while data:
            try:
                data = data[os.write(self.input, data) :]
            except BlockingIOError:
                self.wait(self.writable, until, "read its input")
            except BrokenPipeError:
                raise self.failed() from None

    def receive(self):
        """The next message. The integers after a line are its "numbers"."""
        until = time.monotonic() + self.timeout
        while not (end := self.rest.find(b"\n") + 1):
            self.more(until)
        message = json.loads(self.rest[:end])
        size = end + message.get("bytes", 0)
        while len(self.rest) < size:
            self.more(until)
        message["numbers"] = testbed.integers(self.rest[end:size])
        del self.rest[:size]
        return message

    def more(self, until):
        self.wait(self.readable, until, "answered")
        data = os.read(self.output, 1 << 16)
        if not data:
            raise self.failed()
        self.rest += data

    def wait(self, poll, until, what):
        if not poll.poll(max(0, (until - time.monotonic()) * 1000)):
            raise Error(f"testbed gym has not {what} within {self.timeout} s (timeout){self.said()}")

    def failed(self):
        try:
            status = self.process.wait(self.timeout)
        except subprocess.TimeoutExpired:
            status = "unknown"
        return Error(f"testbed gym ended (exit status {status}){self.said()}")

    def said(self):
        """The last line of its standard error."""
        self.errors.seek(max(0, os.fstat(self.errors.fileno()).st_size - 4096))
        lines = self.errors.read().decode(errors="replace").strip().splitlines()
        return "; its standard error ends with: " + lines[-1] if lines else ""

    def end(self):
        """Leave nothing of it."""
        p = self.process
        p.stdin.close()
        p.stdout.close()
        try:
            p.wait(1)
        except subprocess.TimeoutExpired:
            p.kill()
            p.wait()
        self.errors.close()


class Env(Base):
    """Trials of an arm of a scenario, whose coflow policy is the agent.

    variables replace those of the scenario. max_steps ends episodes early, by truncation. timeout bounds each wait for
    the process, in seconds. program is the command of testbed.
    """

    metadata = {"render_modes": []}
    render_mode = None

    def __init__(self, scenario, problem=None, *, arm=None, variables=None, max_steps=None, timeout=60.0, program="testbed"):
        self.problem = problem or Problem()
        self.command = [*([program] if isinstance(program, str) else program), "gym", os.fspath(scenario)]
        for name, text in (variables or {}).items():
            self.command += ["--set", f"{name}={text}"]
        if arm:
            self.command += ["--arm", arm]
        self.max_steps, self.timeout, self.seeds = max_steps, timeout, random.Random()
        self.child, self.over, self.view = None, True, testbed.View()
        self.start()
        self.send({"type": "reset"})
        self.problem.begin(self.hello()["fabric"])  # this trial goes no further
        self.observation_space, self.action_space = self.problem.observation_space, self.problem.action_space

    def reset(self, *, seed=None, options=None):
        """Begin the next trial. seed is that of the scenario for this one; later ones are drawn from it.

        options may have "set": variables of the scenario for this trial.
        """
        self.send_reset(seed, options)
        return self.receive_reset()

    def step(self, action):
        self.send_action(action)
        return self.receive_step()

    def render(self):
        return None

    def close(self):
        """End the process. reset starts another one."""
        if self.child:
            self.child, self.over = None, True
            self.finish()

    # The halves of reset and step: vectors send to all environments before they wait for one.

    def send_reset(self, seed=None, options=None):
        if gymnasium:
            super().reset(seed=seed)
        if seed is not None:
            seed = int(seed)
            self.seeds.seed(seed)
        options = options or {}
        if unknown := options.keys() - {"set"}:
            raise ValueError(f"options: {', '.join(sorted(unknown))}: must be set")
        self.trial = {"type": "reset", "seed": self.seeds.getrandbits(53) if seed is None else seed}
        if "set" in options:
            self.trial["set"] = {str(name): str(text) for name, text in options["set"].items()}
        if self.child is None:
            self.start()
        self.send(self.trial)

    def receive_reset(self):
        if len(self.hello()["fabric"]["links"]) != self.problem.links:
            raise Error("the fabric has other links than at the first reset: make another environment")
        self.view, self.live, self.charged, self.grown, self.steps, self.now = testbed.View(), {}, {}, 0, 0, 0
        needs, triggers = self.problem.needs, self.problem.triggers
        self.send({"type": "hello", "version": testbed.VERSION, "views": "binary", "needs": needs, "triggers": triggers})
        self.end, self.over = self.next(), False  # the end already if there is nothing to decide
        return self.observed(), {"seed": self.trial["seed"]}

    def hello(self):
        """The first message of the trial that was begun last."""
        while True:
            message = self.receive()
            if message["type"] == "hello":
                return message

    def send_action(self, action):
        if self.over:
            raise Error("call reset before step")
        if not self.end:
            schedule = testbed.Schedule()
            self.problem.act(action, self.view, schedule)
            self.answer(schedule)

    def receive_step(self):
        end = self.end or self.next()
        grown, self.grown = self.grown / SECOND, 0
        self.steps += 1
        view = None if end else self.view
        truncated = not end and self.steps == self.max_steps
        self.over = bool(end) or truncated
        reward = float(self.problem.reward(grown, view))
        info = {"now": self.now / SECOND}
        if end:
            info.update(self.ended(end))
        return self.observed(), reward, bool(end), truncated, info

    def observed(self):
        return value(self.problem.observe(self.view))

    def ended(self, end):
        """Figures of a trial: times in seconds, of coflows that are no background."""
        ccts = [(ended - arrival) / SECOND for _, arrival, ended, background in end["coflows"] if not background]
        return {"cct": sum(ccts) / max(1, len(ccts)), "coflows": len(ccts), "failed": end["failed"]}

    def next(self):
        """Wait for the next decision of the agent; returns the message end if there is none."""
        while True:
            message = self.receive()
            if message["type"] == "decide":
                self.view.update(message["numbers"])
                self.charge()
                if self.problem.asks(self.view):
                    return None
                schedule = testbed.Schedule()
                self.problem.alone(self.view, schedule)
                self.answer(schedule)
            elif message["type"] == "end":
                for i, arrival, ended, _ in message["coflows"]:
                    self.grow(i, ended - arrival)
                    self.now = max(self.now, ended)
                self.view = testbed.View()  # without coflows
                return message

    def charge(self):
        """Let completion times grow until now. The end corrects those of coflows that ended between two decisions."""
        present = {c.id: c.arrival for c in self.view.coflows}
        self.now = self.view.now
        for i, arrival in {**self.live, **present}.items():
            self.grow(i, self.now - arrival)
        self.live = present

    def grow(self, coflow, to):
        self.grown += to - self.charged.get(coflow, 0)
        self.charged[coflow] = to

    def answer(self, schedule):
        self.send({"type": "schedule", "n": self.view.n, **schedule.__dict__})

    # The process. What fails in a conversation ends it.

    def start(self):
        self.child = _Child(self.command, self.timeout)
        self.finish = weakref.finalize(self, self.child.end)

    def send(self, message):
        try:
            self.child.send(message)
        except BaseException:
            self.close()
            raise

    def receive(self):
        try:
            return self.child.receive()
        except BaseException:
            self.close()
            raise


class Vector(gymnasium.vector.VectorEnv if gymnasium else _Env):
    """Environments whose processes run at the same time. make returns one.

    Observations, rewards and flags are in the order of the environments. The step after the end of an episode ignores
    the action and resets, as gymnasium.vector.AutoresetMode.NEXT_STEP.
    """

    def __init__(self, make, count):
        self.envs, self.num_envs = [], count
        try:
            for _ in range(count):
                self.envs.append(make())
        except BaseException:
            self.close()
            raise
        self.single_observation_space, self.single_action_space = self.envs[0].observation_space, self.envs[0].action_space
        if gymnasium:
            batch = gymnasium.vector.utils.batch_space
            self.metadata = {"render_modes": [], "autoreset_mode": gymnasium.vector.AutoresetMode.NEXT_STEP}
            self.observation_space = batch(self.single_observation_space, count)
            self.action_space = batch(self.single_action_space, count)

    def reset(self, *, seed=None, options=None):
        """seed is one for each environment, or that of the first; others add their index."""
        seeds = seed if isinstance(seed, (list, tuple)) else [seed if seed is None else seed + i for i in range(self.num_envs)]
        return self.all(
            lambda i: self.envs[i].send_reset(seeds[i], options),
            lambda i: self.envs[i].receive_reset(),
        )

    def step(self, actions):
        over = [e.over for e in self.envs]
        return self.all(
            lambda i: self.envs[i].send_reset() if over[i] else self.envs[i].send_action(actions[i]),
            lambda i: self.restarted(i) if over[i] else self.envs[i].receive_step(),
        )

    def restarted(self, i):
        observation, info = self.envs[i].receive_reset()
        return observation, 0.0, False, False, info

    def all(self, send, receive):
        """Columns of what is received, once all have been sent to."""
        try:
            for i in range(self.num_envs):
                send(i)
            rows = [receive(i) for i in range(self.num_envs)]
        except BaseException:
            self.close()
            raise
        observations, *columns, infos = zip(*rows)
        if gymnasium:
            columns = [numpy.array(c) for c in columns]
        return (_stack(observations), *columns, self.joined(infos))

    def joined(self, infos):
        """Values by key, and whether each environment has one by _key."""
        out = {}
        for key in {key for info in infos for key in info}:
            values, has = [info.get(key, 0) for info in infos], [key in info for info in infos]
            out[key], out["_" + key] = (numpy.array(values), numpy.array(has)) if gymnasium else (values, has)
        return out

    def close(self, **_):
        for env in self.envs:
            env.close()


def _stack(observations):
    if isinstance(observations[0], dict):
        return {k: _stack([o[k] for o in observations]) for k in observations[0]}
    return numpy.stack(observations) if gymnasium else list(observations)
