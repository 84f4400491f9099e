"""The Network Operator's policies are ready when it says so, and when nodes offer what the profile names."""

from __future__ import annotations

import json
from typing import Any

import pytest

from clusters.fleet import NotFound
from components.policies import policy_kinds, policy_objects, policy_readiness
from components.policies.policy_objects import PreparedObject, PreparedPolicies
from simfleet.apiserver.callers import person
from tests.components.policies.carrying import carry, wanted

SPACE = "nvidia-network-operator"
RDMA = {"rdmaSharedDevicePlugin": {"config": json.dumps({"configList": [{"resourceName": "shared_a"}]})}}
PROFILE = f"""
policies:
  - {{apiVersion: v1, kind: Namespace, metadata: {{name: {SPACE}}}}}
  - apiVersion: sriovnetwork.openshift.io/v1
    kind: SriovNetworkNodePolicy
    metadata: {{name: mlx, namespace: {SPACE}}}
    spec:
      resourceName: mlx_vfs
      nodeSelector: {{feature.node.kubernetes.io/pci-15b3.present: "true"}}
      nicSelector: {{vendor: 15b3}}
      numVfs: 8
  - apiVersion: sriovnetwork.openshift.io/v1
    kind: SriovNetwork
    metadata: {{name: rail, namespace: {SPACE}}}
    spec: {{resourceName: mlx_vfs, networkNamespace: {SPACE}}}
"""


def definition(plural: str, kind: str, group: str, scope: str = "Namespaced", version: str = "v1") -> dict[str, Any]:
    names = {"plural": plural, "kind": kind}
    versions = [{"name": version, "served": True, "storage": True}]
    spec = {"group": group, "scope": scope, "names": names, "versions": versions}
    return {"metadata": {"name": f"{plural}.{group}"}, "spec": spec}


@pytest.fixture
def nics(cluster) -> Any:
    """The definitions that the operator's chart brings, and two nodes."""
    for crd in (
        definition("nicclusterpolicies", "NicClusterPolicy", "mellanox.com", "Cluster", "v1alpha1"),
        definition("sriovnetworknodepolicies", "SriovNetworkNodePolicy", "sriovnetwork.openshift.io"),
        definition("sriovnetworknodestates", "SriovNetworkNodeState", "sriovnetwork.openshift.io"),
        definition("sriovnetworks", "SriovNetwork", "sriovnetwork.openshift.io"),
        definition("network-attachment-definitions", "NetworkAttachmentDefinition", "k8s.cni.cncf.io"),
    ):
        cluster.api.create(person("helm"), "customresourcedefinitions", crd)
    cluster.run_until(lambda: "sriovnetworks.sriovnetwork.openshift.io" in cluster.store.resources, seconds=30)
    for name in ("n1", "n2"):
        cluster.api.create(person("kubelet"), "nodes", {"metadata": {"name": name}})
    return cluster


def offer(cluster: Any, node: str, **amounts: str) -> None:
    amounts = {name.replace("__", "/").replace("_com", ".com"): amount for name, amount in amounts.items()}
    cluster.api.patch(person("kubelet"), "nodes", node, {"status": {"allocatable": amounts}}, subresource="status")


def nic_policy(spec: Any = None, **status: Any) -> dict[str, Any]:
    return {
        "kind": "NicClusterPolicy",
        "metadata": {"name": "nic-cluster-policy"},
        "spec": spec or {},
        "status": status,
    }


def test_a_nic_policy_is_ready_by_the_operators_word_and_names_what_is_behind(nics, fleet):
    def missing(**status: Any) -> str:
        return policy_readiness.nic_cluster_policy(fleet, nic_policy(**status))

    assert "not looked at by the operator yet" in missing()
    parts = [{"name": "state-OFED", "state": "notReady"}, {"name": "state-multus-cni", "state": "ignore"}]
    assert missing(state="notReady", appliedStates=parts) == "is notReady: state-OFED."
    assert missing(state="ready") == ""


def test_ready_is_not_enough_while_no_node_offers_what_the_profile_names(nics, fleet):
    live = nic_policy(RDMA, state="ready")
    assert policy_readiness.nic_cluster_policy(fleet, live) == "is ready, and no node offers rdma/shared_a yet."
    offer(nics, "n1", rdma__shared_a="0")
    assert "rdma/shared_a" in policy_readiness.nic_cluster_policy(fleet, live)
    offer(nics, "n2", rdma__shared_a="63")
    assert policy_readiness.nic_cluster_policy(fleet, live) == ""


