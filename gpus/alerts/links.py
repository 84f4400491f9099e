"""The alert rule over NVLink's traffic: a GPU that moves far less than the other GPUs of its pod on the same node.

A link that lost bandwidth has no metric of its own; its GPU lags behind peers that do the same work. GPUs that are at
rest, or of which half move little by the work's own design, prove nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from statistics import median
from typing import NamedTuple
from uuid import UUID

from django.urls import reverse

from common.alerting import AlertCondition, AlertMember, AlertRule, RuleResult, Severity, SubjectKind, Threshold
from gpus.alerts.hardware import reports
from gpus.alerts.subjects import exported_name, not_judged, of_current_samples
from gpus.metrics.samples import Metric
from gpus.models import GpuDevice

TRAFFIC = "nvlink-traffic"
LASTING = timedelta(minutes=10)
FEWEST = 4
"""GPUs of one pod on one node: the median of fewer says little of each."""
FLOOR = 1e9
"""Bytes a second of the median, below which the pod's GPUs are at rest."""
MOST_LOW = 0.25
"""Share of the pod's GPUs that may be far below the median; more of them are a way of working, such as two groups."""
SOURCES = {
    TRAFFIC: "Setpoint's own: no document of NVIDIA's has a limit. https://github.com/NVIDIA/dcgm-exporter/issues/417 "
    "and pull request 658: field 449 is a rate, which lists of counters call a counter"
}
MEND = (
    "Run `nvidia-smi nvlink -s` and `-e` on the node: look for a link that is down or runs at a lower rate. Then drain "
    "the node and run the active check nccl."
)
CAN = reports(Metric.NVLINK_PAYLOAD) | reports(Metric.NVLINK_TRAFFIC)
"""GPUs whose traffic is exported."""
_COLUMNS = (
    "index", "uuid", "node_id", "node__uid", "node__name", "holders", "missing_since",
    f"values__{Metric.NVLINK_PAYLOAD}", f"values__{Metric.NVLINK_TRAFFIC}",
)  # fmt: skip


class _Place(NamedTuple):
    """A pod's GPUs on one node."""

    node: int
    uid: str
    name: str
    pod: str


class _Moving(NamedTuple):
    number: str
    rate: float
    """Bytes a second, both directions."""


@dataclass(frozen=True, slots=True)
class _Lag:
    place: _Place
    low: Sequence[_Moving]
    middle: float
    gpus: int


def rules() -> Iterator[AlertRule]:
    yield AlertRule(
        TRAFFIC,
        "NVLink bandwidth loss",
        f"A GPU moves less than {{limit}} of the median NVLink traffic of its pod's GPUs on the same node{{lasting}}, "
        f"while that is {FLOOR / 1e9:g} GB/s or more. Of at least {FEWEST} GPUs that a pod holds alone; a quarter of "
        "them at most may be so low.",
        Severity.WARNING,
        lagging,
        opens_after=LASTING,
        closes_after=LASTING,
        threshold=Threshold(20, 1, 80, "%", "of the pod's median below which a GPU moves too little"),
        order=45,
    )


@of_current_samples
def lagging(cluster_id: UUID, threshold: float) -> RuleResult:
    """Report nodes with such a GPU, one alert a node. Two queries."""
    why, is_all = not_judged(cluster_id, CAN, map(exported_name, (Metric.NVLINK_PAYLOAD, Metric.NVLINK_TRAFFIC)))
    if is_all:
        return RuleResult(not_judged=why, is_unjudged=True)
    lags: dict[str, list[_Lag]] = defaultdict(list)
    unknown: set[str] = set()
    for place, gpus in _places(cluster_id).items():
        if len(gpus) < FEWEST:
            continue
        lag = None if None in gpus else _lag(place, [gpu for gpu in gpus if gpu], threshold / 100)
        if lag is None:
            unknown.add(place.uid)
        elif lag.low:
            lags[place.uid].append(lag)
    return RuleResult([_condition(several) for several in lags.values()], frozenset(unknown), not_judged=why)


def _places(cluster_id: UUID) -> Mapping[_Place, list[_Moving | None]]:
    """Return the GPUs that each pod holds alone, by node; None: nothing is reported of one now. One query."""
    places: dict[_Place, list[_Moving | None]] = defaultdict(list)
    held = GpuDevice.objects.hardware().filter(cluster=cluster_id).exclude(holders=[])
    rows = held.filter(node__isnull=False, node__gone_at=None)
    for index, _, pk, uid, name, holders, missing, *values in rows.order_by().values_list(*_COLUMNS).iterator(5000):
        pods = {f"{holder[0]}/{holder[1]}" for holder in holders}
        if len(pods) == 1:
            rate = None if missing else next((value for value in values if value is not None), None)
            places[_Place(pk, uid, name, pods.pop())].append(None if rate is None else _Moving(index, rate))
    return places


def _lag(place: _Place, gpus: Sequence[_Moving], share: float) -> _Lag | None:
    """Return the GPUs that lag behind; None where the others do not move, or too many lag."""
    middle = median(gpu.rate for gpu in gpus)
    if middle < FLOOR:
        return None
    low = [gpu for gpu in gpus if gpu.rate < share * middle]
    return _Lag(place, low, middle, len(gpus)) if len(low) <= MOST_LOW * len(gpus) else None


def _condition(lags: Sequence[_Lag]) -> AlertCondition:
    place = lags[0].place
    sentences, members = [], []
    for lag in lags:
        low = sorted(lag.low, key=lambda gpu: (len(gpu.number), gpu.number))
        moved = " and ".join(f"{_gigabytes(gpu.rate)} of GPU {gpu.number}" for gpu in low)
        sentences.append(
            f"NVLink moves {moved}; the median of the {lag.gpus} GPUs of {lag.place.pod} is {_gigabytes(lag.middle)}."
        )
        members += [
            AlertMember(
                f"GPU {gpu.number}",
                figures={"bytes_per_second": round(gpu.rate), "median": round(lag.middle), "pod": lag.place.pod},
            )
            for gpu in low
        ]
    return AlertCondition(
        SubjectKind.NODE,
        place.uid,
        place.name,
        " ".join(sentences),
        mend=MEND,
        link=reverse("clusters:node", args=[place.node]),
        node=place.node,
        figures={"gpus": len(members)},
        members=members,
    )


def _gigabytes(rate: float) -> str:
    return f"{rate / 1e9:,.1f} GB/s" if rate < 1e11 else f"{rate / 1e9:,.0f} GB/s"
