"""Hosts of a study's nodes, from the cluster's Prometheus: five-minute steps that end where buckets of GPUs end.

No history of hosts is stored, so they are read when their node's GPUs are, over the same windows, all of one slice
before one deadline. Only steps count in which a GPU of the node was held, as with GPUs: what is idle reads nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from clusters.models import Node
from gpus.effects.measures import HOST_MEASURES
from gpus.effects.windows import FEWEST, STEP, Window
from gpus.models import TelemetrySource
from gpus.reports.hosts import samples, targets
from gpus.reports.hosts.figures import NOT_EXPORTED
from gpus.reports.hosts.queries import HOST
from gpus.reports.hosts.samples import HostReading
from gpus.reports.hosts.targets import HOSTNAME, HostName, Target
from gpus.telemetry import factory, quoting
from gpus.telemetry.expressions import Expressions, Span, Unanswered
from gpus.telemetry.source import Unreadable

SECONDS = 30.0
"""For all that one slice of a study asks."""
LONGEST = timedelta(hours=48)
"""Of one query: 576 steps. Windows that lie further apart are read by several."""
TARGETS = 32
"""Of one query: its address stays below the 8 KB that proxies allow."""
NO_SOURCE, NO_TARGET, UNREAD, TOO_FEW = "no Prometheus", "no target", "not answered", "too few figures"
WHY: Mapping[str, str] = {
    NO_SOURCE: "the cluster's telemetry source has no Prometheus that could be read",
    NO_TARGET: "no one target of the node exporter is this node",
    UNREAD: "Prometheus did not answer",
    TOO_FEW: "less than 15 minutes of figures, with a GPU held, in one of the windows",
}
SOURCES: Mapping[str, tuple[str, ...]] = {
    "io_pressure": ("pressure_io",),
    "memory_pressure": ("pressure_memory",),
    "cpu_pressure": ("pressure_cpu",),
    "read_latency": ("read_seconds", "reads"),
    "net_received": ("net_received",),
    "rdma_received": ("rdma_received",),
}
"""Queries of each measure; of two, sums over a window are divided, so that each read weighs the same."""
SCALES: Mapping[str, float] = {"read_latency": 1e3, "net_received": 1e-6, "rdma_received": 1e-6}
"""From seconds and bytes to the measure's unit."""
QUERIES = tuple(
    replace(query, is_total=bool(query.by))
    for query in HOST
    if query.name in {n for of in SOURCES.values() for n in of}
)
SHARED = "One target of the node exporter has the names of several nodes."
METRICS = {query.name: query.metric for query in QUERIES}


@dataclass(slots=True)
class HostSteps:
    """Values of one node's host by the start of their step, or why there are none."""

    why: str = ""
    """Of WHY; empty where a target was read."""
    detail: str = ""
    """A sentence of it."""
    values: dict[str, dict[datetime, float]] = field(default_factory=dict)
    """By query."""
    lacks: dict[str, str] = field(default_factory=dict)
    """Of queries that were not answered: why."""

    @property
    def is_unread(self) -> bool:
        """Return whether another try may read more."""
        return self.why == UNREAD or bool(self.lacks)

    def levels(self, held: Iterable[datetime], window: Window) -> dict[str, float]:
        """Return the mean by measure over the steps of a window, to six digits; without those of too few steps."""
        starts = [start for start in held if window.start <= start < window.end]
        levels = ((measure.name, self._level(measure.name, starts)) for measure in HOST_MEASURES)
        return {name: float(f"{value:.6g}") for name, value in levels if value is not None}

    def _level(self, name: str, starts: Iterable[datetime]) -> float | None:
        columns = [self.values.get(source, {}) for source in SOURCES[name]]
        known = [start for start in starts if all(start in column for column in columns)]
        if len(known) < FEWEST:
            return None
        sums = [sum(column[start] for start in known) for column in columns]
        below = sums[1] if len(sums) == 2 else len(known)
        if below <= 0:
            return None  # no read in the whole window has no latency
        value = sums[0] / below * SCALES.get(name, 1.0)
        # A rate is extrapolated to the step's ends, so a share may come out as a little more than all of the time.
        return min(1.0, value) if name not in SCALES else value

    def lacking(self) -> dict[str, str]:
        """Return why each measure has no value at all; without those that have one."""
        missing = {name: [s for s in sources if not self.values.get(s)] for name, sources in SOURCES.items()}
        return {name: self.lacks.get(of[0], NOT_EXPORTED)[:200] for name, of in missing.items() if of}


def read(cluster_id: UUID, windows: Mapping[str, Sequence[Window]]) -> dict[str, HostSteps]:
    """Return what was read of each node over its windows. Waits on the network: hold no transaction."""
    steps_of = {name: HostSteps() for name in windows}
    if not steps_of:
        return steps_of
    source = TelemetrySource.objects.filter(cluster=cluster_id).select_related("cluster").first()
    concealed = quoting.secrets(source) if source else ()
    try:
        if source is None or not source.is_enabled:
            raise Unreadable("The cluster's telemetry source is switched off.")
        expressions = factory.expressions(source, seconds=SECONDS)
    except Unreadable as error:
        why = UNREAD if _names_prometheus(source) else NO_SOURCE
        return _failed(steps_of, why, quoting.quoted(str(error), concealed))
    try:
        hosts = _hosts(cluster_id, steps_of)
        for span, names in _spans(windows):
            _add(expressions, {name: steps_of[name] for name in names}, hosts, span)
    except Unanswered as error:
        return _failed(steps_of, UNREAD, quoting.quoted(str(error), concealed))
    finally:
        expressions.close()
    for steps in steps_of.values():
        steps.lacks = {name: quoting.quoted(text, concealed) for name, text in steps.lacks.items()}
    return steps_of


