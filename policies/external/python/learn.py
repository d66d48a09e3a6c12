"""Learns a priority of coflows by the cross-entropy method, and is then the policy that it has learned.

    python3 learn.py learn.yaml learned.yaml [--generations 15] [--program testbed]

The priority is a weighted sum of the features of testbed_gym.Problem. A generation draws weights, runs all on the same
new seeds and keeps those with the lowest average completion time. learned.yaml is the scenario with the weights.
"""

import argparse
import concurrent.futures
import math
import os
import random
import re
import sys

import testbed
import testbed_gym

POPULATION, ELITE, TRIALS, VALIDATION = 24, 6, 4, 20
SEEDS = 1_000_000  # training draws from 2 to below it, validation from here on; 1 is that of learn.yaml


def linear(weights):
    """The agent that prefers coflows with a high weighted sum of features, the first of which is "present"."""

    def choose(observation):
        sums = (sum(w * x for w, x in zip(weights, row[1:])) for row in observation["coflows"])
        return [0.5 + math.atan(s) / math.pi for s in sums]

    return choose


class Learned(testbed_gym.Policy):
    def __init__(self):
        super().__init__(testbed_gym.Problem(), None)

    def start(self, hello):
        super().start(hello)
        self.choose = linear([float(w) for w in hello["parameters"]["weights"].split(",")])


def begin(scenario, program):
    global env
    env = testbed_gym.Env(scenario, arm="learn.py", program=program)


def trial(weights, seed):
    """The average completion time of a trial."""
    choose = linear(weights)
    observation, _ = env.reset(seed=seed)
    while True:
        observation, _, over, _, info = env.step(choose(observation))
        if over:
            return info["cct"]


def learn(pool, generations, rng):
    """Yields the generation, its average completion times and the weights."""
    size = len(testbed_gym.Problem.features) - 1
    mean, spread = [0.0] * size, [1.0] * size

    def average(population, seeds):
        times = list(pool.map(trial, *zip(*((w, s) for w in population for s in seeds)), chunksize=4))
        return [sum(times[i : i + len(seeds)]) / len(seeds) for i in range(0, len(times), len(seeds))]

    for generation in range(generations + 1):
        yield generation, average([mean], range(SEEDS, SEEDS + VALIDATION))[0], mean
        if generation == generations:
            return
        population = [[rng.gauss(m, s) for m, s in zip(mean, spread)] for _ in range(POPULATION)]
        times = average(population, [rng.randrange(2, SEEDS) for _ in range(TRIALS)])
        best = [population[i] for i in sorted(range(POPULATION), key=lambda i: times[i])[:ELITE]]
        mean = [sum(w) / ELITE for w in zip(*best)]
        spread = [max(0.05, math.sqrt(sum((x - m) ** 2 for x in w) / ELITE)) for w, m in zip(zip(*best), mean)]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("scenario")
    parser.add_argument("out")
    parser.add_argument("--generations", type=int, default=15)
    parser.add_argument("--program", default="testbed")
    args = parser.parse_args()
    text = open(args.scenario).read()
    workers = os.cpu_count()
    with concurrent.futures.ProcessPoolExecutor(workers, initializer=begin, initargs=(args.scenario, args.program)) as pool:
        for generation, cct, weights in learn(pool, args.generations, random.Random(1)):
            line = ",".join(f"{w:.3f}" for w in weights)
            print(f"generation {generation}: {cct:.4f} s on {VALIDATION} seeds, weights {line}", flush=True)
    with open(args.out, "w") as f:
        f.write(re.sub(r'weights: "[^"]*"', f'weights: "{line}"', text, count=1))


if __name__ == "__main__":
    if sys.argv[1:] == ["--policy"]:
        testbed.run(Learned())
    else:
        main()
