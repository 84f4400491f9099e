"""Trustworthiness of a cluster's figures, in sentences: findings of the last readings, each with its remedy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from gpus.metrics import amd
from gpus.metrics.samples import Code, Generation, HonorLabels
from gpus.metrics.states import Tally
from gpus.models import TelemetrySource

State = TelemetrySource.State


@dataclass(frozen=True, slots=True)
class QualityPoint:
    severity: str
    """Of the axis `check`: fail, warn, unknown or ok."""
    title: str
    text: str = ""


_CODES: Mapping[Code, tuple[str, str]] = MappingProxyType(
    {
        Code.LINES_REFUSED: ("{n} lines could not be read", "An exporter's answer is cut off or garbled: {example}"),
        Code.LABELS_TOO_LONG: ("{n} labels are too long", "They were left out; their series stay."),
        Code.SERIES_OVER_LIMIT: ("{n} series were too many", "Shorten the exporters' list of counters."),
        Code.NOT_FINITE: ("{n} values are no numbers", "NaN and infinite values are left out."),
        Code.BLANK: ("{n} values are DCGM’s blanks", "DCGM could not read them, and they came as numbers: {example}"),
        Code.ABSURD: ("{n} values are impossible", "No hardware has them, so they are left out: {example}"),
        Code.STALE: ("{n} series are too old", "Their exporters stopped; look at the exporters' pods."),
        Code.TARGET_DOWN: ("{n} exporters cannot be scraped", "Prometheus does not reach them: {example}"),
        Code.FROM_THE_FUTURE: ("{n} series come from the future", "One of the clocks is wrong: set up NTP."),
        Code.UNKNOWN_NAMES: ("{n} metric names are unknown", "The exporter may be newer than Setpoint: {example}"),
        Code.NO_DEVICE: ("{n} series name no GPU", "They are left out."),
        Code.DUPLICATES: ("{n} values came more than once", "Two scrape jobs, or an upgrade in progress; one counts."),
        Code.RATIO_IS_PERCENT: ("{n} exporters say percent where they promise a ratio", "Scaled; upgrade them."),
        Code.PERCENT_IS_RATIO: ("{n} exporters say a ratio where they promise percent", "Taken as a ratio."),
        Code.RATIO_AMBIGUOUS: ("{n} values could be 1 % or 100 %", "Left out rather than guessed."),
        Code.NO_HOLDERS: ("No GPU names a pod", "Turn on the exporter's Kubernetes mode, if pods hold GPUs."),
        Code.SHARED: ("{n} GPUs are shared by several pods", "Their figures are the GPU's, not any pod's."),
        Code.NODE_UNKNOWN: ("{n} GPUs name no node", "Give the exporter NODE_NAME."),
        Code.NODE_MISNAMED: ("{n} GPUs misname their node", "Give the exporter NODE_NAME: {example}"),
        Code.TWO_NODES: ("{n} GPUs are reported from two nodes", "The newest report counts."),
        Code.PROFILING_ABSENT: (
            "Profiling is missing on {n} GPUs",
            "Engine and tensor activity are unknown.",
        ),
        Code.SUSPECT: (
            "{n} GPUs contradict themselves",
            "Busy for the driver, not for profiling: unknown.",
        ),
    }
)


def reads(source: TelemetrySource) -> str:
    """Describe the source that is read in a sentence, and for the automatic kind why it was chosen."""
    kind, kinds = source.kind, TelemetrySource.Kind
    if kind == kinds.AUTOMATIC:
        if not source.chosen:
            return "It looks for a Prometheus in the cluster at the next reading."
        what = "the exporters themselves" if source.reads_exporters else f"Prometheus at {source.chosen}"
        return f"Auto-detected: {what}. {source.chosen_because}"
    if kind == kinds.EXPORTERS:
        return f"The exporters themselves{f' in {source.namespace}' if source.namespace else ''}, as set up."
    where = source.service if kind == kinds.SERVICE else source.url
    return f"Prometheus at {where}, as set up."


def of_reading(source: TelemetrySource) -> list[QualityPoint]:
    """Return a reading's points about exporters and series, independent of the API server. The worst first."""
    return _ordered([*_exporters(source), *_findings(source)])


