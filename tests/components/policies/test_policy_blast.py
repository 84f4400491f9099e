"""The effect of policy objects on running work, by what becomes of each."""

from __future__ import annotations

from typing import Any

import pytest

from components.blast.ground import Ground, NodeGround
from components.policies import policy_blast
from components.policies.policy_objects import PreparedObject, PreparedPolicies

GROUND = Ground((NodeGround("g1", {"nvidia.com/gpu.present": "true"}, gpus=8),))


def one(kind: str, after: dict[str, Any], before: dict[str, Any] | None = None, **meta: Any) -> PreparedObject:
    manifest = {"apiVersion": "v1", "kind": kind, "metadata": {"name": "a", **meta}, **after}
    return PreparedObject(manifest, "changed" if before is not None else "created", "u", before or {})


def spec(**fields: Any) -> dict[str, Any]:
    return {"spec": fields}


def test_a_lowered_quota_says_what_it_lowers_and_that_running_pods_stay():
    gpus = "requests.nvidia.com/gpu"
    found = policy_blast.policies_blast(
        [one("ResourceQuota", spec(hard={gpus: "32"}), spec(hard={gpus: "64"}))], GROUND
    )
    assert found.worst == "new-pods"
    assert f"{gpus} 64 → 32" in found.why
    assert "Running pods stay" in found.why


def test_a_quota_that_is_only_raised_holds_nobody_back():
    found = policy_blast.policies_blast(
        [one("ResourceQuota", spec(hard={"pods": "200"}), spec(hard={"pods": "100"}))], GROUND
    )
    assert (found.worst, found.hits) == ("live", ())


@pytest.mark.parametrize(
    ("prepared", "worst"),
    [
        (one("Namespace", {}), "live"),
        (one("PriorityClass", {"value": 5}), "live"),
        (one("ResourceQuota", spec(hard={"pods": 5})), "new-pods"),
        (one("LimitRange", spec(limits=[])), "new-pods"),
        (one("Namespace", {}, {"metadata": {"name": "a", "labels": {}}}, labels={"enforce": "restricted"}), "new-pods"),
        (one("Queue", spec(deserved={"nvidia.com/gpu": "8"}), spec(deserved={"nvidia.com/gpu": "64"})), "gpu-pods"),
        (one("Queue", spec(reclaimable=True)), "gpu-pods"),
        (one("ClusterQueue", spec(stopPolicy="HoldAndDrain"), spec(stopPolicy="None")), "gpu-pods"),
        (one("LocalQueue", spec(clusterQueue="b"), spec(clusterQueue="a")), "new-pods"),
        (one("ResourceFlavor", spec(nodeLabels={"a": "b"}), spec(nodeLabels={})), "new-pods"),
        (one("SomethingNew", spec(a=1)), "gpu-pods"),
        (one("PersistentVolume", spec(persistentVolumeReclaimPolicy="Retain", nfs={})), "new-pods"),
        (one("PersistentVolume", spec(persistentVolumeReclaimPolicy="Delete", nfs={})), "gpu-pods"),
        (
            one(
                "PersistentVolume",
                spec(persistentVolumeReclaimPolicy="Delete"),
                spec(persistentVolumeReclaimPolicy="Retain"),
            ),
            "gpu-pods",
        ),
        (one("PersistentVolumeClaim", spec(resources={})), "new-pods"),
        (one("StorageClass", {"provisioner": "x"}), "new-pods"),
        (one("ConfigMap", {"data": {"a": "b"}}), "new-pods"),
        (one("NodeFeatureRule", spec(rules=[])), "gpu-pods"),
        (one("HyperNode", spec(tier=1)), "new-pods"),
        (one("NetworkPolicy", spec(podSelector={})), "network"),
        (one("SriovNetworkNodePolicy", spec(numVfs=8)), "reboot"),
        (one("SriovNetwork", spec(vlan=1)), "new-pods"),
        (one("NetworkAttachmentDefinition", spec(config="{}")), "new-pods"),
        (one("DeviceClass", spec(selectors=[])), "new-pods"),
        (one("ResourceClaimTemplate", spec(spec={})), "new-pods"),
        (one("Schedule", spec(schedule="@daily")), "live"),
        (one("MultiKueueConfig", spec(clusters=["a"])), "gpu-pods"),
        (one("AdmissionCheck", spec(controllerName="a")), "new-pods"),
        (one("CiliumNetworkPolicy", spec(endpointSelector={})), "network"),
        (one("Role", {"rules": []}), "live"),
        (one("RoleBinding", {"subjects": []}), "live"),
        (one("HorizontalPodAutoscaler", spec(maxReplicas=4)), "gpu-pods"),
        (one("VerticalPodAutoscaler", spec(updatePolicy={"updateMode": "Off"})), "new-pods"),
        (one("VerticalPodAutoscaler", spec(updatePolicy={"updateMode": "Recreate"})), "gpu-pods"),
        (
            one(
                "VerticalPodAutoscaler",
                spec(updatePolicy={"updateMode": "Recreate"}),
                spec(updatePolicy={"updateMode": "Initial"}),
            ),
            "gpu-pods",
        ),
    ],
)
def test_each_kind_has_the_class_of_what_becomes_of_it(prepared, worst):
    found = policy_blast.policies_blast([prepared], GROUND)
    assert found.worst == worst
    assert found.places == 0


def test_what_stays_as_it_is_does_nothing():
    same = PreparedObject(
        {"apiVersion": "v1", "kind": "Queue", "metadata": {"name": "a"}, "spec": {"weight": 1}}, "same"
    )
    assert policy_blast.policies_blast([same], GROUND).hits == ()


def test_it_survives_the_json_of_its_group():
    queue = one("Queue", spec(weight=1), spec(weight=2))
    group = PreparedPolicies((queue,), blast=policy_blast.policies_blast([queue], GROUND))
    assert PreparedPolicies.from_json(group.to_json()) == group
    assert "blast" not in PreparedPolicies((queue,)).to_json(), "digests stand of plans made before"
