"""Kubernetes' own policy kinds on a real control plane: made, found drifted, repaired, put back; and the fence."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from clusters.fleet import FleetRefused, Forbidden, NotFound, ObjectRef
from clusters.kube import managed_fields
from clusters.kube.fleet import KubeFleet
from components.policies import policy_conformance, policy_objects
from components.policies.policy_objects import PreparedPolicies
from components.release.conformance import COMPLIANT, DRIFTED
from profiles.content.cluster import WantedObject
from profiles.document import schema
from tests.controlplane.admin import Admin
from tests.controlplane.plane import Plane
from tests.full.components.carrying import carry_out, config_map, may, prepare
from tests.full.harness.client import eventually

__all__ = ["may"]
pytestmark = pytest.mark.full

PROFILE = """
policies:
  - apiVersion: storage.k8s.io/v1
    kind: StorageClass
    metadata: {name: TEAM}
    provisioner: kubernetes.io/no-provisioner
    reclaimPolicy: Retain
    allowVolumeExpansion: false
  - apiVersion: v1
    kind: PersistentVolume
    metadata: {name: TEAM}
    spec:
      capacity: {storage: 1Gi}
      accessModes: [ReadWriteMany]
      persistentVolumeReclaimPolicy: Retain
      storageClassName: TEAM
      nfs: {server: 10.0.0.9, path: /models}
  - apiVersion: v1
    kind: PersistentVolume
    metadata: {name: TEAM-local}
    spec:
      capacity: {storage: 1Gi}
      accessModes: [ReadWriteOnce]
      local: {path: /mnt/nvme0/models}
      nodeAffinity:
        required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [n1]}]}]}
  - apiVersion: v1
    kind: PersistentVolumeClaim
    metadata: {name: models, namespace: TEAM}
    spec:
      accessModes: [ReadWriteMany]
      storageClassName: TEAM
      volumeName: TEAM
      resources: {requests: {storage: 1Gi}}
  - apiVersion: v1
    kind: ConfigMap
    metadata: {name: slices, namespace: TEAM}
    data:
      any: |
        version: v1
        sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}
  - apiVersion: networking.k8s.io/v1
    kind: NetworkPolicy
    metadata: {name: closed, namespace: TEAM}
    spec: {podSelector: {matchLabels: {app: llm}}, policyTypes: [Ingress], ingress: [{ports: [{port: 80}]}]}
  - apiVersion: rbac.authorization.k8s.io/v1
    kind: Role
    metadata: {name: reads, namespace: TEAM}
    rules: [{apiGroups: [''], resources: [pods], verbs: [get, list, watch]}]
  - apiVersion: rbac.authorization.k8s.io/v1
    kind: RoleBinding
    metadata: {name: reads, namespace: TEAM}
    roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reads}
    subjects: [{kind: Group, apiGroup: rbac.authorization.k8s.io, name: team-a}]
  - apiVersion: autoscaling/v2
    kind: HorizontalPodAutoscaler
    metadata: {name: llm, namespace: TEAM}
    spec:
      scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: llm}
      minReplicas: 1
      maxReplicas: 4
      metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 60}}}]
  - apiVersion: resource.k8s.io/v1
    kind: DeviceClass
    metadata: {name: TEAM}
    spec: {selectors: [{cel: {expression: "device.driver == 'gpu.nvidia.com'"}}]}
  - apiVersion: resource.k8s.io/v1
    kind: ResourceClaimTemplate
    metadata: {name: gpu, namespace: TEAM}
    spec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: TEAM, count: 1}}]}}}
