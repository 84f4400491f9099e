"""The real control plane for the full tier: one per test run, started by the first test that asks for it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from clusters.fleet import FleetError, Forbidden
from clusters.kube.fleet import KubeFleet
from contract import names
from tests.controlplane.admin import Admin
from tests.controlplane.plane import LOOPBACK, NotBuilt, Plane

MANIFESTS = Path(__file__).resolve().parents[2] / "deploy" / "setpoint.yaml"


@pytest.fixture(scope="session")
def plane() -> Iterator[Plane]:
    """A running control plane. Skipped where it is not built, which CI counts as failed."""
    try:
        running = Plane(garbage_percent=400)  # a seventh of the API server's processor time, for 0.5 GB of memory
    except NotBuilt as error:
        pytest.skip(str(error))
    with running:
        yield running


@pytest.fixture(scope="session")
def deployed(plane: Plane) -> Plane:
    """The control plane with deploy/ applied."""
    deploy(plane)
    return plane


def deploy(plane: Plane) -> None:
    """Apply deploy/ as its README says, and see the admission policies in force.

    kwok pretends to run the DaemonSet's pods on its nodes; agents that do something are processes of the tests' own.
    """
    plane.kubectl("apply", "-f", str(MANIFESTS))
    plane.kubectl("wait", "--for=condition=Established", f"crd/{names.PLURAL}.{names.GROUP}", "--timeout=30s")
    await_policies(plane)


def await_policies(plane: Plane) -> None:
    """Policies in force: an API server compiles new ones after a moment, so both are waited for until they refuse."""
    admin = Admin(plane)
    tuning = {"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": {"name": "policy-probe"}}
    agent = Admin(plane, plane.credentials(token=admin.token(names.AGENT_SERVICE_ACCOUNT)))
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "policy-probe"}}
    try:
        for who, plural, raw, namespace in (
            (admin, names.PLURAL, {**tuning, "spec": {"nodeUID": "none"}}, ""),
            (agent, "leases", lease, names.NAMESPACE),
        ):
            deadline = time.monotonic() + 30
            while True:
                try:
                    who.create(plural, raw, namespace)
                except Forbidden:
                    break
                except FleetError:
                    pass  # the new resource is not served yet
                else:
                    plane.kubectl("delete", plural, "policy-probe", *(["-n", namespace] if namespace else []))
                if time.monotonic() > deadline:
                    raise AssertionError(f"30 s after the manifests, {plural} are not guarded")
                time.sleep(0.2)
    finally:
        admin.close()
        agent.close()


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


@pytest.fixture
def as_agent(deployed: Plane, cluster_admin: Admin) -> Iterator[Callable[[str], Admin]]:
    """A client with the token that the agent's pod on a node has."""
    with contextlib.ExitStack() as stack:

        def client(node: str) -> Admin:
            token = cluster_admin.agent_token(node)
            return stack.enter_context(contextlib.closing(Admin(deployed, deployed.credentials(token=token))))

        yield client
