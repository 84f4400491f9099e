"""Work that waits for GPUs in the demo: gangs in Volcano's queues of the first cluster, a job in Kueue's of the second.

Each for a reason of its own: one is too large, one finds GPUs but no quota, one wants more MIG instances than are free.
"""

from __future__ import annotations

from collections.abc import Mapping

from config.demo.fleet import ServedCluster
from simfleet.controllers import queues

VOLCANO, KUEUE = "atlas-training", "borealis-inference"
FLAVOR = "l40s"


def define(served: Mapping[str, ServedCluster]) -> None:
    """Their objects can be made a moment later."""
    queues.define(served[VOLCANO].sim, queues.VOLCANO)
    queues.define(served[KUEUE].sim, queues.KUEUE)


def first(served: Mapping[str, ServedCluster]) -> None:
    """The queues, and the workload that waits longest."""
    atlas, borealis = served[VOLCANO].sim, served[KUEUE].sim
    queues.volcano_queue(atlas, "pretraining", namespaces=["team-llm"], limit=192, waiting=1)
    queues.volcano_queue(atlas, "experiments", namespaces=["team-vision", "team-speech"], limit=48, waiting=2)
    queues.pod_group(atlas, "llm-70b", namespace="team-llm", queue="pretraining", pods=16, gpus=8)
    queues.cluster_queue(borealis, "batch", flavor=FLAVOR, namespaces=["team-llm", "team-vision"], quota=55, waiting=1)
    queues.workload(
        borealis, "embed-refresh", namespace="team-vision", queue="batch", pods=3, gpus=4, flavor=FLAVOR, lacks=2
    )


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
