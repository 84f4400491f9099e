"""The agents' objects, as they were seen, into rows. One whose nodeUID is not the present node's is a predecessor's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime

from clusters.inventory import rows, write_lock
from clusters.inventory.versions import Observation, Recorded
from clusters.inventory.write_lock import NodeChanges, Raw
from clusters.models import Cluster, NodeTuning
from common.clock import now

KIND = "nodetunings"
_WITHOUT_ANSWER = tuple(name for name in rows.TUNING_FIELDS if name not in rows.TUNING_ACCEPTED)


@dataclass(slots=True)
class _TuningWrites:
    """Writes that are due, by the node's primary key; deletions, by the node's UID."""

    over: set[int] = field(default_factory=set)
    dead: dict[str, str] = field(default_factory=dict)
    changed: set[int] = field(default_factory=set)
    answered: set[int] = field(default_factory=set)
    """Of the changed ones, those with another answer of their agents."""
    recorded: set[int] = field(default_factory=set)
    parsed: dict[int, rows.Values] = field(default_factory=dict)
    versions: dict[int, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.over or self.dead or self.changed or self.recorded)


def observe(
    cluster: Cluster,
    raws: Sequence[Raw],
    *,
    complete: bool,
    at: datetime | None = None,
    deleted: Sequence[Raw] = (),
    version: str = "",
) -> NodeChanges:
    """NodeTunings seen, and with `deleted` those whose deletion was seen."""
    observation = Observation(at or now(), complete, version)
    seen = {name: raw for raw in raws for _, name in [rows.identity(raw)] if name}
    dead = {name: raw for raw in deleted for _, name in [rows.identity(raw)] if name and name not in seen}
    if not _judge(cluster, seen, dead, observation):
        return NodeChanges()
    with write_lock.of_rows(cluster):
        writes = _judge(cluster, seen, dead, observation)
        _write(cluster, writes, observation.at)
        if not observation.complete:  # when an answer came that is in a list, the list does not tell
            _hear(writes.answered)
    return write_lock.tell(cluster, NodeChanges(changed=sorted(writes.changed | writes.over)))


def _judge(
    cluster: Cluster, seen: Mapping[str, Raw], dead: Mapping[str, Raw], observation: Observation
) -> _TuningWrites:
    """Final within `writing.of_rows`; before, whether anything is to be done at all."""
    nodes = write_lock.present(cluster, None if observation.complete else [*seen, *dead])
    known = _known([pk for pk, _ in nodes.values()])
    writes = _TuningWrites()
    for name, (pk, uid) in nodes.items():
        row, raw = known.get(pk), dead.get(name)
        if raw is not None and not (row and rows.is_older(rows.resource_version(raw), row.version)):
            writes.dead[uid] = observation.buried_at(rows.resource_version(raw), row.version if row else "")
        elif row and name not in seen and observation.knows(row):
            writes.dead[uid] = observation.buried_at(row.version)
        if row and uid in writes.dead:
            writes.over.add(pk)
    absent = [uid for pk, uid in nodes.values() if pk not in known]
    buried = write_lock.buried(cluster, KIND, absent) if absent and (seen or writes.dead) else {}
    writes.dead = {uid: v for uid, v in writes.dead.items() if not _is_known(v, buried.get(uid))}
    for name, raw in seen.items():
        pk, uid = nodes.get(name, (0, ""))
        version, row, tomb = rows.resource_version(raw), known.get(pk), buried.get(uid)
        if not pk or (row and (version == row.version != "" or not observation.replaces(version, row))):
            continue
        if row is None and tomb and not observation.revives(version, tomb):
            continue
        if values := rows.tuning(raw, uid):
            writes.parsed[pk], writes.versions[pk] = values, version
    _compare(writes, set(known))
    return writes


def _is_known(version: str, tomb: Recorded | None) -> bool:
    return tomb is not None and not rows.is_older(tomb.version, version)


def _known(pks: Sequence[int]) -> dict[int, Recorded]:
    columns = ("node_id", "resource_version", "versioned_at")
    return {
        pk: Recorded(version, at)
        for chunk in write_lock.chunks(sorted(pks))
        for pk, version, at in NodeTuning.objects.filter(pk__in=chunk).values_list(*columns)
    }


def _compare(writes: _TuningWrites, known: set[int]) -> None:
    writes.changed = {pk for pk in writes.parsed if pk not in known}
    for chunk in write_lock.chunks(sorted(writes.parsed.keys() & known)):
        for pk, *values in NodeTuning.objects.filter(pk__in=chunk).values_list("node_id", *rows.TUNING_FIELDS):
            stored = dict(zip(rows.TUNING_FIELDS, values, strict=True))
            differing = {name for name, value in writes.parsed[pk].items() if stored[name] != value}
            (writes.changed if differing else writes.recorded).add(pk)
            if differing & set(rows.TUNING_ACCEPTED):
                writes.answered.add(pk)


def _hear(pks: Set[int]) -> None:
    """An agent that answers is there, though its Lease is listed a minute later: as after a long reboot."""
    for chunk in write_lock.chunks(sorted(pks)):
        NodeTuning.objects.filter(pk__in=chunk, silent_since__isnull=False).update(silent_since=None)


def _write(cluster: Cluster, writes: _TuningWrites, at: datetime) -> None:
    for chunk in write_lock.chunks(sorted(writes.over)):
        NodeTuning.objects.filter(pk__in=chunk).delete()
    write_lock.bury(cluster, KIND, writes.dead, at)
    write_lock.record(NodeTuning, {pk: writes.versions[pk] for pk in writes.recorded}, at)
    for fields in (rows.TUNING_FIELDS, _WITHOUT_ANSWER):
        NodeTuning.objects.bulk_create(
            [
                NodeTuning(
                    node_id=pk,
                    resource_version=writes.versions[pk],
                    versioned_at=at,
                    changed_at=at,
                    **writes.parsed[pk],
                )
                for pk in sorted(writes.changed)
                if len(writes.parsed[pk]) == len(fields)
            ],
            batch_size=write_lock.CHUNK,
            update_conflicts=True,
            unique_fields=["node"],
            update_fields=[*fields, "resource_version", "versioned_at", "changed_at"],
        )
