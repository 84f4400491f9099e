"""Work that waits for GPUs in the demo: gangs in Volcano's queues of the first cluster, a job in Kueue's of the second.

Each for a reason of its own: one is too large, one finds GPUs but no quota, one wants more MIG instances than are free.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from config.demo.fleet import ServedCluster
from simfleet.controllers import queues
from simfleet.core import SimCluster

VOLCANO, KUEUE = "atlas-training", "borealis-inference"
FLAVOR = "l40s"
TEAMS = ["team-llm", "team-vision"]
"""Whose jobs go through Kueue's queue."""
QUARTER = timedelta(minutes=15)
WAITS, SIZES = (1, 2, 1, 4, 1, 3, 7), (1, 2, 1, 2, 4)
"""Of small jobs that come and go: quarters of an hour until each is admitted, and its GPUs."""
RUNS, LAST = 5, timedelta(hours=3, minutes=15)
"""So long before the present the last of them comes, and all of them end."""


def define(served: Mapping[str, ServedCluster]) -> None:
    """Their objects can be made a moment later."""
    queues.define(served[VOLCANO].sim, queues.VOLCANO)
    queues.define(served[KUEUE].sim, queues.KUEUE)


def first(served: Mapping[str, ServedCluster]) -> None:
    """The queues, and the workload that waits longest."""
    atlas, borealis = served[VOLCANO].sim, served[KUEUE].sim
    _training(atlas, pretraining=1, experiments=2)
    queues.pod_group(atlas, "llm-70b", namespace="team-llm", queue="pretraining", pods=16, gpus=8)
    _batch(borealis, waiting=1)
    queues.workload(
        borealis, "embed-refresh", namespace="team-vision", queue="batch", pods=3, gpus=4, flavor=FLAVOR, lacks=2
    )


def pass_by(served: Mapping[str, ServedCluster], left: timedelta) -> None:
    """Let a quarter of an hour pass in Kueue's queue, `left` before the present: small jobs come, are admitted and end.

    One in five is preempted, and waits again.
    """
    sim = served[KUEUE].sim
    if not queues.workloads(sim):
        _training(served[VOLCANO].sim, pretraining=0, experiments=0)
        _batch(sim, waiting=0)
        queues.let_in(sim, "batch", namespaces=TEAMS)
    small = [raw for raw in queues.workloads(sim) if raw["metadata"]["name"].startswith("job-eval-")]
    ages = [sim.clock.now() - datetime.fromisoformat(raw["metadata"]["creationTimestamp"]) for raw in small]
    if left > LAST and min(ages, default=QUARTER * 2) > QUARTER * 1.5:
        number = len(small) + 1
        size = SIZES[number % len(SIZES)]
        where = TEAMS[number % 2]
        queues.workload(
            sim, f"eval-{number:02d}", namespace=where, queue="batch", pods=1, gpus=size, flavor=FLAVOR, lacks=1
        )
    held = 0
    for raw, age in zip(small, ages, strict=True):
        name, where = raw["metadata"]["name"].removeprefix("job-"), raw["metadata"]["namespace"]
        number = int(name.removeprefix("eval-"))
        conditions = _conditions(number, age / QUARTER - WAITS[number % len(WAITS)])
        queues.mark(sim, name, namespace=where, queue="batch", conditions=conditions)
        held += SIZES[number % len(SIZES)] if conditions.get("Admitted", (False, ""))[0] else 0
    waiting = sum(not _has_quota(raw) for raw in queues.workloads(sim))
    _batch(sim, waiting=waiting, besides=held)


def _conditions(number: int, quarters: float) -> dict[str, tuple[bool, str]]:
    """Return the conditions of a small job so long after it was first admitted."""
    if quarters < 0:
        return {}
    if quarters >= RUNS:
        return {"Finished": (True, "Succeeded")}
    is_out = number % 5 == 2 and 1 <= quarters < 3
    moved = {"Evicted": (is_out, "Preempted")} if number % 5 == 2 and quarters >= 1 else {}
    return moved | {
        name: (not is_out, "Preempted" if is_out else name) for name in ("QuotaReserved", "Admitted", "PodsReady")
    }


def _has_quota(raw: Mapping[str, Any]) -> bool:
    return any(
        row["type"] in ("QuotaReserved", "Finished") and row["status"] == "True" for row in raw["status"]["conditions"]
    )


def _training(sim: SimCluster, *, pretraining: int, experiments: int) -> None:
    queues.volcano_queue(sim, "pretraining", namespaces=["team-llm"], limit=192, waiting=pretraining)
    queues.volcano_queue(sim, "experiments", namespaces=["team-vision", "team-speech"], limit=48, waiting=experiments)


def _batch(sim: SimCluster, *, waiting: int, besides: int = 0) -> None:
    queues.cluster_queue(sim, "batch", flavor=FLAVOR, namespaces=TEAMS, quota=55, waiting=waiting, besides=besides)


def later(served: Mapping[str, ServedCluster]) -> None:
    """There are GPUs for it; its queue may hold no more."""
    queues.pod_group(
        served[VOLCANO].sim,
        "asr-eval",
        namespace="team-speech",
        queue="experiments",
        pods=4,
        gpus=2,
        says="queue resource quota insufficient: insufficient nvidia.com/gpu",
    )


def lately(served: Mapping[str, ServedCluster]) -> None:
    queues.pod_group(
        served[VOLCANO].sim,
        "grading",
        namespace="notebooks",
        queue="experiments",
        pods=30,
        gpus=1,
        resource="nvidia.com/mig-1g.10gb",
    )