def _hosts(cluster_id: UUID, names: Collection[str]) -> dict[str, HostName]:
    rows = Node.objects.filter(cluster=cluster_id, gone_at=None, name__in=names).order_by()
    labels = dict(rows.values_list("name", "labels"))
    return {name: HostName(name, str((labels.get(name) or {}).get(HOSTNAME, ""))) for name in names}


def _names_prometheus(source: TelemetrySource | None) -> bool:
    """Return whether a Prometheus is known, so that a failure to reach it may pass."""
    if source is None or not source.is_enabled:
        return False
    if source.kind == TelemetrySource.Kind.AUTOMATIC:
        return source.chosen not in ("", TelemetrySource.EXPORTERS)
    return source.kind in (TelemetrySource.Kind.PROMETHEUS, TelemetrySource.Kind.SERVICE)


def _failed(names: Iterable[str], why: str, detail: str) -> dict[str, HostSteps]:
    """Return that of no node anything is known: half a reading would not be of the windows."""
    return {name: HostSteps(why, detail[:500]) for name in names}


def _spans(windows: Mapping[str, Sequence[Window]]) -> Iterator[tuple[Span, set[str]]]:
    """Yield spans that hold all windows, with the nodes whose windows each holds."""
    rows = sorted((window.start, window.end, name) for name, of_node in windows.items() for window in of_node)
    start, end, names = None, None, set[str]()
    for first, last, name in rows:
        if start is not None and end is not None and max(end, last) - start > LONGEST:
            yield _span(start, end), names
            start, end, names = None, None, set()
        start, end = start or first, max(end or last, last)
        names.add(name)
    if start is not None and end is not None:
        yield _span(start, end), names


def _span(start: datetime, end: datetime) -> Span:
    return Span(end, round(STEP.total_seconds()), (end - start) // STEP)


def _add(expressions: Expressions, read: Mapping[str, HostSteps], hosts: Mapping[str, HostName], span: Span) -> None:
    """Add the values of these nodes in a span. Raises Unanswered."""
    matched = _matched(expressions, [hosts[name] for name in sorted(read)], span)
    whole = list(dict.fromkeys(target for target in matched.values() if isinstance(target, Target)))
    readings: dict[Target, HostReading] = {}
    for place in range(0, len(whole), TARGETS):
        readings |= samples.read(expressions, whole[place : place + TARGETS], QUERIES, span)
    for name, steps in read.items():
        target = matched[name]
        if not isinstance(target, Target):
            if not steps.values:
                steps.why, steps.detail = NO_TARGET, target[:500]
            continue
        steps.why, steps.detail = "", ""
        steps.lacks |= readings[target].lacks
        for query, parts in readings[target].parts.items():
            values = steps.values.setdefault(query, {})
            for row in parts.values():
                values |= {_start(end): value for end, value in zip(span.ends, row, strict=True) if value is not None}


def _start(end: float) -> datetime:
    return datetime.fromtimestamp(end, UTC) - STEP


def _matched(expressions: Expressions, hosts: Collection[HostName], span: Span) -> dict[str, Target | str]:
    """Return the target of each node at the span's end, else in its middle: exporters restart. Raises Unanswered."""
    targets_of: dict[str, Target | str] = {}
    middle = span.end - STEP * (span.steps // 2)
    for at in (span.end, middle):
        wanted = [host for host in hosts if not isinstance(targets_of.get(host.name), Target)]
        if wanted:
            matched = targets.match(expressions, wanted, at=at)
            targets_of = {**matched.why, **targets_of, **matched.targets}
    taken = Counter((row.instance, row.job) for row in targets_of.values() if isinstance(row, Target))
    return {
        name: SHARED if isinstance(row, Target) and taken[row.instance, row.job] > 1 else row
        for name, row in targets_of.items()
    }


# ── As a study stores it ──────────────────────────────────────────────────────────────────────────────────────────────
def compare(
    steps: HostSteps, held: Collection[datetime], span: tuple[Window, Window], day_before: Window | None
) -> dict[str, Any]:
    """Compare a host's windows, in the form a study stores.

    {why, detail, figures: {measure: [before, after]}, day_before: {measure: level}, lacks: {measure: why}}
    """
    first, second = (steps.levels(held, window) for window in span)
    figures = {name: [level, second[name]] for name, level in first.items() if name in second}
    earlier = steps.levels(held, day_before) if day_before else {}
    return {
        "why": steps.why or ("" if figures else TOO_FEW),
        "detail": steps.detail,
        "figures": figures,
        "day_before": {name: level for name, level in earlier.items() if name in figures},
        "lacks": {} if steps.why else steps.lacking(),
    }
