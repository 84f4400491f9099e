"""Metrics in which trainers export their step, and PromQL for them.

Only a step that the trainer itself keeps, and loads from its checkpoint, shows what a restart took back. A counter of
the process, such as a histogram's count of steps, begins with zero at each start and says nothing of the checkpoint.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from urllib.parse import quote

from django.conf import settings

from gpus.reports.hosts.queries import alternatives

TARGET = "namespace, pod, instance, job"
"""Labels by which Prometheus knows what it scraped, which `up` has: a forged label of a scrape without `honorLabels` is
none of them. With `honorLabels` a pod may still name another one's target: then that has two series, or one that mixes
both."""
MOST_ADDRESS = 2250
"""Bytes of pods' names, which one query has twice, as its address has them: proxies allow 8 KB."""
MOST_QUERIES = 32


@dataclass(frozen=True, slots=True)
class StepMetric:
    name: str
    trainer: str


# prime-rl: `Gauge("trainer_step", "Current training step")` of src/prime_rl/trainer/metrics_server.py, served where
# `trainer.metrics_server` is configured (PrimeIntellect-ai/prime-rl, pull request 1547 of January 2026).
# SkyRL: `skyrl_trainer_global_step`, to which Ray's metrics agent adds `ray_` (NovaSky-AI/SkyRL, pull request 1931 of
# July 2026). Ray Train's own `ray_train_*` metrics (doc/source/train/user-guides/monitor-your-application.rst) are of
# its controller and of reports, and have no step; Megatron-LM's `megatron.training.*` have a step's duration alone.
KNOWN = (
    StepMetric("trainer_step", "prime-rl"),
    StepMetric("ray_skyrl_trainer_global_step", "SkyRL"),
)
OWN = "the site's own"


def metrics() -> tuple[StepMetric, ...]:
    """Return the site's own first: of several that a job exports the first one counts."""
    known = {metric.name: metric for metric in KNOWN}
    own = [known.pop(name, StepMetric(name, OWN)) for name in settings.SETPOINT_GPU_STEP_METRICS]
    return (*own, *known.values())


@dataclass(frozen=True, slots=True)
class PodQueries:
    """Queries about some of a job's pods; each has one series for each metric's name, for any number of ranks."""

    steps: str
    """The highest step of any rank: ranks of one job are at the same step, and count once."""
    lowest: str
    """The lowest step of any rank that has done one."""
    ranks: str
    """How many targets export it."""
    copies: str
    """In how many series a target exports it, at most."""
    scraped: str
    """Whether any of the pods is scraped at all, also while it exports no step."""


def queries(namespace: str, pods: Iterable[str], selector: str) -> list[PodQueries]:
    """Return queries of all pods; several where their names are too long for one."""
    names = "|".join(metric.name for metric in metrics())
    parts = []
    for part in _parts(pods):
        inside = ",".join(text for text in (f'namespace="{namespace}"', f'pod=~"{part}"', selector) if text)
        steps = f'{{__name__=~"{names}",{inside}}} and on ({TARGET}) up{{{inside}}}'
        parts.append(
            PodQueries(
                steps=f"max by (__name__) ({steps})",
                lowest=f"min by (__name__) (({steps}) > 0)",
                ranks=f"count by (__name__) ({steps})",
                copies=f"max by (__name__) (count by (__name__, {TARGET}) ({steps}))",
                scraped=f"max by (namespace) (up{{{inside}}})",
            )
        )
    return parts


def _parts(pods: Iterable[str]) -> list[str]:
    parts: list[list[str]] = [[]]
    length = 0
    for pod in pods:
        text = alternatives([pod])
        if not text:
            continue
        more = len(quote(f"{text}|", safe=""))
        if parts[-1] and length + more > MOST_ADDRESS:
            parts.append([])
            length = 0
        parts[-1].append(text)
        length += more
    return ["|".join(part) for part in parts if part]


def chosen(exported: Collection[str]) -> StepMetric | None:
    """Return the metric that counts of those that a job exports."""
    return next((metric for metric in metrics() if metric.name in exported), None)
