"""A rollout of components with the real helm against the simulated fleet: planned, carried out, killed, put back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.conf import settings as configured

from clusters import connections
from components import archives, catalogue, releases
from jobs import rollouts
from jobs.engine import carrying, claims
from jobs.engine import slice as engine
from tests.components.charts import packed
from tests.contract.door import Entrance
from tests.jobs.conftest import World
from tests.jobs.test_laws_of_components import outcomes, plan_of, step_of

COMPONENT = """\
name: {name}
title: {name}
summary: A ConfigMap and a Deployment.
documentation: https://example.org/docs
chart: {{kind: http, url: "https://charts.example.org", chart: {name}}}
sources: {{S: {{text: "Its README", url: "https://example.org"}}}}
versions: [{{version: 2.0.0}}, {{version: 1.0.0}}]
namespace: {name}-system
pod_security: baseline
disruption: live
crds: {{names: [], stay: true}}
{more}
readiness: [{{workloads: {{namespace: {name}-system, kind: Deployment, names: ["{name}"]}}}}]
hazards:
  upgrade: [{{text: None that is known, sources: [S]}}]
  removal: [{{text: None that is known, sources: [S]}}]
"""
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
    """As kill -9."""


@pytest.fixture
def cluster(world: World, settings: Any, tmp_path: Any) -> Iterator[World]:
    """The world's simulated cluster behind its TLS door, where helm finds it, and two components to install."""
    settings.SETPOINT_ALLOW_NETWORKS = ["127.0.0.0/8"]
    for name, more in (("base", ""), ("top", "requires: [base]\nafter: [nodes]")):
        (tmp_path / f"{name}.yaml").write_text(COMPONENT.format(name=name, more=more))
        for version in ("1.0.0", "2.0.0"):
            files = {
                "Chart.yaml": f"apiVersion: v2\nname: {name}\nversion: {version}\n",
                "values.yaml": "{}\n",
                "templates/a.yaml": TEMPLATE,
            }
            archives.store(packed(files), origin="uploaded", by="admin")
    entrance = Entrance(world.sim)
    sealed = connections.sealed(world.cluster.pk, entrance.credentials())
    row = world.cluster
    row.server, row.credential, row.credential_key = entrance.door.url, sealed.data, sealed.key
    row.save(update_fields=["server", "credential", "credential_key"])
    with catalogue.extended(tmp_path):
        yield world
    entrance.close()


def revisions(world: World, name: str) -> list[tuple[str, str]]:
    """(chart version, status), the oldest first."""
    with connections.api_server(world.cluster) as server:
        found = releases.history(server, f"{name}-system", name).revisions
        return [(one.read().chart_version, one.status) for one in found]


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
    assert {c.left_out for c in again.components.all()} == {"It is as wanted already."}

    rollouts.revert(rollout, by=cluster.operator)
    cluster.run(rollout)
    assert (rollout.status, outcomes(rollout)) == ("reverted", {"base": "reverted", "top": "reverted"})
    assert (revisions(cluster, "base"), revisions(cluster, "top")) == ([], [])


def test_an_upgrade_whose_worker_dies_inside_helm_is_mended_and_goes_back(cluster: World, monkeypatch: Any) -> None:
    cluster.run(cluster.started(plan_of(cluster, "base@1.0.0")))
    rollout = cluster.started(plan_of(cluster, "base@2.0.0"))
    assert [c.action for c in rollout.plan.components.all()] == ["upgrade"]
    engine.run(rollout.pk)
    pk = step_of(rollout, "base").pk

    def die(*args: Any, **kwargs: Any) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(claims, "release", lambda token: None)
        patch.setattr("jobs.engine.commit.commit", die)
        with pytest.raises(Killed):
            carrying.carry(pk)
    assert carrying.carry(pk) is None, "the dead worker's lease is not over"
    cluster.clock.forward(configured.SETPOINT_LEASE_SECONDS + 1)
    cluster.look()
    cluster.run(rollout)

    assert rollout.status == "succeeded"
    assert revisions(cluster, "base") == [("1.0.0", "superseded"), ("2.0.0", "deployed")], "helm upgraded once"
    rollouts.revert(rollout, by=cluster.operator)
    cluster.run(rollout)
    assert rollout.status == "reverted"
    assert settings_of(cluster, "base") == "1.0.0"