@dataclass(frozen=True, slots=True)
class TelemetryMismatch:
    """Disagreements of the API server and telemetry about one cluster's GPUs, by its last reading."""

    silent: Sequence[tuple[str, int]]
    """Nodes and how many of their offered GPUs telemetry does not know, the most first."""
    virtual: Sequence[tuple[str, int]]
    """The same of GPUs for virtual machines, which no exporter of the host reports."""
    more: Sequence[tuple[str, int]]
    """Nodes of which telemetry knows more GPUs than they offer, and how many more."""
    strays: int
    """GPUs on nodes that the API server does not know, or on none."""
    allocated: int
    """GPUs that pods hold according to the API server, on nodes that telemetry sees."""
    named: int
    """GPUs of which telemetry names a pod."""


def points(
    source: TelemetrySource | None, tally: Tally, meeting: TelemetryMismatch | None = None
) -> list[QualityPoint]:
    """The worst first."""
    met = meeting if source is not None and source.is_enabled and source.is_current and source.devices else None
    quality = list(_points(source, tally, met))
    if met is not None:
        quality += _meeting(met)
    return _ordered(quality)


def _meeting(meeting: TelemetryMismatch) -> Iterator[QualityPoint]:
    if meeting.more:
        text = (
            f"{_some(meeting.more)}. The device plugin does not offer them: it marked them unhealthy, is not running, "
            "or shares them out by another name."
        )
        yield QualityPoint("warn", f"{_gpus(_sum(meeting.more))} known to telemetry alone", text)
    if meeting.strays:
        text = "Nodes that left and are scraped still, other clusters' (set label matchers), or no NODE_NAME."
        yield QualityPoint("warn", f"{_gpus(meeting.strays)} on nodes that the API server does not know", text)
    if meeting.allocated:
        share = min(100, round(100 * meeting.named / meeting.allocated))
        title = f"{meeting.named:,} of {meeting.allocated:,} allocated GPUs name their pod"
        if share < 90:
            yield QualityPoint(
                "warn", title, "The rest cannot be told apart from free ones: turn on the exporter's Kubernetes mode."
            )
        elif meeting.named > meeting.allocated:
            text = "Pods that hold GPUs past the device plugin, or that have just ended, or shared GPUs."
            yield QualityPoint("ok", title, text)
        else:
            yield QualityPoint("ok", title, f"{share} % of what the API server gave out.")


def _gpus(count: int) -> str:
    return f"{count:,} GPU is" if count == 1 else f"{count:,} GPUs are"


def _sum(node_counts: Sequence[tuple[str, int]]) -> int:
    return sum(count for _, count in node_counts)


def _some(node_counts: Sequence[tuple[str, int]]) -> str:
    """A few by name."""
    names = ", ".join(f"{name} ({count})" for name, count in node_counts[:3])
    return f"{names} and {len(node_counts) - 3:,} more nodes" if len(node_counts) > 3 else names


def _ordered(quality: Iterable[QualityPoint]) -> list[QualityPoint]:
    order = ("fail", "warn", "unknown", "ok")
    return sorted(quality, key=lambda point: order.index(point.severity))


def _points(source: TelemetrySource | None, tally: Tally, meeting: TelemetryMismatch | None) -> Iterator[QualityPoint]:
    if source is None or source.state == State.NEVER:
        yield QualityPoint("unknown", "Telemetry has not been read yet", "The first reading comes within a minute.")
        return
    if not source.is_enabled:
        yield QualityPoint("unknown", "Telemetry is turned off", "Its source is not enabled.")
        return
    yield from _state(source)
    if source.read_at is None:
        return
    yield from _coverage(source, tally, meeting)
    yield from _exporters(source)
    yield from _findings(source, meeting)


