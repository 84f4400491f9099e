"""Deployments that serve models: their servers' figures from Prometheus beside the GPUs that their pods held.

A deployment is a `GpuJob`, which its pods join by namespace and name. Servers without GPUs, such as Dynamo's frontends,
are pods of their own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal

from django.db.models import Q

from clusters.models import Cluster, GpuJob, JobPod
from common.clock import now
from gpus.models import TelemetrySource
from gpus.reports.inference import catalog, figures, held, limits, readings
from gpus.reports.inference.figures import Figures, Part
from gpus.reports.inference.held import Interval
from gpus.reports.inference.limits import ServingFinding
from gpus.reports.inference.readings import PodName, PodReading, Readings
from gpus.reports.ranges import TimeRange
from gpus.showback import prices
from gpus.telemetry import factory, quoting
from gpus.telemetry.expressions import Expressions, Span, Unanswered
from gpus.telemetry.source import Unreadable

SECONDS = 10.0
"""For all that one view asks."""
STEPS = 24
MOST_DEPLOYMENTS, MOST_OTHERS = 200, 50
NO_SERVER = (
    "No target of Prometheus whose labels namespace and pod name one of its pods exports metrics of vLLM, SGLang, "
    "Triton or Dynamo. Scrape them, by a PodMonitor for example."
)
BATCH = frozenset(
    {
        "Job",
        "CronJob",
        "JobSet",
        "TrainingJob",
        "TrainJob",
        "PyTorchJob",
        "MPIJob",
        "RayJob",
        "Volcano Job",
        "Slurm job",
    }
)
"""Kinds that run to their end: their pages have no part on serving."""


@dataclass(slots=True)
class Deployment:
    job: GpuJob
    figures: Figures
    servers: Sequence[str]
    models: Sequence[str]
    replicas: int
    """Pods at the end of the time that is shown."""
    scraped: int
    """Those of them that a server answers at."""
    busy: float | None
    """Share of 0-1 of the GPUs that its pods held alone."""
    cost: Decimal | None
    """By the prices of the cost page; None: no price is set, or nothing is recorded."""
    finding: ServingFinding | None

    @property
    def cost_per_million(self) -> Decimal | None:
        """Return the cost of a million output tokens."""
        tokens = self.figures.tokens
        return self.cost / Decimal(tokens) * 1_000_000 if self.cost is not None and tokens else None


@dataclass(frozen=True, slots=True)
class Frontend:
    """A server's pod that holds no GPU that is known."""

    name: PodName
    servers: Sequence[str]
    models: Sequence[str]
    figures: Figures


@dataclass(frozen=True, slots=True)
class Steps:
    """Figures of one deployment over time, the oldest step first."""

    span: Span
    values: Mapping[str, Sequence[float | None]]


@dataclass(slots=True)
class Serving:
    """Deployments that serve on one cluster, or a single one; `why` there is nothing."""

    cluster: Cluster
    start: datetime
    end: datetime
    deployments: list[Deployment] = field(default_factory=list)
    frontends: list[Frontend] = field(default_factory=list)
    left_out: int = 0
    why: str = ""
    title: str = ""
    """Of the Prometheus."""
    warnings: list[str] = field(default_factory=list)
    lacks: dict[str, str] = field(default_factory=dict)
    """Of figures that were not answered: why."""
    steps: Steps | None = None
    currency: str = field(default_factory=prices.currency)

    @property
    def seconds(self) -> int:
        return int((self.end - self.start).total_seconds())

    @property
    def window(self) -> Span:
        return Span(self.end, self.seconds, 1)


def _serving(cluster: Cluster, shown: TimeRange) -> Serving:
    start = shown.start
    return Serving(cluster, start, max(min(shown.end, now()), start + timedelta(seconds=60)))


def of_cluster(cluster: Cluster, shown: TimeRange) -> Serving:
    """Read every deployment of a cluster. Waits on the network: hold no transaction. A fixed number of queries."""
    serving = _serving(cluster, shown)

    def read(expressions: Expressions) -> None:
        answered = readings.read(expressions, readings.EVERYWHERE, serving.window)
        _take(serving, answered, _jobs(serving, answered), is_one=False)

    _ask(serving, read)
    return serving


