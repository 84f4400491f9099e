"""GPU alert rules over the latest samples, as `notices` evaluates them.

An old sample, or a device missing from the last reading, is no evidence in either direction.
Each evaluation costs a fixed number of queries; filtering is left to the database where possible.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.db.models import Q, Sum
from django.urls import reverse

from clusters.models import GpuPod, Node
from common.alerting import AlertCondition, AlertRule, RuleResult, Severity, SubjectKind, Threshold
from common.clock import now
from gpus.alerts.subjects import blind, device, devices, hardware
from gpus.metrics import mig, states, xids
from gpus.metrics.samples import Metric, XidEvidence
from gpus.models import GpuDevice, IdleHolding, TelemetrySource
from gpus.showback import periods, prices
from gpus.storage import history, node_snapshot

IDLE, XID, HOT, REMAP, LOST = "held-idle", "fatal-xid", "thermal", "row-remap-failed", "telemetry-lost"
HELD_BACK = "thermal-throttle"
HEAT = ("hw_thermal", "sw_thermal")
"""Reasons of `clock_events` that mean heat."""
COOL = "Look at fans, airflow and the neighbors' heat; cap the power of this node until it is fixed."
MOST_HELD_BACK = 1000
"""As many as one rule tells of one cluster."""
STOPPED = "no reading"
XID_LASTS = timedelta(minutes=5)
"""After a counter of an XID rose, as long as the exporter's own window of counts."""


def rules() -> Iterable[AlertRule]:
    yield AlertRule(
        IDLE,
        "GPUs held idle",
        "A pod holds GPUs, and on all of them utilization and engine activity are both below {limit}{lasting}. A "
        "pod younger than that is exempt, and so are GPUs whose telemetry contradicts itself.",
        Severity.WARNING,
        held_idle,
        opens_after=timedelta(minutes=30),
        closes_after=timedelta(minutes=5),
        threshold=Threshold(100 * states.IDLE_BELOW, 1, 50, "%", "below which a GPU counts as idle"),
        order=10,
    )
    yield AlertRule(
        XID,
        "Fatal XID",
        "A GPU reports an XID that needs a reset, a restart of the node or the vendor{lasting}.",
        Severity.CRITICAL,
        fatal_xids,
        closes_after=timedelta(hours=1),
        order=20,
    )
    yield from _rules_of_heat()
    yield AlertRule(
        REMAP,
        "Row remap failed",
        "A GPU could not replace a bad row of its memory.",
        Severity.CRITICAL,
        remap_failed,
        closes_after=timedelta(hours=1),
        order=40,
    )
    yield AlertRule(
        LOST,
        "Telemetry lost",
        "The GPUs of a cluster have not been read{lasting}, counted from when their last reading is 3 minutes old.",
        Severity.WARNING,
        telemetry_lost,
        opens_after=timedelta(minutes=2),
        closes_after=timedelta(minutes=1),
        order=50,
    )


def _rules_of_heat() -> Iterable[AlertRule]:
    yield AlertRule(
        HOT,
        "Thermal throttling",
        "A GPU is thermally throttled, or it is at {limit} or hotter{lasting}.",
        Severity.WARNING,
        throttled,
        opens_after=timedelta(minutes=5),
        closes_after=timedelta(minutes=10),
        threshold=Threshold(85, 50, 120, "°C", "from which a GPU is too hot"),
        order=30,
    )
    yield AlertRule(
        HELD_BACK,
        "Slowed by heat",
        "A GPU was thermally throttled for {limit} of the last ten minutes, or more{lasting}, by the seconds "
        "that its exporter counts.",
        Severity.WARNING,
        held_back,
        closes_after=timedelta(minutes=10),
        # DCGM's health watch warns of any, NVSentinel by default of none, for throttling follows load: half a minute
        threshold=Threshold(5, 0.5, 100, "%", "of the time from which a GPU counts as slowed down"),
        order=35,
    )


# ── The source itself ─────────────────────────────────────────────────────────────────────────────────────────────────
def telemetry_lost(cluster_id: UUID, _threshold: float) -> RuleResult:
    source = TelemetrySource.objects.filter(cluster=cluster_id, is_enabled=True).select_related("cluster").first()
    if source is None or source.is_current:
        return RuleResult()
    gpus = Node.objects.present().filter(cluster=cluster_id).aggregate(n=Sum("gpu_count"))["n"] or 0
    if not gpus and source.read_at is None:
        return RuleResult()  # nothing was ever there to be read
    last = f"last read {source.read_at:%Y-%m-%d %H:%M} UTC" if source.read_at else "never read yet"
    why = f" {source.sentence}" if source.state == TelemetrySource.State.FAILED and source.sentence else ""
    return RuleResult(
        [
            AlertCondition(
                SubjectKind.CLUSTER,
                str(cluster_id),
                source.cluster.name,
                f"Its GPUs are not read: {last}.{why}",
                mend="See the data quality panel of the cluster's GPU page for what does not answer.",
                link=reverse("gpus:cluster", args=[cluster_id]),
                figures={"gpus": gpus},
            )
        ]
    )


