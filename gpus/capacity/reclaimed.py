"""Pending gangs of a cluster that would start if what pods hold idle were free, from rows as last read."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from django.conf import settings
from django.db.models import Value
from django.db.models.functions import Coalesce

from accounts.models import User
from accounts.permissions import restrict
from clusters.models import Cluster, Node
from gpus.capacity import fit, queue_steps, reclaim
from gpus.capacity.queue_steps import IdlePod
from gpus.capacity.queue_terms import Terms
from gpus.capacity.reclaim import Answer, Key, Pending, Room
from gpus.models import Waiting, WorkloadWait

MOST_JUDGED = 2000
NOT_MODELED = (
    "topology and affinity, taints, CPU and memory, the nodes of a flavor, lending limits, weights, fair sharing and "
    "preemption by the scheduler, quotas of Kueue’s Cohort objects, the capability of a Volcano queue’s parents, and "
    "Volcano’s priority classes"
)


@dataclass(frozen=True, slots=True)
class JudgedGang:
    answer: Answer
    wait: WorkloadWait
    starts_now: bool
    """Without anything given back: its scheduler has a reason that is not known here."""


@dataclass(frozen=True, slots=True)
class Reclaimed:
    cluster: Cluster
    read_at: datetime | None
    idle: Sequence[IdlePod] | None
    """None: telemetry is not current."""
    idle_minutes: int
    free: int
    """GPUs, instances and shares that are free now, on nodes that take pods."""
    freed: int
    """What is given back of nodes that take pods."""
    judged: Sequence[JudgedGang]
    left_out: int
    """Gangs that wait beyond the first MOST_JUDGED."""

    @property
    def starts(self) -> list[JudgedGang]:
        return [entry for entry in self.judged if entry.answer.starts]

    @property
    def gpus_started(self) -> int:
        return sum(entry.answer.gang.gpus for entry in self.starts)

    @property
    def newly(self) -> int:
        return sum(not entry.starts_now for entry in self.starts)

    @property
    def not_started(self) -> list[JudgedGang]:
        return [entry for entry in self.judged if not entry.answer.starts]

    @property
    def not_modeled(self) -> str:
        return NOT_MODELED


def of(user: User, cluster: Cluster) -> Reclaimed:
    """Answer for a cluster with at most ten queries, for any number of workloads."""
    row = restrict(Waiting.objects.filter(cluster=cluster), user).first()
    minutes = settings.SETPOINT_GPU_IDLE_MINUTES
    local = {(space, name): queue for space, name, queue in row.local_queues} if row else {}
    idle = queue_steps.idle_pods(cluster.pk, local, least=timedelta(minutes=minutes))
    open_waits = restrict(WorkloadWait.objects.filter(cluster=cluster, admitted_at=None, ended_at=None), user)
    ordered = open_waits.order_by(Coalesce("priority", Value(0)).desc(), "created_at", "pk")
    rows = {wait.pk: wait for wait in ordered[: MOST_JUDGED + 1]}
    left_out = open_waits.count() - MOST_JUDGED if len(rows) > MOST_JUDGED else 0
    gangs = [_pending(wait) for wait in list(rows.values())[:MOST_JUDGED]]
    nodes = [node for node in fit.nodes(user, cluster) if not node.is_out]
    labels = _labels(cluster, {name for gang in gangs for name in gang.selector})
    terms = {(queue["system"], queue["name"]): Terms.of(queue.get("terms", {})) for queue in row.queues} if row else {}
    back = _given_back(idle or (), nodes)
    now_free, after = _rooms(nodes, labels, {}), _rooms(nodes, labels, back)
    now = {answer.gang.key for answer in reclaim.judge(gangs, now_free, terms) if answer.starts}
    answers = reclaim.judge(gangs, after, _less(terms, idle or ()))
    free = sum(room.gpus for room in now_free)
    return Reclaimed(
        cluster=cluster,
        read_at=row.read_at if row else None,
        idle=idle,
        idle_minutes=minutes,
        free=free,
        freed=sum(room.gpus for room in after) - free,
        judged=[JudgedGang(answer, rows[answer.gang.key], answer.gang.key in now) for answer in answers],
        left_out=left_out,
    )


def _pending(wait: WorkloadWait) -> Pending:
    return Pending(
        key=wait.pk,
        queue=(wait.system, wait.queue),
        pods=wait.pods,
        profile=wait.profile,
        created_at=wait.created_at,
        priority=wait.priority or 0,
        selector=wait.selector,
        is_active=wait.is_active,
        has_quota=wait.has_quota,
    )


def _labels(cluster: Cluster, names: set[str]) -> dict[str, dict[str, str]]:
    """Return by node the labels of these names: the others decide nothing here."""
    if not names:
        return {}
    rows = Node.objects.present().filter(cluster=cluster, gpu_count__gt=0).values_list("name", "labels")
    return {name: {key: value for key, value in labels.items() if key in names} for name, labels in rows}


def _kind(profile: str) -> str:
    """Shares that have the name of whole GPUs are given to pods that want one."""
    return "" if profile == fit.GPU_SHARES else profile


def _given_back(idle: Iterable[IdlePod], nodes: Iterable[fit.Free]) -> dict[tuple[str, str], int]:
    """Return GPUs by node and kind; never more than the node offers besides what is free."""
    held: Counter[tuple[str, str]] = Counter()
    for pod in idle:
        for profile, count in pod.parts.items():
            held[pod.node, profile] += count
        held[pod.node, ""] += max(0, pod.gpus - sum(pod.parts.values()))
    places = ((node.name, _kind(node.profile), node.offered - node.free) for node in nodes)
    return {(name, kind): min(held[name, kind], max(0, most)) for name, kind, most in places if held[name, kind]}


def _rooms(
    nodes: Iterable[fit.Free], labels: Mapping[str, Mapping[str, str]], back: Mapping[tuple[str, str], int]
) -> list[Room]:
    return [
        Room(
            node.name,
            node.model,
            _kind(node.profile),
            node.free + back.get((node.name, _kind(node.profile)), 0),
            labels.get(node.name, {}),
        )
        for node in nodes
    ]


def _less(terms: Mapping[Key, Terms], idle: Iterable[IdlePod]) -> dict[Key, Terms]:
    """Return the terms once queues no longer hold what is given back."""
    freed: dict[Key, Counter[str]] = defaultdict(Counter)
    for pod in idle:
        if pod.key is not None:
            freed[pod.key].update(pod.parts)
            freed[pod.key][""] += max(0, pod.gpus - sum(pod.parts.values()))
    after = dict(terms)
    for key in freed.keys() & terms.keys():
        lines = terms[key].lines
        after[key] = replace(
            terms[key],
            lines={kind: replace(line, used=max(0, line.used - freed[key][kind])) for kind, line in lines.items()},
        )
    return after
