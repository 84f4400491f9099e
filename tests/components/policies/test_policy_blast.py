"""The effect of policy objects on running work, by what becomes of each."""

from __future__ import annotations

from typing import Any

import pytest

from components.blast.ground import Ground, NodeGround
from components.policies import policy_blast
from components.policies.policy_objects import PreparedObject, PreparedPolicies

GROUND = Ground((NodeGround("g1", {"nvidia.com/gpu.present": "true"}, gpus=8),))


def prepared_object(
    kind: str, after: dict[str, Any], before: dict[str, Any] | None = None, **meta: Any
) -> PreparedObject:
    manifest = {"apiVersion": "v1", "kind": kind, "metadata": {"name": "a", **meta}, **after}
    return PreparedObject(manifest, "changed" if before is not None else "created", "u", before or {})


def spec(**fields: Any) -> dict[str, Any]:
    return {"spec": fields}


def test_a_lowered_quota_says_what_it_lowers_and_that_running_pods_stay():
    gpus = "requests.nvidia.com/gpu"
    blast = policy_blast.policies_blast(
        [prepared_object("ResourceQuota", spec(hard={gpus: "32"}), spec(hard={gpus: "64"}))], GROUND
    )
    assert blast.worst == "new-pods"
    assert f"{gpus} 64 → 32" in blast.why
    assert "Running pods stay" in blast.why


def test_a_quota_that_is_only_raised_holds_nobody_back():
    blast = policy_blast.policies_blast(
        [prepared_object("ResourceQuota", spec(hard={"pods": "200"}), spec(hard={"pods": "100"}))], GROUND
    )
    assert (blast.worst, blast.hits) == ("live", ())


