"""Both admission policies on a real API server, tried from both sides: the allowed writers, and all others."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

import pytest

from clusters.fleet import CredentialsRefused, FleetRefused, Forbidden, NotFound
from clusters.kube.fleet import KubeFleet
from clusters.kube.permissions import REQUIRED_PERMISSIONS
from contract import names
from contract.nodetuning import MAX_OBSERVED_TEXT, Mode, Spec, Wanted
from tests.controlplane.admin import Admin

REPORT = {"status": {"observedGeneration": 1, "observed": '{"vm.swappiness": "60"}'}}
HARMLESS = {"metadata": {"annotations": {"note": "from a person"}}}
ORDER = {"spec": {"settings": [{"key": "vm.swappiness", "operator": "=", "value": "1"}]}}
REBOOT = {"spec": {"restart": {"id": "x", "action": "reboot", "bootID": "b"}}}


@pytest.fixture
def tuned(controller_fleet: KubeFleet, a_node: Callable[..., dict[str, Any]]) -> dict[str, Any]:
    """A node that has its NodeTuning."""
    node = a_node(kwok=False)
    uid = node["metadata"]["uid"]
    controller_fleet.observe(node["metadata"]["name"], uid, Spec(node_uid=uid))
    return node


def lease(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name},
        "spec": {"holderIdentity": name, "leaseDurationSeconds": 180},
    }


# ── The agent ─────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_an_agent_reports_for_its_own_node(tuned, as_agent):
    name = tuned["metadata"]["name"]
    answer = as_agent(name).patch(names.PLURAL, name, REPORT, subresource="status")
    assert answer["status"]["observed"] == '{"vm.swappiness": "60"}'


def test_an_agent_of_another_node_may_not_report_for_this_one(tuned, as_agent, a_node, cluster_admin):
    name, other = tuned["metadata"]["name"], a_node(kwok=False)["metadata"]["name"]
    with pytest.raises(Forbidden, match="the node that its token is bound to"):
        as_agent(other).patch(names.PLURAL, name, REPORT, subresource="status")
    assert "status" not in cluster_admin.get(names.PLURAL, name)


def test_an_agents_account_without_a_node_in_its_token_may_report_for_none(tuned, deployed, cluster_admin):
    """`kubectl create token setpoint-agent`: the right account, bound to no pod."""
    name = tuned["metadata"]["name"]
    loose = Admin(deployed, deployed.credentials(token=cluster_admin.token(names.AGENT_SERVICE_ACCOUNT)))
    with contextlib.closing(loose), pytest.raises(Forbidden, match="the node that its token is bound to"):
        loose.patch(names.PLURAL, name, REPORT, subresource="status")


def test_an_agent_may_not_change_what_it_is_asked_nor_make_or_delete_objects(tuned, as_agent, a_node):
    name, bare = tuned["metadata"]["name"], a_node(kwok=False)["metadata"]["name"]
    agent = as_agent(name)
    tuning = {"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": {"name": bare}, "spec": {"nodeUID": "x"}}
    for attempt in (
        lambda: agent.patch(names.PLURAL, name, ORDER),
        lambda: agent.patch(names.PLURAL, name, REBOOT),
        lambda: agent.create(names.PLURAL, tuning),
        lambda: agent.delete(names.PLURAL, name),
        lambda: agent.patch("nodes", name, HARMLESS),
        lambda: agent.delete("nodes", name),
    ):
        with pytest.raises(Forbidden):
            attempt()


def test_the_policy_holds_even_if_somebody_gives_agents_more_rights(tuned, as_agent, a_node, deployed):
    """RBAC is one lock, the policy another: the second holds when the first is opened by mistake."""
    name, other = tuned["metadata"]["name"], a_node(kwok=False)["metadata"]["name"]
    account = f"{names.NAMESPACE}:{names.AGENT_SERVICE_ACCOUNT}"
    deployed.kubectl(
        "create", "clusterrolebinding", "mistake", "--clusterrole=cluster-admin", f"--serviceaccount={account}"
    )
    try:
        agent, stranger = as_agent(name), as_agent(other)
        for attempt in (
            lambda: agent.patch(names.PLURAL, name, ORDER),
            lambda: agent.patch(names.PLURAL, name, HARMLESS),
            lambda: agent.delete(names.PLURAL, name),
            lambda: stranger.patch(names.PLURAL, name, REPORT, subresource="status"),
            lambda: stranger.create("leases", lease(name), names.NAMESPACE),
            lambda: agent.create("leases", lease(name), "default"),
        ):
            with pytest.raises(Forbidden, match=r"a Setpoint agent|only Setpoint changes|by Setpoint"):
                attempt()
    finally:
        deployed.kubectl("delete", "clusterrolebinding", "mistake")


def test_an_agent_renews_its_own_lease_and_no_other(tuned, as_agent, a_node, cluster_admin):
    name, other = tuned["metadata"]["name"], a_node(kwok=False)["metadata"]["name"]
    agent = as_agent(name)
    try:
        assert agent.create("leases", lease(name), names.NAMESPACE)["spec"]["holderIdentity"] == name
        renewed = agent.patch("leases", name, {"spec": {"renewTime": "2026-11-21T10:00:00.000000Z"}}, names.NAMESPACE)
        assert renewed["spec"]["renewTime"]
        with pytest.raises(Forbidden, match="the node that its token is bound to"):
            agent.create("leases", lease(other), names.NAMESPACE)
        with pytest.raises(Forbidden, match="the node that its token is bound to"):
            as_agent(other).patch("leases", name, {"spec": {"holderIdentity": other}}, names.NAMESPACE)
    finally:
        cluster_admin.delete("leases", name, names.NAMESPACE)


def test_leases_of_others_are_none_of_the_policys_business(cluster_admin, deployed):
    """Leases of kubelets, schedulers and controllers, renewed every few seconds, pass the policy."""
    try:
        assert cluster_admin.create("leases", lease("somebody-elses"), "default")
    finally:
        cluster_admin.delete("leases", "somebody-elses", "default")


# ── The spec ──────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_setpoint_creates_and_changes_what_a_node_is_asked(tuned, controller_fleet):
    name, uid = tuned["metadata"]["name"], tuned["metadata"]["uid"]
    spec = Spec(node_uid=uid, mode=Mode.APPLY, settings=(Wanted("vm.swappiness", "=", "10", "60"),))
    assert Spec.from_json(controller_fleet.tune(name, spec)["spec"]) == spec


def test_not_even_a_cluster_admin_tunes_a_node_around_the_approval(tuned, cluster_admin, a_node):
    name, bare = tuned["metadata"]["name"], a_node(kwok=False)["metadata"]["name"]
    before = cluster_admin.get(names.PLURAL, name)
    tuning = {"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": {"name": bare}, "spec": {"nodeUID": "x"}}
    for attempt in (
        lambda: cluster_admin.patch(names.PLURAL, name, ORDER),
        lambda: cluster_admin.patch(names.PLURAL, name, REBOOT),
        lambda: cluster_admin.create(names.PLURAL, tuning),
        lambda: cluster_admin.delete(names.PLURAL, name),
    ):
        with pytest.raises(Forbidden, match=r"[oO]nly Setpoint|by Setpoint"):
            attempt()
    after = cluster_admin.get(names.PLURAL, name)
    assert (after["spec"], after["metadata"]["generation"]) == (before["spec"], before["metadata"]["generation"])


def test_a_cluster_admin_may_still_annotate_one(tuned, cluster_admin):
    name = tuned["metadata"]["name"]
    assert cluster_admin.patch(names.PLURAL, name, HARMLESS)["metadata"]["annotations"] == {"note": "from a person"}


def test_not_even_a_cluster_admin_answers_for_a_node_or_keeps_its_tuning_alive(tuned, cluster_admin, a_node):
    """A forged answer would let a rollout continue; a finalizer or another owner would outlive the node."""
    name, other = tuned["metadata"]["name"], a_node(kwok=False)["metadata"]
    owner = {"apiVersion": "v1", "kind": "Node", "name": other["name"], "uid": other["uid"]}
    for attempt in (
        lambda: cluster_admin.patch(names.PLURAL, name, REPORT, subresource="status"),
        lambda: cluster_admin.patch(names.PLURAL, name, {"metadata": {"finalizers": ["example.org/stay"]}}),
        lambda: cluster_admin.patch(names.PLURAL, name, {"metadata": {"ownerReferences": [owner]}}),
        lambda: cluster_admin.patch(names.PLURAL, name, {"metadata": {"ownerReferences": None}}),
    ):
        with pytest.raises(Forbidden, match=r"only the agent of a node|only Setpoint changes"):
            attempt()
    after = cluster_admin.get(names.PLURAL, name)
    assert "status" not in after
    assert [reference["uid"] for reference in after["metadata"]["ownerReferences"]] == [tuned["metadata"]["uid"]]


def test_the_policies_bind_a_user_name_which_a_cluster_admin_can_take(tuned, deployed):
    """The limit that docs/security.md names: the policies are no lock against the cluster's administrator."""
    name = tuned["metadata"]["name"]
    change = '{"spec": {"revision": "by-hand"}}'
    patch = ("patch", names.PLURAL, name, "--type=merge", "-p", change, "--dry-run=server")
    with pytest.raises(RuntimeError, match="only Setpoint changes"):
        deployed.kubectl(*patch)
    deployed.kubectl(*patch, f"--as={names.CONTROLLER_USERNAME}")


