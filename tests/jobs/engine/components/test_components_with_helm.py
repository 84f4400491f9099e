"""A rollout of components with the real helm against the simulated fleet: planned, carried out, killed, put back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as configured

from clusters.connection import registry
from common.errors import WrongState
from components.catalog import catalog
from components.charts import archives
from components.helm import releases
from jobs.engine import claims, component_runner, reconcile
from jobs.models import Plan
from jobs.rollouts import rollout_actions
from profiles.content.cluster import WantedComponent
from tests.clusters.factories import reached_with
from tests.components.packing import entry, versioned
from tests.contract.door import Entrance
from tests.jobs.component_steps import outcomes, plan_of, step_of
from tests.jobs.conftest import World

TEMPLATE = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Release.Name }}-settings}
data: {version: "{{ .Chart.Version }}"}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: {{ .Release.Name }}}
spec:
  replicas: 1
  selector: {matchLabels: {app: {{ .Release.Name }}}}
  template:
    metadata: {labels: {app: {{ .Release.Name }}}}
    spec: {containers: [{name: main, image: "registry.example.org/main:{{ .Chart.Version }}"}]}
"""


class Killed(BaseException):
    """Kill -9 in the middle of a step."""


@contextmanager
def behind_its_door(world: World, folder: Path, *offered: tuple[str, str, str]) -> Iterator[Entrance]:
    """The world's simulated cluster where helm finds it, and these components to install: (name, version, more)."""
    for name, version, more in offered:
        text = entry(name, "2.0.0", "1.0.0", workload=f"Deployment/{name}", more=more)
        (folder / f"{name}.yaml").write_text(text)
        archives.store(versioned(name, version, TEMPLATE), origin="uploaded", by="admin")
    entrance = Entrance(world.sim)
    reached_with(world.cluster, entrance.credentials())
    with catalog.extended(folder):
        yield entrance
    entrance.close()


@pytest.fixture
def cluster(world: World, settings: Any, tmp_path: Path) -> Iterator[World]:
    """Two components, of which one requires the other."""
    settings.SETPOINT_ALLOW_NETWORKS = ["127.0.0.0/8"]
    names = (("base", ""), ("top", "requires: [base]\nafter: [nodes]"))
    offered = [(name, version, more) for name, more in names for version in ("1.0.0", "2.0.0")]
    with behind_its_door(world, tmp_path, *offered):
        yield world


def revisions(world: World, name: str) -> list[tuple[str, str]]:
    """(chart version, status), the oldest first."""
    with registry.api_server(world.cluster) as server:
        history = releases.history(server, f"{name}-system", name).revisions
        return [(revision.read().chart_version, revision.status) for revision in history]


def settings_of(world: World, name: str) -> str:
    with world.sim.lock:
        return str(world.sim.store.get("configmaps", f"{name}-settings", f"{name}-system").copy()["data"]["version"])


def test_settings_and_two_components_go_there_and_back_in_one_rollout(cluster: World) -> None:
    plan = plan_of(cluster, "top@1.0.0", "base@1.0.0", settings={"vm.swappiness": "10"}, canary=0, batch="100%")
    assert [f["title"] for f in plan.findings if f["severity"] == "block"] == []
    assert [(c.component, c.action, c.requires, c.after) for c in plan.components.all()] == [
        ("base", "install", [], []),
        ("top", "install", ["base"], ["nodes"]),
    ]
    rollout = cluster.run(cluster.started(plan))
    assert (rollout.status, outcomes(rollout)) == ("succeeded", {"base": "succeeded", "top": "succeeded"})
    assert (settings_of(cluster, "base"), settings_of(cluster, "top")) == ("1.0.0", "1.0.0")
    assert revisions(cluster, "top") == [("1.0.0", "deployed")]
    assert step_of(rollout, "top").entered_at >= step_of(rollout, "base").entered_at

    again = plan_of(cluster, "top@1.0.0", "base@1.0.0", settings={"vm.swappiness": "20"})
    assert {c.left_out for c in again.components.all()} == {"It is already compliant."}

    rollout_actions.revert(rollout, by=cluster.operator)
    cluster.run(rollout)
    assert (rollout.status, outcomes(rollout)) == ("reverted", {"base": "reverted", "top": "reverted"})
    assert (revisions(cluster, "base"), revisions(cluster, "top")) == ([], [])


