"""Figures of hosts as pages show them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from django.utils.safestring import SafeString

from gpus.reports import charts
from gpus.reports.hosts.figures import BYTES, NOT_EXPORTED, SECONDS, SHARE, Disk, Figure, HostFigures, Interface, Port

NONE = "–"
_STEPS = (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3), ("B", 1.0))
MEANINGS: Mapping[str, str] = {
    "cpu_busy": "share of all cores' time, without idle and waiting",
    "cpu_iowait": "idle with an I/O operation outstanding",
    "memory_available": "without swapping, page cache included",
    "page_cache": "files in memory",
    "pressure_cpu": "time in which some task waited for a CPU",
    "pressure_io": "time in which some task waited for I/O",
    "pressure_io_full": "time in which every task waited for I/O",
    "pressure_memory": "time in which some task waited for memory",
    "pressure_memory_full": "time in which every task waited for memory",
    "disk_read_latency": "time per read, of the slowest disk",
    "disk_write_latency": "time per write, of the slowest disk",
}


def share(value: float | None) -> str:
    if value is None:
        return NONE
    percent = 100 * value
    return f"{percent:.0f} %" if percent >= 10 or percent == 0 else f"{percent:.1f} %"


def seconds(value: float | None) -> str:
    if value is None:
        return NONE
    milliseconds = 1000 * value
    return f"{milliseconds:,.0f} ms" if milliseconds >= 10 else f"{milliseconds:.2f} ms"


def throughput(value: float | None) -> str:
    if value is None:
        return NONE
    unit, scale = next(((unit, scale) for unit, scale in _STEPS if value >= scale), ("B", 1.0))
    number = value / scale
    return f"{number:.0f} {unit}/s" if number >= 100 or unit == "B" else f"{number:.1f} {unit}/s"


def size(value: float | None) -> str:
    return NONE if value is None else f"{value / 1024**3:,.0f} GiB"


def count(value: float | None) -> str:
    return NONE if value is None else f"{round(value):,}"


def worded(unit: str, value: float | None) -> str:
    return {SHARE: share, SECONDS: seconds, BYTES: size}.get(unit, throughput)(value)


class FigureLine(NamedTuple):
    figure: Figure
    meaning: str
    mean: str
    least: str
    most: str
    drawn: SafeString


def lines(figures: HostFigures, hours: int) -> list[FigureLine]:
    """Return those that have a value, in their order."""
    return [_line(figure, hours) for figure in figures.figures.values() if figure.known]


def _line(figure: Figure, hours: int) -> FigureLine:
    mean, least, most = (worded(figure.unit, value) for value in (figure.mean, figure.least, figure.most))
    unknown = len(figure.values) - len(figure.known)
    gaps = f"; {unknown} of {len(figure.values)} steps are unknown" if unknown else ""
    label = f"{figure.title} in the last {hours} h: mean {mean}, least {least}, most {most}{gaps}"
    top = 1.0 if figure.unit == SHARE else max(figure.known) or 1.0
    drawn = charts.sparkline(figure.values, top, label)
    return FigureLine(figure, MEANINGS.get(figure.name, ""), mean, least, most, drawn)


def lacks(figures: HostFigures) -> tuple[str, list[tuple[str, str]]]:
    """Return the titles that are not exported, as one text, and what else is missing with its reason."""
    missing = [(figure.title, figure.lack) for figure in figures.figures.values() if figure.lack]
    not_exported = ", ".join(title for title, why in missing if why == NOT_EXPORTED)
    return not_exported, [(title, why) for title, why in missing if why != NOT_EXPORTED]


def disk(row: Disk) -> dict[str, str]:
    return {
        "name": row.name,
        "read_latency": seconds(row.read_latency),
        "worst_read": seconds(row.worst_read),
        "write_latency": seconds(row.write_latency),
        "worst_write": seconds(row.worst_write),
        "operations": f"{count(row.reads)} / {count(row.writes)}",
        "read": throughput(row.bytes_read),
        "written": throughput(row.bytes_written),
        "busy": share(row.busy),
    }


def link(row: Interface | Port) -> dict[str, str]:
    words = {
        "name": row.name,
        "received": throughput(row.received),
        "sent": throughput(row.sent),
        "errors": count(row.errors),
    }
    if isinstance(row, Interface):
        return words | {"drops": count(row.drops), "state": NONE, "downs": NONE, "rate": NONE}
    return words | {
        "drops": count(row.discards),
        "state": row.state_word or NONE,
        "downs": count(row.downs),
        "rate": throughput(row.rate),
    }
