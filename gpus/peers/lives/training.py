"""Steps of one training job over its life, read from the cluster's Prometheus for one view; none is stored."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from accounts.models import User
from clusters.models import GpuJob, JobPod
from common.clock import now
from gpus.models import TelemetrySource
from gpus.peers.lives import reports
from gpus.peers.lives.figures import Goodput, Share
from gpus.reports.training import catalog, progress
from gpus.reports.training.catalog import PodQueries, StepMetric
from gpus.reports.training.progress import Progress
from gpus.telemetry import factory, quoting
from gpus.telemetry.expressions import AT_ONCE, Expressions, Row, Span, Unanswered
from gpus.telemetry.source import Unreadable

SECONDS = 10.0
"""For all that one view asks."""
LONGEST = timedelta(days=7)
"""Of a longer life the last part is read."""
MOST_POINTS = 4000
FINEST = 15
"""Seconds between two points: as often as Prometheus commonly scrapes."""
SHORTEST = 60.0
"""Running time in seconds, of which pods were scraped, from which a share says anything."""
COVERED = 0.5
"""Share of the running time in which its pods must have been scraped."""
NOT_EXPORTED = (
    "No target of Prometheus whose labels namespace and pod name one of its pods exports a training step. Names that "
    "are known: {names}; others are given by SETPOINT_GPU_STEP_METRICS."
)


class State(StrEnum):
    EXPORTED = "exported"
    SHORT = "short"
    """Exported, and too little of it to say anything."""
    NOT_EXPORTED = "not_exported"
    UNREAD = "unread"
    """Prometheus was not read."""


@dataclass(slots=True)
class JobTraining:
    job: GpuJob
    state: State
    span: Span
    goodput: Goodput
    program: Share
    why: str = ""
    """Of every state but EXPORTED: a sentence."""
    title: str = ""
    """Of the Prometheus."""
    metric: StepMetric | None = None
    progress: Progress = field(default_factory=Progress)
    running_seconds: float = 0.0
    """In which all of its pods ran, and Prometheus scraped any of them."""
    ranks: int = 0
    """That exported the step at once, at most."""
    left_out: int = 0
    """Pods beyond those that were asked for."""
    warnings: list[str] = field(default_factory=list)

    @property
    def start(self) -> datetime:
        return self.span.end - timedelta(seconds=self.span.step * self.span.steps)

    @property
    def known(self) -> Progress | None:
        return self.progress if self.state == State.EXPORTED else None

    @property
    def ran_seconds(self) -> float | None:
        return self.running_seconds if self.known else None

    @property
    def kept_per_hour(self) -> float | None:
        """Return the steps that it kept in an hour of its running time."""
        return 3600 * self.known.kept / self.running_seconds if self.known else None

    @property
    def whole(self) -> Share:
        """Return scheduling × runtime × program."""
        known = self.goodput.whole
        if known.value is None or self.program.value is None:
            return Share(None, known.lack or self.program.lack)
        return Share(known.value * self.program.value)

    @property
    def known_parts(self) -> list[str]:
        parts = {"scheduling": self.goodput.scheduling, "runtime": self.goodput.runtime, "program": self.program}
        return [name for name, share in parts.items() if share.value is not None]


@dataclass(slots=True)
class _Samples:
    """Points of all of a job's pods, by the metric's name."""

    steps: dict[str, dict[float, float]] = field(default_factory=lambda: defaultdict(dict))
    ranks: dict[str, dict[float, float]] = field(default_factory=lambda: defaultdict(dict))
    scraped: set[float] = field(default_factory=set)


def of(user: User, job: GpuJob) -> JobTraining:
    """Read the steps. Waits on the network: hold no transaction. A fixed number of queries of the database."""
    at = now()
    goodput = reports.of(user, job).goodput
    span = span_of(job, at)
    if span is None:
        why = "Its life is shorter than a minute so far." if job.started_at else "None of its pods has run yet."
        at_end = Span(job.until(at), FINEST, 1)
        return JobTraining(job, State.SHORT, at_end, goodput, Share(None, why), why)
    training = JobTraining(job, State.UNREAD, span, goodput, Share(None))
    source = TelemetrySource.objects.filter(cluster=job.cluster_id).select_related("cluster").first()
    try:
        if source is None or not source.is_enabled:
            raise Unreadable("The cluster's telemetry source is switched off: enable it in its settings.")
        expressions = factory.expressions(source, seconds=SECONDS)
        training.title, training.warnings = expressions.title, expressions.warnings
        try:
            _take(training, _read(training, expressions))
        finally:
            expressions.close()
    except (Unreadable, Unanswered) as error:
        training.state, training.why = State.UNREAD, str(error)
    concealed = quoting.secrets(source) if source else ()
    training.why = quoting.quoted(training.why, concealed)
    training.warnings = [quoting.quoted(text, concealed) for text in dict.fromkeys(training.warnings)]
    if training.program.value is None:
        training.program = Share(None, training.why)
    return training


def span_of(job: GpuJob, at: datetime) -> Span | None:
    """Return the steps of its running life, or of the last part of it; None where it is shorter than a minute."""
    if job.started_at is None:
        return None
    end = job.until(at)
    seconds = min((end - job.started_at).total_seconds(), LONGEST.total_seconds())
    if seconds < SHORTEST:
        return None
    step = max(FINEST, math.ceil(seconds / MOST_POINTS))
    last = datetime.fromtimestamp(math.ceil(end.timestamp()), UTC)
    return Span(last, step, int(seconds // step) + 1)


def _read(training: JobTraining, expressions: Expressions) -> _Samples:
    """Raises Unanswered where any question was not answered: a part of a job's steps is no figure of it."""
    job, span = training.job, training.span
    pods = sorted({pod.name for pod in _lived(job.all_pods(), span)})
    parts = catalog.queries(job.namespace, pods, expressions.selector)
    training.left_out = job.pods_seen - len(job.pods)
    if len(parts) > catalog.MOST_QUERIES:
        raise Unanswered(f"It has {len(pods):,} pods: more than one view asks for.", is_final=True)
    samples = _Samples()

    def steps(query: PodQueries) -> None:
        _add(samples.steps, expressions.over(query.steps, span), max)

    def ranks(query: PodQueries) -> None:
        _add(samples.ranks, expressions.over(query.ranks, span), sum)

    def scraped(query: PodQueries) -> None:
        for _, points in expressions.over(query.scraped, span):
            samples.scraped.update(at for at, _ in points)

    with ThreadPoolExecutor(max_workers=AT_ONCE, thread_name_prefix="training") as pool:
        answers = [pool.submit(ask, query) for query in parts for ask in (steps, ranks, scraped)]
        for answer in answers:
            answer.result()
    return samples


