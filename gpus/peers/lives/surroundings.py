"""Events on a job's nodes in its time: drift, rollouts, XIDs, and when nothing was recorded."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from django.conf import settings
from django.db.models import Max, Min

from accounts.models import User
from clusters.models import GpuJob, Node
from compliance.models import ComplianceState, SettingChange
from compliance.reports import selectors as compliance
from gpus.metrics import xids
from gpus.metrics.xids import ReportedXid
from gpus.models import GpuBand, GpuDevice, NodePace
from gpus.peers import reports
from gpus.storage import history
from jobs.models import Rollout, Step
from jobs.reports import selectors as rollouts

MOST_NODES = 500
MOST_CHANGES = 100
MOST_ROLLOUTS = 50
MOST_GAPS = 20


@dataclass(slots=True)
class JobNode:
    """One node that pods of the job were placed on."""

    name: str
    pods: int = 0
    gpus: int = 0
    since: int = 0
    """Seconds since 1970, as `until`."""
    until: int | None = None
    """None: a pod of the job is there."""
    node: Node | None = None
    """None: it is gone, or another has its name."""
    state: str = ""
    """On the axis of compliance; of now."""
    drifts: int = 0
    """Settings that drifted in the job's time."""
    xids: Sequence[ReportedXid] = ()
    """Of GPUs that the job's pods hold now, the worst first."""
    pace: NodePace | None = None
    """None: not looked at yet, or the node's pace is that of another job."""

    @property
    def not_compared(self) -> str:
        """Return why; empty where it is compared, or was not looked at yet."""
        return reports.few(self.pace) if self.pace and self.pace.verdict == NodePace.Verdict.FEW else ""


@dataclass(frozen=True, slots=True)
class RolloutTouch:
    rollout: Rollout
    nodes: int
    """Of the job's."""
    first: datetime
    last: datetime


@dataclass(slots=True)
class Gap:
    """Time in which Setpoint recorded nothing of the cluster."""

    start: datetime
    end: datetime

    @property
    def seconds(self) -> float:
        return (self.end - self.start).total_seconds()


@dataclass(slots=True)
class Surroundings:
    nodes: list[JobNode] = field(default_factory=list)
    nodes_count: int = 0
    changes: list[SettingChange] = field(default_factory=list)
    rollouts: list[RolloutTouch] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    gap_seconds: float = 0.0


def of(user: User, job: GpuJob, at: datetime) -> Surroundings:
    """Gather them in seven queries at most, for any number of nodes."""
    nodes = _places(job)
    seen = Surroundings(nodes=list(nodes.values())[:MOST_NODES], nodes_count=len(nodes))
    by_pk = _join(user, job, seen.nodes)
    if by_pk:
        _add_devices(job, by_pk)
        seen.changes = _changes(user, job, by_pk, at)
        seen.rollouts = _touches(user, job, by_pk, at)
    gaps = _gaps(job, at)
    seen.gaps, seen.gap_seconds = gaps[:MOST_GAPS], sum(gap.seconds for gap in gaps)
    return seen


def _places(job: GpuJob) -> Mapping[str, JobNode]:
    nodes: dict[str, JobNode] = {}
    for pod in sorted(job.all_pods(), key=lambda pod: pod.node):
        if not pod.node:
            continue
        if (place := nodes.get(pod.node)) is None:
            place = nodes[pod.node] = JobNode(pod.node, since=pod.created, until=pod.ended)
        place.pods += 1
        place.since = min(place.since, pod.created)
        place.until = None if place.until is None or pod.ended is None else max(place.until, pod.ended)
        place.gpus += pod.gpus if pod.ended is None or job.ended_at else 0
    return nodes


def _join(user: User, job: GpuJob, nodes: Sequence[JobNode]) -> dict[int, JobNode]:
    by_name = {place.name: place for place in nodes}
    rows = compliance.nodes(user).filter(cluster=job.cluster_id, name__in=list(by_name))
    by_pk: dict[int, JobNode] = {}
    for row in rows.order_by("name", "pk"):
        place = by_name[row.name]
        place.node, place.state = row, row.shown
        by_pk[row.pk] = place
    return by_pk


