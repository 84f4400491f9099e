"""Nodes, as they were seen, into rows. A node that is gone keeps its row, for history and for those that are late."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from clusters.inventory import allocation, rows, write_lock
from clusters.inventory.versions import Observation, Recorded
from clusters.inventory.write_lock import NodeChanges, Raw
from clusters.models import Cluster, Node
from common.clock import now

KIND = "nodes"
_COLUMNS = ("uid", "pk", "name", "resource_version", "versioned_at", "gone_at")
_COUNTED = tuple(rows.NODE_FIELDS.index(name) for name in ("gpu_plugin", "gpu_virtual", "gpu_shares", "labels"))


@dataclass(frozen=True, slots=True)
class _StoredNode:
    pk: int
    name: str
    is_gone: bool
    recorded: Recorded


@dataclass(slots=True)
class _NodeWrites:
    """Writes that are due, by UID."""

    over: dict[str, str] = field(default_factory=dict)
    """Last version of each."""
    dead: dict[str, str] = field(default_factory=dict)
    """Last version of each that never had a row."""
    new: set[str] = field(default_factory=set)
    changed: set[str] = field(default_factory=set)
    reshared: set[str] = field(default_factory=set)
    """Those of `changed` that may offer other GPUs than before, or in other shares."""
    recorded: set[str] = field(default_factory=set)
    known: Mapping[str, _StoredNode] = field(default_factory=dict)
    parsed: dict[str, rows.Values] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.over or self.dead or self.new or self.changed or self.recorded)


def observe(
    cluster: Cluster,
    raws: Sequence[Raw],
    *,
    complete: bool,
    at: datetime | None = None,
    deleted: Sequence[Raw] = (),
    version: str = "",
) -> NodeChanges:
    """Nodes seen, and with `deleted` those whose deletion was seen."""
    observation = Observation(at or now(), complete, version)
    seen = _newest(raws)
    dead = {uid: rows.resource_version(raw) for raw in deleted for uid, _ in [rows.identity(raw)] if uid}
    dead = {uid: version for uid, version in dead.items() if uid not in seen}
    if not _judge(cluster, seen, dead, observation):
        return NodeChanges()
    with write_lock.of_rows(cluster):
        writes = _judge(cluster, seen, dead, observation)
        outcome = _write(cluster, writes, seen, observation.at)
    return write_lock.tell(cluster, outcome)


def _newest(raws: Sequence[Raw]) -> dict[str, Raw]:
    """Index nodes by UID; of two with one name, keep the newer."""
    by_name: dict[str, tuple[str, Raw]] = {}
    for raw in raws:
        uid, name = rows.identity(raw)
        known = by_name.get(name)
        if uid and not (known and rows.is_older(rows.resource_version(raw), rows.resource_version(known[1]))):
            by_name[name] = (uid, raw)
    return dict(by_name.values())


def _judge(cluster: Cluster, seen: Mapping[str, Raw], dead: Mapping[str, str], observation: Observation) -> _NodeWrites:
    """Final within `writing.of_rows`; before, whether anything is to be done at all."""
    known = _known(cluster, seen, dead, complete=observation.complete)
    versions = {uid: rows.resource_version(raw) for uid, raw in seen.items()}
    buried = write_lock.buried(cluster, KIND, [uid for uid in (*seen, *dead) if uid not in known])
    writes = _NodeWrites(known=known)

    def is_news(uid: str) -> bool:
        row, tomb = known.get(uid), buried.get(uid)
        if row is None:
            return tomb is None or observation.revives(versions[uid], tomb)
        if row.is_gone:
            return observation.revives(versions[uid], row.recorded)
        return row.recorded.version != versions[uid] and observation.replaces(versions[uid], row.recorded)

    news = {uid for uid in seen if is_news(uid)}
    for uid, row in known.items():
        if not row.is_gone and (uid in dead or (uid not in seen and observation.knows(row.recorded))):
            writes.over[uid] = observation.buried_at(row.recorded.version, dead.get(uid, ""))
    writes.dead = {uid: version for uid, version in dead.items() if uid not in known and uid not in buried}
    names = {row.name: uid for uid, row in known.items() if not row.is_gone and uid not in writes.over}
    for uid in sorted(news):
        values = rows.node(seen[uid])
        holder = names.get(values["name"], uid)
        if holder != uid:
            if not observation.replaces(versions[uid], known[holder].recorded):
                continue  # late: the node that has the name now came after it
            writes.over[holder] = observation.buried_at(known[holder].recorded.version, versions[uid])
        writes.parsed[uid] = values
    _compare(writes)
    return writes


def _known(
    cluster: Cluster, seen: Mapping[str, Raw], dead: Collection[str], *, complete: bool
) -> dict[str, _StoredNode]:
    """Return rows by UID: all present if complete, else those of the UIDs and names in question; gone ones, too."""
    rows_of = Node.objects.filter(cluster=cluster).values_list(*_COLUMNS)
    stored = list(rows_of.filter(gone_at=None)) if complete else []
    have = {uid for uid, *_ in stored}
    for chunk in write_lock.chunks([uid for uid in (*seen, *dead) if uid not in have]):
        stored += rows_of.filter(uid__in=chunk)
    if not complete:
        for chunk in write_lock.chunks([name for _, name in map(rows.identity, seen.values())]):
            stored += rows_of.filter(name__in=chunk, gone_at=None)
    return {
        uid: _StoredNode(pk, name, gone is not None, Recorded(version, at))
        for uid, pk, name, version, at, gone in stored
    }


def _compare(writes: _NodeWrites) -> None:
    """Sort the observed nodes into new, changed, and those of which only the version differs from their rows."""
    stored = {}
    there = {writes.known[uid].pk: uid for uid in writes.parsed if uid in writes.known}
    for chunk in write_lock.chunks(sorted(there)):
        for pk, *values in Node.objects.filter(pk__in=chunk).values_list("pk", *rows.NODE_FIELDS):
            stored[there[pk]] = values
    for uid, values in writes.parsed.items():
        row = writes.known.get(uid)
        if row is None:
            writes.new.add(uid)
        elif row.is_gone or stored.get(uid) != [values[name] for name in rows.NODE_FIELDS]:
            writes.changed.add(uid)
            if row.is_gone or any(values[rows.NODE_FIELDS[at]] != stored[uid][at] for at in _COUNTED):
                writes.reshared.add(uid)
        else:
            writes.recorded.add(uid)


def _write(cluster: Cluster, writes: _NodeWrites, seen: Mapping[str, Raw], at: datetime) -> NodeChanges:
    known, versions = writes.known, {uid: rows.resource_version(seen[uid]) for uid in writes.parsed}
    gone = {known[uid].pk: version for uid, version in writes.over.items()}
    write_lock.record(Node, gone, at)
    for chunk in write_lock.chunks(sorted(gone)):
        Node.objects.filter(pk__in=chunk).update(gone_at=at)
    write_lock.bury(cluster, KIND, writes.dead, at)
    write_lock.record(Node, {known[uid].pk: versions[uid] for uid in writes.recorded}, at)
    Node.objects.bulk_create(
        [
            Node(
                cluster=cluster,
                uid=uid,
                resource_version=versions[uid],
                versioned_at=at,
                changed_at=at,
                # Of new rows only: with others, claims may be given more than a device plugin offers.
                gpu_count=values["gpu_plugin"],
                gpu_product=rows.product(values["labels"]),
                **values,
            )
            for uid, values in sorted(writes.parsed.items())
            if uid not in writes.recorded
        ],
        batch_size=write_lock.CHUNK,
        update_conflicts=True,
        unique_fields=["cluster", "uid"],
        update_fields=[*rows.NODE_FIELDS, "resource_version", "versioned_at", "changed_at", "gone_at"],
    )
    born: list[int] = []
    for some in write_lock.chunks(sorted(writes.new)):
        born += Node.objects.filter(cluster=cluster, uid__in=some).values_list("pk", flat=True)
    # Those that changed too: another number of shares makes the same pods hold other devices.
    names = {writes.parsed[uid]["name"] for uid in writes.new | writes.reshared}
    allocation.recount(cluster, names, at, is_offer_new=True)
    changed = sorted(known[uid].pk for uid in writes.changed)
    return NodeChanges(created=sorted(born), changed=changed, gone=sorted(gone))