@pytest.mark.parametrize(
    ("prepared", "worst"),
    [
        (prepared_object("Namespace", {}), "live"),
        (prepared_object("PriorityClass", {"value": 5}), "live"),
        (prepared_object("ResourceQuota", spec(hard={"pods": 5})), "new-pods"),
        (prepared_object("LimitRange", spec(limits=[])), "new-pods"),
        (
            prepared_object(
                "Namespace", {}, {"metadata": {"name": "a", "labels": {}}}, labels={"enforce": "restricted"}
            ),
            "new-pods",
        ),
        (
            prepared_object("Queue", spec(deserved={"nvidia.com/gpu": "8"}), spec(deserved={"nvidia.com/gpu": "64"})),
            "gpu-pods",
        ),
        (prepared_object("Queue", spec(reclaimable=True)), "gpu-pods"),
        (prepared_object("ClusterQueue", spec(stopPolicy="HoldAndDrain"), spec(stopPolicy="None")), "gpu-pods"),
        (prepared_object("LocalQueue", spec(clusterQueue="b"), spec(clusterQueue="a")), "new-pods"),
        (prepared_object("ResourceFlavor", spec(nodeLabels={"a": "b"}), spec(nodeLabels={})), "new-pods"),
        (prepared_object("SomethingNew", spec(a=1)), "gpu-pods"),
        (prepared_object("PersistentVolume", spec(persistentVolumeReclaimPolicy="Retain", nfs={})), "new-pods"),
        (prepared_object("PersistentVolume", spec(persistentVolumeReclaimPolicy="Delete", nfs={})), "gpu-pods"),
        (
            prepared_object(
                "PersistentVolume",
                spec(persistentVolumeReclaimPolicy="Delete"),
                spec(persistentVolumeReclaimPolicy="Retain"),
            ),
            "gpu-pods",
        ),
        (prepared_object("PersistentVolumeClaim", spec(resources={})), "new-pods"),
        (prepared_object("StorageClass", {"provisioner": "x"}), "new-pods"),
        (prepared_object("ConfigMap", {"data": {"a": "b"}}), "new-pods"),
        (prepared_object("NodeFeatureRule", spec(rules=[])), "gpu-pods"),
        (prepared_object("Dataset", spec(mounts=[])), "live"),
        (prepared_object("Dataset", spec(mounts=[{"a": 1}]), spec(mounts=[])), "gpu-pods"),
        (prepared_object("AlluxioRuntime", spec(replicas=1), spec(replicas=2)), "gpu-pods"),
        (prepared_object("DataLoad", spec(dataset={"name": "a"})), "live"),
        (prepared_object("ClusterSecretStore", spec(provider={"vault": {}})), "new-pods"),
        (prepared_object("ExternalSecret", spec(refreshInterval="1h"), spec(refreshInterval="2h")), "new-pods"),
        (prepared_object("CephCluster", spec(storage={})), "gpu-pods"),
        (prepared_object("CephBlockPool", spec(replicated={"size": 3})), "live"),
        (prepared_object("CephBlockPool", spec(replicated={"size": 1}), spec(replicated={"size": 3})), "gpu-pods"),
        (prepared_object("VirtualService", spec(hosts=["a"])), "network"),
        (prepared_object("PeerAuthentication", spec(mtls={"mode": "STRICT"})), "network"),
        (prepared_object("Controller", spec(clusterName="a"), spec(clusterName="b")), "new-pods"),
        (prepared_object("NodeSet", spec(replicas=2)), "live"),
        (prepared_object("NodeSet", spec(replicas=1), spec(replicas=2)), "gpu-pods"),
        (prepared_object("ServiceMonitor", spec(endpoints=[]), spec(endpoints=[{}])), "live"),
        (prepared_object("HyperNode", spec(tier=1)), "new-pods"),
        (prepared_object("NetworkPolicy", spec(podSelector={})), "network"),
        (prepared_object("SriovNetworkNodePolicy", spec(numVfs=8)), "reboot"),
        (prepared_object("SriovNetwork", spec(vlan=1)), "new-pods"),
        (prepared_object("NetworkAttachmentDefinition", spec(config="{}")), "new-pods"),
        (prepared_object("DeviceClass", spec(selectors=[])), "new-pods"),
        (prepared_object("ResourceClaimTemplate", spec(spec={})), "new-pods"),
        (prepared_object("Schedule", spec(schedule="@daily")), "live"),
        (prepared_object("MultiKueueConfig", spec(clusters=["a"])), "gpu-pods"),
        (prepared_object("AdmissionCheck", spec(controllerName="a")), "new-pods"),
        (prepared_object("CiliumNetworkPolicy", spec(endpointSelector={})), "network"),
        (prepared_object("Role", {"rules": []}), "live"),
        (prepared_object("RoleBinding", {"subjects": []}), "live"),
        (prepared_object("HorizontalPodAutoscaler", spec(maxReplicas=4)), "gpu-pods"),
        (prepared_object("VerticalPodAutoscaler", spec(updatePolicy={"updateMode": "Off"})), "new-pods"),
        (prepared_object("VerticalPodAutoscaler", spec(updatePolicy={"updateMode": "Recreate"})), "gpu-pods"),
        (
            prepared_object(
                "VerticalPodAutoscaler",
                spec(updatePolicy={"updateMode": "Recreate"}),
                spec(updatePolicy={"updateMode": "Initial"}),
            ),
            "gpu-pods",
        ),
    ],
)
def test_each_kind_has_the_class_of_what_becomes_of_it(prepared, worst):
    blast = policy_blast.policies_blast([prepared], GROUND)
    assert blast.worst == worst
    assert blast.places == 0


def test_what_stays_as_it_is_does_nothing():
    same = PreparedObject(
        {"apiVersion": "v1", "kind": "Queue", "metadata": {"name": "a"}, "spec": {"weight": 1}}, "same"
    )
    assert policy_blast.policies_blast([same], GROUND).hits == ()


def test_it_survives_the_json_of_its_group():
    queue = prepared_object("Queue", spec(weight=1), spec(weight=2))
    group = PreparedPolicies((queue,), blast=policy_blast.policies_blast([queue], GROUND))
    assert PreparedPolicies.from_json(group.to_json()) == group
    assert "blast" not in PreparedPolicies((queue,)).to_json(), "digests stand of plans made before"
