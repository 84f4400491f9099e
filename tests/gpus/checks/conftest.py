"""A small world with a check that may run: its image is set, its program prints what a test wants."""

from __future__ import annotations

from typing import Any

import pytest

from clusters.models import Cluster
from gpus.models import CheckRun
from gpus.services.checks import runs, starting
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
