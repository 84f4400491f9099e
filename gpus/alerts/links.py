"""The alert rule over NVLink's traffic: a GPU that moves far less than the other GPUs of its pod on the same node.

A link that lost bandwidth has no metric of its own; its GPU lags behind peers that do the same work. GPUs that are at
rest, that do less than their peers, or of which a quarter move little by the work's own design, prove nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import timedelta
from statistics import median
from typing import NamedTuple
from uuid import UUID

from django.urls import reverse

from common.alerting import AlertCondition, AlertRule, RuleResult, Severity, SubjectKind, Threshold
from gpus.alerts.hardware import reports
from gpus.alerts.subjects import MOST_BOARDS, exported_name, not_judged, of_current_samples
from gpus.metrics.samples import Metric
from gpus.metrics.states import IDLE_BELOW
from gpus.models import GpuDevice

TRAFFIC = "nvlink-traffic"
LASTING = timedelta(minutes=10)
FEWEST = 5
"""GPUs of one pod on one node: of fewer, one is a quarter."""
FLOOR = 1e9
"""Bytes a second of the median, below which the pod's GPUs are at rest."""
MOST_LOW = 0.25
"""Share of the pod's GPUs from which being far below the median is a way of working, such as two groups."""
WORKS = (Metric.TENSOR, Metric.ENGINE, Metric.BUSY)
"""Activity: the first one is compared that all of a pod's GPUs report, and of which their median is no idling."""
AT_WORK = 0.5
"""Share of the pod's median activity, below which a GPU does other work, or none."""
SOURCES = {
    TRAFFIC: "Setpoint's own: no document of NVIDIA's has a limit. https://github.com/NVIDIA/dcgm-exporter/issues/417 "
    "and pull request 658: field 449 is a rate, which lists of counters call a counter"
}
MEND = (
    "It may be unequal work or a lost link. Before you drain the node, look at the alert nvlink-errors, at "
    "`nvidia-smi nvlink -s` and `-e`, and at `nvidia-smi topo -m`: a link that is down, has errors or runs at a lower "
    "rate. If there is one, drain the node and run the active check nccl."
)
CAN = reports(Metric.NVLINK_PAYLOAD) | reports(Metric.NVLINK_TRAFFIC)
"""GPUs whose traffic is exported."""
_READ = (Metric.NVLINK_PAYLOAD, Metric.NVLINK_TRAFFIC, *WORKS)
_COLUMNS = (
    "index",
    "uuid",
    "node_id",
    "node__name",
    "holders",
    "missing_since",
    *(f"values__{name}" for name in _READ),
)
MOST_SUBJECT = 330
"""Characters of a subject."""


class _Place(NamedTuple):
    """A pod's GPUs on one node."""

    node: int
    name: str
    pod: str


class _Moving(NamedTuple):
    uuid: str
    number: str
    rate: float | None
    """Bytes a second, both directions; None: nothing is reported of it now."""
    works: Sequence[float | None] = ()


def rules() -> Iterator[AlertRule]:
    yield AlertRule(
        TRAFFIC,
        "NVLink traffic far below the pod's",
        f"A GPU moves less than {{limit}} of the median NVLink traffic of its pod's GPUs on the same node{{lasting}}, "
        f"though it is at work as they are, while that median is {FLOOR / 1e9:g} GB/s or more. Of at least {FEWEST} "
        "GPUs that a pod holds alone; less than a quarter of them may be so low. Unequal work, or a lost link.",
        Severity.WARNING,
        lagging,
        opens_after=LASTING,
        closes_after=LASTING,
        threshold=Threshold(20, 1, 80, "%", "of the pod's median below which a GPU moves too little"),
        order=45,
    )


