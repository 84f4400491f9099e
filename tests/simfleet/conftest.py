from __future__ import annotations

import pytest

from contract.nodetuning import Spec, Wanted
from simfleet import SimClock, SimCluster, SimFleet


class Bench:
    """A cluster with short words for what these tests do over and over."""

    def __init__(self, **fields):
        self.sim = SimCluster(seed=1, clock=SimClock(), **fields)
        self.fleet = SimFleet(self.sim)

    def uid(self, node):
        return self.fleet.node(node)["metadata"]["uid"]

    def tune(self, node, key, value, expect, *, operator="=", mode="apply", seconds=5.0, **spec):
        self.observe(node, key)
        wanted = Wanted(key, operator, value, expect)
        self.fleet.tune(node, Spec(self.uid(node), mode=mode, step="s1", settings=(wanted,), **spec))
        self.sim.tick(seconds)
        return self.report(node, key)

    def observe(self, node, *keys):
        uid = self.uid(node)
        return self.fleet.observe(node, uid, Spec(uid, observe=keys))

    def report(self, node, key):
        """(state, effective) that the agent reports."""
        settings = self.fleet.tuning(node)["status"]["settings"]
        return next((s["state"], s.get("effective")) for s in settings if s["key"] == key)


@pytest.fixture
def bench():
    made = Bench()
    made.sim.add_node("n1", gpus=8)
    made.sim.add_node("n2", gpus=8)
    made.sim.tick(1)
    return made


@pytest.fixture
def make_bench():
    return Bench
