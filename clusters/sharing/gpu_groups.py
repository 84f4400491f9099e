"""GPUs that the KAI Scheduler shares between pods: a group of pods for each, and the pod that reserves it. Pure.

A pod that asks for a fraction requests no GPU of the node. The scheduler reserves a whole one with a pod of its own,
and gives both the same group (github.com/kai-scheduler/KAI-Scheduler, docs/gpu-sharing and the binder's
resourcereservation). When a reservation goes, the scheduler deletes the pods of its group, and asks no
PodDisruptionBudget.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from clusters import objects

GROUP = "runai-gpu-group"
"""Label with the group's name; with `/` and that name behind it, a pod has a label for each of several GPUs."""
RESERVING_NAMESPACES = ("kai-resource-reservation", "runai-reservation")
"""Of the chart's values and of Run:ai. Anywhere else a pod is taken for what it requests: otherwise a label would hide
the GPUs of the pod that carries it."""
KEY = "kai/"
"""Before a group's name, as the key of its device."""
MOST = 64
_LABEL = re.compile(r"[A-Za-z0-9._-]{1,63}")


def is_reservation(pod: Mapping[str, Any]) -> bool:
    """Return whether it holds a GPU for the pods of its group, and uses none."""
    return objects.meta(pod).get("namespace") in RESERVING_NAMESPACES and bool(_groups(pod))


def devices(pod: Mapping[str, Any]) -> dict[str, str]:
    """Return the devices that it shares, or reserves for others, as `GpuPod.devices` has them; of each no profile.

    A pod that requests whole GPUs itself shares none.
    """
    if objects.pod_gpus(pod) and not is_reservation(pod):
        return {}
    return {KEY + group: "" for group in _groups(pod)}


def _groups(pod: Mapping[str, Any]) -> list[str]:
    labels = objects.meta(pod).get("labels")
    if not isinstance(labels, Mapping):
        return []
    names = [value for key, value in labels.items() if key == GROUP or str(key).startswith(f"{GROUP}/")]
    return sorted({name for name in names if isinstance(name, str) and _LABEL.fullmatch(name)})[:MOST]
