"""Rows of waits from what schedulers' objects say, written with each reading, and only those that change.

A reading is of the whole cluster, so an object that it lacks is gone. One that is evicted and admitted again between
two readings leaves traces (another time of admission, a higher count of evictions): the wait in between then counts,
but for how long is not made up. Nor is time in which nothing was read: what waited at a reading waited until then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from clusters.models import GpuPod
from gpus.capacity.observed import MOST_GPUS, Observation
from gpus.models import WorkloadWait

System, Outcome = WorkloadWait.System, WorkloadWait.Outcome
AT_ONCE = 500
MOST_NEW = 50_000
"""Objects that one reading begins to follow."""
REACH = timedelta(minutes=15)
"""Of a reading, where its caller says no other."""
SAME = timedelta(seconds=1)
"""Kubernetes' times are whole seconds."""
DESCRIBED = (
    "queue", "local_queue", "owner_kind", "owner_name", "job_key", "gpus", "pods", "profile", "selector", "priority",
    "is_active", "tallied", "has_quota",
)  # fmt: skip
FIELDS = [
    *DESCRIBED, "queued_at", "admitted_at", "running_at", "ended_at", "outcome", "reason", "evictions", "is_measured",
    "is_present", "admission_mark", "eviction_mark",
]  # fmt: skip


@dataclass(slots=True)
class Readings:
    """Contents of one reading of a cluster."""

    observations: list[Observation] = field(default_factory=list)
    complete: set[str] = field(default_factory=set)
    """Systems whose objects were all read: of the others nothing is taken for gone."""
    cluster_queues: dict[tuple[str, str], str] = field(default_factory=dict)
    """By namespace and name of a LocalQueue."""


def record(
    cluster_id: UUID, readings: Readings, at: datetime, before: datetime | None, *, reach: timedelta = REACH
) -> int:
    """Write the waits of one reading and return how many rows changed. Within the caller's transaction.

    `before`: of the reading before it, whose objects are known. `reach`: longer than this ago, what happened between
    the two is not known.
    """
    is_gap = before is None or at - before > reach
    known = {(row.system, row.uid): row for row in WorkloadWait.objects.filter(cluster=cluster_id, is_present=True)}
    seen = {(seen.system, seen.uid): seen for seen in [*readings.observations, *_pods(cluster_id, readings, at)]}
    fresh = [key for key in seen if key not in known][:MOST_NEW]
    known |= _returned(cluster_id, fresh)
    changed: list[WorkloadWait] = []
    for key in [*(key for key in seen if key in known), *(key for key in fresh if key not in known)]:
        observation = _placed(seen[key], readings)
        row = known.get(key) or _begin(cluster_id, observation)
        changed += _advance(row, observation, at, before, is_gap=is_gap)
    for key, row in known.items():
        if key not in seen and row.system in readings.complete:
            changed.append(_gone(row, at, before or at))
    WorkloadWait.objects.bulk_create(
        changed,
        batch_size=AT_ONCE,
        update_conflicts=True,
        unique_fields=["cluster", "system", "uid", "number"],
        update_fields=FIELDS,
    )
    return len(changed)


def _returned(cluster_id: UUID, keys: Collection[tuple[str, str]]) -> dict[tuple[str, str], WorkloadWait]:
    """Return the last waits of objects that were taken for gone: an API server may not serve its kinds for a while."""
    uids = [uid for _, uid in keys]
    rows: dict[tuple[str, str], WorkloadWait] = {}
    for begin in range(0, len(uids), AT_ONCE):
        of = WorkloadWait.objects.filter(cluster=cluster_id, uid__in=uids[begin : begin + AT_ONCE]).order_by("number")
        rows |= {(row.system, row.uid): row for row in of}
    for row in rows.values():
        if row.outcome == Outcome.REMOVED:
            row.ended_at, row.outcome = None, ""
    return rows


def _placed(observation: Observation, readings: Readings) -> dict[str, Any]:
    queue = observation.queue or readings.cluster_queues.get((observation.namespace, observation.local_queue), "")
    values = {name: getattr(observation, name) for name in Observation.__slots__}
    return values | {"queue": queue}


def _begin(cluster_id: UUID, values: Mapping[str, Any]) -> WorkloadWait:
    """Return the first wait that is seen of a workload: after its last eviction where it has one behind it."""
    row = WorkloadWait(cluster_id=cluster_id, number=1, created_at=values["created_at"])
    for name in ("system", "uid", "kind", "namespace", "name", *DESCRIBED):
        setattr(row, name, values[name])
    row.queued_at = values["evicted_at"] or values["created_at"]
    row.eviction_mark = values["eviction_mark"]
    was_evicted = bool(values["tallied"]) and not values["evicted_at"]
    row.is_measured = not was_evicted and (values["is_dated"] or values["admitted_at"] is None)
    return row


def _advance(
    row: WorkloadWait, values: Mapping[str, Any], at: datetime, before: datetime | None, *, is_gap: bool
) -> Iterator[WorkloadWait]:
    """Bring what is seen into the last wait of the workload; yield the rows that changed, and those that began."""
    as_it_was = None if row.pk is None else [getattr(row, name) for name in FIELDS]
    evictions = _evictions(row, values)
    row.is_present = True
    following = None
    if row.ended_at is None:
        if since := _evicted_since(row, values, at, before, evictions):
            following = _follow(row, values, since, evictions)
        elif values["admitted_at"] and row.admitted_at is None:
            # What is only known to be in waited at the reading before, also where a condition is older.
            waited_until = before if before and not values["is_dated"] and row.pk is not None else row.queued_at
            row.admitted_at = max(min(max(values["admitted_at"], waited_until), at), row.queued_at)
            row.admission_mark = values["admission_mark"]
            row.is_measured = row.is_measured and (values["is_dated"] or not is_gap)
    last = following or row
    for name in DESCRIBED:  # the queue of one that is over is where it waited
        if name not in ("queue", "local_queue") or (values[name] and last.admitted_at is None) or not row.queue:
            setattr(last, name, values[name])
    if last.ended_at is None:
        _run_and_end(last, values)
    if as_it_was != [getattr(row, name) for name in FIELDS]:
        yield row
    if following:
        yield following


