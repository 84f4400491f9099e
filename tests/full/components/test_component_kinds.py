"""Kinds of components, with the definitions of their real charts, where the archives are at hand.

Each example of the catalog is made, waited for, found drifted, repaired and put back on the real control plane.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from clusters.fleet import Forbidden, NotFound, ObjectRef
from clusters.kube.fleet import KubeFleet
from clusters.kube.policy_objects import RESOURCES
from components.catalog import catalog
from components.helm import client, rendering
from components.policies import policy_conformance, policy_kinds, policy_objects
from components.release.conformance import COMPLIANT, DRIFTED
from profiles.content.cluster import WantedObject
from profiles.document import schema
from profiles.policies.components import external_secrets, fluid, istio, monitoring, rook, slinky
from tests.controlplane.plane import Plane
from tests.full.components.carrying import may, prepare
from tests.full.components.kinds_chart import ARCHIVES
from tests.full.harness import definitions
from tests.full.harness.client import eventually

__all__ = ["may"]
pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(not ARCHIVES.is_dir(), reason=f"needs charts: there are none in {ARCHIVES}"),
    pytest.mark.usefixtures("may"),
]

COMPONENTS = (
    "fluid", "external-secrets", "rook-ceph", "istio-base", "slurm-operator-crds", "kube-prometheus-stack",
)  # fmt: skip
_TRUE = {"type": "Ready", "status": "True", "reason": "Valid", "message": "well"}
_RUNTIME = {
    **dict.fromkeys(("currentFuseNumberScheduled", "desiredFuseNumberScheduled", "fuseNumberReady"), 0),
    **dict.fromkeys(("currentMasterNumberScheduled", "desiredMasterNumberScheduled", "masterNumberReady"), 1),
    "fusePhase": "Ready", "masterPhase": "Ready", "workerPhase": "Ready", "valueFile": "a",
}  # fmt: skip


def _workers(number: int) -> dict[str, Any]:
    names = ("currentWorkerNumberScheduled", "desiredWorkerNumberScheduled", "workerNumberReady")
    return {**_RUNTIME, **dict.fromkeys(names, number)}


READY: Mapping[str, dict[str, Any]] = {
    "Dataset": {"phase": "Bound", "conditions": []},
    "AlluxioRuntime": _workers(4),
    "JuiceFSRuntime": _workers(2),
    "DataLoad": {"phase": "Complete", "duration": "1m", "conditions": []},
    **{kind: {"conditions": [_TRUE]} for kind in ("SecretStore", "ClusterSecretStore", "ExternalSecret")},
    "ClusterExternalSecret": {"conditions": [{"type": "Ready", "status": "True"}]},
    "CephCluster": {"phase": "Ready", "ceph": {"health": "HEALTH_OK"}},
    **{kind: {"phase": "Ready"} for kind in ("CephBlockPool", "CephFilesystem", "CephObjectStore")},
    "NodeSet": {
        "nodeSetHash": "a", "selector": "a=b", "observedGeneration": 1, "desired": 2, "readyReplicas": 2,
        "updatedReplicas": 2,
    },
    "LoginSet": {"selector": "a=b", "replicas": 1},
}  # fmt: skip
"""The status with which each kind is ready; a kind that is not here is ready as soon as it is written."""
DRIFT: Mapping[str, dict[str, Any]] = {
    "Dataset": {"accessModes": ["ReadWriteMany"]},
    "AlluxioRuntime": {"replicas": 400},
    "JuiceFSRuntime": {"replicas": 400},
    "DataLoad": {"loadMetadata": False},
    "SecretStore": {"provider": {"vault": {"server": "https://mallory.example.org"}}},
    "ClusterSecretStore": {"conditions": [{"namespaces": ["mallory"]}]},
    "ExternalSecret": {"refreshInterval": "8760h0m0s"},
    "ClusterExternalSecret": {"externalSecretName": "other"},
    "CephCluster": {"storage": {"useAllDevices": True}},
    "CephBlockPool": {"replicated": {"size": 1}},
    "CephFilesystem": {"preserveFilesystemOnDelete": False},
    "CephObjectStore": {"preservePoolsOnDelete": False},
    "Gateway": {"selector": {"istio": "other"}},
    "VirtualService": {"hosts": ["mallory.example.org"]},
    "DestinationRule": {"trafficPolicy": {"tls": {"mode": "DISABLE"}}},
    "PeerAuthentication": {"mtls": {"mode": "DISABLE"}},
    "AuthorizationPolicy": {"action": "DENY"},
    "Controller": {"clusterName": "other"},
    "NodeSet": {"replicas": 0},
    "LoginSet": {"replicas": 9},
    "ServiceMonitor": {"endpoints": [{"port": "other"}]},
    "PodMonitor": {"selector": {"matchLabels": {"app": "other"}}},
    "PrometheusRule": {"groups": []},
}
"""What alice makes of the spec of each."""
LEFT_OUT: Mapping[str, set[str]] = {
    "Dataset": {"dataRestoreLocation", "runtimes"},
    "JuiceFSRuntime": {"configs"},
    "DataLoad": {"ttlSecondsAfterFinished"},
}
"""Fields of a spec in the definition that a profile may not hold."""
FIELDS: Mapping[str, tuple[str, ...]] = {
    "Dataset": fluid._DATASET, "AlluxioRuntime": fluid._ALLUXIO, "JuiceFSRuntime": fluid._JUICEFS,
    "DataLoad": fluid._LOAD, "SecretStore": external_secrets._STORE, "ClusterSecretStore": external_secrets._STORE,
    "ExternalSecret": external_secrets._SECRET, "ClusterExternalSecret": external_secrets._CLUSTER_SECRET,
    "CephCluster": rook._CLUSTER, "CephBlockPool": rook._POOL, "CephFilesystem": rook._FILESYSTEM,
    "CephObjectStore": rook._OBJECT_STORE, "VirtualService": istio._VIRTUAL_SERVICE,
    "DestinationRule": istio._DESTINATION, "Gateway": istio._GATEWAY, "PeerAuthentication": istio._AUTHENTICATION,
    "AuthorizationPolicy": istio._AUTHORIZATION, "Controller": slinky._CONTROLLER, "NodeSet": slinky._NODE_SET,
    "LoginSet": slinky._LOGIN_SET, "ServiceMonitor": monitoring._SERVICE_MONITOR,
    "PodMonitor": monitoring._POD_MONITOR, "PrometheusRule": ("groups",),
}  # fmt: skip


@dataclass(frozen=True)
class Place:
    """The definitions of one component's chart in the cluster, and a namespace for its examples."""

    component: str
    plane: Plane
    space: str
    crds: Mapping[str, Mapping[str, Any]]
    """By kind."""

    @property
    def wanted(self) -> tuple[WantedObject, ...]:
        bodies = [json.loads(json.dumps(example.body)) for example in catalog.get(self.component).examples]
        mine = [body for body in bodies if body["kind"] in self.crds]
        homes = {body["metadata"]["namespace"] for body in mine if "namespace" in body["metadata"]}
        text = json.dumps({"policies": mine})
        for home in homes:
            text = text.replace(f'"namespace": "{home}"', f'"namespace": "{self.space}"')
        return schema.flatten(schema.parse(text), None, origin="a r1").content.policies

    def patch(self, ref: ObjectRef, change: Mapping[str, Any], *more: str) -> None:
        resource = RESOURCES[ref.api_version, ref.kind]
        kind = f"{resource.plural}.{ref.api_version.rpartition('/')[0]}"
        where = ("-n", ref.namespace) if ref.namespace else ()
        self.plane.kubectl("patch", kind, ref.name, *where, "--type=merge", "-p", json.dumps(change), *more)