@of_current_samples
def lagging(cluster_id: UUID, threshold: float) -> RuleResult:
    """Report such GPUs, each while the same pod holds it. Two queries."""
    why, is_all = not_judged(cluster_id, CAN, map(exported_name, (Metric.NVLINK_PAYLOAD, Metric.NVLINK_TRAFFIC)))
    if is_all:
        return RuleResult(not_judged=why, is_unjudged=True)
    conditions: list[AlertCondition] = []
    unknown: set[str] = set()
    for place, gpus in sorted(_places(cluster_id).items(), key=lambda entry: (entry[0].name, entry[0].pod)):
        if len(gpus) < FEWEST:
            continue
        low, unclear = _low(place, gpus, threshold / 100)
        conditions += low
        unknown |= unclear
    unknown |= {condition.subject for condition in conditions[MOST_BOARDS:]}
    return RuleResult(conditions[:MOST_BOARDS], frozenset(unknown), not_judged=why)


def _places(cluster_id: UUID) -> Mapping[_Place, list[_Moving]]:
    """Return the GPUs that each pod holds alone, by node. One query."""
    places: dict[_Place, list[_Moving]] = defaultdict(list)
    held = GpuDevice.objects.hardware().filter(cluster=cluster_id).exclude(holders=[])
    rows = held.filter(node__isnull=False, node__gone_at=None)
    for index, uuid, pk, name, holders, missing, payload, traffic, *works in (
        rows.order_by().values_list(*_COLUMNS).iterator(5000)
    ):
        pods = {f"{holder[0]}/{holder[1]}" for holder in holders}
        if len(pods) == 1:
            rate = None if missing else traffic if payload is None else payload
            places[_Place(pk, name, pods.pop())].append(_Moving(uuid, index, rate, works))
    return places


def _subject(place: _Place, gpu: _Moving) -> str:
    """Return one GPU under one pod: what another pod moves over it later is another matter."""
    return f"{gpu.uuid} {place.pod}"[:MOST_SUBJECT]


def _low(place: _Place, gpus: Sequence[_Moving], share: float) -> tuple[list[AlertCondition], set[str]]:
    """Return those that lag behind, and the subjects of which nothing is known.

    None is judged where one is not known, the others do not move, or too many lag.
    """
    every = {_subject(place, gpu) for gpu in gpus}
    rates = [gpu.rate for gpu in gpus if gpu.rate is not None]
    middle = median(rates) if rates else 0.0
    low = [gpu for gpu in gpus if gpu.rate is not None and gpu.rate < share * middle]
    if len(rates) < len(gpus) or middle < FLOOR or len(low) >= MOST_LOW * len(gpus):
        return [], every
    at_work = _at_work(gpus)
    conditions = [_condition(place, gpu, middle, len(gpus)) for gpu in low if gpu.uuid in at_work]
    return conditions, {_subject(place, gpu) for gpu in low if gpu.uuid not in at_work}


def _at_work(gpus: Sequence[_Moving]) -> Collection[str]:
    for column in zip(*(gpu.works for gpu in gpus), strict=True):
        values = [value for value in column if value is not None]
        if len(values) == len(gpus) and (middle := median(values)) >= IDLE_BELOW:
            return {gpu.uuid for gpu, value in zip(gpus, values, strict=True) if value >= AT_WORK * middle}
    return ()


def _condition(place: _Place, gpu: _Moving, middle: float, gpus: int) -> AlertCondition:
    rate = gpu.rate or 0.0
    return AlertCondition(
        SubjectKind.DEVICE,
        _subject(place, gpu),
        f"{place.name} GPU {gpu.number}",
        f"It moves {_gigabytes(rate)} over NVLink, far less than the other GPUs of {place.pod}: the median of the "
        f"{gpus} is {_gigabytes(middle)}.",
        mend=MEND,
        link=reverse("clusters:node", args=[place.node]),
        node=place.node,
        figures={"uuid": gpu.uuid, "pod": place.pod, "bytes_per_second": round(rate), "median": round(middle)},
    )


def _gigabytes(rate: float) -> str:
    return f"{rate / 1e9:,.1f} GB/s" if rate < 1e11 else f"{rate / 1e9:,.0f} GB/s"
