"""The table of policy kinds: each one's place in the order, its effect on running work, its readiness, and what stays.

What a profile may say of a kind is in `profiles.policies.kinds`; a test holds the two tables together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from clusters.fleet import Fleet
from components.blast.judgment import GPU_PODS, LIVE, NETWORK, NEW_PODS
from components.catalog.effects import ALL_NODES, ChangeEffect
from components.policies import component_readiness, policy_readiness
from components.values.clauses import Clause
from profiles.policies.kinds import KINDS

Idle = Callable[[Fleet, Mapping[str, Any]], str]


def _works(fleet: Fleet, live: Mapping[str, Any]) -> str:
    """Explain nothing: the kind has no state of its own, and counts as soon as it is written."""
    return ""


def _goes(live: Mapping[str, Any]) -> str:
    """Explain nothing: an object that a rollout made goes when that is reverted."""
    return ""


@dataclass(frozen=True, slots=True)
class KindRow:
    rank: int
    """What an object depends on has a lower one; queues of one rank go below their parents."""
    effects: tuple[ChangeEffect, ...] = ()
    """What a change does to running work. Empty: as the catalog's entry of its component says."""
    idle: Idle = _works
    """Explains why an existing object does not work yet; raises FleetError."""
    stays: Callable[[Mapping[str, Any]], str] = _goes
    """Explains why an object that a rollout made is not removed when that is reverted."""
    reads: int = 1
    """Looks in a row that must find it at work: some controllers say so too early, before they saw the change."""
    is_idle_at_first: bool = False
    """Before it exists nothing is in it and nothing names it."""


def _effect(
    kind: str, worst: str, why: str, *paths: str, unless: tuple[Clause, ...] = (), nodes: str = ""
) -> ChangeEffect:
    return ChangeEffect(kind, worst, why, paths=paths, unless=unless, nodes=nodes)


REFUSES = "Running pods stay; new ones beyond it are refused."
_READ = "Pods read it when they start; running ones keep what they have."
_CUTS = "Connections of the pods that it selects end, unless some policy permits them."
_RIGHTS = "No pod restarts, and what it grants is asked with each request."
_RETAINS = Clause("spec.persistentVolumeReclaimPolicy", "Retain")
_DELETES = "Once its claim is deleted, the volume's data is deleted, too, and nothing brings it back."
NO_ONES = "what is in it is not ours to delete."

_CACHE = "Pods that mount the dataset read through this cache, whose own pods may restart."
_STORE = "From another store other values come, which pods read when they start."
_CEPH = "Daemons of Ceph restart, and pods that store in it wait; disks that it names become Ceph's."
_POOL = "Pods that store in it wait while Ceph moves data, and fail where what they use is taken away."
_MESH = "Requests to what it names go another way, or are refused, from then on."
_OBSERVED = "It only tells Prometheus what to look at."

VOLUMES = ("PersistentVolume", "PersistentVolumeClaim")
CEPH = ("CephCluster", "CephBlockPool", "CephFilesystem", "CephObjectStore")
HOLD_DATA = (*VOLUMES, *CEPH)
"""Kinds that may hold data: the version that was looked at decides whether one is removed."""

