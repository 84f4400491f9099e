"""The alert rule over containers of GPU pods that ran out of memory: one alert for the pods of one owner."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from django.urls import reverse

from clusters.models import Cluster, GpuPod, Node
from common.alerting import AlertCondition, AlertMember, AlertRule, RuleResult, Severity, SubjectKind, Threshold
from common.clock import now

KILLED = "gpu-pod-oom"
NAMED = 3
Cause = tuple[str, str, str]
"""Namespace, and the owner's kind and name."""


class _Pod(NamedTuple):
    namespace: str
    name: str
    owner_kind: str
    owner_name: str
    node_name: str
    memory_kills: int
    memory_killed_at: datetime


def rules() -> Iterator[AlertRule]:
    yield AlertRule(
        KILLED,
        "Container out of memory",
        "The last end of a container was OOMKilled within the last {limit}, in a pod that holds or requests GPUs. "
        "Pods of one owner, and those of one namespace without an owner, are one alert. Pods that have ended for good "
        "are not there any more.",
        Severity.WARNING,
        out_of_memory,
        threshold=Threshold(1, 0.25, 24, "h", "within which the container ended"),
        order=16,
    )


def out_of_memory(cluster_id: UUID, threshold: float) -> RuleResult:
    """Report pods with such a container, by their owner. Three queries at most."""
    cluster = Cluster.objects.get(pk=cluster_id)
    if not cluster.is_current:
        return RuleResult(blind=cluster.why_unknown)
    since = now() - timedelta(hours=threshold)
    rows = GpuPod.objects.filter(cluster=cluster_id, memory_kills__gt=0, memory_killed_at__gte=since)
    pods: dict[Cause, list[_Pod]] = defaultdict(list)
    for row in rows.order_by("namespace", "name").values_list(*_Pod._fields):
        pod = _Pod(*row)
        pods[pod.namespace, pod.owner_kind, pod.owner_name].append(pod)
    if not pods:
        return RuleResult()
    nodes = dict(Node.objects.present().filter(cluster=cluster_id).order_by().values_list("name", "pk"))
    return RuleResult([_condition(cluster_id, cause, members, nodes) for cause, members in pods.items()])


def _condition(cluster_id: UUID, cause: Cause, pods: list[_Pod], nodes: Mapping[str, int]) -> AlertCondition:
    namespace, kind, owner = cause
    count = sum(pod.memory_kills for pod in pods)
    names = {pod.node_name for pod in pods if pod.node_name}
    node = nodes.get(next(iter(names))) if len(names) == 1 else None
    return AlertCondition(
        SubjectKind.WORKLOAD,
        "/".join(cause),
        f"{namespace}/{owner}" if owner else f"{namespace}: pods without an owner",
        _sentence(f"{kind} {owner}".strip(), pods, count),
        mend="Raise the container's memory limit, or let it take less: fewer workers, smaller batches, less in a "
        "memory-backed volume.",
        link=reverse("clusters:node", args=[node]) if node else reverse("gpus:cluster", args=[cluster_id]),
        node=node,
        namespace=namespace,
        since=min(pod.memory_killed_at for pod in pods),
        figures={"owner": f"{kind} {owner}".strip(), "pods": len(pods), "containers": count},
        members=[
            AlertMember(
                f"{pod.namespace}/{pod.name}",
                pod.memory_killed_at,
                {"node": pod.node_name, "containers": pod.memory_kills},
            )
            for pod in pods
        ],
    )


def _sentence(owner: str, pods: list[_Pod], count: int) -> str:
    what = "1 container" if count == 1 else f"{count:,} containers"
    listed = ", ".join(pod.name for pod in pods[:NAMED])
    more = f" and {len(pods) - NAMED:,} more" if len(pods) > NAMED else ""
    last = max(pod.memory_killed_at for pod in pods)
    of_owner = f" of {owner}" if owner else ""
    return f"{what}{of_owner} ran out of memory, the last one at {last:%Y-%m-%d %H:%M} UTC: {listed}{more}."
