"""Sparklines of a node's GPUs over the last hours: lines of five-minute values, with gaps where data is missing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import median
from uuid import UUID

from django.utils.safestring import SafeString

from common.clock import now
from gpus.metrics.samples import Metric
from gpus.reports import charts
from gpus.reports.selectors import Gpu
from gpus.storage import history

STEPS = 48
"""Of five minutes: four hours, which is as many packed rows to open for a page."""
STEP = timedelta(seconds=history.FINE)


@dataclass(frozen=True, slots=True)
class SparklineKind:
    metric: Metric
    word: str
    unit: str
    scale: float
    """From the metric's unit into what is shown."""
    top: float
    """What the upper edge means at least, as shown."""


BUSY = SparklineKind(Metric.BUSY, "Busy", "%", 100, 100)
ENGINE = SparklineKind(Metric.ENGINE, "Engine", "%", 100, 100)
POWER = SparklineKind(Metric.POWER, "Power", "W", 1, 700)
TEMPERATURE = SparklineKind(Metric.TEMPERATURE, "Temperature", "°C", 1, 90)
"""Tops as the heatmap's, so that tiles compare."""


@dataclass(frozen=True, slots=True)
class Sparkline:
    kind: SparklineKind
    values: Sequence[float | None]
    """One for each step, the oldest first; None: no reading covers it, or none had it."""

    @property
    def known(self) -> list[float]:
        return [value for value in self.values if value is not None]

    @property
    def figures(self) -> tuple[int, int, int]:
        """Least, middle, most of the known ones."""
        known = self.known
        return round(min(known)), round(median(known)), round(max(known))

    @property
    def in_words(self) -> str:
        least, middle, most = self.figures
        unit, unknown = self.kind.unit, len(self.values) - len(self.known)
        gaps = f"; {unknown * history.FINE // 60} minutes are unknown" if unknown else ""
        return (
            f"{self.kind.word} in the last {STEPS * history.FINE // 3600} hours: least {least} {unit}, "
            f"median {middle} {unit}, most {most} {unit}{gaps}"
        )

    @property
    def drawn(self) -> SafeString:
        return charts.sparkline(self.values, max(self.kind.top, *self.known), self.in_words)


def of_node(cluster_id: UUID, node: str, gpus: Iterable[Gpu]) -> dict[tuple[str, str], list[Sparkline]]:
    """Return sparklines by UUID and instance; what was never reported has no line. One query.

    An instance has its own engine activity and its board's temperature; power is the board's, and is not shared out.
    """
    end = _whole(now())
    means_by_device = {
        (device.uuid, device.instance): {bucket.start: bucket.means for bucket in buckets}
        for device, buckets in history.buckets(cluster_id, end - (STEPS + 1) * STEP, end, nodes=[node]).items()
    }
    if not any(end - STEP in means for means in means_by_device.values()):
        end -= STEP  # it is over, and the reading that closes it has not come yet
    starts = [end + number * STEP for number in range(-STEPS, 0)]

    def line(kind: SparklineKind, uuid: str, instance: str) -> Sparkline:
        means = means_by_device.get((uuid, instance), {})
        values = (means[at].get(kind.metric) if at in means else None for at in starts)
        return Sparkline(kind, [None if value is None else value * kind.scale for value in values])

    lines = {}
    for gpu in gpus:
        activity = line(ENGINE if gpu.instance else BUSY, gpu.uuid, gpu.instance)
        power = [] if gpu.instance else [line(POWER, gpu.uuid, "")]
        wanted = [activity, *power, line(TEMPERATURE, gpu.uuid, "")]
        lines[gpu.uuid, gpu.instance] = [sparkline for sparkline in wanted if sparkline.known]
    return lines


def _whole(at: datetime) -> datetime:
    """The end of the last whole step."""
    return datetime.fromtimestamp(at.timestamp() // history.FINE * history.FINE, tz=at.tzinfo)