def test_a_downgrade_is_called_one(cluster: World) -> None:
    up = cluster.run(cluster.started(plan_of(cluster, "base@2.0.0")))
    assert up.status == "succeeded"
    down = plan_of(cluster, "base@1.0.0")
    assert [f["severity"] for f in down.findings if f["code"] == "downgrade"] == ["warn"]
    assert "downgrade" not in {f["code"] for f in up.plan.findings}


def test_an_upgrade_whose_worker_dies_inside_helm_is_mended_and_goes_back(cluster: World, monkeypatch: Any) -> None:
    cluster.run(cluster.started(plan_of(cluster, "base@1.0.0")))
    rollout = cluster.started(plan_of(cluster, "base@2.0.0"))
    assert [c.action for c in rollout.plan.components.all()] == ["upgrade"]
    reconcile.run(rollout.pk)
    pk = step_of(rollout, "base").pk

    def die(*args: Any, **kwargs: Any) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(claims, "release", lambda token: None)
        patch.setattr("jobs.engine.commit.commit", die)
        with pytest.raises(Killed):
            component_runner.carry_out(pk)
    assert component_runner.carry_out(pk) is None, "the dead worker's lease is not over"
    cluster.clock.forward(configured.SETPOINT_LEASE_SECONDS + 1)
    cluster.look()
    cluster.run(rollout)

    assert rollout.status == "succeeded"
    assert revisions(cluster, "base") == [("1.0.0", "superseded"), ("2.0.0", "deployed")], "helm upgraded once"
    rollout_actions.revert(rollout, by=cluster.operator)
    cluster.run(rollout)
    assert rollout.status == "reverted"
    assert settings_of(cluster, "base") == "1.0.0"


def removing(world: World, *gone: str, more: tuple[WantedComponent, ...] = ()) -> Plan:
    wanted = [*(WantedComponent(name, is_gone=True) for name in gone), *more]
    return world.plan(world.revision({}, components=wanted))


def test_components_are_removed_by_a_plan_in_their_order_and_brought_back(cluster: World) -> None:
    outcomes_of(cluster, plan_of(cluster, "base@1.0.0", "top@1.0.0"))
    made = removing(cluster, "base", "top")
    assert not made.is_blocked
    assert {row.component: (row.action, row.after) for row in made.components.all()} == {
        "base": ("remove", ["top"]),
        "top": ("remove", []),
    }
    assert {row.worst_class for row in made.components.all()} == {"drain"}  # the catalog says nothing of either

    rollout = cluster.run(cluster.started(made))
    assert rollout.status == "succeeded", rollout.waiting_for
    assert [revisions(cluster, name)[-1][1] for name in ("base", "top")] == ["uninstalled"] * 2
    with pytest.raises(WrongState):
        removing(cluster, "base", "top")  # nothing is left to do

    rollout_actions.revert(rollout, by=cluster.operator)
    cluster.run(rollout)
    assert [revisions(cluster, name)[-1] for name in ("base", "top")] == [("1.0.0", "deployed")] * 2


def test_what_another_component_needs_is_not_removed(cluster: World) -> None:
    outcomes_of(cluster, plan_of(cluster, "base@1.0.0", "top@1.0.0"))
    made = removing(cluster, "base", more=(WantedComponent("top", "1.0.0"),))
    assert "removal-needed" in [f["code"] for f in made.findings if f["severity"] == "block"]


def outcomes_of(world: World, plan: Plan) -> None:
    rollout = world.run(world.started(plan))
    assert rollout.status == "succeeded", rollout.waiting_for