def test_the_other_service_account_of_the_namespace_is_not_the_controller(tuned, deployed, cluster_admin):
    name = tuned["metadata"]["name"]
    other = Admin(deployed, deployed.credentials(token=cluster_admin.token("default")))
    with contextlib.closing(other), pytest.raises(Forbidden):
        other.patch(names.PLURAL, name, ORDER)


def test_a_spec_beyond_the_schema_is_refused_whoever_writes_it(tuned, deployed, cluster_admin):
    name = tuned["metadata"]["name"]
    controller = Admin(deployed, deployed.credentials(token=cluster_admin.controller_token()))
    setting = {"key": "vm.swappiness", "operator": "=", "value": "1"}
    with contextlib.closing(controller):
        for wrong in (
            {"mode": "destroy"},
            {"settings": [setting | {"key": "../../etc/passwd"}]},
            {"settings": [setting | {"key": "vm/swappiness"}]},
            {"settings": [setting | {"operator": "!="}]},
            {"settings": [setting | {"value": "x" * 600}]},
            {"settings": [setting, setting]},
            {"settings": [setting | {"key": f"k{i}"} for i in range(300)]},
            {"restart": {"id": "x", "action": "shutdown", "bootID": "b"}},
            {"nodeUID": ""},
        ):
            with pytest.raises(FleetRefused) as refusal:
                controller.patch(names.PLURAL, name, {"spec": wrong})
            assert not isinstance(refusal.value, Forbidden), wrong


