"""What the watch saw, into rows: in bulk, and only what differs, so a quiet fleet writes nothing.

Every function may be called by several processes at once, with the same objects twice, or out of order: a row goes back
to an older resource version only when a complete list says so that was read after the row was written (an etcd that was
restored). What is missing is inserted first, and only then is every row locked and looked at: no lock holds a row that
does not exist yet, so two writers would both insert it, and the slower one win whatever it knew. Call them outside
transactions: subscribers of nodes_changed and nodes_gone are told after the commit.

`complete` means: these are all objects of the kind, so rows of others are over. Ask `doubts` before believing that of a
list from the API server's cache, which may lag. `at` is when the objects were seen; without it, now.

One module, because all four kinds are written by the same three steps: what differs, in one transaction, then told.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from django.conf import settings
from django.db import transaction
from django.db.models import Sum

from clusters import rows
from clusters.fleet import Kind
from clusters.models import Cluster, GpuPod, Node, NodeTuning
from common import hooks
from common.clock import now

T = TypeVar("T")
Raw = Mapping[str, Any]

TOLD_AT_ONCE = 200
"""Nodes a call of nodes_changed names."""
NEVER = datetime(1970, 1, 1, tzinfo=UTC)
"""When a row was changed that this transaction inserted; committed ones have a true time, so none is another's."""
_CHUNK = 500


@dataclass(slots=True)
class Outcome:
    """Primary keys of nodes: created, changed (their own row or what belongs to them), gone."""

    created: list[int] = field(default_factory=list)
    changed: list[int] = field(default_factory=list)
    gone: list[int] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.created or self.changed or self.gone)


# ── nodes ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
def observe_nodes(
    cluster: Cluster, raws: Sequence[Raw], *, complete: bool, at: datetime | None = None, deleted: Sequence[Raw] = ()
) -> Outcome:
    """Nodes seen, and with `deleted` those whose deletion was seen."""
    at = at or now()
    seen = {uid: raw for raw in raws for uid, _ in [rows.identity(raw)] if uid}
    dead = {uid for uid, _ in map(rows.identity, deleted) if uid} - set(seen)
    known = _known_nodes(cluster, seen, dead, complete=complete)
    news = {
        uid: raw
        for uid, raw in seen.items()
        if not (row := known.get(uid)) or row.gone or row.version != rows.resource_version(raw)
    }
    over = [row for uid, row in known.items() if not row.gone and uid not in seen and (complete or uid in dead)]
    parsed = {uid: rows.node(raw) for uid, raw in news.items()}
    named = {values["name"]: uid for uid, values in parsed.items()}
    over += [r for uid, r in known.items() if not r.gone and named.get(r.name, uid) != uid and r not in over]
    versions = {uid: rows.resource_version(raw) for uid, raw in news.items()}
    listed_at = at if complete else None
    due = _differing_nodes(cluster, parsed, versions, listed_at=listed_at, lock=False)
    if not over and not due:
        return Outcome()
    outcome = Outcome(gone=[row.pk for row in over])
    with transaction.atomic():
        Node.objects.filter(pk__in=outcome.gone, gone_at=None).update(gone_at=at)
        missing = sorted(uid for uid, pk in due.items() if pk is None)
        inserted = _insert_nodes(cluster, [(uid, versions[uid], parsed[uid]) for uid in missing])
        differing = _differing_nodes(cluster, parsed, versions, listed_at=listed_at, lock=True)
        wanted = [
            Node(cluster=cluster, uid=uid, resource_version=versions[uid], changed_at=at, **parsed[uid])
            for uid in sorted(differing)
        ]
        if wanted:
            Node.objects.bulk_create(
                wanted,
                batch_size=_CHUNK,
                update_conflicts=True,
                unique_fields=["cluster", "uid"],
                update_fields=[*rows.NODE_FIELDS, "resource_version", "changed_at", "gone_at"],
            )
        if inserted:
            Node.objects.filter(cluster=cluster, changed_at=NEVER).update(changed_at=at)
        _allocate(cluster, {parsed[uid]["name"] for uid in inserted}, at)
    outcome.created = sorted(inserted.values())
    outcome.changed = [node.pk for node in wanted]
    return _tell(cluster, outcome)


def _insert_nodes(cluster: Cluster, missing: Sequence[tuple[str, str, rows.Values]]) -> dict[str, int]:
    """Insert what no other writer has inserted meanwhile. Returns the primary keys of what this one did, by UID."""
    if not missing:
        return {}
    Node.objects.bulk_create(
        [
            Node(cluster=cluster, uid=uid, resource_version=version, changed_at=NEVER, **values)
            for uid, version, values in missing
        ],
        batch_size=_CHUNK,
        ignore_conflicts=True,
    )
    return dict(Node.objects.filter(cluster=cluster, changed_at=NEVER).values_list("uid", "pk"))