"""
DRIFT: dict[str, tuple[str, dict[str, Any], tuple[str | int, ...]]] = {
    "StorageClass": ("storageclasses", {"allowVolumeExpansion": True}, ("allowVolumeExpansion",)),
    "PersistentVolume": (
        "persistentvolumes",
        {"spec": {"persistentVolumeReclaimPolicy": "Delete"}},
        ("spec", "persistentVolumeReclaimPolicy"),
    ),
    "ConfigMap": ("configmaps", {"data": {"any": "version: v1\n"}}, ("data", "any")),
    "NetworkPolicy": (
        "networkpolicies",
        {"spec": {"podSelector": {"matchLabels": {"app": "x"}}}},
        ("spec", "podSelector"),
    ),
    "Role": ("roles", {"rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["*"]}]}, ("rules",)),
    "RoleBinding": (
        "rolebindings",
        {"subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "mallory"}]},
        ("subjects",),
    ),
    "HorizontalPodAutoscaler": ("horizontalpodautoscalers", {"spec": {"maxReplicas": 400}}, ("spec", "maxReplicas")),
    "DeviceClass": (
        "deviceclasses",
        {"spec": {"selectors": [{"cel": {"expression": "true"}}]}},
        ("spec", "selectors"),
    ),
}
"""By kind: its plural, what alice makes of it, and the field that has to come back."""


@pytest.fixture
def team(deployed: Plane) -> Iterator[str]:
    name = f"kinds-{time.monotonic_ns() % 10**9}"
    deployed.kubectl("create", "namespace", name)
    deployed.kubectl("create", "deployment", "llm", "-n", name, "--image=example.org/llm", "--replicas=0")
    yield name
    deployed.kubectl("delete", "namespace", name, "--wait=false")
    deployed.kubectl("delete", "pv", name, f"{name}-local", "--ignore-not-found", "--wait=false")
    deployed.kubectl("delete", "storageclass,deviceclass", name, "--ignore-not-found")


def wanted(team: str, **how: str) -> tuple[WantedObject, ...]:
    text = PROFILE.replace("TEAM", team)
    for old, new in how.items():
        assert old in text
        text = text.replace(old, new)
    return schema.flatten(schema.parse(text), None, origin="a r1").content.policies


def refs(prepared: PreparedPolicies) -> dict[str, ObjectRef]:
    return {policy.ref.kind: policy.ref for policy in prepared.objects if not policy.ref.name.endswith("-local")}


@pytest.mark.usefixtures("may")
def test_each_kind_is_made_drifts_is_repaired_and_put_back(
    controller_fleet: KubeFleet, cluster_admin: Admin, team: str, deployed: Plane
) -> None:
    fleet = controller_fleet
    prepared = prepare(fleet, wanted(team))
    assert [note.title for note in prepared.notes if note.severity == "block"] == []
    assert [note.code for note in prepared.notes if note.severity == "warn"] == []
    carry_out(fleet, prepared)
    again = prepare(fleet, wanted(team))
    assert {policy.title: policy.change for policy in again.objects if policy.change != "same"} == {}, (
        "defaults are no drift"
    )
    assert policy_conformance.conform(fleet, wanted(team)).state == COMPLIANT

    of_kind = refs(prepared)
    assert {*DRIFT} < {*of_kind}
    for kind, (plural, change, _) in DRIFT.items():
        ref = of_kind[kind]
        where = ("-n", ref.namespace) if ref.namespace else ()
        deployed.kubectl("patch", plural, ref.name, *where, "--field-manager=alice", "--type=merge", "-p",
                         json.dumps(change))  # fmt: skip
    drifted = policy_conformance.conform(fleet, wanted(team))
    assert drifted.state == DRIFTED
    assert {difference.kind for difference in drifted.differences} == {*DRIFT}, [
        (difference.kind, difference.path, difference.note) for difference in drifted.differences
    ]

    repair = prepare(fleet, wanted(team))
    assert [note.detail for note in repair.notes if note.severity == "block"] == []
    # Kubernetes judges a binding by its Role as it is, which grants every Secret by now: first the Role.
    assert {policy.ref.kind for policy in repair.objects if policy.change == "changed"} == {*DRIFT} - {"RoleBinding"}
    assert [note.code for note in repair.notes if note.severity == "warn" and "RoleBinding" in note.title] == [
        "policy-later"
    ]
    assert {take.manager for policy in repair.objects for take in policy.takes} == {"alice"}
    carry_out(fleet, repair)
    second = prepare(fleet, wanted(team))
    assert [policy.ref.kind for policy in second.objects if policy.change == "changed"] == ["RoleBinding"]
    carry_out(fleet, second)
    for kind, (_, _, path) in DRIFT.items():
        assert managed_fields.holders(fleet.policy(of_kind[kind]), path[:1])[-1:] != ["alice"], kind
    assert policy_conformance.conform(fleet, wanted(team)).state == COMPLIANT

    lines = carry_out(fleet, prepared, "revert")
    stay = [line for line in lines if "stays" in line]
    assert [line.partition(" stays")[0] for line in stay] == [
        f"PersistentVolumeClaim {team}/models", f"PersistentVolume {team}",
    ], "what is bound holds data; the local volume that nobody claimed is gone"  # fmt: skip
    for kind, ref in of_kind.items():
        if kind.startswith("PersistentVolume"):
            assert "deletionTimestamp" not in fleet.policy(ref)["metadata"]
            continue
        with pytest.raises(NotFound):
            fleet.policy(ref)
    with pytest.raises(NotFound):
        fleet.policy(ObjectRef("v1", "PersistentVolume", f"{team}-local"))


@pytest.mark.usefixtures("may")
def test_what_kubernetes_never_changes_blocks_the_plan_with_what_to_do(controller_fleet: KubeFleet, team: str) -> None:
    carry_out(controller_fleet, prepare(controller_fleet, wanted(team)))

    changes = {
        "no-provisioner": "other",
        "reclaimPolicy: Retain\n    allow": "reclaimPolicy: Delete\n    allow",
        "path: /models": "path: /other",
        "[ReadWriteMany]\n      storageClassName": "[ReadWriteOnce]\n      storageClassName",
        "kind: Role, name: reads": "kind: ClusterRole, name: view",
        "count: 1": "count: 2",
    }
    blocked = {
        note.title.split(" would ")[0].partition("/")[0]: note.detail
        for note in prepare(controller_fleet, wanted(team, **changes)).notes
        if note.severity == "block"
    }

    assert "never changes provisioner and reclaimPolicy of a StorageClass" in blocked["StorageClass"]
    assert "never changes spec.nfs of a PersistentVolume" in blocked["PersistentVolume"]
    assert "never changes spec.accessModes of a PersistentVolumeClaim" in blocked["PersistentVolumeClaim"]
    assert "never changes spec of a ResourceClaimTemplate" in blocked["ResourceClaimTemplate"]
    assert "RoleBinding" in blocked


@pytest.mark.usefixtures("may")
def test_a_right_that_setpoint_does_not_hold_is_not_granted(
    controller_fleet: KubeFleet, cluster_admin: Admin, team: str
) -> None:
    # deploy/setpoint-components.yaml, which other tests apply, has more rights, but none of a group that is not there.
    text = """
