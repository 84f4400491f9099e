"""A small world with a check that may run: its image is set, its program prints what a test wants."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from clusters.models import Cluster
from common.clock import now
from gpus.models import CheckRun, CheckSchedule
from gpus.services.checks import holds, queueing, runs, schedules, starting
from simfleet.controllers.programs import Program
from tests.gpus.checks import outputs
from tests.jobs.conftest import World, make_world

__all__ = ["make_world"]
IMAGE = "registry.example/site/dcgm:4.2.3"
MEDIUM = outputs.dcgm_4(("Deployment", "software", "Pass"), ("Hardware", "memory", "Pass"), gpus=8)


class Checking:
    """Runs of a check in a world, slice by slice."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.program: Program | None = None
        Cluster.objects.filter(pk=world.cluster.pk).update(budget=10)
        world.tick(1)
        starting.set_image("dcgm-medium", IMAGE, by=world.admin)
        self.prints(MEDIUM)

    def prints(self, text: str, *, seconds: float = 20, **about: Any) -> None:
        programs = self.world.sim.programs
        if self.program is not None:
            programs.remove(self.program)
        self.program = Program(IMAGE, run_seconds=seconds, prints=lambda _pod: text, **about)
        programs.add(self.program)

    def start(self, *nodes: str, at_once: int = 10, name: str = "dcgm-medium") -> list[CheckRun]:
        return starting.start(name, self.world.cluster, nodes or ("n1",), at_once=at_once, by=self.world.operator)

    def slice(self) -> None:
        for pk in runs.due():
            runs.advance(pk)

    def step(self, seconds: float = 5) -> None:
        self.slice()
        self.world.tick(seconds)

    def until(self, run: CheckRun, *statuses: str, steps: int = 400) -> CheckRun:
        for _ in range(steps):
            run.refresh_from_db()
            if run.status in statuses:
                return run
            self.step()
        raise AssertionError(f"the run never was {statuses}: it is {run.status}, {run.reason}")

    def ended(self, run: CheckRun) -> CheckRun:
        return self.until(run, CheckRun.Status.ENDED)

    def pods(self) -> list[dict[str, Any]]:
        return [p for p in self.world.fleet.pods() if p["metadata"]["namespace"] == "setpoint-checks"]


@pytest.fixture
def checking(make_world: Any) -> Checking:
    return Checking(make_world(nodes=3))


class Scheduling(Checking):
    """A world with six idle nodes and a budget of 10."""

    def add(self, *, every_days: int = 7, at_once: int = 10, name: str = "dcgm-medium") -> CheckSchedule:
        return schedules.add(name, self.world.cluster, every_days=every_days, at_once=at_once, by=self.world.operator)

    def minute(self) -> list[str]:
        """Do what beat does once a minute, and return the nodes of new runs, in the order of their queue."""
        before = set(CheckRun.objects.values_list("pk", flat=True))
        for pk in queueing.due():
            queueing.queue(pk)
        return sorted(CheckRun.objects.exclude(pk__in=before).values_list("node__name", flat=True))

    def ran(self, node: str, outcome: str, *, ago: timedelta, **fields: object) -> CheckRun:
        at = now() - ago
        given = {"cluster": self.world.cluster, "node": self.world.node(node), "check_name": "dcgm-medium",
                 "image": IMAGE, "gpus": 8, "at_once": 1, "status": "ended", "outcome": outcome,
                 "created_at": at, "ended_at": at}  # fmt: skip
        return CheckRun.objects.create(**given | fields)

    def end_all(self, outcome: str = "not-run", reason: str = "No image.") -> None:
        CheckRun.objects.live().update(status="ended", outcome=outcome, reason=reason, ended_at=now())

    def pass_(self, clock: object, **time: float) -> None:
        """Let time pass in which the watch hears the cluster, and nothing happens there."""
        clock.forward(**time)
        Cluster.objects.update(observed_at=now())

    def reason(self, schedule: CheckSchedule) -> str:
        row = CheckSchedule.objects.select_related("cluster").get(pk=schedule.pk)
        return holds.states([row])[row.pk].reason


@pytest.fixture
def scheduling(make_world: Any) -> Scheduling:
    return Scheduling(make_world(nodes=6))
