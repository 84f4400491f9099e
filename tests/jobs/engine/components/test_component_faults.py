"""Faults in a cluster while real helm installs into it, switched on as a person with kubectl does.

The step says which object, on which node and why, and a revert leaves nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from config.demo import hands
from jobs.diffs.cluster_scope import STATE_TEXTS
from jobs.engine import component_runner, reconcile
from jobs.models import Step, StepEvent
from jobs.rollouts import rollout_actions
from tests.jobs.component_steps import outcomes, plan_of, step_of
from tests.jobs.conftest import World
from tests.jobs.engine.components.test_components_with_helm import behind_its_door, revisions

AGAIN = STATE_TEXTS[Step.Kind.COMPONENT].again

BY_HAND = "by-hand.kubeconfig"


@pytest.fixture
def cluster(world: World, settings: Any, tmp_path: Path) -> Iterator[World]:
    """Behind its TLS door, with two components that know nothing of each other; a person's way to it is BY_HAND."""
    settings.SETPOINT_ALLOW_NETWORKS, settings.SETPOINT_READY_SECONDS = ["127.0.0.0/8"], 60.0
    with behind_its_door(world, tmp_path, ("pulled", "1.0.0", ""), ("crashed", "2.0.0", "")) as entrance:
        (tmp_path / BY_HAND).write_text(hands.kubeconfig({"here": entrance.credentials()}, "here"))
        yield world


def inventory(world: World) -> set[tuple[str, str, str]]:
    """List what a release could leave behind: all but namespaces, which stay, and what comes and goes by itself."""
    apart = ("leases", "events", "namespaces")
    with world.sim.lock:
        store = world.sim.store
        return {(p, *s.key) for p in list(store.resources) if p not in apart for s in store.all(p)}


def test_images_that_cannot_be_pulled_and_programs_that_crash_are_told_with_pod_and_node(
    cluster: World, tmp_path: Path
) -> None:
    before = inventory(cluster)
    hands.do(hands.switched("", missing="*/main:1.0.0", crashing="*/main:2.0.0"), tmp_path / BY_HAND, "here")
    rollout = cluster.run(cluster.started(plan_of(cluster, "pulled@1.0.0", "crashed@2.0.0")))

    assert (rollout.status, outcomes(rollout)) == ("failed", {"pulled": "failed", "crashed": "failed"})
    image = "registry.example.org/main:1.0.0"
    pulled, crashed = step_of(rollout, "pulled").error, step_of(rollout, "crashed").error
    assert pulled.startswith("Gave up after 1 min")
    assert "Deployment pulled-system/pulled: 0 of 1 pod is new and ready; pod pulled-" in pulled
    assert f'on node n1: ImagePullBackOff, Back-off pulling image "{image}"' in pulled
    assert pulled.endswith(f"{image}: not found (the registry has no such image or tag).")
    assert "Deployment crashed-system/crashed: 0 of 1 pod is new and ready; pod crashed-" in crashed
    assert "on node n1: CrashLoopBackOff, back-off" in crashed
    assert "restarting failed container=main pod=crashed-" in crashed

    rollout_actions.revert(rollout, by=cluster.operator)
    assert cluster.run(rollout).status == "reverted"
    cluster.tick(5)
    hands.do(hands.ACTS["mend"], tmp_path / BY_HAND, "here")
    assert inventory(cluster) == before


def test_an_api_server_lost_half_way_is_told_waited_for_and_leaves_no_release_pending(
    cluster: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = inventory(cluster)
    hands.do(hands.ACTS["outage"], tmp_path / BY_HAND, "here")
    look = cluster.look
    monkeypatch.setattr(cluster, "look", lambda: None if cluster.sim.faults.outage else look())
    rollout = cluster.started(plan_of(cluster, "pulled@1.0.0"))
    reconcile.run(rollout.pk)
    step = step_of(rollout, "pulled")
    component_runner.carry_out(step.pk)
    step.refresh_from_db()
    [text] = StepEvent.objects.filter(step=step, text__startswith=AGAIN).values_list("text", flat=True)
    assert step.status == "applying"
    assert text.startswith(f"{AGAIN} the API server did not carry it out: 1 error occurred: * Post ")
    assert text.endswith('/namespaces/pulled-system/deployments?fieldManager=helm": EOF'), (
        "and no word of helm's own code"
    )

    cluster.run(rollout)
    assert rollout.status == "succeeded"
    assert revisions(cluster, "pulled") == [("1.0.0", "failed"), ("1.0.0", "deployed")]
    rollout_actions.revert(rollout, by=cluster.operator)
    assert cluster.run(rollout).status == "reverted"
    cluster.tick(5)
    hands.do(hands.ACTS["mend"], tmp_path / BY_HAND, "here")
    assert inventory(cluster) == before
