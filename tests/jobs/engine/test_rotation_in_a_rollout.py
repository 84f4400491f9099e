"""A credential that is withdrawn and replaced while a rollout runs, over TLS, as real API servers are reached."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from clusters.connection import registry
from clusters.models import Cluster
from clusters.services import lifecycle
from jobs.models import Slot
from simfleet.apiserver.callers import SETPOINT
from tests.clusters.factories import reached_with
from tests.contract.door import Entrance
from tests.jobs.conftest import World
from tests.jobs.engine.test_refused_credentials import reached

REBOOT = {"cmdline.iommu": "pt"}


@pytest.fixture
def door(world: World, settings: Any) -> Iterator[Entrance]:
    """The world's cluster, which the engine reaches with the stored credential alone."""
    settings.SETPOINT_ALLOW_NETWORKS = ["127.0.0.0/8"]
    entrance = Entrance(world.sim)
    registry.uninstall(world.cluster.pk)
    reached_with(world.cluster, entrance.credentials())
    yield entrance
    registry.forget(world.cluster.pk)
    entrance.close()


@pytest.mark.parametrize("what", ["token", "authority"])
def test_a_credential_replaced_in_the_middle_of_a_rollout_fails_nothing(
    world: World, door: Entrance, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    rollout = world.started(world.plan(world.revision(REBOOT), canary=1, order="name"))
    world.until(rollout, "restarting")
    look, is_seen = world.look, True
    monkeypatch.setattr(world, "look", lambda: look() if is_seen else None)
    is_seen = False
    if what == "token":
        door.door.tokens.pop("setpoint")
    else:
        other = Entrance(world.sim)
        reached_with(Cluster.objects.get(pk=world.cluster.pk), _trusting(door, other.ca))
        other.close()
        registry.forget(world.cluster.pk)  # as in a process that has no connection from before
    for seconds in (1, 15, 15, 3600, 3600):
        world.tick(seconds)
        world.slice(rollout)
        assert rollout.status == "running"
        assert not rollout.steps.exclude(error="").exists()
        assert Slot.objects.count() == 1
    assert "credentials" in rollout.waiting_for
    assert world.fleet.node("n1")["spec"]["unschedulable"]

    door.door.tokens["fresh"] = SETPOINT
    cluster = Cluster.objects.get(pk=world.cluster.pk)
    lifecycle.rotate_credential(cluster, credential=door.credentials("fresh"), by=world.admin)
    is_seen = True
    world.tick(1)
    assert world.run(rollout, seconds=1800, step=5).status == "succeeded"
    assert not Slot.objects.exists()
    assert not world.node("n1").is_cordoned


@pytest.mark.parametrize("stage", ["cordoning", "draining", "applying"])
def test_a_token_that_only_a_steps_own_calls_show_is_waited_for(world: World, door: Entrance, stage: str) -> None:
    """The rows of the watch are fresh, so it is each step that hears the 401, again and again."""
    rollout = world.started(world.plan(world.revision(REBOOT), canary=1, order="name"))
    step = reached(world, rollout, stage)
    caller = door.door.tokens.pop("setpoint")
    for _ in range(8):
        world.tick(15)
        world.slice(rollout)
        step.refresh_from_db()
        assert (rollout.status, step.status, step.error) == ("running", stage, "")
    assert "credentials" in step.waiting_for

    door.door.tokens["setpoint"] = caller
    assert world.run(rollout, seconds=1800, step=5).status == "succeeded"


def _trusting(door: Entrance, ca: str) -> Any:
    """The right token, and another cluster's authority: what an exchanged CA looks like from here."""
    credentials = door.credentials()
    return type(credentials)(server=credentials.server, ca=ca, token=credentials.token)
