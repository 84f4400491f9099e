"""Sparklines of a node's GPUs over a time range: lines of means, with gaps where data is missing."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from statistics import fmean, median
from uuid import UUID

from django.utils.safestring import SafeString

from common.clock import now
from common.templatetags.setpoint import duration
from gpus.metrics.samples import Metric
from gpus.reports import charts, ranges
from gpus.reports.ranges import TimeRange
from gpus.reports.selectors import Gpu
from gpus.storage import history


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
    window: TimeRange = field(default_factory=ranges.DEVICES.preset)

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
        gaps = f"; {duration(unknown * self.window.step)} unknown" if unknown else ""
        when = f"in the last {self.window.words}" if self.window.name else f"from {self.window.words}"
        return f"{self.kind.word} {when}: least {least} {unit}, median {middle} {unit}, most {most} {unit}{gaps}"

    @property
    def drawn(self) -> SafeString:
        return charts.sparkline(self.values, max(self.kind.top, *self.known), self.in_words)


def of_node(
    cluster_id: UUID, node: str, gpus: Iterable[Gpu], window: TimeRange | None = None
) -> tuple[dict[tuple[str, str], list[Sparkline]], TimeRange]:
    """Return sparklines by UUID and instance, and the range that they show. One query.

    What was never reported has no line. A preset ends with the last step that a reading has closed. An instance has its
    own engine activity and its board's temperature; power is the board's, and is not shared out.
    """
    window = window or ranges.DEVICES.preset()
    read = history.buckets if window.seconds == history.FINE else history.hours
    early = window.step + timedelta(seconds=window.seconds) if window.name else timedelta()
    means_by_device = {
        (device.uuid, device.instance): {bucket.start: bucket.means for bucket in buckets}
        for device, buckets in read(cluster_id, window.start - early, window.end, nodes=[node]).items()
    }
    if window.name:
        window = _closed(window, {at for means in means_by_device.values() for at in means})

    def line(kind: SparklineKind, uuid: str, instance: str) -> Sparkline:
        means = means_by_device.get((uuid, instance), {})
        values = _merged(means, kind.metric, window)
        return Sparkline(kind, [None if value is None else value * kind.scale for value in values], window)

    lines = {}
    for gpu in gpus:
        activity = line(ENGINE if gpu.instance else BUSY, gpu.uuid, gpu.instance)
        power = [] if gpu.instance else [line(POWER, gpu.uuid, "")]
        wanted = [activity, *power, line(TEMPERATURE, gpu.uuid, "")]
        lines[gpu.uuid, gpu.instance] = [sparkline for sparkline in wanted if sparkline.known]
    return lines, window


def _closed(window: TimeRange, known: Collection[datetime]) -> TimeRange:
    """Return the preset without the step under way; without the one before, too, while the reading that closes it has
    not come yet."""
    row = timedelta(seconds=window.seconds)
    end = ranges.floor(now(), window.seconds)
    if end - row not in known:
        end -= row
    return replace(window, start=end - window.length, end=end)


def _merged(
    means: Mapping[datetime, Mapping[Metric, float]], metric: Metric, window: TimeRange
) -> Iterator[float | None]:
    """Yield the mean of each step's rows that have the metric; None where none has."""
    rows = window.step // timedelta(seconds=window.seconds)
    starts = [window.start + number * window.step for number in range(-(-window.length // window.step))]
    for start in starts:
        several = (means.get(start + number * timedelta(seconds=window.seconds), {}) for number in range(rows))
        known = [row[metric] for row in several if metric in row]
        yield fmean(known) if known else None
