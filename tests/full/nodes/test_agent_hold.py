"""deploy/setpoint-holds.yaml on a real API server: an agent ends the hold of its own node, and changes nothing else."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.client import Client, RequestRefused
from agent.hold import Hold
from agent.identity import Identity
from clusters.fleet import FleetRefused, Forbidden
from clusters.kube.fleet import KubeFleet
from contract import names
from tests.controlplane.admin import Admin
from tests.controlplane.plane import Plane
from tests.full.harness.client import eventually

pytestmark = pytest.mark.full
HOLDS = Path(__file__).resolve().parents[3] / "deploy/setpoint-holds.yaml"
HELD = {"key": names.UNTUNED_TAINT, "value": "30m", "effect": "NoSchedule"}
OTHER = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
LONG_AGO = "2020-01-01T00:00:00Z"


@pytest.fixture(scope="module")
def applied(deployed: Plane, cluster_admin: Admin) -> Iterator[Plane]:
    deployed.kubectl("apply", "-f", str(HOLDS))
    cluster_admin.node("probe-of-holds", kwok=False)
    token = cluster_admin.agent_token("probe-of-holds")
    with contextlib.closing(Admin(deployed, deployed.credentials(token=token))) as probe:
        # A policy is compiled a moment after it is stored.
        eventually(lambda: not _is_let(lambda: probe.patch("nodes", "probe-of-holds", _another_label())), seconds=60)
    yield deployed
    cluster_admin.delete("nodes", "probe-of-holds")
    # As deploy/README.md says: the right goes before the policy that bounds it.
    deployed.kubectl("delete", "clusterrolebinding,clusterrole", "setpoint-agent-hold")
    deployed.kubectl("delete", "-f", str(HOLDS), "--ignore-not-found")


def _another_label() -> dict[str, Any]:
    """A change each time: the policy has nothing against a patch that changes nothing."""
    return {"metadata": {"labels": {"probe": str(time.monotonic_ns())}}}


def _is_let(request: Callable[[], object]) -> bool:
    try:
        request()
    except FleetRefused as error:
        return "setpoint-agent-hold" not in str(error)
    return True


@pytest.fixture
def held(applied: Plane, cluster_admin: Admin, a_node: Callable[..., dict[str, Any]]) -> dict[str, Any]:
    """A node with the taint and another one."""
    node = a_node(kwok=False)
    return cluster_admin.patch("nodes", node["metadata"]["name"], {"spec": {"taints": [OTHER, HELD]}})


def taints(admin: Admin, name: str) -> list[dict[str, Any]]:
    return admin.get("nodes", name)["spec"].get("taints") or []


class Stored:
    """The agent's store, in which it saw the taint of this node long ago."""

    def __init__(self, uid: str) -> None:
        self.text = f"{uid} {LONG_AGO}\n"

    def load(self) -> str:
        return self.text

    def save(self, text: str) -> None:
        self.text = text


def hold_of(plane: Plane, admin: Admin, name: str, uid: str, folder: Path) -> Hold:
    """The agent's own code, with the token that its pod on the node mounts."""
    (folder / "token").write_text(admin.agent_token(name))
    (folder / "ca.crt").write_text(plane.authority.pem)
    client = Client(plane.url, token_file=str(folder / "token"), ca_file=str(folder / "ca.crt"))
    return Hold(client, Identity(name, uid), Stored(uid))


def test_the_agent_ends_the_hold_whose_time_is_up_and_no_other_taint(held, applied, cluster_admin, tmp_path):
    name, uid = held["metadata"]["name"], held["metadata"]["uid"]
    hold = hold_of(applied, cluster_admin, name, uid, tmp_path)
    _, words = hold.look()
    assert "30 minutes" in words
    assert taints(cluster_admin, name) == [OTHER]
    assert hold.look() == (None, "")


def test_a_limit_that_was_changed_between_look_and_write_is_not_taken_for_the_old_one(
    held, applied, cluster_admin, tmp_path
):
    name, uid = held["metadata"]["name"], held["metadata"]["uid"]
    hold = hold_of(applied, cluster_admin, name, uid, tmp_path)
    with pytest.raises(RequestRefused):
        hold._client.untaint(name, uid, 1, HELD | {"value": "10m"})
    assert HELD in taints(cluster_admin, name)


