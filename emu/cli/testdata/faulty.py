"""A policy of any role that has a fault: faulty.py ROLE FAULT. It decides until the fault, at its third decision or, of role
cloning, after it has started one more attempt of a task."""

import json
import os
import sys
import time

role, fault = sys.argv[1:]
cloned = False


def bomb(depth):
    """Start two processes of this kind, each in a group of its own."""
    for _ in range(2):
        if depth and os.fork() == 0:
            os.setsid()
            bomb(depth - 1)
    time.sleep(60)


def fail():
    if fault == "exits":
        sys.exit("gone")
    elif fault == "hangs":
        time.sleep(60)
    elif fault == "garbage":
        print("garbage", flush=True)
        time.sleep(60)
    elif fault == "output":
        for _ in range(1000):
            sys.stdout.write("x" * 1000000)
    elif fault == "bomb":
        bomb(7)


def decide(m):
    """The fields of the answer to a message."""
    global cloned
    if m["type"] == "decide":
        return {"type": "schedule", "steps": [{"rule": "greedy", "coflows": list(range(len(m["coflows"])))}]}
    if m["type"] == "place":
        client = m["block"].get("client", 0)
        return {"type": "placement", "hosts": [(client + i) % hosts for i in range(m["block"]["replicas"])]}
    slots = m["slots"][0]
    free = [total - used for total, used in zip(slots["total"], slots.get("used", [0, 0]))]
    for i, job in enumerate(m["jobs"]):
        for s, stage in enumerate(job["stages"]):
            if free[stage.get("kind", 0)] <= 0:
                continue
            for attempt in job.get("attempts", []):
                if role == "cloning" and attempt[0] == s and attempt[3] != m.get("host", 0) and not cloned:
                    cloned = True
                    return {"type": "assignment", "backup": [{"job": i, "stage": s, "index": attempt[1]}]}
            for near, pending in enumerate(stage.get("pending", [])):
                if pending:
                    return {"type": "assignment", "launch": [{"job": i, "stage": s, "locality": near}]}
    return {"type": "assignment"}


if fault == "exits at once":
    sys.exit("gone")
hello = json.loads(input())
hosts = hello["fabric"]["hosts"]
needs = {"cloning": ["attempts"]}.get(role, [])
print(json.dumps({"type": "hello", "version": hello["version"], "needs": needs, "triggers": {"coflows": True, "flows": True}}), flush=True)
for line in sys.stdin:
    m = json.loads(line)
    if m["type"] == "end":
        break
    due = cloned if role == "cloning" else m["n"] == 3
    if due:
        fail()
    if fault == "errors":
        sys.stderr.write("x" * 3000000)
    print(json.dumps({"n": m["n"], **decide(m)}), flush=True)
    if due and fault == "reads nothing":
        time.sleep(60)