@pytest.fixture(params=COMPONENTS)
def place(request: pytest.FixtureRequest, deployed: Plane) -> Iterator[Place]:
    component = catalog.get(request.param)
    kinds = {example.body["kind"] for example in component.examples}
    [path] = ARCHIVES.glob(f"{component.chart.chart}-*{component.versions[0].version.removeprefix('v')}.tgz")
    content = path.read_bytes()
    job = client.HelmJob("x", "x", deadline=time.monotonic() + 120)
    text = client.program().template(job, content, {}, kube_version="v1.35.0")
    raws = [raw for raw, _ in rendering.split(text, content) if raw["kind"] == "CustomResourceDefinition"]
    crds = {raw["spec"]["names"]["kind"]: raw for raw in raws if _is_of(raw, kinds)}
    names = [raw["metadata"]["name"] for raw in crds.values()]
    for raw in crds.values():
        deployed.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", text=json.dumps(raw))
    deployed.kubectl("wait", "--for=condition=Established", "crd", *names)
    space = f"kinds-{time.monotonic_ns() % 10**9}"
    deployed.kubectl("create", "namespace", space)
    yield Place(request.param, deployed, space, crds)
    deployed.kubectl("delete", "namespace", space, "--wait=false")
    definitions.delete(deployed, names)


