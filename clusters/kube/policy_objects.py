"""Policy objects on a real API server: read, applied, removed. Server-side apply, forced only onto a named version."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clusters.fleet import FleetRefused, NotFound, ObjectRef
from clusters.kube.apiserver import APPLY, ApiResponse, ApiServer, Call
from clusters.kube.discovery import Resource
from contract import names

_KUEUE = ("kueue.x-k8s.io/v1beta2", "kueue.x-k8s.io/v1beta1")
_FLUID, _SECRETS, _ROOK = ("data.fluid.io/v1alpha1",), ("external-secrets.io/v1",), ("ceph.rook.io/v1",)
_SLINKY, _MONITORING = ("slinky.slurm.net/v1beta1",), ("monitoring.coreos.com/v1",)
RESOURCES: Mapping[tuple[str, str], Resource] = {
    (version, kind): Resource(version, kind, plural, is_namespaced)
    for versions, kind, plural, is_namespaced in (
        (("v1",), "Namespace", "namespaces", False),
        (("v1",), "ResourceQuota", "resourcequotas", True),
        (("v1",), "LimitRange", "limitranges", True),
        (("scheduling.k8s.io/v1",), "PriorityClass", "priorityclasses", False),
        (("node.k8s.io/v1",), "RuntimeClass", "runtimeclasses", False),
        (("scheduling.volcano.sh/v1beta1",), "Queue", "queues", False),
        (_KUEUE, "Topology", "topologies", False),
        (_KUEUE, "ResourceFlavor", "resourceflavors", False),
        (_KUEUE, "ClusterQueue", "clusterqueues", False),
        (_KUEUE, "LocalQueue", "localqueues", True),
        (("mellanox.com/v1alpha1",), "NicClusterPolicy", "nicclusterpolicies", False),
        (("topology.volcano.sh/v1alpha1",), "HyperNode", "hypernodes", False),
        (("nfd.k8s-sigs.io/v1alpha1",), "NodeFeatureRule", "nodefeaturerules", False),
        (("storage.k8s.io/v1",), "StorageClass", "storageclasses", False),
        (("v1",), "PersistentVolume", "persistentvolumes", False),
        (("v1",), "PersistentVolumeClaim", "persistentvolumeclaims", True),
        (("v1",), "ConfigMap", "configmaps", True),
        (("k8s.cni.cncf.io/v1",), "NetworkAttachmentDefinition", "network-attachment-definitions", True),
        (("sriovnetwork.openshift.io/v1",), "SriovNetworkNodePolicy", "sriovnetworknodepolicies", True),
        (("sriovnetwork.openshift.io/v1",), "SriovNetwork", "sriovnetworks", True),
        (("resource.k8s.io/v1",), "DeviceClass", "deviceclasses", False),
        (("resource.k8s.io/v1",), "ResourceClaimTemplate", "resourceclaimtemplates", True),
        (("velero.io/v1",), "Schedule", "schedules", True),
        (_KUEUE, "MultiKueueCluster", "multikueueclusters", False),
        (_KUEUE, "MultiKueueConfig", "multikueueconfigs", False),
        (_KUEUE, "AdmissionCheck", "admissionchecks", False),
        (("networking.k8s.io/v1",), "NetworkPolicy", "networkpolicies", True),
        (("cilium.io/v2",), "CiliumNetworkPolicy", "ciliumnetworkpolicies", True),
        (("rbac.authorization.k8s.io/v1",), "Role", "roles", True),
        (("rbac.authorization.k8s.io/v1",), "RoleBinding", "rolebindings", True),
        (("autoscaling/v2",), "HorizontalPodAutoscaler", "horizontalpodautoscalers", True),
        (("autoscaling.k8s.io/v1",), "VerticalPodAutoscaler", "verticalpodautoscalers", True),
        (_FLUID, "Dataset", "datasets", True),
        (_FLUID, "AlluxioRuntime", "alluxioruntimes", True),
        (_FLUID, "JuiceFSRuntime", "juicefsruntimes", True),
        (_FLUID, "DataLoad", "dataloads", True),
        (_SECRETS, "SecretStore", "secretstores", True),
        (_SECRETS, "ClusterSecretStore", "clustersecretstores", False),
        (_SECRETS, "ExternalSecret", "externalsecrets", True),
        (_SECRETS, "ClusterExternalSecret", "clusterexternalsecrets", False),
        (_ROOK, "CephCluster", "cephclusters", True),
        (_ROOK, "CephBlockPool", "cephblockpools", True),
        (_ROOK, "CephFilesystem", "cephfilesystems", True),
        (_ROOK, "CephObjectStore", "cephobjectstores", True),
        (("networking.istio.io/v1",), "VirtualService", "virtualservices", True),
        (("networking.istio.io/v1",), "DestinationRule", "destinationrules", True),
        (("networking.istio.io/v1",), "Gateway", "gateways", True),
        (("security.istio.io/v1",), "PeerAuthentication", "peerauthentications", True),
        (("security.istio.io/v1",), "AuthorizationPolicy", "authorizationpolicies", True),
        (_SLINKY, "Controller", "controllers", True),
        (_SLINKY, "NodeSet", "nodesets", True),
        (_SLINKY, "LoginSet", "loginsets", True),
        (_MONITORING, "ServiceMonitor", "servicemonitors", True),
        (_MONITORING, "PodMonitor", "podmonitors", True),
        (_MONITORING, "PrometheusRule", "prometheusrules", True),
    )
    for version in versions
}
"""Every kind that is ever written so; a test compares it with what profiles may want."""


def get(server: ApiServer, ref: ObjectRef) -> dict[str, Any]:
    resource = _resource(ref)
    answer = server.send(Call("get", resource.plural, str(ref)), "GET", resource.path(ref.namespace, ref.name))
    return _judged(answer, ref).object(ref.kind)


def apply(server: ApiServer, manifest: Mapping[str, Any], *, dry_run: bool, force_at: str = "") -> dict[str, Any]:
    ref = ObjectRef.of(manifest)
    resource = _resource(ref)
    force = "true" if force_at else "false"
    query = {"fieldManager": names.FIELD_MANAGER, "force": force, "fieldValidation": "Strict"}
    if force_at:
        manifest = {**manifest, "metadata": {**manifest["metadata"], "resourceVersion": force_at}}
    answer = server.send(
        Call("patch", resource.plural, str(ref)),
        "PATCH",
        resource.path(ref.namespace, ref.name),
        body=manifest,
        content_type=APPLY,
        query=query | ({"dryRun": "All"} if dry_run else {}),
    )
    return _judged(answer, ref).object(ref.kind)


def remove(server: ApiServer, ref: ObjectRef, uid: str, version: str = "") -> None:
    resource = _resource(ref)
    conditions = {"uid": uid} | ({"resourceVersion": version} if version else {})
    body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": conditions}
    call = Call("delete", resource.plural, str(ref))
    try:
        _judged(server.send(call, "DELETE", resource.path(ref.namespace, ref.name), body=body), ref)
    except NotFound:
        return


def _resource(ref: ObjectRef) -> Resource:
    resource = RESOURCES.get((ref.api_version, ref.kind))
    if resource is None:
        raise FleetRefused(f"{ref.kind} of {ref.api_version} is no policy object that Setpoint writes")
    if resource.is_namespaced != bool(ref.namespace):
        raise FleetRefused(f"{ref.kind} {'needs a' if resource.is_namespaced else 'has no'} namespace")
    return resource


def _judged(answer: ApiResponse, ref: ObjectRef) -> ApiResponse:
    return served(answer, f"{ref.kind} of {ref.api_version}")


def served(answer: ApiResponse, what: str = "this kind") -> ApiResponse:
    """Raises what a status of 300 or more means; a group that is not served is an object that is not there."""
    if answer.status == 404 and answer.body.strip() == b"404 page not found":
        raise NotFound(f"{answer.call}: the cluster does not know {what}")
    if answer.status >= 300:
        raise answer.refusal()
    return answer