# ── Devices ───────────────────────────────────────────────────────────────────────────────────────────────────────────
def fatal_xids(cluster_id: UUID, _threshold: float) -> RuleResult:
    if why := blind(cluster_id):
        return RuleResult(blind=why)
    conditions = []
    for row in hardware(cluster_id).exclude(xids=[]):
        current = _current(row.xids)
        fatal = [xid for xid in xids.reported(current) if xid.advice.severity == "bad"]
        if fatal:
            names = ", ".join(f"XID {xid.code}{f' ({xid.name})' if xid.name else ''}" for xid in fatal)
            sticks = all(evidence == XidEvidence.LAST for _, _, evidence, *_ in current)
            when = " Time unknown: the last one since the driver was loaded." if sticks else ""
            mend = " ".join(dict.fromkeys(xid.advice.what for xid in fatal))
            conditions.append(device(row, f"{names}.{when}", mend, xids=",".join(str(xid.code) for xid in fatal)))
    return devices(cluster_id, conditions)


def _current(entries: Iterable[Sequence[Any]]) -> list[Sequence[Any]]:
    """Return those that tell of now: a counter only for a while after it rose, and then no gauge of the same code.

    The gauge keeps the last XID until the driver is loaded again, and the counter until the exporter starts again.
    """
    counted = {entry[0]: entry for entry in entries if entry[2] == XidEvidence.TOTAL}
    old = {
        code
        for code, (_, _, _, *rose_at) in counted.items()
        if rose_at and now() - datetime.fromisoformat(rose_at[0]) > XID_LASTS
    }
    return [entry for entry in entries if entry[0] not in old or entry[2] == XidEvidence.WINDOW]


def throttled(cluster_id: UUID, threshold: float) -> RuleResult:
    if why := blind(cluster_id):
        return RuleResult(blind=why)
    hot = Q(values__temperature__gte=threshold)
    for reason in HEAT:
        hot |= Q(**{f"clock_events__{reason}__gt": 0})
    conditions = []
    for row in hardware(cluster_id).filter(hot):
        sentences: list[str] = []
        figures: dict[str, float] = {}
        events = row.clock_events or {}
        held_back = {reason: int(events[reason]) for reason in HEAT if events.get(reason)}
        if held_back:
            counts = " and ".join(f"{reason} {count} times" for reason, count in held_back.items())
            sentences.append(f"Thermal throttling: {counts} in the exporter's window.")
            figures["clock_events"] = sum(held_back.values())
        if (degrees := row.value(Metric.TEMPERATURE)) is not None:
            sentences.append(f"It is at {degrees:.0f} °C.")
            figures["celsius"] = degrees
        conditions.append(device(row, " ".join(sentences), COOL, **figures))
    return devices(cluster_id, conditions)