@pytest.mark.parametrize(
    ("spec", "resources"),
    [
        ({}, []),
        (RDMA, ["rdma/shared_a"]),
        ({"rdmaSharedDevicePlugin": {"config": '{"configList": [{"resourcePrefix": "x.io", "resourceName": "a"}]}'}},
         ["x.io/a"]),
        ({"sriovDevicePlugin": {"config": '{"resourceList": [{"resourceName": "vfs"}]}'}}, ["/vfs"]),
        ({"rdmaSharedDevicePlugin": {"config": "no JSON"}}, []),
        ({"rdmaSharedDevicePlugin": {"config": "[]"}}, []),
    ],
)  # fmt: skip
def test_what_is_to_be_offered_is_read_from_the_policy(spec, resources):
    assert list(policy_readiness.offered(spec)) == resources


def test_virtual_functions_are_waited_for_on_each_node_that_has_such_a_nic(nics, fleet):
    carry(fleet, policy_objects.prepare(fleet, wanted(PROFILE)))
    live = fleet.policy(policy_objects.prepare(fleet, wanted(PROFILE)).objects[1].ref)

    def missing() -> str:
        return policy_kinds.row("SriovNetworkNodePolicy").idle(fleet, live)

    assert missing() == "has no NIC on any node yet that it selects."
    mine = [{"pciAddress": "0", "vfGroups": [{"policyName": "mlx", "resourceName": "mlx_vfs"}]}]
    others = [{"pciAddress": "0", "vfGroups": [{"policyName": "other"}]}]
    for name, interfaces in (("n1", mine), ("n2", others)):
        raw = {"metadata": {"name": name}, "spec": {"interfaces": interfaces}, "status": {"syncStatus": "InProgress"}}
        nics.api.create(person("operator"), "sriovnetworknodestates.sriovnetwork.openshift.io", raw, SPACE)
    assert missing() == "is InProgress on node n1."

    def sync(status: dict[str, str]) -> None:
        nics.api.patch(
            person("operator"), "sriovnetworknodestates.sriovnetwork.openshift.io", "n1", {"status": status}, SPACE
        )

    sync({"syncStatus": "Failed", "lastSyncError": "no firmware tool"})
    assert missing() == "is Failed on node n1: no firmware tool."
    sync({"syncStatus": "Succeeded"})
    assert missing() == "is done, and node n1 does not offer mlx_vfs yet."
    offer(nics, "n1", nvidia_com__mlx_vfs="8")
    assert missing() == ""


def test_a_network_is_ready_once_pods_can_ask_for_it(nics, fleet):
    prepared = policy_objects.prepare(fleet, wanted(PROFILE))
    carry(fleet, prepared)
    network = next(policy for policy in prepared.objects if policy.ref.kind == "SriovNetwork")

    def missing() -> str:
        return policy_kinds.row("SriovNetwork").idle(fleet, fleet.policy(network.ref))

    assert missing() == f"has no NetworkAttachmentDefinition {SPACE}/rail yet."
    nics.api.create(
        person("operator"), "network-attachment-definitions.k8s.cni.cncf.io", {"metadata": {"name": "rail"}}, SPACE
    )
    assert missing() == ""


def test_what_says_ready_too_early_is_looked_at_twice(nics, fleet):
    manifest = {
        "apiVersion": "mellanox.com/v1alpha1",
        "kind": "NicClusterPolicy",
        "metadata": {"name": "nic-cluster-policy", "labels": {policy_objects.MARK: "a"}},
        "spec": {"psp": {"enabled": False}},
    }
    prepared = PreparedPolicies((PreparedObject(manifest, "created"),))
    with pytest.raises(NotFound):
        fleet.policy(prepared.objects[0].ref)
    carry(fleet, prepared)
    fleet.cluster.api.patch(
        person("operator"), "nicclusterpolicies.mellanox.com", "nic-cluster-policy", {"status": {"state": "ready"}}
    )

    first = policy_objects.check_readiness(fleet, prepared, direction="forward", seen=0)
    assert (first.is_ready, first.is_steady) == (False, True)
    assert policy_objects.check_readiness(fleet, prepared, direction="forward", seen=1).is_ready
    assert policy_objects.check_readiness(fleet, prepared, direction="forward").is_ready


@pytest.mark.parametrize(
    ("kind", "status", "missing"),
    [
        ("Schedule", {}, "is New"),
        ("Schedule", {"phase": "Enabled"}, ""),
        ("Schedule", {"phase": "FailedValidation", "validationErrors": ["invalid schedule"]}, "invalid schedule"),
        ("MultiKueueCluster", {}, "not active yet"),
        (
            "MultiKueueCluster",
            {"conditions": [{"type": "Active", "status": "False", "message": "no Secret"}]},
            "no Secret",
        ),
        ("AdmissionCheck", {"conditions": [{"type": "Active", "status": "True"}]}, ""),
    ],
)
def test_schedules_and_other_clusters_are_ready_by_their_controllers_word(fleet, kind, status, missing):
    reason = policy_kinds.row(kind).idle(fleet, {"kind": kind, "metadata": {"name": "a"}, "status": status})
    assert (missing in reason) if missing else reason == ""
