"""Recount of what pods hold of each node's GPUs, from the pods' rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

from django.db.models import Sum

from clusters import objects
from clusters.gpu_shares import Shares
from clusters.inventory import rows, write_lock
from clusters.models import Cluster, GpuPod, Node

_COUNTED = ("pk", "name", "gpu_shares", "gpu_allocated", "gpu_shares_held")


def recount(cluster: Cluster, node_names: Collection[str], at: datetime) -> list[int]:
    """Recount what pods hold of these nodes' GPUs from their rows. Returns the nodes it changed."""
    by_count: dict[tuple[int, int], list[int]] = {}
    for chunk in write_lock.chunks(sorted(name for name in node_names if name)):
        counted = GpuPod.objects.filter(cluster=cluster, node_name__in=chunk).values_list("node_name")
        gpus_by_node = dict(counted.annotate(held=Sum("gpus")).order_by())
        nodes = list(Node.objects.present().filter(cluster=cluster, name__in=chunk).values_list(*_COUNTED))
        in_shares = _held_by_profile(cluster, [name for _, name, shares, *_ in nodes if shares])
        for pk, name, shares, *stored in nodes:
            held = gpus_by_node.get(name) or 0
            wanted = _devices_held(shares, in_shares[name]) if shares else (held, 0)
            count, of_shares = (min(number, rows.MAX_INTEGER) for number in wanted)
            if stored != [count, of_shares]:
                by_count.setdefault((count, of_shares), []).append(pk)
    for (count, of_shares), pks in by_count.items():
        for chunk_of_pks in write_lock.chunks(pks):
            changed = Node.objects.filter(pk__in=chunk_of_pks)
            changed.update(gpu_allocated=count, gpu_shares_held=of_shares, changed_at=at)
    return sorted(pk for pks in by_count.values() for pk in pks)


def _held_by_profile(cluster: Cluster, node_names: Sequence[str]) -> Mapping[str, Counter[str]]:
    """Return what pods hold of each node, in units that it offers, by the devices' profile; empty: whole GPUs."""
    by_node: dict[str, Counter[str]] = {name: Counter() for name in node_names}
    if node_names:
        pods = GpuPod.objects.filter(cluster=cluster, node_name__in=node_names).order_by()
        for name, gpus, parts in pods.values_list("node_name", "gpus", "mig"):
            by_node[name][""] += gpus - sum(parts.values())
            for profile, count in parts.items():
                by_node[name][objects.unshared(profile)] += count
    return by_node


def _devices_held(shares: Mapping[str, Sequence[int]], held: Mapping[str, int]) -> tuple[int, int]:
    """Return how many devices pods hold at least, and how many shares."""
    shared = {name: Shares(*shares[name]) for name in held if name in shares}
    whole = sum(count for name, count in held.items() if name not in shares)
    filled = sum(part.filled(held[name]) for name, part in shared.items())
    return whole + filled, sum(held[name] for name in shared)