@dataclass(frozen=True, slots=True)
class _Known:
    pk: int
    name: str
    version: str
    gone: bool


def _known_nodes(
    cluster: Cluster, seen: Mapping[str, Raw], dead: Collection[str], *, complete: bool
) -> dict[str, _Known]:
    """By UID: all present rows when complete, else those of the UIDs and names in question; revived ones, too."""
    columns = ("uid", "pk", "name", "resource_version", "gone_at")
    rows_of = Node.objects.filter(cluster=cluster).values_list(*columns)
    found = list(rows_of.filter(gone_at=None)) if complete else []
    have = {uid for uid, *_ in found}
    for chunk in _chunks([*(uid for uid in seen if uid not in have), *dead]):
        found += rows_of.filter(uid__in=chunk)
    if not complete:
        for chunk in _chunks([name for _, name in map(rows.identity, seen.values())]):
            found += rows_of.filter(name__in=chunk, gone_at=None)
    return {uid: _Known(pk, name, version, gone is not None) for uid, pk, name, version, gone in found}


def _differing_nodes(
    cluster: Cluster,
    parsed: Mapping[str, rows.Values],
    versions: Mapping[str, str],
    *,
    listed_at: datetime | None,
    lock: bool,
) -> dict[str, int | None]:
    """UIDs whose row must be written, with its primary key if there is a row."""
    differing: dict[str, int | None] = dict.fromkeys(parsed)
    columns = ("uid", "pk", "resource_version", "changed_at", "gone_at", *rows.NODE_FIELDS)
    for chunk in _chunks(sorted(parsed)):
        stored = Node.objects.filter(cluster=cluster, uid__in=chunk).order_by("uid")
        if lock:
            stored = stored.select_for_update()
        for uid, pk, version, changed_at, gone_at, *values in stored.values_list(*columns):
            is_old = _is_old(versions[uid], version, changed_at, listed_at)
            is_same = gone_at is None and values == [parsed[uid][name] for name in rows.NODE_FIELDS]
            if is_old or is_same or changed_at == NEVER:
                del differing[uid]
            else:
                differing[uid] = pk
    return differing


# ── the agents' objects ───────────────────────────────────────────────────────────────────────────────────────────────
def observe_tunings(
    cluster: Cluster, raws: Sequence[Raw], *, complete: bool, at: datetime | None = None, deleted: Sequence[Raw] = ()
) -> Outcome:
    """NodeTunings seen. One whose nodeUID is not the present node's is a predecessor's, and passed over."""
    at = at or now()
    seen = {name: raw for raw in raws for _, name in [rows.identity(raw)] if name}
    dead = {name: raw for raw in deleted for _, name in [rows.identity(raw)] if name and name not in seen}
    nodes = _present(cluster, None if complete else [*seen, *dead])
    parsed, versions = {}, {}
    known = dict(_tunings(nodes.values(), ("node_id", "resource_version")))
    for name, raw in seen.items():
        pk, uid = nodes.get(name, (0, ""))
        version = rows.resource_version(raw)
        if pk and not (version and known.get(pk, (None,))[0] == version) and (values := rows.tuning(raw, uid)):
            parsed[pk], versions[pk] = values, version
    over = [pk for name, (pk, _) in nodes.items() if pk in known and name not in seen and (complete or name in dead)]
    listed_at = at if complete else None
    if not over and not _differing_tunings(parsed, versions, listed_at=listed_at, lock=False):
        return Outcome()
    with transaction.atomic():
        NodeTuning.objects.filter(pk__in=over).delete()
        inserted = _insert_tunings(
            cluster, [(pk, versions[pk], parsed[pk]) for pk in sorted(parsed) if pk not in known]
        )
        differing = _differing_tunings(parsed, versions, listed_at=listed_at, lock=True)
        for fields in (rows.TUNING_FIELDS, tuple(f for f in rows.TUNING_FIELDS if f not in rows.TUNING_ACCEPTED)):
            wanted = [
                NodeTuning(node_id=pk, resource_version=versions[pk], changed_at=at, **parsed[pk])
                for pk in sorted(differing)
                if len(parsed[pk]) == len(fields)
            ]
            if wanted:
                NodeTuning.objects.bulk_create(
                    wanted,
                    batch_size=_CHUNK,
                    update_conflicts=True,
                    unique_fields=["node"],
                    update_fields=[*fields, "resource_version", "changed_at"],
                )
        if inserted:
            NodeTuning.objects.filter(node__cluster=cluster, changed_at=NEVER).update(changed_at=at)
    return _tell(cluster, Outcome(changed=[*sorted({*differing, *inserted}), *over]))