def of_job(job: GpuJob, shown: TimeRange) -> Serving:
    """Read one deployment, with its figures over time and the frontends of its models."""
    serving = _serving(job.cluster, shown)
    pods = [PodName(job.namespace, pod.name) for pod, _ in held.lives(job, serving.start, serving.end)]
    if not pods:
        serving.why = "None of its pods ran in this time."
        return serving

    def read(expressions: Expressions) -> None:
        within = readings.matchers(pods)
        answered = readings.read(expressions, within, serving.window)
        if not answered.pods.keys() & set(pods):
            serving.why = NO_SERVER
            return
        _add_frontends(expressions, job, serving, answered)
        _take(serving, answered, [job], is_one=True)
        step = max(60, serving.seconds // STEPS)
        span = Span(serving.end, step, max(1, serving.seconds // step))
        by_step = readings.over_time(expressions, within, answered, span)
        serving.lacks |= by_step.lacks
        serving.steps = _over_time(job, serving, by_step, span)

    _ask(serving, read)
    return serving


def _add_frontends(expressions: Expressions, job: GpuJob, serving: Serving, read: Readings) -> None:
    """Add those of its namespace, which have no GPU and so are no job."""
    within = [f'namespace="{job.namespace}"', 'pod!=""']
    try:
        more = readings.read(expressions, within, serving.window, only=("dynamo",))
    except Unanswered as error:
        read.lacks["Dynamo frontend"] = str(error)
        return
    read.pods |= {name: pod for name, pod in more.pods.items() if name not in read.pods}


def _ask(serving: Serving, read: Callable[[Expressions], None]) -> None:
    """Read from the cluster's Prometheus; `why` has the reason where it does not answer."""
    source = TelemetrySource.objects.filter(cluster=serving.cluster).select_related("cluster").first()
    try:
        if source is None or not source.is_enabled:
            raise Unreadable("The cluster's telemetry source is switched off: enable it in its settings.")
        expressions = factory.expressions(source, seconds=SECONDS)
        serving.title = expressions.title
        try:
            read(expressions)
        finally:
            expressions.close()
        serving.warnings = list(dict.fromkeys(expressions.warnings))
    except (Unreadable, Unanswered) as error:
        serving.why = str(error)
    concealed = quoting.secrets(source) if source else ()
    serving.why = quoting.quoted(serving.why, concealed)
    serving.warnings = [quoting.quoted(text, concealed) for text in serving.warnings]
    serving.lacks = {name: quoting.quoted(text, concealed) for name, text in serving.lacks.items()}


# ── Joining pods ──────────────────────────────────────────────────────────────────────────────────────────────────────
def _jobs(serving: Serving, read: Readings) -> list[GpuJob]:
    """Return those of the cluster that lived in this time in a namespace with servers. One query."""
    spaces = {name.namespace for name in read.pods}
    lived = Q(ended_at=None) | Q(ended_at__gt=serving.start)
    rows = GpuJob.objects.filter(lived, cluster=serving.cluster, namespace__in=spaces, queued_at__lt=serving.end)
    return list(rows.select_related("cluster").order_by("namespace", "name", "pk"))


def _take(serving: Serving, read: Readings, jobs: Sequence[GpuJob], *, is_one: bool) -> None:
    serving.lacks = dict(read.lacks)
    lives = {job.pk: held.lives(job, serving.start, serving.end) for job in jobs}
    pods_of = {job.pk: {PodName(job.namespace, pod.name) for pod, _ in lives[job.pk]} for job in jobs}
    serve = [job for job in jobs if pods_of[job.pk] & read.pods.keys()]
    serving.left_out = max(0, len(serve) - MOST_DEPLOYMENTS)
    serve = serve[:MOST_DEPLOYMENTS]
    busy = held.busy(serving.cluster, serve, serving.start, serving.end)
    costs = held.costs(serve, serving.start, serving.end)
    serving.deployments = [
        _deployment(job, lives[job.pk], read, serving, busy=busy.get(job.pk), cost=costs.get(job.pk)) for job in serve
    ]
    taken = set[PodName]().union(*pods_of.values())
    models = {model.lower() for deployment in serving.deployments for model in deployment.models}
    for name, reading in sorted(read.pods.items()):
        if name in taken or (is_one and not _is_frontend_of(models, reading)):
            continue
        if len(serving.frontends) < MOST_OTHERS:
            own = figures.of([Part(reading, 1.0)], serving.seconds, serving.seconds, 0.0)
            serving.frontends.append(Frontend(name, _titles([reading]), sorted(reading.models), own))


def _is_frontend_of(models: set[str], reading: PodReading) -> bool:
    """Return whether it is Dynamo's, which writes models in lower case, of any of these."""
    return "dynamo" in reading.servers and bool(models & {model.lower() for model in reading.models})


def _deployment(
    job: GpuJob,
    lives: Sequence[tuple[JobPod, Interval]],
    read: Readings,
    serving: Serving,
    *,
    busy: float | None,
    cost: Decimal | None,
) -> Deployment:
    seconds = _union(life for _, life in lives)
    gpu_seconds = sum(pod.gpus * (end - begin) for pod, (begin, end) in lives)
    parts = _parts(job, lives, read, seconds)
    servers = [part.reading for part in parts]
    of_all = figures.of(parts, serving.seconds, seconds, gpu_seconds)
    last = max(end for _, (_, end) in lives)
    current = [pod for pod, (_, end) in lives if end == last]
    scraped = sum(PodName(job.namespace, pod.name) in read.pods for pod in current)
    return Deployment(
        job=job,
        figures=of_all,
        servers=_titles(servers),
        models=sorted(set[str]().union(*(reading.models for reading in servers))),
        replicas=len(current),
        scraped=scraped,
        busy=busy,
        cost=cost,
        finding=limits.of(of_all, busy, len(current), scraped),
    )


def _parts(job: GpuJob, lives: Sequence[tuple[JobPod, Interval]], read: Readings, seconds: float) -> list[Part]:
    """Return one part for each name: a StatefulSet's pods follow each other under the same."""
    by_name: dict[PodName, float] = defaultdict(float)
    for pod, (begin, end) in lives:
        by_name[PodName(job.namespace, pod.name)] += end - begin
    known = [(read.pods[name], lived) for name, lived in by_name.items() if name in read.pods]
    return [Part(reading, min(1.0, lived / seconds)) for reading, lived in known]


def _union(lives: Iterable[Interval]) -> float:
    total, until = 0.0, 0.0
    for begin, end in sorted(lives):
        total += max(0.0, end - max(begin, until))
        until = max(until, end)
    return total


def _titles(several: Sequence[PodReading]) -> list[str]:
    names = set[str]().union(*(reading.servers for reading in several))
    return [server.title for server in catalog.servers() if server.name in names]


def _over_time(job: GpuJob, serving: Serving, read: Readings, span: Span) -> Steps:
    lives = held.lives(job, serving.start, serving.end)
    values: dict[str, list[float | None]] = {
        name: [] for name in ("tokens_out", "running", "waiting", "kv_cache", "ttft_p95")
    }
    for place, end in enumerate(span.ends):
        parts = []
        for pod, (begun, ended) in lives:
            share = (min(end, ended) - max(end - span.step, begun)) / span.step
            reading = read.pods.get(PodName(job.namespace, pod.name))
            if reading is not None and share > 0:
                parts.append((reading, share))
        for name in ("tokens_out", "running", "waiting"):
            known = [
                value * (1.0 if name == "tokens_out" else share)
                for reading, share in parts
                if (value := reading.value(name, place)) is not None
            ]
            values[name].append(sum(known) if known else None)
        shares = [value for reading, _ in parts if (value := figures.kv_cache(reading, place)) is not None]
        values["kv_cache"].append(sum(shares) / len(shares) if shares else None)
        slow = figures.distribution([Part(reading, share) for reading, share in parts], "ttft", place)[0.95]
        values["ttft_p95"].append(slow.value if slow else None)
    return Steps(span, values)