def _findings(source: TelemetrySource, meeting: TelemetryMismatch | None = None) -> Iterator[QualityPoint]:
    """Yield the reading's findings, except those that another line already covers."""
    covered = set() if source.has_profiling else {Code.PROFILING_ABSENT}
    if meeting is not None and meeting.allocated:
        covered.add(Code.NO_HOLDERS)
    for code, count, example in source.findings:
        if code in _CODES and code not in covered:
            title, text = _CODES[Code(code)]
            yield QualityPoint("warn", title.format(n=f"{count:,}"), text.format(example=example or "no example"))


def _state(source: TelemetrySource) -> Iterator[QualityPoint]:
    if source.state == State.FAILED:
        yield QualityPoint("fail", "The last reading failed", source.sentence)
    elif source.state == State.EMPTY:
        yield QualityPoint("warn", "No GPU was found", source.sentence)
    elif source.state == State.PARTLY:
        silent = f"{source.unanswered:,} of {source.asked:,} did not answer"
        yield QualityPoint("warn", silent if source.unanswered else "Some answers are incomplete", source.sentence)
    elif source.sentence:
        yield QualityPoint("warn", "Read, with remarks", source.sentence)
    if source.read_at is not None and not source.is_current:
        yield QualityPoint("fail", "The figures are too old", "All its GPUs count as unknown until it is read again.")


def _coverage(source: TelemetrySource, tally: Tally, meeting: TelemetryMismatch | None) -> Iterator[QualityPoint]:
    """Yield how many GPUs report, and on which nodes the others are, in one line."""
    if not tally.total:
        return
    seen = tally.total - tally.no_telemetry
    if tally.no_telemetry:
        text, silent = [], 0
        if meeting is not None and meeting.silent:
            silent = _sum(meeting.silent)
            text.append(f"Known to the API server alone: {_some(meeting.silent)}. Look at these nodes' exporters.")
        if meeting is not None and meeting.virtual:
            silent += _sum(meeting.virtual)
            text.append(f"For virtual machines: {_some(meeting.virtual)}. No exporter of the host reports those.")
        if (others := tally.no_telemetry - silent) > 0:
            text.append(f"Of {others:,} more, telemetry says too little, or other than the API server.")
        yield QualityPoint(
            "warn", f"{seen:,} of {tally.total:,} GPUs report", " ".join([*text, "They are drawn hatched."])
        )
    elif source.is_current:
        yield QualityPoint("ok", f"All {tally.total:,} GPUs report", "The API server and telemetry know the same ones.")


def _exporters(source: TelemetrySource) -> Iterator[QualityPoint]:
    amds = [version for version in source.exporter_versions if version.startswith(amd.TITLE)]
    if Generation.AMD in source.generations:
        yield QualityPoint("ok", "AMD's exporter", f"{', '.join(amds) or amd.TITLE}, with its own names and units.")
    versions = ", ".join(version for version in source.exporter_versions if version not in amds) or "of unknown version"
    nvidias = [generation for generation in source.generations if generation != Generation.AMD]
    if len(nvidias) > 1:
        text = f"Old and new names at once (exporters {versions}). Units are made the same; finish the upgrade."
        yield QualityPoint("warn", "Two exporter generations at once", text)
    elif nvidias:
        names = "4.9 and newer" if nvidias == [Generation.BASE_UNITS] else "up to 4.8"
        yield QualityPoint("ok", "One exporter generation", f"dcgm-exporter {versions}, with the names of {names}.")
    modes = {
        HonorLabels.OFF: (
            "ok",
            "Pods are identified by exported_* labels",
            "honorLabels is false; exporters are left out.",
        ),
        HonorLabels.ON: (
            "ok",
            "Pods are identified by their own labels",
            "honorLabels is true; exporters are left out.",
        ),
        HonorLabels.DIRECT: ("ok", "Exporters are read themselves", "Labels are the workload's and are not renamed."),
        HonorLabels.MIXED: ("warn", "honorLabels differs between targets", "Set it the same for every scrape job."),
    }
    if source.honor_labels in modes:
        yield QualityPoint(*modes[HonorLabels(source.honor_labels)])
    if not source.has_profiling and source.devices:
        text = "“Effective” goes by busy alone, which is too kind. Turn on the exporter's profiling metrics."
        yield QualityPoint("warn", "No GPU has profiling figures", text)