ROWS: Mapping[str, KindRow] = {
    "Namespace": KindRow(
        0,
        (_effect("Namespace", NEW_PODS, "What its labels ask of pods is asked of new ones."),),
        stays=lambda live: NO_ONES,
        is_idle_at_first=True,
    ),
    "PriorityClass": KindRow(
        1,
        (
            _effect(
                "PriorityClass",
                NEW_PODS,
                "Pods that are created with it may preempt others of a lower priority.",
            ),
        ),
        is_idle_at_first=True,
    ),
    "RuntimeClass": KindRow(1, (_effect("RuntimeClass", NEW_PODS, _READ),), is_idle_at_first=True),
    "StorageClass": KindRow(
        1,
        (_effect("StorageClass", NEW_PODS, "Claims that are made from now on get their volumes by it."),),
    ),
    "Topology": KindRow(1),
    "LimitRange": KindRow(
        2,
        (_effect("LimitRange", NEW_PODS, "Running pods keep what they have; new ones are given these limits."),),
    ),
    "ResourceQuota": KindRow(2, (_effect("ResourceQuota", NEW_PODS, REFUSES),)),
    "ResourceFlavor": KindRow(2),
    "ConfigMap": KindRow(
        2,
        (_effect("ConfigMap", NEW_PODS, "What watches it takes it at once; pods that name it, when they start."),),
    ),
    "NodeFeatureRule": KindRow(2),
    "PersistentVolume": KindRow(
        2,
        (
            _effect("PersistentVolume", NEW_PODS, "Pods that mount it keep it; new claims may be bound to it."),
            _effect(
                "PersistentVolume",
                GPU_PODS,
                _DELETES,
                "spec.persistentVolumeReclaimPolicy",
                unless=(_RETAINS,),
            ),
        ),
        idle=policy_readiness.volume,
        stays=policy_readiness.holds_volume,
    ),
    "PersistentVolumeClaim": KindRow(
        3,
        (_effect("PersistentVolumeClaim", NEW_PODS, "Pods that name it wait until it is bound."),),
        idle=policy_readiness.claim,
        stays=policy_readiness.holds_claim,
    ),
    "ClusterQueue": KindRow(3, idle=policy_readiness.cluster_queue),
    "NetworkPolicy": KindRow(2, (_effect("NetworkPolicy", NETWORK, _CUTS),)),
    "CiliumNetworkPolicy": KindRow(2, idle=policy_readiness.cilium_network_policy),
    "Role": KindRow(2, (_effect("Role", LIVE, _RIGHTS),)),
    "RoleBinding": KindRow(3, (_effect("RoleBinding", LIVE, _RIGHTS),)),
    "HorizontalPodAutoscaler": KindRow(
        4,
        (_effect("HorizontalPodAutoscaler", GPU_PODS, "Where fewer pods are wanted, running ones are ended."),),
        idle=policy_readiness.horizontal,
    ),
    "VerticalPodAutoscaler": KindRow(
        4,
        (
            _effect("VerticalPodAutoscaler", NEW_PODS, "New pods of its target are given other requests."),
            _effect(
                "VerticalPodAutoscaler",
                GPU_PODS,
                "It evicts running pods of its target to give them other requests.",
                "spec.updatePolicy",
                "spec.resourcePolicy",
                unless=tuple(Clause("spec.updatePolicy.updateMode", mode) for mode in ("Off", "Initial")),
            ),
        ),
        idle=policy_readiness.vertical,
    ),
    "HyperNode": KindRow(3, idle=policy_readiness.hyper_node),
    "NicClusterPolicy": KindRow(3, idle=policy_readiness.nic_cluster_policy, reads=2),
    "NetworkAttachmentDefinition": KindRow(4),
    "SriovNetworkNodePolicy": KindRow(4, idle=policy_readiness.sriov_node_policy, reads=2),
    "SriovNetwork": KindRow(5, idle=policy_readiness.sriov_network),
    "DeviceClass": KindRow(1, (_effect("DeviceClass", NEW_PODS, "Pods to come are placed by it; devices held stay."),)),
    "ResourceClaimTemplate": KindRow(2, (_effect("ResourceClaimTemplate", NEW_PODS, _READ),)),
    "Schedule": KindRow(
        4,
        (_effect("Schedule", LIVE, "Backups read what runs; they do not stop it."),),
        idle=policy_readiness.schedule,
    ),
    "MultiKueueCluster": KindRow(1, idle=policy_readiness.kueue_active),
    "MultiKueueConfig": KindRow(1),
    "AdmissionCheck": KindRow(2, idle=policy_readiness.kueue_active),
    "Queue": KindRow(3, idle=policy_readiness.queue),
    "LocalQueue": KindRow(4),
    "Dataset": KindRow(
        3,
        (_effect("Dataset", GPU_PODS, "Pods that mount it see other data, or none where a mount is taken away."),),
        idle=component_readiness.dataset,
        is_idle_at_first=True,
    ),
    "AlluxioRuntime": KindRow(
        4,
        (_effect("AlluxioRuntime", GPU_PODS, _CACHE),),
        idle=component_readiness.alluxio_runtime,
        reads=2,
        is_idle_at_first=True,
    ),
    "JuiceFSRuntime": KindRow(
        4,
        (_effect("JuiceFSRuntime", GPU_PODS, _CACHE),),
        idle=component_readiness.juicefs_runtime,
        reads=2,
        is_idle_at_first=True,
    ),
    "DataLoad": KindRow(
        5,
        (_effect("DataLoad", LIVE, "It reads into the cache; running pods keep what they read."),),
        idle=component_readiness.data_load,
    ),
    **{
        kind: KindRow(2, (_effect(kind, NEW_PODS, _STORE),), idle=component_readiness.external_secrets, reads=2)
        for kind in ("SecretStore", "ClusterSecretStore")
    },
    **{
        kind: KindRow(
            3,
            (_effect(kind, NEW_PODS, "The Secret that it makes changes; pods read it when they start."),),
            idle=component_readiness.external_secrets,
        )
        for kind in ("ExternalSecret", "ClusterExternalSecret")
    },
    "CephCluster": KindRow(
        2,
        (_effect("CephCluster", GPU_PODS, _CEPH, nodes=ALL_NODES),),
        idle=component_readiness.ceph_cluster,
        stays=component_readiness.holds_ceph,
        reads=2,
    ),
    **{
        kind: KindRow(
            3,
            (_effect(kind, GPU_PODS, _POOL, nodes=ALL_NODES),),
            idle=component_readiness.ceph,
            stays=component_readiness.holds_ceph,
            reads=2,
            is_idle_at_first=True,
        )
        for kind in CEPH[1:]
    },
    "Gateway": KindRow(2, (_effect("Gateway", NETWORK, _MESH),), idle=component_readiness.istio),
    **{
        kind: KindRow(3, (_effect(kind, NETWORK, _MESH),), idle=component_readiness.istio)
        for kind in ("DestinationRule", "PeerAuthentication", "AuthorizationPolicy")
    },
    "VirtualService": KindRow(4, (_effect("VirtualService", NETWORK, _MESH),), idle=component_readiness.istio),
    "Controller": KindRow(
        3,
        (
            _effect(
                "Controller", NEW_PODS, "While Slurm's controller restarts, running jobs continue and new ones wait."
            ),
        ),
        idle=component_readiness.slurm_controller,
    ),
    "NodeSet": KindRow(
        4,
        (
            _effect(
                "NodeSet", GPU_PODS, "Nodes of Slurm are pods, which are made again or ended, and their jobs with them."
            ),
        ),
        idle=component_readiness.node_set,
        reads=2,
        is_idle_at_first=True,
    ),
    "LoginSet": KindRow(
        4,
        (_effect("LoginSet", NEW_PODS, "People who are logged in are cut off; jobs run on."),),
        idle=component_readiness.login_set,
        is_idle_at_first=True,
    ),
    **{
        kind: KindRow(4, (_effect(kind, LIVE, _OBSERVED),), idle=component_readiness.monitored)
        for kind in ("ServiceMonitor", "PodMonitor", "PrometheusRule")
    },
}


def row(kind: str) -> KindRow:
    """A kind that is not known any more, of an old plan, goes last and has the strictest effect."""
    return ROWS.get(kind) or KindRow(9)


def component_of(kind: str) -> str:
    known = KINDS.get(kind)
    return known.component if known else ""