def _insert_tunings(cluster: Cluster, missing: Sequence[tuple[int, str, rows.Values]]) -> list[int]:
    """As `_insert_nodes`."""
    if not missing:
        return []
    NodeTuning.objects.bulk_create(
        [
            NodeTuning(node_id=pk, resource_version=version, changed_at=NEVER, **values)
            for pk, version, values in missing
        ],
        batch_size=_CHUNK,
        ignore_conflicts=True,
    )
    mine = NodeTuning.objects.filter(node__cluster=cluster, changed_at=NEVER)
    return list(mine.values_list("pk", flat=True))


def _differing_tunings(
    parsed: Mapping[int, rows.Values], versions: Mapping[int, str], *, listed_at: datetime | None, lock: bool
) -> set[int]:
    differing = set(parsed)
    columns = ("node_id", "resource_version", "changed_at", *rows.TUNING_FIELDS)
    for pk, version, changed_at, *values in _tunings_in(sorted(parsed), columns, lock):
        stored = dict(zip(rows.TUNING_FIELDS, values, strict=True))
        is_old = _is_old(versions[pk], version, changed_at, listed_at)
        if is_old or changed_at == NEVER or all(stored[name] == value for name, value in parsed[pk].items()):
            differing.discard(pk)
    return differing


def _tunings(nodes: Iterable[tuple[int, str]], columns: Sequence[str]) -> Iterator[tuple[int, tuple[Any, ...]]]:
    for pk, *values in _tunings_in([pk for pk, _ in nodes], columns, lock=False):
        yield pk, tuple(values)


def _tunings_in(pks: Sequence[int], columns: Sequence[str], lock: bool) -> Iterator[tuple[Any, ...]]:
    for chunk in _chunks(pks):
        stored = NodeTuning.objects.filter(pk__in=chunk).order_by("pk")
        if lock:
            stored = stored.select_for_update()
        yield from stored.values_list(*columns)


def observe_leases(cluster: Cluster, raws: Sequence[Raw], *, at: datetime | None = None) -> int:
    """Which agents are silent. Returns how many rows were written: those that fell silent, or are heard again.

    Of an agent that goes on as before nothing is written, so a quiet fleet's minute is one column of its cluster.
    Who has answered and renews no Lease was heard last when its answer came. A renewal further ahead than an agent may
    be silent is not believed: it would be heard from its grave.
    """
    at = at or now()
    nodes = _present(cluster, None)
    renewed = {name: when for raw in raws if (when := rows.renewed_at(raw)) for _, name in [rows.identity(raw)] if name}
    heard = {pk: renewed[name] for name, (pk, _) in nodes.items() if name in renewed}
    patience = timedelta(seconds=settings.SETPOINT_AGENT_SILENT_SECONDS)
    written: dict[datetime | None, list[int]] = {}
    columns = ("node_id", "silent_since", "protocol", "changed_at")
    for pk, (stored, protocol, changed_at) in _tunings(nodes.values(), columns):
        last = heard.get(pk) or (changed_at if protocol else at)
        since = None
        if last > at + patience:
            since = stored or at.replace(microsecond=0)
        elif last < at - patience:
            since = last.replace(microsecond=0)
        if since != stored:
            written.setdefault(since, []).append(pk)
    for since, pks in written.items():
        for chunk in _chunks(sorted(pks)):
            NodeTuning.objects.filter(pk__in=chunk).update(silent_since=since)
    cluster.leases_at = at
    Cluster.objects.filter(pk=cluster.pk).update(leases_at=at)
    return sum(map(len, written.values()))


