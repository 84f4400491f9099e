"""Plans of components and the steps of their rollouts, for tests."""

from __future__ import annotations

from typing import Any

from jobs.models import Plan, Rollout, Step
from tests.jobs.conftest import World
from tests.jobs.releases import wanted


def step_of(rollout: Rollout, name: str) -> Step:
    return rollout.steps.get(component=name)


def plan_of(world: World, *names: str, settings: dict[str, str] | None = None, **strategy: Any) -> Plan:
    versions = {n.partition("@")[0]: n.partition("@")[2] for n in names if "@" in n}
    plain = [n for n in names if "@" not in n]
    return world.plan(world.revision(settings or {}, components=wanted(*plain, **versions)), **strategy)


def outcomes(rollout: Rollout) -> dict[str, str]:
    return {s.name: s.status for s in rollout.steps.of_components()}
