"""MIG: what each GPU of a machine is split into, what the parts are called, and what the node then offers to pods.

As NVIDIA's device plugin and mig-manager do it with the strategy `mixed`: each profile is a resource of its own, and
GPUs that are not split stay `nvidia.com/gpu` (NVIDIA MIG User Guide; GPU Operator, "GPU Operator with MIG").
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from clusters import objects

WHOLE = "nvidia.com/gpu"
SLICES = 7
"""Of compute, in one board."""
_FIRST_ID = {"1g": 7, "2g": 3, "3g": 1, "4g": 1, "7g": 0}
"""GPU instance ids as the driver gives them out, by size: `nvidia-smi mig -lgi` on A100 and H100."""
Layout = tuple[tuple[str, ...], ...]
"""Of each GPU in its order, the profiles that it is split into; without any, or beyond the last, it is whole."""

ALL_1G: Layout = (("1g.10gb",) * 7,) * 8
ALL_3G: Layout = (("3g.40gb",) * 2,) * 8
HALF_3G: Layout = (("3g.40gb",) * 2,) * 4
"""The other four GPUs are whole."""
BALANCED: Layout = (("3g.40gb", "2g.20gb", "1g.10gb", "1g.10gb"),) * 8
"""As mig-manager's `all-balanced` for boards of 80 GB."""


@dataclass(frozen=True, slots=True)
class Slot:
    """Unit that one pod can hold: a GPU, or an instance of it."""

    index: int
    """The GPU's."""
    instance: str = ""
    profile: str = ""
    compute: float = 1.0
    """Of the board's slices."""
    siblings: int = 1
    """How many share the board, itself included."""

    @property
    def resource(self) -> str:
        return f"{objects.MIG_PREFIX}{self.profile}" if self.profile else WHOLE


@lru_cache(maxsize=64)
def slots(gpus: int, layout: Layout) -> tuple[Slot, ...]:
    """List slots in the order of GPUs and, within one, of instances."""
    all_slots: list[Slot] = []
    for index in range(gpus):
        profiles = layout[index] if index < len(layout) else ()
        seen: Counter[str] = Counter()
        for profile in profiles:
            size = profile.partition(".")[0]
            instance = str(_FIRST_ID[size] + seen[size])
            seen[size] += 1
            all_slots.append(Slot(index, instance, profile, int(size[:-1]) / SLICES, len(profiles)))
        if not profiles:
            all_slots.append(Slot(index))
    return tuple(all_slots)


def offered(gpus: int, layout: Layout) -> dict[str, str]:
    """Resources of the node. Where every GPU is split, the plugin says that 0 are whole."""
    counts = Counter(slot.resource for slot in slots(gpus, layout))
    return {WHOLE: "0"} | {name: str(count) for name, count in sorted(counts.items())}


def labels(gpus: int, layout: Layout) -> dict[str, str]:
    """Return the labels of GPU feature discovery and mig-manager; none if nothing is split."""
    if not any(layout):
        return {}
    kinds = set(layout)
    is_single = len(kinds) == 1 and len(layout) == gpus and len(set(layout[0])) == 1
    counts = Counter(slot.profile for slot in slots(gpus, layout) if slot.profile)
    config = f"all-{layout[0][0]}" if is_single else "all-balanced" if layout == BALANCED else "custom"
    return {
        "nvidia.com/mig.capable": "true",
        "nvidia.com/mig.strategy": "mixed",
        "nvidia.com/mig.config": config,
        "nvidia.com/mig.config.state": "success",
    } | {f"{objects.MIG_PREFIX}{profile}.count": str(count) for profile, count in sorted(counts.items())}


def counted(resources: Mapping[str, Any] | None) -> Counter[str]:
    """GPUs and instances by resource. Any maker's whole GPU is WHOLE."""
    counts: Counter[str] = Counter()
    for name, count in (resources or {}).items():
        if name.startswith(objects.MIG_PREFIX):
            counts[name] += int(count)
        elif name in objects.GPU_RESOURCES:
            counts[WHOLE] += int(count)
    return counts


def requested(pod: Mapping[str, Any]) -> Counter[str]:
    """Sum the resources of the pod's containers; extended resources have the same requests as limits."""
    total: Counter[str] = Counter()
    for container in pod["spec"].get("containers") or ():
        resources = container.get("resources") or {}
        total.update(counted(resources.get("limits") or resources.get("requests")))
    return total
