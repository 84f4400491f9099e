"""Batch schedulers' objects, where simulated clusters have work that waits: Volcano's and Kueue's, in their own shapes.

    queues.define(cluster, queues.VOLCANO)            # a moment later the types are served
    queues.volcano_queue(cluster, "pretraining", limit=192, namespaces=["team-llm"])
    queues.pod_group(cluster, "gang", namespace="team-llm", queue="pretraining", pods=16, gpus=8)

As `scheduling.volcano.sh/v1beta1` and `kueue.x-k8s.io/v1beta1` have them. Nothing schedules here: what waits keeps
waiting, with the words that the schedulers say of it, and is as old as the cluster's clock makes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
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
    ("kueue.x-k8s.io", "v1beta1", "localqueues", "LocalQueue", True),
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
    """Make it, open, or bring it up to date; what it has allocated are the GPUs that pods in these namespaces hold.

    `waiting`: gangs that it counts.
    """
    with cluster.lock:
        held = _held(cluster, namespaces)
        spec: Raw = {"weight": 1, "reclaimable": True}
        if limit is not None:
            spec["capability"] = {instances.WHOLE: str(limit)}
        status = {"state": "Open", "pending": waiting, "allocated": {instances.WHOLE: str(held)}}
        if before := cluster.store.find(_plural(VOLCANO[1]), name):
            cluster.store.write(_plural(VOLCANO[1]), before.raw | {"status": status})
        else:
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
    cluster: SimCluster,
    name: str,
    *,
    flavor: str,
    namespaces: Sequence[str],
    quota: int,
    waiting: int,
    besides: int = 0,
) -> None:
    """Active, without a cohort to borrow from; made, or brought up to date, with a LocalQueue in each namespace.

    `besides`: GPUs that it has admitted whose pods the cluster does not show.
    """
    with cluster.lock:
        held = _held(cluster, namespaces) + besides
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
        if before := cluster.store.find(_plural(KUEUE[1]), name):
            cluster.store.write(_plural(KUEUE[1]), before.raw | {"status": status})
            return
        _put(cluster, KUEUE[1], {"metadata": {"name": name}, "spec": spec, "status": status})
        for namespace in namespaces:
            cluster.ensure_namespace(namespace)
            local = {"metadata": {"name": name, "namespace": namespace}, "spec": {"clusterQueue": name}}
            _put(cluster, KUEUE[2], local)


def workload(
    cluster: SimCluster, job: str, *, namespace: str, queue: str, pods: int, gpus: int, flavor: str, lacks: int
) -> None:
    """Create the Workload of a suspended Job without quota: the flavor lacks `lacks` more GPUs."""
    with cluster.lock:
        cluster.ensure_namespace(namespace)
        message = (
            f"couldn't assign flavors to pod set main: insufficient unused quota for {instances.WHOLE} in flavor "
            f"{flavor}, {lacks} more needed"
        )
        pending = {"type": "QuotaReserved", "status": "False", "reason": "Pending", "message": message}
        status = {"conditions": [pending | {"lastTransitionTime": stamp(cluster.clock.now())}]}
        metadata = {"name": f"job-{job}", "namespace": namespace}
        _put(cluster, KUEUE[0], {"metadata": metadata, "spec": _asking(queue, pods, gpus), "status": status})


def mark(
    cluster: SimCluster, job: str, *, namespace: str, queue: str, conditions: Mapping[str, tuple[bool, str]]
) -> None:
    """Set conditions of a job's Workload, and its admission as they have it; one that changes does so now."""
    with cluster.lock:
        raw = cluster.store.get(_plural(KUEUE[0]), f"job-{job}", namespace).raw
        rows = {row["type"]: row for row in raw["status"]["conditions"]}
        for name, (is_true, reason) in conditions.items():
            row = {"type": name, "status": str(is_true), "reason": reason, "message": ""}
            if row["status"] != rows.get(name, {}).get("status"):
                rows[name] = row | {"lastTransitionTime": stamp(cluster.clock.now())}
        admission = {"admission": {"clusterQueue": queue}} if rows["QuotaReserved"]["status"] == "True" else {}
        cluster.store.write(_plural(KUEUE[0]), raw | {"status": {"conditions": list(rows.values()), **admission}})


def let_in(cluster: SimCluster, queue: str, *, namespaces: Sequence[str]) -> None:
    """Give each Job with GPUs in the namespaces its Workload: admitted as its pods were made, after a wait."""
    with cluster.lock:
        jobs = [stored.raw for stored in cluster.store.all("jobs") if stored.key[0] in namespaces]
        for place, job in enumerate(jobs):
            name, namespace, uid = (job["metadata"][key] for key in ("name", "namespace", "uid"))
            sizes = [instances.requested(pod.raw)[instances.WHOLE] for pod in cluster.garbage.dependants(uid, "pods")]
            if not any(sizes):
                continue
            made = datetime.fromisoformat(job["metadata"]["creationTimestamp"])
            owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid, "controller": True}
            metadata = {"name": f"job-{name}", "namespace": namespace, "ownerReferences": [owner]}
            rows = [
                {"type": kind, "status": "True", "reason": kind, "message": "", "lastTransitionTime": stamp(made)}
                for kind in ("QuotaReserved", "Admitted", "PodsReady")
            ]
            status = {"conditions": rows, "admission": {"clusterQueue": queue}}
            raw = {"metadata": metadata, "spec": _asking(queue, len(sizes), sizes[0]), "status": status}
            queued = stamp(made - timedelta(minutes=4 + 9 * place % 50))
            cluster.store.create(_plural(KUEUE[0]), raw, at=queued)


def _asking(queue: str, pods: int, gpus: int) -> Raw:
    wanted = {"limits": {instances.WHOLE: str(gpus)}, "requests": {instances.WHOLE: str(gpus), "cpu": "16"}}
    template = {"spec": {"containers": [{"name": "main", "resources": wanted}], "restartPolicy": "Never"}}
    return {"active": True, "queueName": queue, "podSets": [{"name": "main", "count": pods, "template": template}]}


def workloads(cluster: SimCluster) -> list[Raw]:
    return [stored.raw for stored in cluster.store.all(_plural(KUEUE[0]))]


def _put(cluster: SimCluster, definition: Definition, raw: dict[str, Any]) -> None:
    cluster.store.create(_plural(definition), raw)


def _plural(definition: Definition) -> str:
    return f"{definition[2]}.{definition[0]}"


def _held(cluster: SimCluster, namespaces: Sequence[str]) -> int:
    """Whole GPUs of pods that are on a node and not finished."""
    placed = (stored.raw for stored in cluster.store.all("pods") if stored.key[0] in namespaces)
    living = (pod for pod in placed if pod["spec"].get("nodeName") and not objects.is_finished(pod))
    return sum(instances.requested(pod)[instances.WHOLE] for pod in living)
