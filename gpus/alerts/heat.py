"""Alert rules over heat and over clocks that the hardware itself holds back."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from uuid import UUID

from django.db.models import F, Q

from common.alerting import AlertCondition, AlertRule, RuleResult, Severity, Threshold
from gpus.alerts.hardware import judged, reports, value_of
from gpus.alerts.subjects import MOST_BOARDS, device, devices, exported_name, hardware, of_current_samples, rises
from gpus.metrics.samples import Metric
from gpus.models import GpuDevice

HOT, HELD_BACK, MEMORY, SLOWDOWN = "thermal", "thermal-throttle", "memory-thermal", "hw-slowdown"
HEAT = ("hw_thermal", "sw_thermal")
"""Reasons of `clock_events` that mean heat."""
BRAKE, SLOWED = "hw_power_brake", "hw_slowdown"
CLOCK_EVENTS = "DCGM_EXP_CLOCK_EVENTS_COUNT"
NEAR = 5.0
"""°C below the temperature at which a board slows itself down: then it is reported before its clocks fall."""
COOL = "Look at fans, airflow and the neighbors' heat; cap the power of this node until it is fixed."
POWER = "Look at the power supplies, their cables and the rack's power budget; the hardware asked for lower clocks."
SOURCES = {
    HOT: "DCGM's fields 153 and 158, else https://docs.aws.amazon.com/sagemaker/latest/dg/"
    "hyperpod-observability-addon-alerts.html: 85 °C",
    MEMORY: "DCGM's field 151, else 95 °C, an assumption: operators report that HBM3 of H100 is slowed from there on",
    SLOWDOWN: "https://docs.nvidia.com/datacenter/dcgm/latest/dcgm-api: DCGM_CLOCKS_EVENT_REASON_HW_SLOWDOWN halves "
    "the clocks or worse, for heat, for power, or because the power brake is pulled",
}


def rules() -> Iterator[AlertRule]:
    yield AlertRule(
        HOT,
        "Thermal throttling",
        f"A GPU is thermally throttled, or within {NEAR:g} °C of the temperature at which its board slows down, or, "
        "where the board's own limit is not exported, at {limit} or hotter{lasting}.",
        Severity.WARNING,
        throttled,
        opens_after=timedelta(minutes=5),
        closes_after=timedelta(minutes=10),
        threshold=Threshold(85, 50, 120, "°C", "from which a GPU without a limit of its own is too hot"),
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
    yield AlertRule(
        MEMORY,
        "Memory too hot",
        "A GPU's memory is at the highest temperature at which it may operate, or, where that is not exported, at "
        "{limit} or hotter{lasting}.",
        Severity.WARNING,
        memory_hot,
        opens_after=timedelta(minutes=5),
        closes_after=timedelta(minutes=10),
        threshold=Threshold(95, 50, 130, "°C", "from which memory without a limit of its own is too hot"),
        order=36,
    )
    yield AlertRule(
        SLOWDOWN,
        "Slowed by the hardware",
        "The hardware of a GPU's board or its power brake lowers its clocks{lasting}, not for heat alone.",
        Severity.WARNING,
        slowed_by_hardware,
        opens_after=timedelta(minutes=5),
        closes_after=timedelta(minutes=10),
        order=38,
    )


@of_current_samples
def throttled(cluster_id: UUID, threshold: float) -> RuleResult:
    """Judge by the board's own limit where it is exported, as a margin or as a temperature, else by `threshold`."""
    limits = {"degrees": value_of(Metric.TEMPERATURE), "slowdown": value_of(Metric.SLOWDOWN_TEMPERATURE)}
    margin, slowdown = reports(Metric.THERMAL_MARGIN), reports(Metric.SLOWDOWN_TEMPERATURE)
    hot = (
        (margin & Q(values__thermal_margin__lte=NEAR))
        | (~margin & slowdown & Q(degrees__gte=F("slowdown") - NEAR))
        | (~margin & ~slowdown & Q(degrees__gte=threshold))
    )
    for reason in HEAT:
        hot |= Q(**{f"clock_events__{reason}__gt": 0})
    rows = hardware(cluster_id).annotate(**limits).filter(hot)
    return devices(cluster_id, map(_of_heat, rows[:MOST_BOARDS]))