def _is_of(raw: Mapping[str, Any], kinds: set[str]) -> bool:
    spec = raw["spec"]
    served = {f"{spec['group']}/{version['name']}" for version in spec["versions"]}
    return spec["names"]["kind"] in kinds and any((each, spec["names"]["kind"]) in RESOURCES for each in served)


def missing(fleet: KubeFleet, ref: ObjectRef) -> str:
    return policy_kinds.row(ref.kind).idle(fleet, fleet.policy(ref))


def carry_out(fleet: KubeFleet, prepared: policy_objects.PreparedPolicies, direction: str = "forward") -> list[str]:
    """Carry out without waiting: no controller runs here."""
    lines: list[str] = []
    ends: dict[str, Any] = {"deadline": time.monotonic() + 60, "stop": lambda: False, "tell": lines.append}
    policy_objects.carry_out(fleet, prepared, direction=direction, **ends)
    return lines


def made(fleet: KubeFleet, place: Place) -> policy_objects.PreparedPolicies:
    """Carry out the examples, as soon as the API server serves their kinds to Setpoint's identity."""
    eventually(lambda: not _blocks(prepare(fleet, place.wanted)), lambda: _blocks(prepare(fleet, place.wanted)))
    prepared = prepare(fleet, place.wanted)
    carry_out(fleet, prepared)
    return prepared


def _blocks(prepared: policy_objects.PreparedPolicies) -> list[str]:
    return [f"{note.title}: {note.detail}" for note in prepared.notes if note.severity == "block"]


def is_gone(fleet: KubeFleet, ref: ObjectRef) -> bool:
    try:
        fleet.policy(ref)
    except NotFound:
        return True
    return False


def test_each_example_is_made_waited_for_drifts_is_repaired_and_put_back(
    controller_fleet: KubeFleet, place: Place
) -> None:
    fleet = controller_fleet
    prepared = made(fleet, place)
    refs = {policy.ref.kind: policy.ref for policy in prepared.objects}
    assert {*refs} == {*place.crds}
    again = prepare(fleet, place.wanted)
    assert {policy.title: policy.diff for policy in again.objects if policy.change != "same"} == {}, (
        "what the definition fills in is no drift"
    )
    assert policy_conformance.conform(fleet, place.wanted).state == COMPLIANT

    for kind, ref in refs.items():
        assert bool(missing(fleet, ref)) == (kind in READY), (kind, missing(fleet, ref))
        if kind in READY:
            place.patch(ref, {"status": READY[kind]}, "--subresource=status")
        assert missing(fleet, ref) == "", kind
    assert policy_objects.check_readiness(fleet, prepared, direction="forward").is_ready
    assert policy_conformance.conform(fleet, place.wanted).state == COMPLIANT, "a status is no drift"

    for kind, ref in refs.items():
        place.patch(ref, {"spec": DRIFT[kind]}, "--field-manager=alice")
    drifted = policy_conformance.conform(fleet, place.wanted)
    assert drifted.state == DRIFTED
    assert {difference.kind for difference in drifted.differences} == {*refs}
    repair = prepare(fleet, place.wanted)
    assert _blocks(repair) == []
    assert {policy.ref.kind for policy in repair.objects if policy.change == "changed"} == {*refs}
    assert {take.manager for policy in repair.objects for take in policy.takes} == {"alice"}
    carry_out(fleet, repair)
    assert policy_conformance.conform(fleet, place.wanted).state == COMPLIANT

    lines = carry_out(fleet, prepared, "revert")
    stay = {kind for kind in refs if kind in policy_kinds.CEPH}
    assert {line.partition(" ")[0] for line in lines if " stays: " in line} == stay
    for kind, ref in refs.items():
        assert is_gone(fleet, ref) == (kind not in stay), kind
    assert policy_objects.check_readiness(fleet, prepared, direction="revert").is_ready


