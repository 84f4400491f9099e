"""The real control plane for the full tier: one per test run, started by the first test that asks for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from clusters.kube import KubeFleet
from tests.controlplane.admin import Admin
from tests.controlplane.plane import LOOPBACK, NotBuilt, Plane

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
MANIFESTS = ("crd.yaml", "rbac.yaml", "policies.yaml")
"""Of deploy/, what a test needs: not the DaemonSet, whose image nothing here can pull; agents run as processes."""


@pytest.fixture(scope="session")
def plane() -> Iterator[Plane]:
    """A running control plane. Skipped where it is not built, which CI counts as failed."""
    try:
        running = Plane()
    except NotBuilt as error:
        pytest.skip(str(error))
    with running:
        yield running


@pytest.fixture(scope="session")
def deployed(plane: Plane) -> Plane:
    """The control plane with the CRD, RBAC and admission policies of deploy/ applied and in force."""
    for name in MANIFESTS:
        plane.kubectl("apply", "--server-side", "-f", str(DEPLOY / name))
    plane.kubectl("wait", "--for=condition=Established", "crd/nodetunings.setpoint.dev", "--timeout=30s")
    return plane


@pytest.fixture(scope="session")
def cluster_admin(plane: Plane) -> Iterator[Admin]:
    admin = Admin(plane)
    yield admin
    admin.close()


@pytest.fixture
def a_node(cluster_admin: Admin) -> Iterator[Callable[..., dict[str, Any]]]:
    """Makes nodes as `Admin.node` does, and deletes them and their pods afterwards."""
    made: list[str] = []

    def make(name: str = "", **how: Any) -> dict[str, Any]:
        node = cluster_admin.node(name, **how)
        made.append(node["metadata"]["name"])
        return node

    yield make
    for name in made:
        cluster_admin.delete("nodes", name)


@pytest.fixture
def a_pod(cluster_admin: Admin) -> Iterator[Callable[..., dict[str, Any]]]:
    """Makes pods as `Admin.pod` does, and deletes them afterwards."""
    made: list[tuple[str, str]] = []

    def make(name: str = "", **how: Any) -> dict[str, Any]:
        pod = cluster_admin.pod(name, **how)
        made.append((pod["metadata"]["name"], pod["metadata"]["namespace"]))
        return pod

    yield make
    for name, namespace in made:
        cluster_admin.delete("pods", name, namespace, grace=0)


@pytest.fixture
def a_budget(cluster_admin: Admin) -> Iterator[Callable[..., dict[str, Any]]]:
    made: list[tuple[str, str]] = []

    def make(name: str, **how: Any) -> dict[str, Any]:
        budget = cluster_admin.budget(name, **how)
        made.append((name, budget["metadata"]["namespace"]))
        return budget

    yield make
    for name, namespace in made:
        cluster_admin.delete("poddisruptionbudgets", name, namespace)


@pytest.fixture
def controller_fleet(deployed: Plane, cluster_admin: Admin) -> Iterator[KubeFleet]:
    """The fleet port with Setpoint's own identity and nothing but the rights that deploy/ gives it."""
    token = cluster_admin.controller_token()
    fleet = KubeFleet(deployed.credentials(token=token), policy=LOOPBACK)
    yield fleet
    fleet.close()
