"""Two simulated clusters with a plan each, in a fleet run of two rings."""

from __future__ import annotations

from jobs.models import FleetRun, Plan, Rollout
from jobs.rollouts import fleet_runs
from jobs.rollouts.fleet_runs import WantedRing
from tests.jobs.conftest import World

SOAK = 60


class Fleet:
    """Two clusters, each with a plan of the same settings, in two rings."""

    def __init__(self, make_world, *, nodes: int = 2, soak: int = SOAK) -> None:
        self.first: World = make_world(nodes=nodes)
        self.second: World = make_world(nodes=nodes, name="borea", beside=self.first)
        self.worlds = (self.first, self.second)
        self.operator = self.first.operator
        revision = self.first.revision()
        self.plans = [world.plan(revision, canary=0, batch="9") for world in self.worlds]
        self.run = fleet_runs.create(by=self.operator, name="swappiness", wanted=wanted(self.plans, soak))

    def approve(self, *numbers: int) -> None:
        for number in numbers or (1, 2):
            world, plan = self.worlds[number - 1], self.plan(number)
            world.approved(plan)

    def plan(self, number: int) -> Plan:
        return Plan.objects.get(pk=self.plans[number - 1].pk)

    def rollout(self, number: int) -> Rollout | None:
        return Rollout.objects.filter(plan=self.plans[number - 1]).first()

    def start(self) -> None:
        fleet_runs.start(self.run, by=self.operator)
        self.look()

    def look(self) -> FleetRun:
        for world in self.worlds:
            world.look()
        fleet_runs.advance(self.run.pk)
        self.run.refresh_from_db()
        return self.run

    def finish(self, number: int) -> Rollout:
        rollout = self.rollout(number)
        assert rollout is not None
        return self.worlds[number - 1].run(rollout)

    def wait(self, minutes: float) -> FleetRun:
        for world in self.worlds:
            world.tick(minutes * 60 / len(self.worlds))
        for world in self.worlds:
            world.tick(1)
        return self.look()


def wanted(plans: list[Plan], soak: int = SOAK) -> list[WantedRing]:
    last = len(plans)
    return [WantedRing(f"ring of {p.cluster}", soak if n < last else 0, [p]) for n, p in enumerate(plans, start=1)]