def _lived(pods: Iterable[JobPod], span: Span) -> Iterable[JobPod]:
    first = span.ends[0]
    return (pod for pod in pods if pod.running is not None and (pod.ended is None or pod.ended >= first))


def _add(
    into: Mapping[str, dict[float, float]], rows: Sequence[Row], combine: Callable[[Sequence[float]], float]
) -> None:
    for labels, points in rows:
        by_time = into[labels.get("__name__", "")]
        for at, value in points:
            by_time[at] = combine((by_time[at], value)) if at in by_time else value


def _take(training: JobTraining, samples: _Samples) -> None:
    exported = {name: points for name, points in samples.steps.items() if points}
    begun = [name for name, points in exported.items() if progress.clean(points.items())]
    metric = catalog.chosen(begun) or catalog.chosen(exported)
    if metric is None:
        names = ", ".join(f"{metric.name} ({metric.trainer})" for metric in catalog.metrics())
        training.state, training.why = State.NOT_EXPORTED, NOT_EXPORTED.format(names=names)
        return
    job, span = training.job, training.span
    training.metric = metric
    training.ranks = int(max(samples.ranks[metric.name].values(), default=1))
    steps = samples.steps[metric.name].items()
    training.progress = progress.fold(steps, span.step, has_ranks=training.ranks > 1)
    ran = min(job.all_running_seconds(job.until(now())), float(span.step * span.steps))
    scraped = min(ran, float(span.step * len(samples.scraped)))
    training.running_seconds = scraped
    training.state, training.why = State.SHORT, _lack(training.progress, ran, scraped)
    if not training.why and training.progress.step_seconds is not None:
        productive = training.progress.kept * training.progress.step_seconds / scraped
        training.state, training.program = State.EXPORTED, Share(min(1.0, productive))


def _lack(steps: Progress, ran: float, scraped: float) -> str:
    if ran < SHORTEST:
        return "All of its pods ran for less than a minute so far."
    if scraped < COVERED * ran:
        return "Prometheus scraped its pods in less than half of its running time."
    if steps.first is None:
        return "Its trainer has not finished a step yet."
    if steps.step_seconds is None:
        return "Too few steps are done to tell how long one takes."
    return ""
