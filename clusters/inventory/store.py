"""Writes what the watch observed to rows: in bulk, and only what differs: of a quiet fleet, versions alone.

Every function may be called by several processes at once, with the same objects twice, or out of order. Each reads
first whether anything is to be written at all, and then decides with the cluster's rows to itself (`write_lock`): a
row goes back to an older version, and what was deleted comes back, only by a complete list that was read after the row
was written (`versions`). Call them outside transactions: subscribers of nodes_changed and nodes_gone are told after the
commit.

`complete` means: these are all objects of the kind, so rows of others are over; `version` is then the list's. Ask
`doubts` before believing that of a list from the API server's cache, which may lag. `at` is when the objects were seen,
of a list when it was asked for; without it, now.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings

from clusters.fleet import Keep, ObjectKind
from clusters.inventory import device_rows, node_rows, pod_rows, rows, tuning_rows, write_lock
from clusters.inventory.write_lock import NodeChanges
from clusters.models import Cluster, DeviceSlice, Node, NodeTuning
from common.clock import now

__all__ = [
    "KEEP", "OBSERVE", "OBSERVE_DEVICES", "NodeChanges", "doubts", "observe_leases", "observe_nodes", "observe_pods",
    "observe_tunings",
]  # fmt: skip

Raw = Mapping[str, Any]

observe_nodes = node_rows.observe
observe_tunings = tuning_rows.observe
observe_pods = pod_rows.observe

OBSERVE: dict[ObjectKind, Callable[..., NodeChanges]] = {
    "nodes": observe_nodes,
    "nodetunings": observe_tunings,
    "pods": observe_pods,
}
"""Nodes first: the agents' objects and the pods are attached to them."""
KEEP: dict[ObjectKind, Keep] = {"pods": pod_rows.kept}
"""Of the objects of these kinds most have no row: what of each is handed to OBSERVE, None for nothing."""
OBSERVE_DEVICES: dict[ObjectKind, Callable[..., NodeChanges]] = {
    "resourceslices": device_rows.observe_slices,
    "resourceclaims": device_rows.observe_claims,
}
"""Kinds that not every cluster serves, nor every account may read. No row of the others depends on them."""


def observe_leases(cluster: Cluster, raws: Sequence[Raw], *, at: datetime | None = None) -> int:
    """Record which agents are silent. Returns how many rows were written: those that fell silent, or are heard again.

    Nothing is written of an agent whose state is unchanged, so a quiet fleet's minute is one column of its cluster.
    An agent that has answered and renews no Lease was heard last when its answer came. A renewal further in the future
    than an agent may be silent is not believed: it would outlive its agent.
    """
    at = at or now()
    nodes = write_lock.present(cluster, None)
    renewed = {name: when for raw in raws if (when := rows.renewed_at(raw)) for _, name in [rows.identity(raw)] if name}
    heard = {pk: renewed[name] for name, (pk, _) in nodes.items() if name in renewed}
    patience = timedelta(seconds=settings.SETPOINT_AGENT_SILENT_SECONDS)
    written: dict[datetime | None, list[int]] = {}
    columns = ("node_id", "silent_since", "protocol", "changed_at")
    tunings = NodeTuning.objects.filter(node__cluster=cluster, node__gone_at=None)
    for pk, stored, protocol, changed_at in tunings.values_list(*columns):
        last = heard.get(pk) or (changed_at if protocol else at)
        since = None
        if last > at + patience:
            since = stored or at.replace(microsecond=0)
        elif last < at - patience:
            since = last.replace(microsecond=0)
        if since != stored:
            written.setdefault(since, []).append(pk)
    for since, pks in written.items():
        for chunk in write_lock.chunks(sorted(pks)):
            NodeTuning.objects.filter(pk__in=chunk).update(silent_since=since)
    cluster.leases_at = at
    Cluster.objects.filter(pk=cluster.pk).update(leases_at=at)
    return sum(map(len, written.values()))


def has_devices(cluster: Cluster) -> bool:
    """Return whether a driver publishes GPUs for claims."""
    return DeviceSlice.objects.filter(cluster=cluster).exists()


# ── lists that lag ────────────────────────────────────────────────────────────────────────────────────────────────
def doubts(cluster: Cluster, kind: ObjectKind, raws: Sequence[Raw]) -> bool:
    """A list from the API server's cache would end rows or set one back: list again, uncached, before believing it."""
    if kind not in ("nodes", "nodetunings"):
        return False
    seen = {identity: rows.resource_version(raw) for raw in raws if (identity := rows.identity(raw))[0]}
    if kind == "nodes":
        by_uid = {uid: version for (uid, _), version in seen.items()}
        nodes = Node.objects.present().filter(cluster=cluster).values_list("uid", "resource_version")
        return any(uid not in by_uid or rows.is_older(by_uid[uid], version) for uid, version in nodes)
    by_name = {name: version for (_, name), version in seen.items()}
    tunings = NodeTuning.objects.filter(node__cluster=cluster, node__gone_at=None)
    versions = tunings.values_list("node__name", "resource_version")
    return any(name not in by_name or rows.is_older(by_name[name], version) for name, version in versions)
