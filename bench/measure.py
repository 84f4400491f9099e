"""Reading clocks and processes, and the one way to show figures: a Markdown table."""

from __future__ import annotations

import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
MIB = 1024 * 1024


@dataclass
class Table:
    """Rows under a title; `note` says what was compared with what."""

    title: str
    columns: Sequence[str]
    note: str = ""
    rows: list[Sequence[object]] = field(default_factory=list)

    def add(self, *cells: object) -> None:
        if len(cells) != len(self.columns):
            raise ValueError(f"{len(cells)} cells for {len(self.columns)} columns")
        self.rows.append(cells)
        # At once, too: what was measured before a run of an hour failed is not lost.
        sys.stderr.write(_line([_shown(cell) for cell in cells]) + "\n")

    def __str__(self) -> str:
        lines = [f"### {self.title}", ""]
        if self.note:
            lines += [self.note, ""]
        lines += [_line(self.columns), _line(["---"] * len(self.columns))]
        lines += [_line([_shown(cell) for cell in row]) for row in self.rows]
        return "\n".join(lines) + "\n"


def _line(cells: Sequence[object]) -> str:
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def _shown(cell: object) -> str:
    if isinstance(cell, float):
        return f"{cell:.0f}" if abs(cell) >= 100 else f"{cell:.1f}" if abs(cell) >= 10 else f"{cell:.2f}"
    return f"{cell:,}" if isinstance(cell, int) else str(cell)


def seconds(action: Callable[[], object]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def median(values: Sequence[float]) -> float:
    return statistics.median(values)


@dataclass(frozen=True)
class Usage:
    """One process, or several added up, at one moment."""

    cpu: float
    """Seconds of CPU used so far."""
    rss: float
    """MiB resident."""
    pss: float
    """MiB, shared pages divided by those who share them."""

    def __add__(self, other: Usage) -> Usage:
        return Usage(self.cpu + other.cpu, self.rss + other.rss, self.pss + other.pss)


def usage(pid: int) -> Usage:
    """Return the usage of a process and all its descendants. Raises ProcessLookupError when it is gone."""
    total = _own(pid)
    for child in _children(pid):
        try:
            total += usage(child)
        except ProcessLookupError:
            continue
    return total


def _own(pid: int) -> Usage:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except (FileNotFoundError, PermissionError) as error:
        raise ProcessLookupError(pid) from error
    sizes = {line.split(":")[0]: int(line.split()[1]) for line in rollup.splitlines()[1:]}
    # Its own time, and that of children it has reaped: database backends come and go.
    ticks = sum(int(stat[number]) for number in (11, 12, 13, 14))
    return Usage(ticks / TICKS, sizes["Rss"] / 1024, sizes["Pss"] / 1024)


def busy() -> float:
    """Seconds of CPU that everything on the machine has used since it started."""
    user, nice, system, _idle, _iowait, irq, softirq = Path("/proc/stat").read_text().split()[1:8]
    return sum(map(int, (user, nice, system, irq, softirq))) / TICKS


def load() -> float:
    """The machine's load average of the last minute: processes that run or want to."""
    return os.getloadavg()[0]


def _children(pid: int) -> list[int]:
    children = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children += [int(child) for child in task.read_text().split()]
        except OSError:
            continue
    return children


def machine() -> str:
    """One line: what these figures were measured on."""
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1024**3
    return (
        f"{len(os.sched_getaffinity(0))} cores ({model}), {memory:.0f} GiB, Linux {platform.release()}, "
        f"Python {platform.python_version()}, {time.strftime('%Y-%m-%d', time.gmtime())}"
    )