def test_a_report_beyond_the_schema_is_refused(tuned, as_agent, cluster_admin):
    """An agent may lie, but not at length."""
    name = tuned["metadata"]["name"]
    agent = as_agent(name)
    for lie in (
        {"observed": "x" * (MAX_OBSERVED_TEXT + 1)},
        {"observed": {"vm.swappiness": "60"}},
        {"settings": [{"key": f"k{i}", "state": "Effective"} for i in range(300)]},
        {"settings": [{"key": "k", "state": "Failed", "reason": "x" * 600}]},
        {"conditions": [{"type": "Applied", "status": "Maybe"}]},
    ):
        with pytest.raises(FleetRefused):
            agent.patch(names.PLURAL, name, {"status": lie}, subresource="status")
    assert "status" not in cluster_admin.get(names.PLURAL, name)


# ── What must keep working ────────────────────────────────────────────────────────────────────────────────────────────
def test_a_deleted_nodes_tuning_is_collected(tuned, cluster_admin):
    cluster_admin.delete("nodes", tuned["metadata"]["name"])
    cluster_admin.wait_gone(names.PLURAL, tuned["metadata"]["name"])


def test_a_token_ends_with_its_pod(tuned, as_agent, cluster_admin, deployed):
    """The agent's identity is its pod's: what was copied off a node is worth nothing once the pod is gone."""
    name = tuned["metadata"]["name"]
    pod = cluster_admin.pod(
        "short-lived",
        node=name,
        namespace=names.NAMESPACE,
        spec={"serviceAccountName": names.AGENT_SERVICE_ACCOUNT},
        running=False,
    )
    stolen = Admin(deployed, deployed.credentials(token=cluster_admin.token(names.AGENT_SERVICE_ACCOUNT, pod=pod)))
    with contextlib.closing(stolen):
        assert stolen.patch(names.PLURAL, name, REPORT, subresource="status")
        cluster_admin.delete("pods", "short-lived", names.NAMESPACE, grace=0)
        cluster_admin.wait_gone("pods", "short-lived", names.NAMESPACE)

        def is_refused() -> bool:
            try:
                stolen.get(names.PLURAL, name)
            except CredentialsRefused:
                return True
            return False

        _eventually(is_refused)


def test_the_controller_has_what_it_asks_for_and_not_much_more(controller_fleet, deployed, cluster_admin):
    assert [r.permission for r in controller_fleet.review(REQUIRED_PERMISSIONS) if not r.allowed] == []
    listed = deployed.kubectl("auth", "can-i", "--list", f"--as={names.CONTROLLER_USERNAME}", "--no-headers")
    assert "*.*" not in listed
    controller = Admin(deployed, deployed.credentials(token=cluster_admin.controller_token()))
    with contextlib.closing(controller):
        for attempt in (
            lambda: controller.create("nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "invented"}}),
            lambda: controller.delete("nodes", "any"),
            lambda: controller.delete("pods", "any"),
            lambda: controller.get("configmaps", "any", "kube-system"),
            lambda: controller.delete(names.PLURAL, "any"),
        ):
            with pytest.raises(Forbidden):
                attempt()


def test_an_unknown_node_has_no_tuning(controller_fleet):
    with pytest.raises(NotFound):
        controller_fleet.tune("no-such-node", Spec(node_uid="x"))


def _eventually(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30  # the API server caches token reviews for 10 s
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.2)
