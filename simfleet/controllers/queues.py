"""Batch schedulers' objects, where simulated clusters have work that waits: Volcano's and Kueue's, in their own shapes.

    queues.define(cluster, queues.VOLCANO)            # a moment later the types are served
    queues.volcano_queue(cluster, "pretraining", limit=192, namespaces=["team-llm"])
    queues.pod_group(cluster, "gang", namespace="team-llm", queue="pretraining", pods=16, gpus=8)

As `scheduling.volcano.sh/v1beta1` and `kueue.x-k8s.io/v1beta1` have them. Nothing schedules here: what waits keeps
waiting, with the words that the schedulers say of it, and is as old as the cluster's clock makes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from clusters import objects
from simfleet.apiserver.definitions import CRDS
from simfleet.apiserver.store import Raw
from simfleet.clock import stamp
from simfleet.machines import instances

if TYPE_CHECKING:
    from simfleet.core import SimCluster

Definition = tuple[str, str, str, str, bool]
"""Group, version, plural, kind, whether namespaced."""
VOLCANO: Sequence[Definition] = (
    ("scheduling.volcano.sh", "v1beta1", "podgroups", "PodGroup", True),
    ("scheduling.volcano.sh", "v1beta1", "queues", "Queue", False),
)
KUEUE: Sequence[Definition] = (
    ("kueue.x-k8s.io", "v1beta1", "workloads", "Workload", True),
    ("kueue.x-k8s.io", "v1beta1", "clusterqueues", "ClusterQueue", False),
)


def define(cluster: SimCluster, definitions: Iterable[Definition]) -> None:
    """The types are served a moment later; see simfleet.apiserver.definitions."""
    with cluster.lock:
        for group, version, plural, kind, namespaced in definitions:
            spec = {
                "group": group,
                "names": {"plural": plural, "kind": kind, "singular": kind.lower(), "listKind": f"{kind}List"},
                "scope": "Namespaced" if namespaced else "Cluster",
                "versions": [{"name": version, "served": True, "storage": True, "subresources": {"status": {}}}],
            }
            cluster.store.create(CRDS, {"metadata": {"name": f"{plural}.{group}"}, "spec": spec})


# ── Volcano ───────────────────────────────────────────────────────────────────────────────────────────────────────────
def volcano_queue(
    cluster: SimCluster, name: str, *, namespaces: Sequence[str], limit: int | None = None, waiting: int = 0
) -> None:
    """Open; what it has allocated are the GPUs that pods in these namespaces hold. `waiting`: gangs that it counts."""
    with cluster.lock:
        held = _held(cluster, namespaces)
        spec: Raw = {"weight": 1, "reclaimable": True}
        if limit is not None:
            spec["capability"] = {instances.WHOLE: str(limit)}
        status = {"state": "Open", "pending": waiting, "allocated": {instances.WHOLE: str(held)}}
        _put(cluster, VOLCANO[1], {"metadata": {"name": name}, "spec": spec, "status": status})


def pod_group(
    cluster: SimCluster,
    name: str,
    *,
    namespace: str,
    queue: str,
    pods: int,
    gpus: int,
    resource: str = instances.WHOLE,
    says: str = "",
) -> None:
    """`pods` of `gpus` each, Pending: its pods are not made before the queue lets it in. `says`: why, if known yet."""
    with cluster.lock:
        cluster.ensure_namespace(namespace)
        at = stamp(cluster.clock.now())
        least = {"cpu": str(pods * 16), "memory": f"{pods * 128}Gi", resource: str(pods * gpus)}
        condition = {
            "type": "Unschedulable",
            "status": "True",
            "reason": "NotEnoughResources",
            "message": says or f"{pods}/0 tasks in gang unschedulable: pod group is not ready, {pods} minAvailable",
            "lastTransitionTime": at,
        }
        spec = {"minMember": pods, "minResources": least, "queue": queue}
        status = {"phase": "Pending", "conditions": [condition]}
        metadata = {"name": name, "namespace": namespace}
        _put(cluster, VOLCANO[0], {"metadata": metadata, "spec": spec, "status": status})


# ── Kueue ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
def cluster_queue(
    cluster: SimCluster, name: str, *, flavor: str, namespaces: Sequence[str], quota: int, waiting: int
) -> None:
    """Active, without a cohort to borrow from."""
    with cluster.lock:
        held = _held(cluster, namespaces)
        resources = [{"name": instances.WHOLE, "nominalQuota": str(quota)}]
        groups = [{"coveredResources": [instances.WHOLE], "flavors": [{"name": flavor, "resources": resources}]}]
        active = {"type": "Active", "status": "True", "reason": "Ready", "message": "Can admit new workloads"}
        used = [{"name": instances.WHOLE, "total": str(held), "borrowed": "0"}]
        status = {
            "pendingWorkloads": waiting,
            "flavorsReservation": [{"name": flavor, "resources": used}],
            "conditions": [active | {"lastTransitionTime": stamp(cluster.clock.now())}],
        }
        spec = {"queueingStrategy": "BestEffortFIFO", "resourceGroups": groups}
        _put(cluster, KUEUE[1], {"metadata": {"name": name}, "spec": spec, "status": status})


def workload(
    cluster: SimCluster, job: str, *, namespace: str, queue: str, pods: int, gpus: int, flavor: str, lacks: int
) -> None:
    """Create the Workload of a suspended Job without quota: the flavor lacks `lacks` more GPUs."""
    with cluster.lock:
        cluster.ensure_namespace(namespace)
        wanted = {"limits": {instances.WHOLE: str(gpus)}, "requests": {instances.WHOLE: str(gpus), "cpu": "16"}}
        template = {"spec": {"containers": [{"name": "main", "resources": wanted}], "restartPolicy": "Never"}}
        message = (
            f"couldn't assign flavors to pod set main: insufficient unused quota for {instances.WHOLE} in flavor "
            f"{flavor}, {lacks} more needed"
        )
        pending = {"type": "QuotaReserved", "status": "False", "reason": "Pending", "message": message}
        spec = {
            "active": True,
            "queueName": queue,
            "podSets": [{"name": "main", "count": pods, "template": template}],
        }
        status = {"conditions": [pending | {"lastTransitionTime": stamp(cluster.clock.now())}]}
        metadata = {"name": f"job-{job}", "namespace": namespace}
        _put(cluster, KUEUE[0], {"metadata": metadata, "spec": spec, "status": status})


def _put(cluster: SimCluster, definition: Definition, raw: dict[str, Any]) -> None:
    group, _, plural, _, _ = definition
    cluster.store.create(f"{plural}.{group}", raw)


def _held(cluster: SimCluster, namespaces: Sequence[str]) -> int:
    """Whole GPUs of pods that are on a node and not finished."""
    placed = (stored.raw for stored in cluster.store.all("pods") if stored.key[0] in namespaces)
    living = (pod for pod in placed if pod["spec"].get("nodeName") and not objects.is_finished(pod))
    return sum(instances.requested(pod)[instances.WHOLE] for pod in living)
