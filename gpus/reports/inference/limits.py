"""Findings about what limits a deployment, where its figures show it. docs/gpu.md has the thresholds."""

from __future__ import annotations

from dataclasses import dataclass

from gpus.reports.inference.figures import Figures

WAITING = 0.5
"""Requests, on the average: fewer are those between two steps of a scheduler. Setpoint's own, as all here."""
NO_WAITING = 0.05
KV_FULL, KV_LOW = 0.90, 0.30
GPUS_BUSY, GPUS_IDLE = 0.80, 0.50
FEW_RUNNING = 2.0
"""Requests of one replica, at its highest."""
LEAST_SECONDS = 3600.0
"""A shorter time does not show that capacity is left over."""


@dataclass(frozen=True, slots=True)
class ServingFinding:
    name: str
    severity: str
    """warn or ok."""
    text: str


def of(figures: Figures, busy: float | None, replicas: int, scraped: int) -> ServingFinding | None:
    """`busy`: share of the GPUs that its pods held; None: not known."""
    if figures.waiting is not None and figures.waiting >= WAITING:
        return _waiting(figures, figures.waiting, busy)
    return _left_over(figures, busy, replicas) if scraped == replicas else None


def _waiting(figures: Figures, waiting: float, busy: float | None) -> ServingFinding | None:
    """Return None where the KV cache is unknown: it may be what they wait for."""
    kv = figures.kv_cache
    if kv is None:
        return None
    gpus = "" if busy is None else f" and GPUs {100 * busy:.0f} % busy"
    queue = f"{waiting:,.1f} requests waited on the average with the KV cache {100 * kv:.0f} % in use{gpus}"
    if kv >= KV_FULL:
        count = round(figures.preemptions or 0)
        evicted = f", and {count:,} preemption{'' if count == 1 else 's'}" if count else ""
        return ServingFinding("memory", "warn", f"GPU memory limits it: {queue}{evicted}.")
    if busy is None:
        return None
    if busy < GPUS_IDLE:
        return ServingFinding("batching", "warn", f"Batching or the CPU limits it, not the GPUs: {queue}.")
    return ServingFinding("compute", "warn", f"The GPUs limit it: {queue}.") if busy >= GPUS_BUSY else None


def _left_over(figures: Figures, busy: float | None, replicas: int) -> ServingFinding | None:
    most, kv = figures.running_most, figures.kv_most
    if figures.seconds < LEAST_SECONDS or figures.waiting is None or most is None or kv is None or not replicas:
        return None
    if figures.waiting > NO_WAITING or kv >= KV_LOW or most > FEW_RUNNING * replicas:
        return None
    if busy is not None and busy >= GPUS_IDLE:
        return None
    gpus = "" if busy is None else f", GPUs {100 * busy:.0f} % busy"
    text = (
        f"More capacity than was asked for: at most {most:,.0f} request{'' if round(most) == 1 else 's'} in work on "
        f"{replicas:,} replica{'' if replicas == 1 else 's'}, the KV cache at most {100 * kv:.0f} % in use{gpus}."
    )
    return ServingFinding("over_provisioned", "warn", text)
