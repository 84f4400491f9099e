"""Figures of one deployment from the readings of its pods. What no pod exports has no value."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from gpus.reports.inference import catalog, quantiles
from gpus.reports.inference.quantiles import Quantile
from gpus.reports.inference.readings import PodReading

MILLION = 1e6


@dataclass(frozen=True, slots=True)
class Part:
    """One pod of a deployment in the time that is shown."""

    reading: PodReading
    share: float
    """Of the deployment's time, that in which the pod lived."""


@dataclass(frozen=True, slots=True)
class Figures:
    """Means over the deployment's part of the time that is shown; None: not exported, or unknown."""

    seconds: float
    gpu_seconds: float
    """For which its pods held GPUs, or MIG instances; 0 for a server without any."""
    running: float | None = None
    running_most: float | None = None
    """The highest readings of its pods, added up."""
    waiting: float | None = None
    kv_cache: float | None = None
    """Share of 0-1, the mean of its pods."""
    kv_most: float | None = None
    """The highest reading of any pod."""
    tokens_out: float | None = None
    """In a second."""
    tokens_in: float | None = None
    requests: float | None = None
    """That ended well, in a second."""
    preemptions: float | None = None
    """In all of the time."""
    queue_wait: float | None = None
    """Seconds that a request waited on the average."""
    ttft: Mapping[float, Quantile | None] = field(default_factory=dict)
    """Seconds to the first token, by the share of requests."""
    tpot: Mapping[float, Quantile | None] = field(default_factory=dict)
    """Seconds from token to token."""

    @property
    def tokens(self) -> float | None:
        """Return the output tokens of all of the time."""
        return None if self.tokens_out is None else self.tokens_out * self.seconds

    @property
    def tokens_per_gpu(self) -> float | None:
        """Return the output tokens in a second of one GPU."""
        return self.tokens / self.gpu_seconds if self.tokens is not None and self.gpu_seconds else None

    @property
    def gpus(self) -> float:
        """Return the mean number of GPUs held."""
        return self.gpu_seconds / self.seconds if self.seconds else 0.0


SHARES = {"ttft": (0.5, 0.95), "tpot": (0.5, 0.95)}


def of(parts: Sequence[Part], window: float, seconds: float, gpu_seconds: float) -> Figures:
    """`window`: seconds that readings are over, of which the deployment lived `seconds`."""
    lived = window / seconds if seconds else 0.0
    queue = _sum(parts, "queue_seconds"), _sum(parts, "queue_count")
    preemptions = _sum(parts, "preemptions")
    return Figures(
        seconds=seconds,
        gpu_seconds=gpu_seconds,
        running=_held(parts, running),
        running_most=_sum(parts, "running_most"),
        waiting=_held(parts, lambda reading: reading.value("waiting")),
        kv_cache=_mean(parts, kv_cache),
        kv_most=max((value for part in parts if (value := kv_most(part.reading)) is not None), default=None),
        tokens_out=_rate(parts, "tokens_out", lived),
        tokens_in=_rate(parts, "tokens_in", lived),
        requests=_rate(parts, "requests", lived),
        preemptions=None if preemptions is None else preemptions * window,
        queue_wait=queue[0] / queue[1] if queue[0] is not None and queue[1] else None,
        **{name: distribution(parts, name) for name in SHARES},
    )


def distribution(parts: Sequence[Part], name: str, step: int = 0) -> dict[float, Quantile | None]:
    histograms = [part.reading.buckets[name][step] for part in parts if name in part.reading.buckets]
    together = quantiles.summed(histograms)
    return {share: quantiles.quantile(share, together) for share in SHARES[name]}


def running(reading: PodReading, step: int = 0) -> float | None:
    """Return the requests in work. A frontend's count has those that wait as well."""
    value, waiting = reading.value("running", step), reading.value("waiting", step)
    if value is None or not _counts_waiting(reading):
        return value
    return max(0.0, value - (waiting or 0.0))


def _counts_waiting(reading: PodReading) -> bool:
    """Return whether the first of the pod's servers that has the figure counts so."""
    first = next((s for s in catalog.servers() if s.name in reading.servers and "running" in s.figures), None)
    return first is not None and first.running_includes_waiting


def kv_cache(reading: PodReading, step: int = 0) -> float | None:
    """Return the share in use, also where a server counts blocks."""
    return _share(reading, "kv_cache", "kv_used", step)


def kv_most(reading: PodReading) -> float | None:
    return _share(reading, "kv_most", "kv_used_most", 0)


def _share(reading: PodReading, name: str, used: str, step: int) -> float | None:
    if (value := reading.value(name, step)) is not None:
        return value
    count, blocks = reading.value(used, step), reading.value("kv_blocks", step)
    return min(1.0, count / blocks) if count is not None and blocks else None


def _sum(parts: Sequence[Part], name: str) -> float | None:
    """Add up what is of the whole time already: a counter's rate, a highest reading."""
    known = [value for part in parts if (value := part.reading.value(name)) is not None]
    return sum(known) if known else None


def _rate(parts: Sequence[Part], name: str, lived: float) -> float | None:
    value = _sum(parts, name)
    return None if value is None else value * lived


def _held(parts: Sequence[Part], of_pod: Callable[[PodReading], float | None]) -> float | None:
    """Add up means that are of each pod's own life."""
    known = [value * part.share for part in parts if (value := of_pod(part.reading)) is not None]
    return sum(known) if known else None


def _mean(parts: Sequence[Part], of_pod: Callable[[PodReading], float | None]) -> float | None:
    known = [(value, part.share) for part in parts if (value := of_pod(part.reading)) is not None]
    weight = sum(share for _, share in known)
    return sum(value * share for value, share in known) / weight if weight else None
