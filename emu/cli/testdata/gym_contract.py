"""The contract of environments: what gymnasium.utils.env_checker.check_env checks, and more. Run with testbed in PATH."""

import json
import os
import signal
import subprocess
import sys
import time
import unittest

import testbed
import testbed_gym as gym

SCENARIO = sys.argv.pop(1)


def make(**options):
    return gym.Env(SCENARIO, **options)


def episode(env, act, **reset):
    """All that an episode returns, with the actions of act."""
    seen = [env.reset(**reset)]
    while True:
        seen.append(env.step(act(seen[-1][0])))
        if seen[-1][2] or seen[-1][3]:
            return seen


def plain(x):
    """Without arrays, to compare."""
    if isinstance(x, dict):
        return {k: plain(v) for k, v in x.items()}
    if isinstance(x, (list, tuple)):
        return [plain(v) for v in x]
    return x.tolist() if hasattr(x, "tolist") else x


def children():
    """Processes testbed gym of this process."""
    out = subprocess.run(["ps", "-o", "stat=,args=", "--ppid", str(os.getpid())], capture_output=True, text=True).stdout
    return [line for line in out.splitlines() if " gym " in line and not line.startswith("Z")]


class Contract(unittest.TestCase):
    def setUp(self):
        self.env = make()
        self.addCleanup(self.env.close)

    def random(self, _):
        return self.env.action_space.sample()

    def test_seeds(self):
        """Equal seeds have equal episodes and equal later ones; others differ."""
        runs = []
        for seed in (7, 7, 8):
            self.env.action_space.seed(seed)
            runs.append(plain([episode(self.env, self.random, seed=seed), episode(self.env, self.random)]))
        self.assertEqual(runs[0], runs[1])
        self.assertNotEqual(runs[0][0], runs[0][1])
        self.assertNotEqual(runs[0][0], runs[2][0])

    def test_spaces_and_types(self):
        self.env.action_space.seed(1)
        (observation, info), *steps = episode(self.env, self.random, seed=1)
        self.assertTrue(self.env.observation_space.contains(observation))
        self.assertEqual(info, {"seed": 1})
        self.assertGreater(len(steps), 10)
        for i, (observation, reward, terminated, truncated, info) in enumerate(steps):
            self.assertTrue(self.env.observation_space.contains(observation), observation)
            self.assertTrue(self.env.action_space.contains(self.env.action_space.sample()))
            self.assertIs(type(reward), float)
            self.assertLessEqual(reward, 0)
            self.assertIs(terminated, i == len(steps) - 1)
            self.assertIs(truncated, False)
            self.assertIsInstance(info, dict)
            self.assertIn("now", info)

    def test_return(self):
        """The return is minus the sum of completion times, which are those of testbed sim with the same decisions."""
        ones = [1.0] * self.env.problem.slots
        steps = episode(self.env, lambda _: ones, seed=3)[1:]
        info = steps[-1][4]
        self.assertAlmostEqual(sum(s[1] for s in steps), -info["cct"] * info["coflows"], places=6)
        self.assertEqual(info["failed"], 0)
        sim = subprocess.run(["testbed", "sim", SCENARIO, "--seed", "3", "--repeats", "0", "--json", "-q"], capture_output=True, text=True)
        cct = {arm["name"]: arm["cct"]["mean_us"] / 1e6 for arm in json.loads(sim.stdout)["arms"]}
        self.assertAlmostEqual(cct["same.py"], info["cct"], places=6)
        self.assertNotAlmostEqual(cct["sebf"], info["cct"], places=3)

    def test_return_at_intervals(self):
        """It is exact too if decisions wait for an interval."""

        class Problem(gym.Problem):
            triggers = {"coflows": True, "every": 100_000_000}

        with gym.Env(SCENARIO, Problem()) as env:
            steps = episode(env, lambda _: [0.5] * 10, seed=3)[1:]
        info = steps[-1][4]
        self.assertAlmostEqual(sum(s[1] for s in steps), -info["cct"] * info["coflows"], places=6)

    def test_order(self):
        with self.assertRaisesRegex(gym.Error, "reset before step"):
            self.env.step(self.env.action_space.sample())
        episode(self.env, self.random, seed=1)
        with self.assertRaisesRegex(gym.Error, "reset before step"):
            self.env.step(self.env.action_space.sample())
        self.env.reset(seed=1)
        self.env.reset(seed=1)  # in an episode
        self.env.step(self.env.action_space.sample())
        self.assertIsNone(self.env.render())

    def test_truncation(self):
        with make(max_steps=5) as env:
            for _ in range(2):
                steps = episode(env, lambda _: env.action_space.sample(), seed=2)[1:]
                self.assertEqual([s[3] for s in steps], [False] * 4 + [True])
                self.assertFalse(any(s[2] for s in steps))

    def test_options(self):
        few = episode(self.env, self.random, seed=1, options={"set": {"count": 3}})
        self.assertEqual(few[-1][4]["coflows"], 3)
        one = episode(self.env, self.random, seed=1, options={"set": {"count": 1}})  # nothing to decide
        self.assertEqual(len(one), 2)
        self.assertAlmostEqual(one[1][1], -one[1][4]["cct"], places=6)
        with self.assertRaisesRegex(ValueError, "options: sed: must be set"):
            self.env.reset(options={"sed": 1})
        with self.assertRaisesRegex(gym.Error, "exit status [0-9]+.*nothing"):
            self.env.reset(options={"set": {"nothing": 3}})
        self.assertEqual(children(), [])
        self.env.reset(seed=1)  # in another process

    def test_hooks(self):
        """A problem of its own: the coflow to serve first, rewarded for ended coflows, with sizes."""

        class First(gym.Problem):
            needs = ["sizes", "links"]

            def begin(self, fabric):
                super().begin(fabric)
                self.action_space = gym.Discrete(self.slots)

            def act(self, action, view, schedule):
                order = self.order(view)
                if action < len(order):
                    order.insert(0, order.pop(action))
                schedule.step("madd", order)
                schedule.step("greedy", order)

            def reward(self, grown, view):
                return 1.0

        with gym.Env(SCENARIO, First(3), variables={"count": 5}) as env:
            self.assertEqual(plain(env.reset(seed=1)[0]["coflows"])[0].__len__(), len(gym.Problem.features) + 2)
            steps = episode(env, lambda _: env.action_space.sample(), seed=1)[1:]
            self.assertEqual({s[1] for s in steps}, {1.0})

    def test_errors_name_their_cause(self):
        for arguments, error in [
            (("none.yaml",), "exit status.*none.yaml.*no such file"),
            ((SCENARIO, None), "exit status.*no arm"),
        ]:
            with self.assertRaisesRegex(gym.Error, error):
                gym.Env(*arguments, arm="no")
        with self.assertRaisesRegex(gym.Error, "none: No such file.*path of the program"):
            make(program="./none")
        with self.assertRaisesRegex(gym.Error, r"not answered within 0.1 s \(timeout\)"):
            make(program=["sh", "-c", "sleep 60"], timeout=0.1)
        self.env.reset(seed=1)
        with self.assertRaisesRegex(gym.Error, "line [0-9]+ of standard input: schedule: step 0: rule"):
            self.env.problem.rule = "best"
            self.env.step(self.env.action_space.sample())

    def test_close_leaves_nothing(self):
        self.assertEqual(len(children()), 1)
        self.env.reset(seed=1)
        self.env.close()
        self.env.close()
        self.assertEqual(children(), [])
        self.env.reset(seed=1)
        self.assertEqual(len(children()), 1)
        del self.env
        self.doCleanups()
        self.assertEqual(children(), [])

    def test_interrupt_and_kill_leave_nothing(self):
        text = "import sys, time; sys.path = %r; import testbed_gym as g; e = g.Env(%r); e.reset(seed=1)\n" % (sys.path, SCENARIO)
        text += "print(e.child.process.pid, flush=True)\nwhile True: e.step(e.action_space.sample())[2] and e.reset()"
        for number in (signal.SIGINT, signal.SIGKILL):
            p = subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
            child = int(p.stdout.readline())
            os.killpg(p.pid, number)
            p.communicate(timeout=20)
            until = time.monotonic() + 20
            while os.path.exists(f"/proc/{child}") and time.monotonic() < until:
                time.sleep(0.01)
            self.assertFalse(os.path.exists(f"/proc/{child}"), number)

    def test_vector(self):
        """Sixteen processes at once: episodes are those of single environments, and begin again."""
        vector = gym.Vector(make, 16)
        self.addCleanup(vector.close)
        observations, infos = vector.reset(seed=10)
        self.assertEqual(list(infos["seed"]), list(range(10, 26)))
        alone = episode(self.env, lambda _: [0.25] * 10, seed=12)
        self.assertEqual(plain(observations["coflows"][2]), plain(alone[0][0]["coflows"]))
        actions, ended, decisions, began = [[0.25] * 10] * 16, 0, 0, time.monotonic()
        for i in range(2 * len(alone)):
            observations, rewards, terminated, truncated, infos = vector.step(actions)
            decisions += 16
            ended += sum(map(bool, terminated))
            if i + 1 < len(alone):
                self.assertEqual(rewards[2], alone[i + 1][1])
                self.assertEqual(bool(terminated[2]), alone[i + 1][2])
            if i + 1 == len(alone):
                self.assertEqual((rewards[2], bool(terminated[2])), (0, False))
                self.assertTrue(infos["_seed"][2])
        self.assertGreaterEqual(ended, 16)
        print(f"{decisions / (time.monotonic() - began):.0f} decisions/s of 16 environments", flush=True)
        vector.close()
        self.assertEqual(len(children()), 1)

    @unittest.skipUnless(gym.gymnasium, "no gymnasium")
    def test_gymnasium(self):
        from gymnasium.utils.env_checker import check_env

        check_env(self.env, skip_render_check=True)


class Spaces(unittest.TestCase):
    def test_own(self):
        """Those for installations without gymnasium."""
        space = gym._Dict({"a": gym._Box(-1.0, 2.0, (2, 3)), "b": gym._Discrete(4, start=2)})
        space.seed(1)
        x = space.sample()
        space.seed(1)
        self.assertEqual(space.sample(), x)
        for _ in range(50):
            self.assertIn(space.sample(), space)
        for y in ({}, {**x, "c": 1}, {**x, "b": 6}, {**x, "b": 1.5}, {**x, "a": [[0.0] * 3]}, {**x, "a": [[0.0, 3.0, 0.0]] * 2}):
            self.assertNotIn(y, space)


if __name__ == "__main__":
    unittest.main()