def _of_heat(row: GpuDevice) -> AlertCondition:
    sentences: list[str] = []
    figures: dict[str, float] = {}
    events = row.clock_events or {}
    if slowing := {reason: int(events[reason]) for reason in HEAT if events.get(reason)}:
        counts = " and ".join(f"{reason} {count} times" for reason, count in slowing.items())
        sentences.append(f"Thermal throttling: {counts} in the exporter's window.")
        figures["clock_events"] = sum(slowing.values())
    if (degrees := row.value(Metric.TEMPERATURE)) is not None:
        limit, margin = row.value(Metric.SLOWDOWN_TEMPERATURE), row.value(Metric.THERMAL_MARGIN)
        own = f"; its board slows down at {limit:.0f} °C" if limit is not None else ""
        if margin is not None:
            own = f", {margin:.0f} °C below the temperature at which its board slows down"
            if margin <= 0:
                own = ", where its board slows down"
            figures["margin"] = margin
        sentences.append(f"It is at {degrees:.0f} °C{own}.")
        figures["celsius"] = degrees
    return device(row, " ".join(sentences), COOL, **figures)


@of_current_samples
def held_back(cluster_id: UUID, threshold: float) -> RuleResult:
    """Judge by the rise of the throttled seconds over the newest two whole five minutes that are stored."""
    metric = Metric.THERMAL_THROTTLED
    counting = hardware(cluster_id).filter(values__thermal_throttled__gt=0)
    counted = frozenset(counting.order_by().values_list("uuid", flat=True))
    risen = rises(cluster_id, metric, counted)
    percent = {uuid: min(100.0, 100 * seconds / covered) for uuid, (seconds, covered) in risen.items()}
    worst = sorted((uuid for uuid, share in percent.items() if share >= threshold), key=lambda uuid: -percent[uuid])
    conditions = []
    for row in counting.filter(uuid__in=worst[:MOST_BOARDS]):
        sentence = f"Thermally throttled for {percent[row.uuid]:.1f} % of the last ten minutes."
        degrees = row.value(Metric.TEMPERATURE)
        sentence += f" It is at {degrees:.0f} °C." if degrees is not None else ""
        conditions.append(device(row, sentence, COOL, percent=round(percent[row.uuid], 1)))
    result = judged(cluster_id, reports(metric), [exported_name(metric)], conditions)
    if result.is_unjudged:
        return result
    return RuleResult(result.conditions, result.unknown | (counted - percent.keys()), not_judged=result.not_judged)


@of_current_samples
def memory_hot(cluster_id: UUID, threshold: float) -> RuleResult:
    own = reports(Metric.MEMORY_TEMPERATURE_LIMIT)
    degrees = {"degrees": value_of(Metric.MEMORY_TEMPERATURE), "most": value_of(Metric.MEMORY_TEMPERATURE_LIMIT)}
    hot = (own & Q(degrees__gte=F("most"))) | (~own & Q(degrees__gte=threshold))
    rows = hardware(cluster_id).annotate(**degrees).filter(hot)
    can = reports(Metric.MEMORY_TEMPERATURE)
    return judged(cluster_id, can, [exported_name(Metric.MEMORY_TEMPERATURE)], map(_of_memory, rows[:MOST_BOARDS]))


def _of_memory(row: GpuDevice) -> AlertCondition:
    degrees, most = row.value(Metric.MEMORY_TEMPERATURE) or 0.0, row.value(Metric.MEMORY_TEMPERATURE_LIMIT)
    own = "" if most is None else f"; it may operate up to {most:.0f} °C"
    return device(row, f"Its memory is at {degrees:.0f} °C{own}.", COOL, celsius=degrees)


@of_current_samples
def slowed_by_hardware(cluster_id: UUID, _threshold: float) -> RuleResult:
    """Report the power brake and slowdowns by the hardware; where heat is a reason, `throttled` reports the board."""
    brake, slowed = Q(**{f"clock_events__{BRAKE}__gt": 0}), Q(**{f"clock_events__{SLOWED}__gt": 0})
    no_heat = ~Q(clock_events__has_key="hw_thermal") | Q(clock_events__hw_thermal=0)
    rows = hardware(cluster_id).filter(brake | (slowed & no_heat))
    conditions = (_of_slowdown(row) for row in rows[:MOST_BOARDS])
    return judged(cluster_id, Q(clock_events__isnull=False), [CLOCK_EVENTS], conditions)


def _of_slowdown(row: GpuDevice) -> AlertCondition:
    events = row.clock_events or {}
    slowing = {reason: int(events[reason]) for reason in (BRAKE, SLOWED) if events.get(reason)}
    counts = " and ".join(f"{reason} {count} times" for reason, count in slowing.items())
    return device(row, f"Slowed down: {counts} in the exporter's window.", POWER, clock_events=sum(slowing.values()))
