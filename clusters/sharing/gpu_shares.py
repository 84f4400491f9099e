"""Devices behind the shares of GPUs that a node offers: time slicing and MPS, GKE's sharing, HAMi. Pure."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

from clusters import objects

WHOLE = "nvidia.com/gpu"
GKE_CLIENTS = "cloud.google.com/gke-max-shared-clients-per-gpu"
"""Label of GKE: pods that may share one GPU, which the node then offers so many times."""
HAMI_DEVICES = "hami.io/node-nvidia-register"
"""Annotation of HAMi with one entry a device, each of which the node offers `deviceSplitCount` times as a GPU
(github.com/Project-HAMi/HAMi, docs/develop/protocol.md)."""


class Shares(NamedTuple):
    """Devices that several pods may hold at once, each a share of one."""

    shares: int
    devices: int

    def filled(self, held: int) -> int:
        """Return the fewest devices that so many held shares take; where each is, only telemetry knows."""
        return -(-held * self.devices // self.shares)


def offered(resources: Mapping[str, Any], labels: Mapping[str, str], *, registered: str = "") -> dict[str, Shares]:
    """Return what a node offers in shares, by the profile of the devices; empty: whole GPUs.

    The labels are GPU feature discovery's, `<resource>.replicas` shares of each of `<resource>.count` devices, or
    GKE's. Without them, renamed shares are still known for shares, and each counts as a device of its own.
    `registered` is the text of HAMI_DEVICES; empty without one.
    """
    units: Counter[str] = Counter()
    renamed: set[str] = set()
    for resource in filter(objects.is_gpu, resources):
        base = resource.removesuffix(objects.SHARED_SUFFIX)
        if count := objects.gpu_count({resource: resources[resource]}):
            units[base] += count
            renamed |= {base} - {resource}
    by_profile: dict[str, Shares] = {}
    for base, shares in units.items():
        replicas, devices = _positive(labels.get(f"{base}.replicas")), _positive(labels.get(f"{base}.count"))
        if base == WHOLE:
            replicas = max(replicas, _positive(labels.get(GKE_CLIENTS)))
            if 0 < (known := _registered(registered)) < shares:
                replicas, devices = shares, known
        if replicas > 1 or base in renamed:
            # A plugin may share some of the devices only, so their number is better than a quotient.
            by_quotient = -(-shares // max(1, replicas))
            by_profile[objects.profile(base)] = Shares(shares, devices if 0 < devices <= shares else by_quotient)
    return by_profile


def together(by_plugin: int, by_claim: int, labels: Mapping[str, str]) -> int:
    """Return how many devices a node has that a device plugin and a driver for claims both offer some of.

    They may be the same ones: where GPU feature discovery does not tell of more, they are taken for them.
    """
    if not by_plugin or not by_claim:
        return by_plugin + by_claim
    return min(by_plugin + by_claim, max(by_plugin, by_claim, _positive(labels.get(f"{WHOLE}.count"))))


def _registered(text: str) -> int:
    """Count the devices that HAMi's device plugin registered: a JSON array, before 2.5 `UUID,split count,...:` each."""
    try:
        entries = json.loads(text) if text.startswith("[") else [part for part in text.split(":") if part.strip()]
    except (ValueError, RecursionError):
        return 0
    return len(entries)


def _positive(value: object) -> int:
    text = str(value)
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 0
