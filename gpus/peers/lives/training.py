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
MOST_PRODUCTIVE = 1.1
"""Share of its running time, above which more steps were counted than that time can have had."""
TOO_MANY = "More steps were kept than its running time, as Prometheus scraped it, has room for."
MOST_POINTS = 4000
FINEST = 15
"""Seconds between two points: as often as Prometheus commonly scrapes."""
SHORTEST = 60.0
"""Running time in seconds, of which pods were scraped, from which a share says anything."""
COVERED = 0.5
"""Share of the running time in which its pods must have been scraped."""
UNSURE = 0.05
"""Share by which the time of its pods may differ from the running time that its row has."""
LIVES_UNKNOWN = (
    "When all of its pods ran at once within this time is not known: its number of pods changed, or they are left out."
)
BEGUN_AGAIN = (
    "Its steps began again from the first ones: a new run, or a restart without a checkpoint, which steps do not tell."
)
APART = "Its targets export steps that differ by far more than a minute of work: of several runs, such as trials."
COPIES = (
    "A target exports {name} in several series: which of them is its trainer's cannot be told. A pod that is scraped "
    "with honorLabels may name another one's target."
)
NOT_EXPORTED = (
    "No target of Prometheus whose labels namespace and pod name one of its pods exports a training step. Names that "
    "are known: {names}; others are given by SETPOINT_GPU_STEP_METRICS."
)


class State(StrEnum):
    EXPORTED = "exported"
    SHORT = "short"
    """Exported, and too little of it, or of several runs, to say anything."""
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
    """Within the time that was read, in which all of its pods ran, and Prometheus scraped any of them."""
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
        return self.running_seconds if self.known and self.program.lack != LIVES_UNKNOWN else None

    @property
    def kept_per_hour(self) -> float | None:
        """Return the steps that it kept in an hour of its running time; None where the program's part is not known."""
        if not self.known or self.program.value is None:
            return None
        return 3600 * self.known.seen / self.running_seconds

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
    lowest: dict[str, dict[float, float]] = field(default_factory=lambda: defaultdict(dict))
    ranks: dict[str, dict[float, float]] = field(default_factory=lambda: defaultdict(dict))
    copies: dict[str, dict[float, float]] = field(default_factory=lambda: defaultdict(dict))
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
    if training.why:
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

    def lowest(query: PodQueries) -> None:
        _add(samples.lowest, expressions.over(query.lowest, span), min)

    def ranks(query: PodQueries) -> None:
        _add(samples.ranks, expressions.over(query.ranks, span), sum)

    def copies(query: PodQueries) -> None:
        _add(samples.copies, expressions.over(query.copies, span), max)

    def scraped(query: PodQueries) -> None:
        for _, points in expressions.over(query.scraped, span):
            samples.scraped.update(at for at, _ in points)

    questions = (steps, lowest, ranks, copies, scraped)
    with ThreadPoolExecutor(max_workers=AT_ONCE, thread_name_prefix="training") as pool:
        answers = [pool.submit(ask, query) for query in parts for ask in questions]
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
    if max(samples.copies[metric.name].values(), default=1) > 1:
        raise Unanswered(COPIES.format(name=metric.name), is_final=True)
    training.metric = metric
    training.ranks = int(max(samples.ranks[metric.name].values(), default=1))
    lives = _lives(training.job, training.span)
    inside = _whole(training.span) if lives is None else lives
    steps = [(at, value) for at, value in samples.steps[metric.name].items() if _is_in(inside, at)]
    known = [at for at in samples.scraped if _is_in(inside, at)]
    folded = progress.fold(steps, training.span.step, has_ranks=training.ranks > 1, known=known)
    training.progress = folded
    ran = sum(end - start for start, end in inside)
    counted = [at for at in known if not _is_in(folded.gaps, at)]
    scraped = min(ran, float(training.span.step * len(counted)))
    training.running_seconds = scraped
    lowest = samples.lowest[metric.name]
    spreads = [value - lowest[at] for at, value in steps if at in lowest and samples.ranks[metric.name].get(at, 0) > 1]
    is_apart = progress.is_apart(spreads, folded.step_seconds)
    training.state, training.why = State.SHORT, APART if is_apart else _lack(folded, ran, scraped)
    if not training.why and folded.step_seconds is not None:
        training.state = State.EXPORTED
        training.program = _program(folded, folded.step_seconds, scraped, is_known=lives is not None)


def _program(folded: Progress, seconds: float, scraped: float, *, is_known: bool) -> Share:
    if not is_known:
        return Share(None, LIVES_UNKNOWN)
    if folded.begun_again:
        return Share(None, BEGUN_AGAIN)
    productive = folded.seen * seconds / scraped
    return Share(min(1.0, productive)) if productive <= MOST_PRODUCTIVE else Share(None, TOO_MANY)


def _lives(job: GpuJob, span: Span) -> list[tuple[float, float]] | None:
    """Return when within `span` all of its pods ran at once; None where its row's pods do not show that."""
    at = job.until(now())
    ends = at.timestamp()
    changes = []
    for pod in job.all_pods():
        if pod.running is not None:
            changes += [(float(pod.running), 1), (float(ends if pod.ended is None else pod.ended), -1)]
    lives: list[tuple[float, float]] = []
    running = 0
    for when, change in sorted(changes):
        if change > 0 and running == job.size - 1:
            lives.append((when, ends))
        elif change < 0 and running == job.size:
            lives[-1] = (lives[-1][0], when)
        running += change
    ran = job.all_running_seconds(at)
    if abs(sum(end - start for start, end in lives) - ran) > max(SHORTEST, UNSURE * ran):
        return None
    ((first, last),) = _whole(span)
    return [(max(start, first), min(end, last)) for start, end in lives if end > first and start < last]


def _whole(span: Span) -> list[tuple[float, float]]:
    last = span.end.timestamp()
    return [(last - span.step * span.steps, last)]


def _is_in(times: Iterable[tuple[float, float]], at: float) -> bool:
    return any(start < at <= end for start, end in times)


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