def _run_and_end(row: WorkloadWait, values: Mapping[str, Any]) -> None:
    if values["running_at"] and row.running_at is None and row.admitted_at:
        row.running_at = max(values["running_at"], row.admitted_at)
    if values["ended_at"]:
        row.ended_at = max(values["ended_at"], row.running_at or row.admitted_at or row.queued_at)
        row.outcome = Outcome.FINISHED


def _evicted_since(
    row: WorkloadWait, values: Mapping[str, Any], at: datetime, before: datetime | None, evictions: Counter[str]
) -> datetime | None:
    """Return since when it waits again, at the earliest; None: nothing evicted it."""
    evicted: datetime | None = values["evicted_at"]
    earliest = row.admitted_at or row.queued_at
    if evicted:
        is_news = row.admitted_at is not None or _is_later(values["eviction_mark"], row.eviction_mark)
        return max(evicted, earliest) if is_news else None
    if row.admitted_at is None:  # admitted, evicted and admitted again since the reading before
        return max(before or at, earliest) if evictions and values["admitted_at"] else None
    if values["admitted_at"] is None:
        return None if values["ended_at"] else at  # out again, without a word of when
    was_again = _is_later(values["admission_mark"], row.admission_mark)
    return max(min(before or at, values["admitted_at"]), earliest) if was_again else None


def _is_later(mark: datetime | None, known: datetime | None) -> bool:
    """Compare two times of the cluster. One that is not told is no news."""
    return mark is not None and (known is None or mark > known + SAME)


def _evictions(row: WorkloadWait, values: Mapping[str, Any]) -> Counter[str]:
    """Return the evictions by reason since the row was written, where Kueue counts them."""
    return Counter(values["tallied"]) - Counter(row.tallied) if row.pk is not None else Counter()


def _follow(row: WorkloadWait, values: Mapping[str, Any], since: datetime, evictions: Counter[str]) -> WorkloadWait:
    """End the wait by an eviction and return the one that follows."""
    row.ended_at, row.outcome, row.is_present = since, Outcome.EVICTED, False
    row.reason = values["reason"] or next((reason for reason, _ in evictions.most_common(1)), "")
    row.evictions = min(max(1, evictions.total()), MOST_GPUS)
    again = WorkloadWait(number=row.number + 1, queued_at=since, eviction_mark=values["eviction_mark"])
    for name in ("cluster_id", "system", "uid", "kind", "namespace", "name", "created_at", *DESCRIBED):
        setattr(again, name, getattr(row, name))
    if values["admitted_at"]:
        again.admitted_at, again.admission_mark = max(values["admitted_at"], since), values["admission_mark"]
        again.is_measured = False  # since when it waited, no one tells
    return again


def _gone(row: WorkloadWait, at: datetime, before: datetime) -> WorkloadWait:
    """End the wait of an object that is no more: it waited at the reading `before`, and of later nothing is known."""
    row.is_present = False
    if row.ended_at is None:
        row.ended_at = max(at if row.admitted_at else before, row.running_at or row.admitted_at or row.queued_at)
        is_pod = row.system == System.PODS and row.admitted_at is not None
        row.outcome = Outcome.FINISHED if is_pod else Outcome.REMOVED
    return row


# ── Pods without a queue ──────────────────────────────────────────────────────────────────────────────────────────────
def _pods(cluster_id: UUID, readings: Readings, at: datetime) -> Iterable[Observation]:
    """Yield the pods that no queue has: they wait for the scheduler, which places each by itself.

    The kubelet's start of a pod is when it was admitted: a moment after it was placed.
    """
    readings.complete.add(System.PODS)
    managed = {
        (seen.namespace, name) for seen in readings.observations for name in (seen.owner_name, seen.name) if name
    }
    columns = (
        "uid", "namespace", "name", "gpus", "mig", "owner_kind", "owner_name", "job_key", "job_name", "created_at",
        "started_at", "running_at", "node_name",
    )  # fmt: skip
    for pod in GpuPod.objects.filter(cluster=cluster_id, queue="").order_by("pk").values(*columns):
        names = {(pod["namespace"], pod[key]) for key in ("owner_name", "job_name", "name")}
        if pod["created_at"] is None or not 0 < pod["gpus"] <= MOST_GPUS or names & managed:
            continue
        created = min(pod["created_at"], at)
        profiles = sorted(pod["mig"])

        def when(value: datetime | None, created: datetime = created) -> datetime | None:
            return min(max(value, created), at) if value else None

        yield Observation(
            system=System.PODS, kind="Pod", uid=pod["uid"][:64], namespace=pod["namespace"], name=pod["name"], queue="",
            local_queue="", owner_kind=pod["owner_kind"], owner_name=pod["owner_name"], job_key=pod["job_key"],
            gpus=pod["gpus"], pods=[[1, pod["gpus"]]], profile=(profiles[0] if profiles else "")[:63], selector={},
            priority=None, is_active=True, created_at=created,
            admitted_at=when(pod["started_at"] or pod["running_at"]) or (at if pod["node_name"] else None),
            running_at=when(pod["running_at"]), evicted_at=None, ended_at=None, reason="",
            is_dated=pod["started_at"] is not None or not pod["node_name"],
        )  # fmt: skip