policies:
  - apiVersion: rbac.authorization.k8s.io/v1
    kind: Role
    metadata: {name: more, namespace: TEAM}
    rules: [{apiGroups: [example.org], resources: [things], verbs: [create]}]
"""
    policies = schema.flatten(schema.parse(text.replace("TEAM", team)), None, origin="a r1").content.policies
    [note] = policy_objects.prepare(controller_fleet, policies).notes

    assert note.severity == "block"
    assert "Setpoint grants only what it holds itself" in note.detail


BAD_RULES = [
    {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]},
    {"apiGroups": [""], "resources": ["*"], "verbs": ["get"]},
    {"apiGroups": ["*"], "resources": ["configmaps"], "verbs": ["get"]},
    {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]},
    {"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["create"]},
    {"apiGroups": [""], "resources": ["pods/eviction"], "verbs": ["create"]},
    {"apiGroups": [""], "resources": ["nodes/proxy"], "verbs": ["get"]},
    {"apiGroups": [""], "resources": ["serviceaccounts/token"], "verbs": ["create"]},
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["create"]},
    {"apiGroups": ["apps"], "resources": ["deployments/scale"], "verbs": ["patch"]},
    {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles"], "verbs": ["get"]},
    {"apiGroups": [""], "resources": ["users"], "verbs": ["impersonate"]},
]
BAD_SUBJECTS = [
    {"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": "system:authenticated"},
    {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "system:anonymous"},
    {"kind": "ServiceAccount", "name": "setpoint-controller", "namespace": "setpoint-system"},
    {"kind": "ServiceAccount", "name": "default", "namespace": "kube-system"},
]


@pytest.mark.usefixtures("may")
def test_the_fence_holds_a_stolen_token_whatever_roles_it_has(cluster_admin: Admin, team: str, deployed: Plane) -> None:
    """The controller is made a cluster administrator by mistake, so that only the admission policy is left."""
    account = "--serviceaccount=setpoint-system:setpoint-controller"
    deployed.kubectl("create", "clusterrolebinding", "policies-mistake", "--clusterrole=cluster-admin", account)
    try:
        with contextlib.closing(
            Admin(deployed, deployed.credentials(token=cluster_admin.controller_token()))
        ) as stolen:
            eventually(lambda: _may(stolen, "roles", _role("fine", _READ), team))
            for rule in BAD_RULES:
                assert not _may(stolen, "roles", _role("bad", rule), team), rule
            for subject in BAD_SUBJECTS:
                assert not _may(stolen, "rolebindings", _bound("bad", "Role", "fine", subject), team), subject
            team_a = {"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": "team-a"}
            assert not _may(stolen, "rolebindings", _bound("bad", "ClusterRole", "cluster-admin", team_a), team)
            assert _may(stolen, "rolebindings", _bound("good", "Role", "fine", team_a), team)
            assert not _may(stolen, "roles", _role("setpoint-helm", _READ), team)
            for space in ("kube-system", "setpoint-system"):
                assert not _may(stolen, "roles", _role("fine", _READ), space)
                assert not _may(stolen, "networkpolicies", _policy(), space)
            assert not _may(stolen, "configmaps", config_map("coredns-custom"), "kube-system")
            with pytest.raises(FleetRefused, match="setpoint-policies-fence"):
                stolen.delete("configmaps", "extension-apiserver-authentication", "kube-system")
            assert not _may(stolen, "persistentvolumes", _volume("a", {"hostPath": {"path": "/"}}))
            for path in ("/", "/etc/kubernetes", "/mntx"):
                assert not _may(stolen, "persistentvolumes", _volume("a", {"local": {"path": path}})), path
    finally:
        deployed.kubectl("delete", "clusterrolebinding", "policies-mistake")


_READ = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}


def _may(admin: Admin, plural: str, raw: dict[str, Any], namespace: str = "") -> bool:
    try:
        admin.create(plural, raw, *((namespace,) if namespace else ()))
    except Forbidden as refused:
        if "setpoint-policies-fence" not in str(refused):
            raise
        return False
    return True


def _role(name: str, rule: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": name}, "rules": [rule]}


def _bound(name: str, kind: str, to: str, subject: dict[str, Any]) -> dict[str, Any]:
    group = "rbac.authorization.k8s.io"
    reference = {"apiGroup": group, "kind": kind, "name": to}
    meta = {"metadata": {"name": name}, "roleRef": reference, "subjects": [subject]}
    return {"apiVersion": f"{group}/v1", "kind": "RoleBinding", **meta}


def _policy() -> dict[str, Any]:
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": "cut"},
        "spec": {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]},
    }


def _volume(name: str, source: dict[str, Any]) -> dict[str, Any]:
    term = {"matchExpressions": [{"key": "a", "operator": "Exists"}]}
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
        **source,
    }
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec}
