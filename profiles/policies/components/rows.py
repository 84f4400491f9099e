"""Rows of the table of policy objects for kinds that components of the catalog bring for their own controllers.

Sources: the definitions in the chart of each component, in the module of its checks.
"""

from __future__ import annotations

from profiles.policies.components import external_secrets, fluid, istio, monitoring, rook, slinky
from profiles.policies.kind import PolicyKind

_SPEC = frozenset({"spec"})
FLUID = ("data.fluid.io/v1alpha1",)
EXTERNAL_SECRETS = ("external-secrets.io/v1",)
ROOK = ("ceph.rook.io/v1",)
ISTIO_NETWORK = ("networking.istio.io/v1",)
ISTIO_SECURITY = ("security.istio.io/v1",)
SLINKY = ("slinky.slurm.net/v1beta1",)
MONITORING = ("monitoring.coreos.com/v1",)

ROWS = (
    PolicyKind("Dataset", FLUID, True, _SPEC, fluid.dataset, "fluid", is_kept_out=True),
    PolicyKind("AlluxioRuntime", FLUID, True, _SPEC, fluid.alluxio_runtime, "fluid", is_kept_out=True),
    PolicyKind("JuiceFSRuntime", FLUID, True, _SPEC, fluid.juicefs_runtime, "fluid", is_kept_out=True),
    PolicyKind("DataLoad", FLUID, True, _SPEC, fluid.data_load, "fluid", is_kept_out=True),
    PolicyKind(
        "SecretStore",
        EXTERNAL_SECRETS,
        True,
        _SPEC,
        external_secrets.secret_store,
        "external-secrets",
        is_kept_out=True,
    ),
    PolicyKind(
        "ClusterSecretStore", EXTERNAL_SECRETS, False, _SPEC, external_secrets.cluster_secret_store, "external-secrets"
    ),
    PolicyKind(
        "ExternalSecret",
        EXTERNAL_SECRETS,
        True,
        _SPEC,
        external_secrets.external_secret,
        "external-secrets",
        is_kept_out=True,
    ),
    PolicyKind(
        "ClusterExternalSecret",
        EXTERNAL_SECRETS,
        False,
        _SPEC,
        external_secrets.cluster_external_secret,
        "external-secrets",
    ),
    PolicyKind(
        "CephCluster",
        ROOK,
        True,
        _SPEC,
        rook.ceph_cluster,
        "rook-ceph",
        fixed=("spec.dataDirHostPath",),
        is_kept_out=True,
    ),
    PolicyKind("CephBlockPool", ROOK, True, _SPEC, rook.block_pool, "rook-ceph", is_kept_out=True),
    PolicyKind("CephFilesystem", ROOK, True, _SPEC, rook.filesystem, "rook-ceph", is_kept_out=True),
    PolicyKind("CephObjectStore", ROOK, True, _SPEC, rook.object_store, "rook-ceph", is_kept_out=True),
    PolicyKind("VirtualService", ISTIO_NETWORK, True, _SPEC, istio.virtual_service, "istio-base", is_kept_out=True),
    PolicyKind("DestinationRule", ISTIO_NETWORK, True, _SPEC, istio.destination_rule, "istio-base", is_kept_out=True),
    PolicyKind("Gateway", ISTIO_NETWORK, True, _SPEC, istio.gateway, "istio-base", is_kept_out=True),
    PolicyKind(
        "PeerAuthentication", ISTIO_SECURITY, True, _SPEC, istio.peer_authentication, "istio-base", is_kept_out=True
    ),
    PolicyKind(
        "AuthorizationPolicy", ISTIO_SECURITY, True, _SPEC, istio.authorization_policy, "istio-base", is_kept_out=True
    ),
    PolicyKind("Controller", SLINKY, True, _SPEC, slinky.controller, "slurm-operator-crds", is_kept_out=True),
    PolicyKind("NodeSet", SLINKY, True, _SPEC, slinky.node_set, "slurm-operator-crds", is_kept_out=True),
    PolicyKind("LoginSet", SLINKY, True, _SPEC, slinky.login_set, "slurm-operator-crds", is_kept_out=True),
    PolicyKind(
        "ServiceMonitor", MONITORING, True, _SPEC, monitoring.service_monitor, "kube-prometheus-stack", is_kept_out=True
    ),
    PolicyKind(
        "PodMonitor", MONITORING, True, _SPEC, monitoring.pod_monitor, "kube-prometheus-stack", is_kept_out=True
    ),
    PolicyKind(
        "PrometheusRule", MONITORING, True, _SPEC, monitoring.prometheus_rule, "kube-prometheus-stack", is_kept_out=True
    ),
)
