"""Starts of pods that serve models in the demo, in the hours before it starts: through the code that a watch calls.

The simulated fleet's pods run from its first moment on, so replicas of one Deployment come and go here, each within one
look. The node with a slow disk loads longer.
"""

from __future__ import annotations

import zlib
from datetime import datetime, timedelta
from typing import Any

from clusters.inventory import store
from clusters.models import Cluster
from common.clock import now
from config.demo import telemetry
from config.demo.fleet import WORN

PLACES = ("atlas-training", "borealis-inference")
MODELS = {"llama-70b": ("registry.example/vllm:0.11", 210), "embed-large": ("registry.example/triton:25.09", 45)}
"""Image, and seconds in which the model loads."""
NODES = 6
"""Of each cluster: the first ones."""
EVERY, AT_ONCE = timedelta(hours=3), 3
"""Replicas of each model."""
FAILS = 17
"""One start in so many never ends."""
SLOW = 2.4


def pass_by(left: timedelta) -> None:
    """Let replicas of each model come and go in each cluster, where the look `left` before the present is due."""
    turn = left // EVERY
    if (left + telemetry.EVERY) // EVERY == turn:
        return
    for cluster in Cluster.objects.filter(name__in=PLACES).exclude(reach=Cluster.Reach.UNREACHABLE).order_by("name"):
        numbers = range(turn * AT_ONCE, (turn + 1) * AT_ONCE)
        starts = [_Start(cluster.name, model, number) for model in MODELS for number in numbers]
        for step in (_Start.loading, _Start.ready):
            store.observe_pods(cluster, [step(start) for start in starts], complete=False, at=now())
        store.observe_pods(cluster, [], complete=False, at=now(), deleted=[start.gone() for start in starts])


class _Start:
    """One pod in three states; all of its numbers follow from its name."""

    def __init__(self, place: str, model: str, number: int) -> None:
        self.model, self.number = model, number
        self.name = f"{model}-{place.partition('-')[0]}-{number}"
        self.chance = zlib.crc32(self.name.encode()) % 1000 / 1000
        self.worn = number % NODES + 1 == WORN
        self.node = f"{place}-gpu-{number % NODES + 1:03d}"
        self.fails = zlib.crc32(self.name.encode()) % FAILS == 0

    def loading(self) -> dict[str, Any]:
        return self._pod("1", is_ready=False)

    def ready(self) -> dict[str, Any]:
        return self._pod("2", is_ready=not self.fails)

    def gone(self) -> dict[str, Any]:
        pod = self._pod("3", is_ready=not self.fails)
        if self.fails:
            pod["status"]["containerStatuses"][0]["state"] = {"waiting": {"reason": "ImagePullBackOff"}}
        return pod

    def _pod(self, version: str, *, is_ready: bool) -> dict[str, Any]:
        image, seconds = MODELS[self.model]
        load = seconds * (0.85 + 0.4 * self.chance) * (SLOW if self.worn else 1)
        ready = now() - timedelta(seconds=60)
        started = ready - timedelta(seconds=load)
        placed = started - timedelta(seconds=12 + 90 * self.chance)
        owner = {"kind": "ReplicaSet", "name": f"{self.model}-5d8f", "uid": self.model, "controller": True}
        container = {"name": "server", "image": image, "resources": {"limits": {"nvidia.com/gpu": "1"}}}
        running = {"running": {"startedAt": _stamp(started)}}
        return {
            "metadata": {
                "name": self.name,
                "namespace": "team-serving",
                "uid": f"start-{self.name}",
                "resourceVersion": version,
                "creationTimestamp": _stamp(placed - timedelta(seconds=1 + 8 * self.chance)),
                "labels": {"model": self.model, "pod-template-hash": "5d8f"},
                "ownerReferences": [owner],
            },
            "spec": {
                "nodeName": self.node,
                "containers": [container | {"readinessProbe": {"httpGet": {"port": 8000}}}],
            },
            "status": {
                "phase": "Running",
                "startTime": _stamp(placed),
                "conditions": [
                    _condition("PodScheduled", placed),
                    _condition("Ready", ready if is_ready else placed, "True" if is_ready else "False"),
                ],
                "containerStatuses": [{"name": "server", "restartCount": 0, "state": running}],
            },
        }


def _condition(type_: str, since: datetime, status: str = "True") -> dict[str, str]:
    return {"type": type_, "status": status, "lastTransitionTime": _stamp(since)}


def _stamp(at: datetime) -> str:
    return f"{at:%Y-%m-%dT%H:%M:%SZ}"
