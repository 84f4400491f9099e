"""The automatic kind: a Prometheus of the cluster that has series of its GPUs, else the exporters themselves.

Only services that well-known installations make are asked, by their names: Setpoint may not list services, and a
service that is none of these is named by a person.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

from clusters.fleet import FleetError, Forbidden, NotFound
from common.clock import now
from gpus.metrics.samples import Series
from gpus.models import TelemetrySource
from gpus.telemetry.prometheus import Prometheus
from gpus.telemetry.source import Gathering, SourceChoice, Telemetry, Unreadable

WELL_KNOWN = (
    "monitoring/prometheus-operated:9090",
    "monitoring/kube-prometheus-stack-prometheus:9090",
    "monitoring/prometheus-kube-prometheus-prometheus:9090",
    "monitoring/prometheus-k8s:9090",
    "monitoring/prometheus-server:80",
    "prometheus/prometheus-operated:9090",
    "prometheus/prometheus-server:80",
    "gpu-operator/prometheus-operated:9090",
)
"""In this order where several know as many GPUs: the operator's own service, of any origin; the names that the chart
kube-prometheus-stack gives by release; kube-prometheus; the chart prometheus."""
LOOK_AGAIN = timedelta(hours=1)
"""A Prometheus that was installed meanwhile is found so late."""
LOOK_AFTER_FAILURE = timedelta(minutes=5)
ASK_SECONDS = 5.0
Open = Callable[[str], Prometheus]
"""From a service's name to its Prometheus; makes no call."""


def remembered(source: TelemetrySource) -> SourceChoice | None:
    """Return the earlier choice while it is still valid."""
    if not source.chosen or source.chosen_at is None:
        return None
    is_well = source.state in (TelemetrySource.State.WELL, TelemetrySource.State.PARTLY)
    if not timedelta() <= now() - source.chosen_at < (LOOK_AGAIN if is_well else LOOK_AFTER_FAILURE):
        return None
    return SourceChoice(source.chosen, source.chosen_because, source.chosen_at)


class Automatic:
    """Fills gpus.telemetry.source.Telemetry with whichever of the two was found."""

    def __init__(self, known: SourceChoice | None, *, service: Open, exporters: Callable[[], Telemetry]) -> None:
        self._known, self._service, self._exporters = known, service, exporters

    def close(self) -> None:
        """The fleet belongs to the caller."""

    def series(self, into: Gathering) -> Iterator[Series]:
        chosen = self._known or choose(self._service, into.left)
        is_exporters = chosen.reads == TelemetrySource.EXPORTERS
        telemetry = self._exporters() if is_exporters else self._service(chosen.reads)
        yield from telemetry.series(into)
        into.choice = chosen  # not before: what cannot be read at all is looked for again


def choose(service: Open, seconds: float) -> SourceChoice:
    """Asks all that are well known, at once. Waits on the network for 5 s at most."""
    deadline = time.monotonic() + min(ASK_SECONDS, seconds)
    with ThreadPoolExecutor(max_workers=len(WELL_KNOWN), thread_name_prefix="looking") as pool:
        answers = list(pool.map(lambda name: _count_gpus(service(name), deadline), WELL_KNOWN))
    counts = {name: answer for name, answer in zip(WELL_KNOWN, answers, strict=True) if isinstance(answer, int)}
    best = max(counts, key=lambda name: counts[name], default="")
    if counts.get(best):
        gpus = f"{counts[best]:,} GPU{'s' if counts[best] != 1 else ''}"
        return SourceChoice(best, f"Prometheus at {best} has series of {gpus}.", now())
    why: dict[str, list[str]] = defaultdict(list)
    for name, answer in zip(WELL_KNOWN, answers, strict=True):
        why["has no GPUs" if answer == 0 else str(answer)].append(name)
    return SourceChoice(TelemetrySource.EXPORTERS, _because(why), now())


def _count_gpus(prometheus: Prometheus, deadline: float) -> int | str:
    """Return how many GPUs this Prometheus knows, or in a few words why that is unknown."""
    into = Gathering(when=now(), deadline=deadline)
    try:
        return prometheus.count(into)
    except Unreadable as error:
        cause = error.__cause__
    if isinstance(cause, NotFound):
        return "not there"
    if isinstance(cause, Forbidden):
        return "not allowed"
    return "did not answer" if isinstance(cause, FleetError) else "is no Prometheus"


def _because(why: dict[str, list[str]]) -> str:
    sentences = [f"None of the {len(WELL_KNOWN)} services at which Prometheus usually is has series of GPUs."]
    if names := why.get("has no GPUs"):
        sentences.append(f"Without any: {', '.join(names)}.")
    if names := why.get("did not answer", []) + why.get("is no Prometheus", []):
        sentences.append(f"No answer from {', '.join(names)}.")
    if names := why.get("not allowed"):
        sentences.append(f"Setpoint may not ask {len(names)} of them: deploy/setpoint-gpus.yaml has the right to give.")
    return " ".join(sentences)