# ── pods that hold GPUs ───────────────────────────────────────────────────────────────────────────────────────────────
def observe_pods(
    cluster: Cluster, raws: Sequence[Raw], *, complete: bool, at: datetime | None = None, deleted: Sequence[Raw] = ()
) -> Outcome:
    """Pods seen, of which those that request GPUs and are not finished have rows. Recounts the GPUs of their nodes."""
    at = at or now()
    seen = {uid: rows.gpu_pod(raw) for raw in raws for uid, _ in [rows.identity(raw)] if uid}
    for raw in deleted:
        seen[rows.identity(raw)[0]] = None
    versions = {uid: rows.resource_version(raw) for raw in raws for uid, _ in [rows.identity(raw)] if uid}

    def differing(stored: Mapping[str, _Pod]) -> dict[str, rows.Values]:
        there = {uid: (values, stored.get(uid)) for uid, values in seen.items() if values}
        return {
            uid: values
            for uid, (values, row) in there.items()
            if row is None or (row.values != values and (complete or not rows.is_older(versions[uid], row.version)))
        }

    def rows_of(values_of: Mapping[str, rows.Values]) -> list[GpuPod]:
        return [
            GpuPod(cluster=cluster, uid=uid, resource_version=versions[uid], **values)
            for uid, values in sorted(values_of.items())
        ]

    stored = _stored_pods(cluster, None if complete else list(seen))
    wanted = differing(stored)
    over = [uid for uid in stored if seen.get(uid) is None and (complete or uid in seen)]
    if not wanted and not over:
        return Outcome()
    with transaction.atomic():
        for chunk in _chunks(over):
            GpuPod.objects.filter(cluster=cluster, uid__in=chunk).delete()
        new = {uid: values for uid, values in wanted.items() if uid not in stored}
        if new:
            GpuPod.objects.bulk_create(rows_of(new), batch_size=_CHUNK, ignore_conflicts=True)
        locked = _stored_pods(cluster, list(wanted), lock=True)
        if changed_pods := {uid: values for uid, values in differing(locked).items() if uid in wanted}:
            GpuPod.objects.bulk_create(
                rows_of(changed_pods),
                batch_size=_CHUNK,
                update_conflicts=True,
                unique_fields=["cluster", "uid"],
                update_fields=["resource_version", *rows.POD_FIELDS],
            )
        before = {stored[uid].values["node_name"] for uid in [*over, *wanted] if uid in stored}
        changed = _allocate(cluster, before | {values["node_name"] for values in wanted.values()}, at)
    return _tell(cluster, Outcome(changed=changed))


@dataclass(frozen=True, slots=True)
class _Pod:
    version: str
    values: rows.Values


def _stored_pods(cluster: Cluster, uids: Sequence[str] | None, *, lock: bool = False) -> dict[str, _Pod]:
    stored = GpuPod.objects.filter(cluster=cluster)
    if lock:
        stored = stored.select_for_update().order_by("uid")
    parts = [stored] if uids is None else [stored.filter(uid__in=chunk) for chunk in _chunks(uids)]
    return {
        uid: _Pod(version, dict(zip(rows.POD_FIELDS, values, strict=True)))
        for part in parts
        for uid, version, *values in part.values_list("uid", "resource_version", *rows.POD_FIELDS)
    }


def _allocate(cluster: Cluster, node_names: Collection[str], at: datetime) -> list[int]:
    """Recount gpu_allocated of these nodes from their pods' rows. Returns the nodes it changed."""
    by_count: dict[int, list[int]] = {}
    for chunk in _chunks(sorted(name for name in node_names if name)):
        counted = GpuPod.objects.filter(cluster=cluster, node_name__in=chunk).values_list("node_name")
        held = dict(counted.annotate(held=Sum("gpus")).order_by())
        nodes = Node.objects.present().filter(cluster=cluster, name__in=chunk)
        for pk, name, allocated in nodes.values_list("pk", "name", "gpu_allocated"):
            if allocated != (count := min(held.get(name) or 0, rows.MAX_INTEGER)):
                by_count.setdefault(count, []).append(pk)
    for count, pks in by_count.items():
        for chunk_of_pks in _chunks(pks):
            Node.objects.filter(pk__in=chunk_of_pks).update(gpu_allocated=count, changed_at=at)
    return sorted(pk for pks in by_count.values() for pk in pks)


# ── lists that lag ────────────────────────────────────────────────────────────────────────────────────────────────
def doubts(cluster: Cluster, kind: Kind, raws: Sequence[Raw]) -> bool:
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


def _is_old(version: str, stored: str, changed_at: datetime, listed_at: datetime | None) -> bool:
    """Whether a row knows better than an object of this version; a list wins over what was written before it."""
    return rows.is_older(version, stored) and (listed_at is None or changed_at > listed_at)


def _present(cluster: Cluster, names: Sequence[str] | None) -> dict[str, tuple[int, str]]:
    """Primary key and UID of present nodes by name; None asks for all."""
    present = Node.objects.present().filter(cluster=cluster)
    parts = [present] if names is None else [present.filter(name__in=chunk) for chunk in _chunks(names)]
    return {name: (pk, uid) for part in parts for name, pk, uid in part.values_list("name", "pk", "uid")}


def _tell(cluster: Cluster, outcome: Outcome) -> Outcome:
    for chunk in _chunks(sorted({*outcome.created, *outcome.changed}), TOLD_AT_ONCE):
        hooks.nodes_changed(cluster.pk, chunk)
    for chunk in _chunks(outcome.gone, TOLD_AT_ONCE):
        hooks.nodes_gone(cluster.pk, chunk)
    return outcome


def _chunks(items: Sequence[T], size: int = _CHUNK) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
