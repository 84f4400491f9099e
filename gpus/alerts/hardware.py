"""Alert rules over a board's own counters and states: memory, links, and what DCGM itself thinks of it.

Each names what it reads and where its limit comes from. A metric that an installation does not export is no evidence
of health: the rule then says that it does not judge.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import timedelta
from uuid import UUID

from django.db.models import F, FloatField, Q
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Cast

from common.alerting import AlertCondition, AlertRule, RuleResult, Severity, Threshold
from gpus.alerts.subjects import (
    COUNTED_MINUTES,
    MOST_BOARDS,
    device,
    exported_name,
    hardware,
    not_judged,
    of_current_samples,
    rises,
    unknown,
)
from gpus.metrics import states, xids
from gpus.metrics.samples import Metric
from gpus.models import GpuDevice

ECC, REMAP, PENDING = "ecc-uncorrected", "row-remap-failed", "row-remap-pending"
NVLINK, REPLAYS, LINK, HEALTH = "nvlink-errors", "pcie-replays", "pcie-link", "dcgm-health"
LIMITS_OF_DCGM = "https://github.com/NVIDIA/DCGM/blob/master/common/DcgmGPUHardwareLimits.h"
MEMORY_ERRORS = "https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/index.html"
SOURCES = {
    ECC: f"{MEMORY_ERRORS}: an uncorrectable error ends what used the memory",
    REMAP: f"{MEMORY_ERRORS}: the criterion for a return of the board",
    PENDING: f"{MEMORY_ERRORS}: a pending remap takes effect at the next reset",
    NVLINK: f"{LIMITS_OF_DCGM}: DCGM_LIMIT_MAX_NVLINK_ERROR 1, DCGM_LIMIT_MAX_NVLINK_CRC_ERROR 100 a second",
    REPLAYS: f"{LIMITS_OF_DCGM}: DCGM_LIMIT_MAX_PCIREPLAY_RATE 8 a minute",
    LINK: "https://docs.nvidia.com/datacenter/dcgm/latest/dcgm-api/dcgm-api-field-ids.html: fields 235 to 238",
    HEALTH: "https://github.com/NVIDIA/dcgm-exporter, DCGM_EXP_GPU_HEALTH_STATUS: 0 pass, 10 warning, 20 failure",
}
"""Where each limit comes from."""
RESEAT = "Drain the node; check the board's seat, its riser and the slot's settings, and compare with its neighbors."


def rules() -> Iterator[AlertRule]:
    yield AlertRule(
        ECC,
        "Uncorrected memory errors",
        f"Uncorrectable ECC errors of a GPU were counted in the last {COUNTED_MINUTES} minutes{{lasting}}.",
        Severity.CRITICAL,
        ecc_uncorrected,
        closes_after=timedelta(hours=1),
        order=22,
    )
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
        PENDING,
        "Row remap pending",
        "A bad row of a GPU's memory is replaced at its next reset{lasting}.",
        Severity.WARNING,
        remap_pending,
        order=42,
    )
    yield from _rules_of_links()
    yield AlertRule(
        HEALTH,
        "DCGM health check",
        "DCGM's own health check of a GPU is at {limit} or more{lasting}: 10 are its warning, 20 its failure.",
        Severity.CRITICAL,
        dcgm_health,
        closes_after=timedelta(minutes=10),
        threshold=Threshold(
            20, 10, 20, "points", "from which DCGM's status is reported: 10 its warning, 20 its failure"
        ),
        order=49,
    )


def _rules_of_links() -> Iterator[AlertRule]:
    yield AlertRule(
        NVLINK,
        "NVLink errors",
        f"NVLink of a GPU was replayed or recovered in the last {COUNTED_MINUTES} minutes, or had {{limit}} of CRC "
        "errors or more{lasting}.",
        Severity.WARNING,
        nvlink_errors,
        closes_after=timedelta(hours=1),
        threshold=Threshold(100, 1, 1e6, "a second", "of CRC errors from which a link counts as bad"),
        order=44,
    )
    yield AlertRule(
        REPLAYS,
        "PCIe replays",
        f"PCIe packets of a GPU were sent again more often than {{limit}} over the last {COUNTED_MINUTES} minutes"
        "{lasting}.",
        Severity.WARNING,
        pcie_replays,
        closes_after=timedelta(minutes=10),
        threshold=Threshold(8, 1, 10_000, "a minute", "of replays above which a link counts as bad"),
        order=46,
    )
    yield AlertRule(
        LINK,
        "PCIe link below its maximum",
        "The PCIe link of a GPU has fewer lanes than it and its slot can have, or a lower generation while the GPU "
        "works{lasting}.",
        Severity.WARNING,
        pcie_link,
        opens_after=timedelta(minutes=5),
        closes_after=timedelta(minutes=10),
        order=48,
    )


# ── Values within a reading ───────────────────────────────────────────────────────────────────────────────────────────
def value_of(metric: Metric) -> Cast:
    """Return a metric of a row as a number to compare with others; null where it is not reported."""
    return Cast(KeyTextTransform(str(metric), "values"), FloatField())


def reports(*metrics: Metric) -> Q:
    return Q(values__has_keys=[str(metric) for metric in metrics])


def judged(cluster_id: UUID, can: Q, names: Iterable[str], conditions: Iterable[AlertCondition]) -> RuleResult:
    """Return the result of a rule for the boards of which the reading has what it judges (`can`)."""
    why, is_all = not_judged(cluster_id, can, names)
    if is_all:
        return RuleResult(not_judged=why, is_unjudged=True)
    return RuleResult(list(conditions), unknown(cluster_id, can), not_judged=why)


def _flagged(cluster_id: UUID, metric: Metric, least: float, sentence: str, mend: str) -> RuleResult:
    rows = hardware(cluster_id).filter(**{f"values__{metric}__gte": least})
    conditions = (device(row, sentence, mend) for row in rows[:MOST_BOARDS])
    return judged(cluster_id, reports(metric), [exported_name(metric)], conditions)


@of_current_samples
def remap_failed(cluster_id: UUID, _threshold: float) -> RuleResult:
    sentence = "A bad row of its memory could not be replaced: there are no spare ones left."
    return _flagged(cluster_id, Metric.ROW_REMAP_FAILED, 1, sentence, xids.VENDOR.what)


@of_current_samples
def remap_pending(cluster_id: UUID, _threshold: float) -> RuleResult:
    sentence = "A bad row of its memory waits for a reset of the GPU to be replaced."
    mend = "Drain the node at a convenient time, and reset this GPU."
    return _flagged(cluster_id, Metric.ROW_REMAP_PENDING, 1, sentence, mend)


@of_current_samples
def dcgm_health(cluster_id: UUID, threshold: float) -> RuleResult:
    rows = hardware(cluster_id).filter(values__dcgm_health__gte=threshold)
    mend = "Run `dcgmi health --check` on the node: it names what failed. Then run NVIDIA's diagnostics."
    conditions = (
        device(
            row,
            f"DCGM's own health check {'fails' if row.values['dcgm_health'] >= 20 else 'warns'}.",
            mend,
            status=row.values["dcgm_health"],
        )
        for row in rows[:MOST_BOARDS]
    )
    return judged(cluster_id, reports(Metric.DCGM_HEALTH), [exported_name(Metric.DCGM_HEALTH)], conditions)


@of_current_samples
def pcie_link(cluster_id: UUID, _threshold: float) -> RuleResult:
    """Judge lanes always, and the generation of boards at work: an idle board lowers it to save power."""
    annotations = {
        "lanes": value_of(Metric.PCIE_LINK_WIDTH),
        "most_lanes": value_of(Metric.PCIE_LINK_WIDTH_LIMIT),
        "generation": value_of(Metric.PCIE_LINK_GENERATION),
        "highest": value_of(Metric.PCIE_LINK_GENERATION_LIMIT),
    }
    at_work = Q(values__busy__gte=states.IDLE_BELOW)
    narrow, slow = Q(lanes__lt=F("most_lanes")), Q(generation__lt=F("highest"))
    rows = hardware(cluster_id).annotate(**annotations).filter(narrow | (slow & at_work))
    can = reports(Metric.PCIE_LINK_WIDTH, Metric.PCIE_LINK_WIDTH_LIMIT)
    names = [exported_name(Metric.PCIE_LINK_WIDTH)]
    result = judged(cluster_id, can, names, map(_of_link, rows[:MOST_BOARDS]))
    if result.is_unjudged:
        return result
    resting = hardware(cluster_id).annotate(**annotations).filter(slow & ~narrow & ~at_work)
    idle = frozenset(resting.order_by().values_list("uuid", flat=True))
    return RuleResult(result.conditions, result.unknown | idle, not_judged=result.not_judged)


def _of_link(row: GpuDevice) -> AlertCondition:
    parts, figures = [], {}
    for metric, limit, noun in (
        (Metric.PCIE_LINK_WIDTH, Metric.PCIE_LINK_WIDTH_LIMIT, "lanes"),
        (Metric.PCIE_LINK_GENERATION, Metric.PCIE_LINK_GENERATION_LIMIT, "generation"),
    ):
        value, most = row.value(metric), row.value(limit)
        if value is not None and most is not None and value < most:
            words = f"{value:.0f} of {most:.0f} lanes" if noun == "lanes" else f"generation {value:.0f}, not {most:.0f}"
            parts.append(words)
            figures[noun] = value
    return device(row, f"Its PCIe link has {' and '.join(parts)}.", RESEAT, **figures)


# ── Counters, by their rise ───────────────────────────────────────────────────────────────────────────────────────────
def _counted(cluster_id: UUID, *metrics: Metric) -> frozenset[str]:
    """Return boards on which any of the counters is above 0: of the others nothing can have risen."""
    above = Q(pk__in=())
    for metric in metrics:
        above |= Q(**{f"values__{metric}__gt": 0})
    return frozenset(hardware(cluster_id).filter(above).order_by().values_list("uuid", flat=True))


def _risen(
    cluster_id: UUID,
    wrong: dict[str, tuple[str, float]],
    without_history: frozenset[str],
    metrics: tuple[Metric, ...],
    mend: str,
) -> RuleResult:
    """`wrong`: sentence and figure by UUID. Boards whose counter has no stored history yet are unknown."""
    worst = sorted(wrong, key=lambda uuid: (-wrong[uuid][1], uuid))[:MOST_BOARDS]
    rows = hardware(cluster_id).filter(uuid__in=worst)
    conditions = (device(row, wrong[row.uuid][0], mend, risen=wrong[row.uuid][1]) for row in rows)
    can = Q(pk__in=())
    for metric in metrics:
        can |= reports(metric)
    result = judged(cluster_id, can, [exported_name(metric) for metric in metrics], conditions)
    if result.is_unjudged:
        return result
    return RuleResult(result.conditions, result.unknown | without_history, not_judged=result.not_judged)


@of_current_samples
def ecc_uncorrected(cluster_id: UUID, _threshold: float) -> RuleResult:
    metric = Metric.ECC_UNCORRECTED_VOLATILE
    counted = _counted(cluster_id, metric)
    risen = rises(cluster_id, metric, counted)
    wrong = {
        uuid: (f"{_count(rise, 'uncorrectable ECC error')} in the last {COUNTED_MINUTES} minutes.", rise)
        for uuid, (rise, _) in risen.items()
        if rise >= LEAST_RISE
    }
    mend = "Cordon the node and drain it; check whether a row remap followed, then reset this GPU."
    return _risen(cluster_id, wrong, counted - risen.keys(), (metric,), mend)


@of_current_samples
def nvlink_errors(cluster_id: UUID, threshold: float) -> RuleResult:
    metrics = (Metric.NVLINK_REPLAYS, Metric.NVLINK_CRC_ERRORS)
    counted = _counted(cluster_id, *metrics)
    replays, crc = (rises(cluster_id, metric, counted) for metric in metrics)
    wrong: dict[str, tuple[str, float]] = {}
    for uuid in replays.keys() | crc.keys():
        again, (errors, covered) = replays.get(uuid, (0.0, 0.0))[0], crc.get(uuid, (0.0, 0.0))
        rate = errors / covered if covered else 0.0
        parts = [_count(again, "replay or recovery", "replays and recoveries")] if again >= LEAST_RISE else []
        parts += [f"{rate:,.0f} CRC errors a second"] if rate >= threshold else []
        if parts:
            sentence = f"NVLink: {' and '.join(parts)} in the last {COUNTED_MINUTES} minutes."
            wrong[uuid] = (sentence, round(again + errors, 1))
    without_history = counted - replays.keys() - crc.keys()
    return _risen(cluster_id, wrong, without_history, metrics, xids.RESET_LINK.what)


@of_current_samples
def pcie_replays(cluster_id: UUID, threshold: float) -> RuleResult:
    metric = Metric.PCIE_REPLAYS
    counted = _counted(cluster_id, metric)
    risen = rises(cluster_id, metric, counted)
    rates = {uuid: 60 * rise / covered for uuid, (rise, covered) in risen.items()}
    wrong = {
        uuid: (f"{rate:,.1f} PCIe replays a minute over the last {COUNTED_MINUTES} minutes.", round(rate, 1))
        for uuid, rate in rates.items()
        if rate > threshold
    }
    return _risen(cluster_id, wrong, counted - risen.keys(), (metric,), RESEAT)


LEAST_RISE = 0.5
"""A rise is shared out over the steps that it lies in, so one error may be in parts."""


def _count(number: float, noun: str, plural: str = "") -> str:
    whole = max(1, round(number))
    return f"{whole:,} {noun if whole == 1 else plural or f'{noun}s'}"
