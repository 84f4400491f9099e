"""Each component of the catalog is installed by helm in a simulated cluster and planned to be removed.

The column `remove` of the table of test_blast_table.py, by the whole way: what helm recorded, its objects as they are
in the cluster, the plan's row, its class and who must approve it where.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from clusters.connection import registry
from clusters.kube.apiserver import Call
from clusters.models import Cluster
from components.catalog import catalog
from components.helm import client
from jobs.approvals import rules
from jobs.models import Plan
from profiles.content.cluster import WantedComponent
from tests import marks
from tests.clusters.factories import reached_with
from tests.components.packing import versioned
from tests.contract.door import Entrance
from tests.jobs.conftest import World
from tests.jobs.forecast.test_blast_table import ACTIONS, APPROVERS, GPU, TABLE, UPGRADES, workload

REMOVE = ACTIONS.index("remove")
WITH_WORKLOADS = [name for name in TABLE if UPGRADES[name][0] in ("Deployment", "DaemonSet", "StatefulSet")]
"""istio-base is definitions and a webhook, which the simulated cluster does not serve."""


@pytest.fixture
def cluster(make_world: Any, settings: Any) -> Iterator[tuple[World, Entrance]]:
    """Three nodes, of which two have what operators look for, and helm's way to them."""
    settings.SETPOINT_ALLOW_NETWORKS = ["127.0.0.0/8"]
    world = make_world(nodes=1, environment="production")
    for name in ("g1", "g2"):
        world.sim.add_node(name, gpus=8, labels={"pool": "train", **GPU})
    world.observe()
    entrance = Entrance(world.sim)
    reached_with(world.cluster, entrance.credentials())
    yield world, entrance
    entrance.close()


def installed(world: World, entrance: Entrance, name: str) -> None:
    """A release as a person's helm makes it, with the workload that the real chart has."""
    component = catalog.get(name)
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": component.namespace}}
    with registry.api_server(world.cluster) as server:
        server.send(Call("create", "namespaces", component.namespace), "POST", "/api/v1/namespaces", body=space)
    kind, workload_name, container = UPGRADES[name]
    raw = workload(kind, workload_name, container, "registry.example/program:1")
    raw["metadata"].pop("namespace")
    raw["spec"]["selector"] = {"matchLabels": {"app": name}}
    raw["spec"]["template"]["metadata"] = {"labels": {"app": name}}
    chart = versioned(component.chart.chart.rpartition("/")[2], component.newest, yaml.safe_dump(raw))
    job = client.HelmJob(name, component.namespace, entrance.credentials(), deadline=time.monotonic() + 120)
    client.program().install(job, chart, {})


def approvers(plan: Plan, environment: str) -> int:
    marks.put(Cluster.objects.filter(pk=plan.cluster_id), environment=environment)
    return max(rule.approvers for rule in rules.requirements_for(Plan.objects.get(pk=plan.pk)))


@pytest.mark.parametrize("name", WITH_WORKLOADS)
def test_a_planned_removal_has_the_class_and_the_approvers_that_the_table_says(cluster, name):
    world, entrance = cluster
    installed(world, entrance, name)
    world.look()
    plan = world.plan(world.revision({}, components=[WantedComponent(name, is_gone=True)]))
    row = plan.components.get()
    expected = TABLE[name][REMOVE]

    assert (row.action, row.worst_class, plan.worst_class) == ("remove", expected, expected)
    assert [difference["change"] for difference in row.prepared["objects"]] == ["deleted"]
    needed = {place: approvers(plan, place) for place in ("production", "staging", "development")}
    assert needed == {"production": APPROVERS[expected], "staging": 1, "development": 1}