def _add_devices(job: GpuJob, by_pk: Mapping[int, JobNode]) -> None:
    names = {pod.name for pod in job.all_pods() if pod.ended is None}
    codes: dict[int, list[Any]] = defaultdict(list)
    devices = GpuDevice.objects.seen().filter(node__in=list(by_pk)).exclude(xids=[])
    for pk, entries, holders in devices.order_by("pk").values_list("node", "xids", "holders"):
        if any(holder[0] == job.namespace and holder[1] in names for holder in holders):
            codes[pk] += xids.current(entries)
    for pk, entries in codes.items():
        by_pk[pk].xids = xids.reported(entries)
    if names:
        own = ("", job.namespace, f"{job.namespace}/{job.name}")  # a node may hold pods of several jobs
        for pace in NodePace.objects.filter(node__in=list(by_pk), work__in=own):
            by_pk[pace.node_id].pace = pace


def _changes(user: User, job: GpuJob, by_pk: Mapping[int, JobNode], at: datetime) -> list[SettingChange]:
    """Settings that drifted on a node while pods of the job were there, the latest first."""
    rows = compliance.changes(user).filter(node__in=list(by_pk), state=ComplianceState.DRIFTED)
    rows = rows.filter(at__gte=job.queued_at, at__lte=job.until(at)).order_by("-at", "-pk")
    changes = []
    for change in rows[:MOST_CHANGES]:
        place = by_pk[change.node_id]
        seconds = change.at.timestamp()
        if place.since <= seconds and (place.until is None or seconds <= place.until):
            place.drifts += 1
            changes.append(change)
    return changes


def _touches(user: User, job: GpuJob, by_pk: Mapping[int, JobNode], at: datetime) -> list[RolloutTouch]:
    """Rollouts with a step on one of its nodes that was under way in the job's time, the latest first."""
    steps = Step.objects.filter(node__in=list(by_pk), entered_at__gte=job.queued_at)
    steps = steps.exclude(status=Step.Status.QUEUED).filter(rollout__started_at__lte=job.until(at))
    rows = steps.order_by().values("rollout").annotate(first=Min("rollout__started_at"), last=Max("entered_at"))
    nodes: dict[Any, set[int]] = defaultdict(set)
    for rollout_id, node_id in steps.order_by().values_list("rollout", "node"):
        nodes[rollout_id].add(node_id)
    spans = {row["rollout"]: (row["first"], row["last"]) for row in rows}
    visible = rollouts.visible_rollouts(user).filter(pk__in=list(spans)).order_by("-started_at", "-pk")
    return [RolloutTouch(row, len(nodes[row.pk]), *spans[row.pk]) for row in visible[:MOST_ROLLOUTS]]


def _gaps(job: GpuJob, at: datetime) -> list[Gap]:
    """Return the whole steps of its running time for which the cluster has no record."""
    if job.started_at is None:
        return []
    kept = at - timedelta(days=settings.SETPOINT_GPU_BUCKET_DAYS)
    seconds = history.FINE if job.started_at >= kept else history.COARSE
    # What is older than the retention was recorded, and deleted since.
    start = _ceiling(max(job.started_at, at - timedelta(days=settings.SETPOINT_GPU_BAND_DAYS)), seconds)
    end = min(job.until(at), at - timedelta(seconds=2 * seconds))  # the last steps are written when they are over
    rows = GpuBand.objects.filter(cluster=job.cluster_id, scope=GpuBand.Scope.CLUSTER, seconds=seconds)
    known = set(rows.filter(start__gte=start, start__lt=end).order_by().values_list("start", flat=True))
    gaps: list[Gap] = []
    step = timedelta(seconds=seconds)
    while start + step <= end:
        if start not in known:
            if gaps and gaps[-1].end == start:
                gaps[-1].end = start + step
            else:
                gaps.append(Gap(start, start + step))
        start += step
    return gaps


def _ceiling(at: datetime, seconds: int) -> datetime:
    return datetime.fromtimestamp(-(-int(at.timestamp()) // seconds) * seconds, UTC)