def held_back(cluster_id: UUID, threshold: float) -> RuleResult:
    """Judge by the rise of the throttled seconds over the newest two whole five minutes that are stored."""
    if why := blind(cluster_id):
        return RuleResult(blind=why)
    counting = hardware(cluster_id).filter(values__thermal_throttled__gt=0)
    counted = frozenset(counting.order_by().values_list("uuid", flat=True))
    end = datetime.fromtimestamp(now().timestamp() // history.FINE * history.FINE, tz=UTC)
    start = end - 3 * timedelta(seconds=history.FINE)  # a third, for the newest may not be stored yet
    increases = history.latest(cluster_id, start, end, Metric.THERMAL_THROTTLED, steps=2) if counted else {}
    percent = {
        uuid: min(100.0, 100 * seconds / covered)
        for (uuid, instance), (seconds, covered) in increases.items()
        if covered and not instance and uuid in counted
    }
    worst = sorted((uuid for uuid, share in percent.items() if share >= threshold), key=lambda uuid: -percent[uuid])
    conditions = []
    for row in counting.filter(uuid__in=worst[:MOST_HELD_BACK]):
        sentence = f"Thermally throttled for {percent[row.uuid]:.1f} % of the last ten minutes."
        degrees = row.value(Metric.TEMPERATURE)
        sentence += f" It is at {degrees:.0f} °C." if degrees is not None else ""
        conditions.append(device(row, sentence, COOL, percent=round(percent[row.uuid], 1)))
    look = devices(cluster_id, conditions)
    return RuleResult(look.conditions, look.unknown | (counted - percent.keys()))


def remap_failed(cluster_id: UUID, _threshold: float) -> RuleResult:
    if why := blind(cluster_id):
        return RuleResult(blind=why)
    rows = hardware(cluster_id).filter(values__row_remap_failed__gte=1)
    sentence = "A bad row of its memory could not be replaced: there are no spare ones left."
    return devices(cluster_id, (device(row, sentence, xids.VENDOR.what) for row in rows))


# ── Pods ──────────────────────────────────────────────────────────────────────────────────────────────────────────────
@dataclass(slots=True)
class _PodHolding:
    """GPUs that one pod holds, by the last reading."""

    node_id: int | None
    node_name: str
    model: str
    states: list[str] = field(default_factory=list)
    share: float = 0.0
    """In whole GPUs."""
    watts: list[float] = field(default_factory=list)


_COLUMNS = (
    "holders", "instance", "node_id", "node_name", "node__gpu_product", "model", "profile", "is_suspect",
    "missing_since", "values__busy", "values__engine", "values__power",
)  # fmt: skip


def held_idle(cluster_id: UUID, threshold: float) -> RuleResult:
    """Report pods all of whose GPUs are idle; a pod with a GPU that cannot be judged is not judged."""
    if why := blind(cluster_id):
        return RuleResult(blind=why)
    pods: dict[tuple[str, str], _PodHolding] = {}
    rows = GpuDevice.objects.holdable().filter(cluster=cluster_id).exclude(holders=[]).order_by()
    for holders, instance, node_id, node_name, *about, suspect, missing, busy, engine, power in rows.values_list(
        *_COLUMNS
    ).iterator(5000):
        product, model, profile = about
        values = {str(m): v for m, v in ((Metric.BUSY, busy), (Metric.ENGINE, engine)) if v is not None}
        state = states.of_held(values, is_suspect=suspect, is_instance=bool(instance), idle_below=threshold / 100)
        holding = {(holder[0], holder[1]) for holder in holders}
        for key in holding:
            pod = pods.setdefault(
                key, _PodHolding(node_id, node_name, node_snapshot.model_name(product) if product else model)
            )
            pod.states.append(STOPPED if missing else state)
            pod.share += mig.part_of(profile, model) / len(holding)
            if power is not None and not missing and len(holders) == 1:
                pod.watts.append(float(power))
    judged = {key: pod for key, pod in pods.items() if STOPPED not in pod.states and states.NONE not in pod.states}
    idle = {key: pod for key, pod in judged.items() if set(pod.states) == {states.HELD}}
    # Busy on one GPU is busy, even where others are unknown.
    busy_ = {key for key, pod in pods.items() if {states.LOW, states.EFFECTIVE} & set(pod.states)}
    unknown = frozenset(f"{namespace}/{name}" for namespace, name in pods.keys() - judged.keys() - busy_)
    owners, since = _owners(cluster_id, [name for _, name in idle]), _since(cluster_id)
    book, day = prices.book(), periods.today()
    conditions = [
        _idle(cluster_id, key, pod, owners.get(key, ""), since.get(key), price=book.gpu(pod.model, cluster_id, day))
        for key, pod in sorted(idle.items())
    ]
    return RuleResult(conditions, unknown)


def _since(cluster_id: UUID) -> dict[tuple[str, str], datetime]:
    """Return since when each pod has held GPUs idle, the same times as the GPU pages show."""
    rows = IdleHolding.objects.filter(cluster=cluster_id, is_seen=True)
    return {(namespace, pod): since for namespace, pod, since in rows.values_list("namespace", "pod", "since")}


def _owners(cluster_id: UUID, names: list[str]) -> dict[tuple[str, str], str]:
    owners: dict[tuple[str, str], str] = defaultdict(str)
    for start in range(0, len(names), 500):
        rows = GpuPod.objects.filter(cluster=cluster_id, name__in=names[start : start + 500])
        for namespace, name, kind, owner in rows.values_list("namespace", "name", "owner_kind", "owner_name"):
            owners[namespace, name] = f"{kind} {owner}".strip()
    return owners


def _idle(
    cluster_id: UUID,
    key: tuple[str, str],
    pod: _PodHolding,
    owner: str,
    since: datetime | None,
    *,
    price: Decimal | None,
) -> AlertCondition:
    namespace, name = key
    gpus = len(pod.states)
    them = "and does not use it" if gpus == 1 else "and uses none of them"
    watts = f", and draws {sum(pod.watts):,.0f} W" if pod.watts else ""
    it = f"It belongs to {owner} and holds" if owner else "It holds"
    return AlertCondition(
        SubjectKind.POD,
        f"{namespace}/{name}",
        f"{namespace}/{name}",
        f"{it} {gpus} GPU{'' if gpus == 1 else 's'} on {pod.node_name or 'an unknown node'} {them}{watts}.",
        mend="Ask its owner whether it is needed; delete it, or let the queue give its GPUs to a waiting job.",
        link=reverse("gpus:cluster", args=[cluster_id]),
        node=pod.node_id,
        namespace=namespace,
        since=since,
        figures={"gpus": gpus, "owner": owner, **dict(_figures(pod, price))},
    )


def _figures(pod: _PodHolding, price: Decimal | None) -> Iterable[tuple[str, float]]:
    """Yield figures for the alert's text; those not reported, or implied by the others, are absent."""
    if pod.watts:
        yield "watts", round(sum(pod.watts))
    if (share := round(pod.share, 4)) != len(pod.states):
        yield "share", share
    if price is not None:
        yield "price", float(price)
