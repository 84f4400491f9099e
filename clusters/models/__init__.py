"""Rows of clusters, their nodes, agents' answers and pods; and what keeps those rows true."""

from clusters.models.clusters import (
    DRIVER_FAILED,
    STALE_AFTER,
    AdministratorCredential,
    Cluster,
    ClusterDay,
    FormerCluster,
    HelmCredential,
    Node,
    NodeQuerySet,
    NodeTuning,
    Pool,
    heard_after,
    unavailable_now,
    unheard,
)
from clusters.models.devices import DeviceClaim, DeviceSlice
from clusters.models.gpu_jobs import GpuJob, JobPod
from clusters.models.gpu_pods import GpuPod
from clusters.models.pod_starts import PodStart
from clusters.models.sync import RowCheck, RowWriter, Tombstone, Watcher

__all__ = [
    "DRIVER_FAILED",
    "STALE_AFTER",
    "AdministratorCredential",
    "Cluster",
    "ClusterDay",
    "DeviceClaim",
    "DeviceSlice",
    "FormerCluster",
    "GpuJob",
    "GpuPod",
    "HelmCredential",
    "JobPod",
    "Node",
    "NodeQuerySet",
    "NodeTuning",
    "PodStart",
    "Pool",
    "RowCheck",
    "RowWriter",
    "Tombstone",
    "Watcher",
    "heard_after",
    "unavailable_now",
    "unheard",
]
