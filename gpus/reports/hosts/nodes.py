"""The host of one node over the last hours, and the hosts of several nodes side by side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from uuid import UUID

from clusters.models import Node
from common.clock import now
from gpus.metrics.samples import Metric
from gpus.models import GpuDevice, TelemetrySource
from gpus.reports.hosts import kubelets, limits, samples, targets
from gpus.reports.hosts.figures import HostFigures
from gpus.reports.hosts.kubelets import Evictions
from gpus.reports.hosts.limits import HostFinding
from gpus.reports.hosts.queries import GPU, HOST, SIDE_BY_SIDE
from gpus.reports.hosts.samples import Steps
from gpus.reports.hosts.targets import HOSTNAME, HostName, Target
from gpus.storage import history
from gpus.telemetry import factory, quoting
from gpus.telemetry.expressions import Expressions, Span, Unanswered
from gpus.telemetry.source import Unreadable

SECONDS = 10.0
"""For all that one page asks."""
SPANS: Mapping[int, tuple[int, int]] = {1: (300, 12), 6: (900, 24), 24: (1800, 48)}
"""Hours to seconds of a step and steps; a step has several scrapes, and whole five minutes of GPU history."""
MOST_HOSTS = 50
LEAST_SECONDS = 300
HELD = 0.5
"""Share of a five-minute step for which a pod held the GPU."""


@dataclass(slots=True)
class NodeHost:
    """The host of one node, or why there is nothing of it."""

    node: Node
    hours: int
    span: Span
    why: str = ""
    title: str = ""
    """Of the Prometheus."""
    target: Target | None = None
    figures: HostFigures | None = None
    gpus_busy: Steps = field(default_factory=list)
    findings: list[HostFinding] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @property
    def start(self) -> datetime:
        return self.span.end - timedelta(seconds=self.span.step * self.span.steps)


@dataclass(frozen=True, slots=True)
class SideHost:
    """One of several hosts."""

    name: str
    figures: HostFigures | None
    why: str = ""
    findings: Sequence[HostFinding] = ()

    def value(self, name: str) -> float | None:
        return None if self.figures is None else self.figures.figures[name].mean


@dataclass(slots=True)
class SideBySide:
    """Hosts over one time; figures are means over it."""

    end: datetime
    seconds: int
    hosts: list[SideHost] = field(default_factory=list)
    left_out: int = 0
    why: str = ""
    title: str = ""
    warnings: list[str] = field(default_factory=list)


def span_of(hours: int, at: datetime) -> Span:
    """Return the last whole steps of these hours; KeyError for hours that are not in SPANS."""
    step, steps = SPANS[hours]
    return Span(datetime.fromtimestamp(at.timestamp() // step * step, UTC), step, steps)


def of_node(node: Node, hours: int) -> NodeHost:
    """Read the host of a node. Waits on the network: hold no transaction. Four queries of the database at most."""
    host = NodeHost(node, hours, span_of(hours, now()))
    uuids = list(GpuDevice.objects.filter(node=node.pk).order_by("uuid").values_list("uuid", flat=True).distinct())
    host.gpus_busy = _gpus_busy(node, host.span)
    source = TelemetrySource.objects.filter(cluster=node.cluster_id).select_related("cluster").first()
    try:
        with _expressions(source) as expressions:
            host.title, host.warnings = expressions.title, expressions.warnings
            matched = targets.match(expressions, [_host_name(node)])
            host.target, host.why = matched.targets.get(node.name), matched.why.get(node.name, "")
            if host.target is None:
                return host
            read = samples.read(expressions, [host.target], HOST, host.span)[host.target]
            read.evictions = _evictions(expressions, [node.name], host.start, host.span.end).get(node.name)
            if uuids:
                samples.add_gpus(expressions, read, GPU, uuids)
    except (Unreadable, Unanswered) as error:
        host.why = _quoted(str(error), source)
        return host
    read.lacks = {name: _quoted(text, source) for name, text in read.lacks.items()}
    host.warnings = [_quoted(text, source) for text in dict.fromkeys(host.warnings)]
    host.figures = HostFigures(read)
    host.findings = limits.of(host.figures, host.gpus_busy)
    return host


def side_by_side(cluster_id: UUID, names: Sequence[str], end: datetime, seconds: int) -> SideBySide:
    """Read the hosts of these nodes over the time that ends then; the first MOST_HOSTS by name."""
    names = sorted(names)
    report = SideBySide(end, max(LEAST_SECONDS, seconds), left_out=max(0, len(names) - MOST_HOSTS))
    names = names[:MOST_HOSTS]
    labels = dict(
        Node.objects.present().filter(cluster=cluster_id, name__in=names).order_by().values_list("name", "labels")
    )
    hosts = [HostName(name, str(labels.get(name, {}).get(HOSTNAME, ""))) for name in names]
    source = TelemetrySource.objects.filter(cluster=cluster_id).select_related("cluster").first()
    span = Span(end, report.seconds, 1)
    try:
        with _expressions(source) as expressions:
            report.title, report.warnings = expressions.title, expressions.warnings
            matched = targets.match(expressions, hosts, at=end)
            known = list(dict.fromkeys(matched.targets.values()))
            readings = samples.read(expressions, known, SIDE_BY_SIDE, span) if known else {}
            start = end - timedelta(seconds=report.seconds)
            for name, evictions in _evictions(expressions, [*matched.targets], start, end).items():
                readings[matched.targets[name]].evictions = evictions
    except (Unreadable, Unanswered) as error:
        report.why = _quoted(str(error), source)
        return report
    report.warnings = [_quoted(text, source) for text in dict.fromkeys(report.warnings)]
    for host in hosts:
        target = matched.targets.get(host.name)
        if target is None:
            report.hosts.append(SideHost(host.name, None, matched.why[host.name]))
            continue
        figures = HostFigures(readings[target])
        report.hosts.append(SideHost(host.name, figures, findings=limits.of(figures, [None])))
    return report


def _evictions(
    expressions: Expressions, names: Sequence[str], start: datetime, end: datetime
) -> Mapping[str, Evictions]:
    """Return none where the counters cannot be read, so that the host's other figures are shown."""
    try:
        return kubelets.evictions(expressions, names, start, end)
    except Unanswered:
        return {}


@contextmanager
def _expressions(source: TelemetrySource | None) -> Iterator[Expressions]:
    """Raises Unreadable."""
    if source is None or not source.is_enabled:
        raise Unreadable("The cluster's telemetry source is switched off: enable it in its settings.")
    expressions = factory.expressions(source, seconds=SECONDS)
    try:
        yield expressions
    finally:
        expressions.close()


def _quoted(text: str, source: TelemetrySource | None) -> str:
    return quoting.quoted(text, quoting.secrets(source)) if source else text


def _host_name(node: Node) -> HostName:
    return HostName(node.name, str(node.labels.get(HOSTNAME, "")))


def _gpus_busy(node: Node, span: Span) -> Steps:
    """Return by step how busy the GPUs were that pods held, from the history that every GPU page shows. One query."""
    ends = span.ends
    start = datetime.fromtimestamp(ends[0] - span.step, UTC)
    values: list[list[float]] = [[] for _ in ends]
    for buckets in history.buckets(node.cluster_id, start, span.end, nodes=[node.name]).values():
        for bucket in buckets:
            value = bucket.means.get(Metric.BUSY, bucket.means.get(Metric.ENGINE))
            place = int((bucket.start - start).total_seconds() // span.step)
            if value is not None and bucket.held >= HELD and 0 <= place < span.steps:
                values[place].append(value)
    return [sum(of_step) / len(of_step) if of_step else None for of_step in values]