def test_what_no_controller_took_on_goes_with_the_revert(controller_fleet: KubeFleet, place: Place) -> None:
    prepared = made(controller_fleet, place)

    carry_out(controller_fleet, prepared, "revert")

    assert all(is_gone(controller_fleet, policy.ref) for policy in prepared.objects)


def test_a_profile_may_hold_every_field_of_a_spec_but_those_that_are_left_out(place: Place) -> None:
    for kind, raw in place.crds.items():
        versions = {version["name"]: version for version in raw["spec"]["versions"]}
        group = raw["spec"]["group"]
        [version] = [name for name in versions if (f"{group}/{name}", kind) in RESOURCES]
        spec = versions[version]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
        assert {*spec} - {*FIELDS[kind]} == LEFT_OUT.get(kind, set()), kind
        assert {*FIELDS[kind]} <= {*spec}, kind
        assert (raw["spec"]["scope"] == "Namespaced") == RESOURCES[f"{group}/{version}", kind].is_namespaced


def test_the_fence_refuses_what_the_parser_refuses(controller_fleet: KubeFleet, place: Place) -> None:
    """Apply with Setpoint's own token, past the parser."""
    made(controller_fleet, place)
    for policy in place.wanted:
        if policy.namespace:
            elsewhere = {**policy.manifest, "metadata": {"name": policy.name, "namespace": "kube-public"}}
            with pytest.raises(Forbidden, match="setpoint-policies-fence"):
                controller_fleet.apply_policy(elsewhere)
        for change in FORBIDDEN.get(policy.kind, ()):
            body = {**policy.manifest, "metadata": {**policy.manifest["metadata"], "name": "bad"}}
            body["spec"] = _laid_over(body["spec"], change)
            with pytest.raises(Forbidden, match="setpoint-policies-fence"):
                controller_fleet.apply_policy(body)


FORBIDDEN: Mapping[str, tuple[dict[str, Any], ...]] = {
    "CephCluster": (
        {"storage": {"useAllDevices": True}},
        {"storage": {"nodes": [{"name": "n1", "useAllDevices": True}]}},
        {"cleanupPolicy": {"confirmation": "yes-really-destroy-data"}},
        {"cleanupPolicy": {"wipeDevicesFromOtherClusters": True}},
    ),
    "SecretStore": ({"provider": {"vault": None, "fake": {"data": [{"key": "a", "value": "b"}]}}},),
    "ClusterSecretStore": ({"provider": {"vault": None, "fake": {"data": [{"key": "a", "value": "b"}]}}},),
    "ExternalSecret": ({"target": {"manifest": {"apiVersion": "v1", "kind": "ConfigMap"}}},),
    "ClusterExternalSecret": (
        {"externalSecretSpec": {"target": {"manifest": {"apiVersion": "v1", "kind": "ConfigMap"}}}},
    ),
}


def _laid_over(below: Any, above: Any) -> Any:
    if not isinstance(below, Mapping) or not isinstance(above, Mapping):
        return above
    out = {**below, **{key: _laid_over(below.get(key), value) for key, value in above.items()}}
    return {key: value for key, value in out.items() if value is not None}