def test_setpoint_sees_that_the_manifest_is_applied(applied, controller_fleet: KubeFleet):
    equipment = controller_fleet.equipment()
    assert (equipment.hold_policy, equipment.missing) == (True, ())


CHANGES: dict[str, dict[str, Any]] = {
    "add a taint": {"spec": {"taints": [OTHER, HELD, {"key": "mine", "effect": "NoSchedule"}]}},
    "remove another's taint": {"spec": {"taints": [HELD]}},
    "remove all": {"spec": {"taints": []}},
    "change the limit": {"spec": {"taints": [OTHER, HELD | {"value": "1m"}]}},
    "cordon": {"spec": {"unschedulable": True}},
    "set a pod range": {"spec": {"podCIDR": "10.9.0.0/24", "podCIDRs": ["10.9.0.0/24"]}},
    "set a provider": {"spec": {"providerID": "aws:///mine"}},
    "label": {"metadata": {"labels": {"pool": "mine"}}},
    "annotate": {"metadata": {"annotations": {names.KEEP_CORDONED: "mine"}}},
    "set a finalizer": {"metadata": {"finalizers": ["example.org/mine"]}},
    "set an owner": {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "x", "uid": "x"}]}},
}


@pytest.mark.parametrize("change", CHANGES)
def test_the_agent_changes_nothing_else_of_its_node(held, as_agent, cluster_admin, change):
    name = held["metadata"]["name"]
    before = cluster_admin.get("nodes", name)
    with pytest.raises(Forbidden, match="setpoint-agent-hold"):
        as_agent(name).patch("nodes", name, CHANGES[change])
    after = cluster_admin.get("nodes", name)
    assert after["spec"] == before["spec"]
    assert after["metadata"].get("labels") == before["metadata"].get("labels")


def test_the_agent_ends_no_hold_without_a_limit(held, as_agent, cluster_admin):
    name = held["metadata"]["name"]
    endless = {"key": HELD["key"], "effect": HELD["effect"]}
    cluster_admin.patch("nodes", name, {"spec": {"taints": [endless]}})
    with pytest.raises(Forbidden, match="only where it has a time limit"):
        as_agent(name).patch("nodes", name, {"spec": {"taints": []}})


def test_the_agent_of_another_node_ends_no_hold_here(held, as_agent, a_node, cluster_admin):
    name, other = held["metadata"]["name"], a_node(kwok=False)["metadata"]["name"]
    with pytest.raises(Forbidden, match="no Node but the one"):
        as_agent(other).patch("nodes", name, {"spec": {"taints": [OTHER]}})


def test_the_agents_account_without_a_node_in_its_token_ends_none(held, applied, cluster_admin):
    name = held["metadata"]["name"]
    loose = Admin(applied, applied.credentials(token=cluster_admin.token(names.AGENT_SERVICE_ACCOUNT)))
    with contextlib.closing(loose), pytest.raises(Forbidden, match="no Node but the one"):
        loose.patch("nodes", name, {"spec": {"taints": [OTHER]}})


def test_the_agent_writes_no_status_of_a_node_even_where_a_role_lets_it(held, applied, as_agent):
    name = held["metadata"]["name"]
    bind = ["--serviceaccount", f"{names.NAMESPACE}:{names.AGENT_SERVICE_ACCOUNT}"]
    applied.kubectl("create", "clusterrole", "too-much", "--verb=patch", "--resource=nodes/status,nodes")
    applied.kubectl("create", "clusterrolebinding", "too-much", "--clusterrole=too-much", *bind)
    try:
        agent = as_agent(name)
        # The role counts a moment after it is bound.
        answer = eventually(lambda: _policys_answer(agent, name), seconds=20)
        assert "no status of one" in answer
    finally:
        applied.kubectl("delete", "clusterrolebinding,clusterrole", "too-much")


def _policys_answer(agent: Admin, name: str) -> str:
    """Return what the policy answers to a status; empty while the request does not get as far."""
    with pytest.raises(Forbidden) as refused:
        agent.patch("nodes", name, {"status": {"phase": "Running"}}, subresource="status")
    return str(refused.value) if "setpoint-agent-hold" in str(refused.value) else ""
