"""Recount of each node's GPUs that claims may be given, and of what pods hold of all: from the rows of both."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from django.db.models import Count, Q, Sum

from clusters import objects
from clusters.inventory import dra, rows, write_lock
from clusters.models import Cluster, DeviceSlice, GpuPod, Node
from clusters.sharing import gpu_groups, gpu_shares
from clusters.sharing.gpu_shares import Shares

WRITTEN = ("gpus_by_claim", "gpu_count", "gpu_product", "gpu_allocated", "gpu_shares_held")
_READ = ("pk", "name", "gpu_plugin", "gpu_virtual", "gpu_shares", "labels", *WRITTEN)


@dataclass(slots=True)
class NamedDevices:
    """Devices of one node that pods were given by name."""

    profiles: dict[str, str] = field(default_factory=dict)
    """By the device's key; several pods may hold one."""
    counted: Counter[str] = field(default_factory=Counter)
    """By profile, how many of the pods' GPUs they are, once for each pod."""


def recount(cluster: Cluster, node_names: Collection[str], at: datetime, *, is_offer_new: bool = False) -> list[int]:
    """Recount what pods hold of these nodes' devices. Returns the nodes it changed.

    Their devices are counted where claims are given some, and with `is_offer_new`.
    """
    changed: list[int] = []
    names = sorted(name for name in node_names if name)
    is_published = bool(names) and DeviceSlice.objects.filter(cluster=cluster).exists()
    for chunk in write_lock.chunks(names):
        counted = GpuPod.every.filter(cluster=cluster, node_name__in=chunk).values_list("node_name").order_by()
        by_name = Count("pk", filter=~Q(devices={}))
        sums = {name: counts for name, *counts in counted.annotate(held=Sum("gpus"), named=by_name)}
        named = _named(cluster, [name for name, (_, number) in sums.items() if number])
        slices = _slices(cluster, chunk) if is_published else {}
        nodes = list(Node.objects.present().filter(cluster=cluster, name__in=chunk).values_list(*_READ))
        in_shares = _held_by_profile(cluster, [name for _, name, _, _, shares, *_ in nodes if shares])
        by_values: dict[int, Sequence[object]] = {}
        for pk, name, plugin, virtual, shares, labels, *stored in nodes:
            mine = named.get(name, NamedDevices())
            held, of_shares = sums.get(name, [0])[0] - mine.counted.total(), 0
            if shares:
                in_shares[name].subtract(mine.counted)
                held, of_shares = _devices_held(shares, +in_shares[name])
            held += len(mine.profiles)
            wanted = [*stored[:3], min(held, rows.MAX_INTEGER), min(of_shares, rows.MAX_INTEGER)]
            if is_offer_new or stored[0] or name in slices:
                wanted[:3] = _offered(slices.get(name, ()), mine, (plugin, virtual), labels)
            if stored != wanted:
                by_values[pk] = wanted
        _write(by_values, at)
        changed += by_values
    return sorted(changed)


def _offered(
    slices: Sequence[dra.Slice], held: NamedDevices, plugin: tuple[int, int], labels: Mapping[str, str]
) -> list[object]:
    """Return gpus_by_claim, gpu_count and gpu_product. `plugin`: what one offers, and of it for virtual machines."""
    by_plugin, virtual = plugin
    devices = dra.offered(slices, held.profiles)
    published = next((part.product for part in slices if part.product), "")
    count = virtual + gpu_shares.together(by_plugin - virtual, devices.total(), labels)
    return [dict(sorted(devices.items())), min(count, rows.MAX_INTEGER), rows.product(labels) or published[:120]]


def _write(by_values: Mapping[int, Sequence[object]], at: datetime) -> None:
    """Write in as many statements as there are different outcomes."""
    grouped: dict[str, list[int]] = defaultdict(list)
    for pk, values in sorted(by_values.items()):
        grouped[repr(values)].append(pk)
    for pks in grouped.values():
        columns = dict(zip(WRITTEN, by_values[pks[0]], strict=True))
        for chunk in write_lock.chunks(pks):
            Node.objects.filter(pk__in=chunk).update(**columns, changed_at=at)


def _named(cluster: Cluster, node_names: Sequence[str]) -> dict[str, NamedDevices]:
    by_node: dict[str, NamedDevices] = defaultdict(NamedDevices)
    if not node_names:
        return by_node
    stored = GpuPod.every.filter(cluster=cluster, node_name__in=node_names).exclude(devices={}).order_by()
    pods = list(stored.values_list("node_name", "gpus", "devices"))
    reserved = {(name, key) for name, gpus, devices in pods if not gpus for key in devices}
    for name, gpus, devices in pods:
        # A label alone holds nothing: a group's device is one that its reservation took from the node.
        real = {key for key in devices if not key.startswith(gpu_groups.KEY) or (name, key) in reserved}
        by_node[name].profiles |= {key: devices[key] for key in real}
        if gpus:
            by_node[name].counted.update(devices.values())
    return by_node


def _slices(cluster: Cluster, node_names: Sequence[str]) -> dict[str, list[dra.Slice]]:
    by_node: dict[str, list[dra.Slice]] = defaultdict(list)
    stored = DeviceSlice.objects.filter(cluster=cluster, node_name__in=node_names).order_by("uid")
    for node, pool, generation, product, devices in stored.values_list(
        "node_name", "pool", "generation", "product", "devices"
    ):
        by_node[node].append(
            dra.Slice(node, pool, generation, product, {name: dra.Device(*item) for name, item in devices.items()})
        )
    return by_node


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
