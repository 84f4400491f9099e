"""Holders of GPUs that the KAI Scheduler shares: the kubelet, and so the exporter, knows only who reserves one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from uuid import UUID

from clusters.models import GpuPod
from gpus.metrics.samples import Holder, Reading, Sample

Pod = tuple[str, str]
"""Namespace and name."""


def held_by_their_pods(cluster_id: UUID, reading: Reading) -> Reading:
    """Return the reading in which pods that reserve a GPU are replaced by those that share it.

    A reservation that no pod shares yet stays the holder. One query where no GPU is reserved, else two.
    """
    reserving = GpuPod.every.filter(cluster=cluster_id, gpus=0).exclude(devices={}).order_by()
    reserved: dict[Pod, tuple[str, list[str]]] = {
        (namespace, name): (node, list(devices))
        for namespace, name, node, devices in reserving.values_list("namespace", "name", "node_name", "devices")
    }
    if not reserved:
        return reading
    sharing = _sharing(cluster_id, sorted({node for node, _ in reserved.values()}))
    pods = {pod: sorted({other for key in keys for other in sharing.get((node, key), ())})
            for pod, (node, keys) in reserved.items()}  # fmt: skip
    return replace(reading, samples=tuple(_with_pods(sample, pods) for sample in reading.samples))


def _sharing(cluster_id: UUID, nodes: Sequence[str]) -> Mapping[tuple[str, str], list[Pod]]:
    """Return the pods that share a device, by its node and key."""
    by_key: dict[tuple[str, str], list[Pod]] = defaultdict(list)
    rows = GpuPod.objects.filter(cluster=cluster_id, node_name__in=nodes).exclude(devices={}).order_by("pk")
    for namespace, name, node, devices in rows.values_list("namespace", "name", "node_name", "devices"):
        for key in devices:
            by_key[node, key].append((namespace, name))
    return by_key


def _with_pods(sample: Sample, pods: Mapping[Pod, Sequence[Pod]]) -> Sample:
    others = {(holder.namespace, holder.pod): pods.get((holder.namespace, holder.pod)) for holder in sample.holders}
    if not any(others.values()):
        return sample
    kept = {holder for holder in sample.holders if not others[holder.namespace, holder.pod]}
    new = {Holder(*pod) for mine in others.values() for pod in mine or ()}
    return replace(sample, holders=tuple(sorted(kept | new)))
