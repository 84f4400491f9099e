"""Pods that hold GPUs, as they were seen, into rows, and the GPUs that their nodes have left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from clusters.inventory import allocation, device_rows, job_rows, rows, start_rows, write_lock
from clusters.inventory.job_rows import PodChange, PodEnd
from clusters.inventory.start_rows import StartEnd
from clusters.inventory.versions import Observation, Recorded
from clusters.inventory.write_lock import NodeChanges, Raw
from clusters.models import Cluster, GpuJob, GpuPod
from common.clock import now

KIND = "pods"
_UNREAD = ("args", "command", "env", "envFrom", "lifecycle", "volumeDevices", "volumeMounts")
"""Of containers: most of a pod's size, and no row tells of it."""


def kept(raw: Raw) -> dict[str, Any] | None:
    """Return what rows, jobs and starts are told by of a pod that was just read; None where it holds no GPUs.

    Finished pods that held some are kept: only they tell how their job ended.
    """
    if not rows.holds_gpus(raw):
        return None
    spec = raw.get("spec")
    if not isinstance(spec, Mapping):
        return dict(raw)
    read = {name: value for name, value in spec.items() if name != "volumes"}
    for name in ("containers", "initContainers", "ephemeralContainers"):
        if isinstance(containers := read.get(name), list):
            read[name] = [_read_part(container) for container in containers]
    return {**raw, "spec": read}


def needs_row(raw: Raw) -> bool:
    """Return whether a pod is to have a row, without reading what that has. A malformed one may have none."""
    if not rows.holds_gpus(raw):
        return False
    status = raw.get("status")
    return not isinstance(status, Mapping) or status.get("phase") not in ("Succeeded", "Failed")


def _read_part(container: object) -> object:
    if not isinstance(container, Mapping):
        return container
    return {name: value for name, value in container.items() if name not in _UNREAD}


@dataclass(frozen=True, slots=True)
class _StoredPod:
    pk: int
    recorded: Recorded
    values: rows.Values
    is_starting: bool


@dataclass(slots=True)
class _PodWrites:
    """Writes that are due, by UID."""

    over: set[str] = field(default_factory=set)
    dead: dict[str, str] = field(default_factory=dict)
    changed: dict[str, rows.Values] = field(default_factory=dict)
    recorded: set[str] = field(default_factory=set)
    starting: set[str] = field(default_factory=set)
    """Of those changed: pods that were never ready."""
    known: Mapping[str, _StoredPod] = field(default_factory=dict)

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
    """Pods seen, of which those that request GPUs and are not finished have rows. Recounts the GPUs of their nodes."""
    at = at or now()
    observation = Observation(at, complete, version)
    seen = _parsed(cluster, raws, deleted)
    by_uid = {uid: raw for raw in (*raws, *deleted) if (uid := rows.identity(raw)[0])}
    versions = {uid: rows.resource_version(raw) for uid, raw in by_uid.items()}
    ended = set()
    if not complete:
        ended = {rows.identity(raw)[0] for raw in (*raws, *deleted) if rows.holds_gpus(raw)} & _none(seen)
    if not _judge(cluster, seen, by_uid, ended, observation):
        return NodeChanges()
    with write_lock.of_rows(cluster):
        if any(values and values["claims"] for values in seen.values()):
            seen = _parsed(cluster, raws, deleted)  # what their claims were given may have been written meanwhile
        writes = _judge(cluster, seen, by_uid, ended, observation)
        ends = {uid: job_rows.end_of(by_uid[uid], at) for uid in writes.over & by_uid.keys()}
        _track(cluster, writes, ends, at)
        _record_starts(cluster, writes, by_uid, ends, at)
        changed = _write(cluster, writes, versions, at)
    return write_lock.tell(cluster, NodeChanges(changed=changed))


def _parsed(cluster: Cluster, raws: Sequence[Raw], deleted: Sequence[Raw]) -> dict[str, rows.Values | None]:
    """Return the values of rows by UID; None for a pod that needs none, or has one no more."""
    seen = {uid: rows.gpu_pod(raw) for raw in raws if (uid := rows.identity(raw)[0])}
    uses = {uid: (values["namespace"], values["claims"]) for uid, values in seen.items() if values and values["claims"]}
    if given := device_rows.given(cluster, uses):
        again = {uid: raw for raw in raws if (uid := rows.identity(raw)[0]) in given}
        seen |= {uid: rows.gpu_pod(raw, given[uid]) for uid, raw in again.items()}
    return seen | {uid: None for raw in deleted if (uid := rows.identity(raw)[0])}


def _none(seen: Mapping[str, rows.Values | None]) -> set[str]:
    return {uid for uid, values in seen.items() if values is None}


def _judge(
    cluster: Cluster,
    seen: Mapping[str, rows.Values | None],
    by_uid: Mapping[str, Raw],
    ended: set[str],
    observation: Observation,
) -> _PodWrites:
    """Final within `writing.of_rows`; before, whether anything is to be done at all."""
    versions = {uid: rows.resource_version(raw) for uid, raw in by_uid.items()}
    writes = _PodWrites(known=(known := _stored(cluster, None if observation.complete else list(seen))))
    for uid, there in known.items():
        if (uid in seen and seen[uid] is None and observation.replaces(versions[uid], there.recorded)) or (
            uid not in seen and observation.knows(there.recorded)
        ):
            writes.over.add(uid)
            writes.dead[uid] = observation.buried_at(there.recorded.version, versions.get(uid, ""))
    absent = [uid for uid in seen if uid not in known and (seen[uid] or uid in ended)]
    buried = write_lock.buried(cluster, KIND, absent)
    writes.dead |= {uid: versions[uid] for uid in ended if uid not in known and uid not in buried}
    for uid, values in seen.items():
        if values is None:
            continue
        row, tomb, version = known.get(uid), buried.get(uid), versions[uid]
        was_starting = row is not None and row.is_starting
        is_starting = start_rows.is_starting(by_uid[uid], was=was_starting)
        if row is None:
            if tomb is not None and not observation.revives(version, tomb):
                continue
            writes.changed[uid] = values
        elif version == row.recorded.version or not observation.replaces(version, row.recorded):
            continue
        elif row.values == values and was_starting == is_starting:
            writes.recorded.add(uid)
        else:
            writes.changed[uid] = values
        if is_starting:
            writes.starting.add(uid)
    return writes


def _stored(cluster: Cluster, uids: Sequence[str] | None) -> dict[str, _StoredPod]:
    stored = GpuPod.every.filter(cluster=cluster)
    parts = [stored] if uids is None else [stored.filter(uid__in=chunk) for chunk in write_lock.chunks(uids)]
    columns = ("uid", "pk", "resource_version", "versioned_at", "is_starting", *rows.POD_FIELDS)
    return {
        uid: _StoredPod(pk, Recorded(version, at), dict(zip(rows.POD_FIELDS, values, strict=True)), is_starting)
        for part in parts
        for uid, pk, version, at, is_starting, *values in part.values_list(*columns)
    }


def _track(cluster: Cluster, writes: _PodWrites, ends: Mapping[str, PodEnd], at: datetime) -> None:
    """Bring the pods' changes into the rows of their jobs. A pod that a list lacks is deleted."""
    gone = PodEnd(GpuJob.Outcome.DELETED, at)
    changes = [PodChange(uid, writes.known[uid].values, ends.get(uid, gone)) for uid in sorted(writes.over)]
    changes += [PodChange(uid, values, None) for uid, values in sorted(writes.changed.items())]
    # It was taken for a holder, and reserves by what is known now. A pod whose claims lost their devices lives on.
    reserving = [uid for uid, values in writes.changed.items() if values["devices"] and not values["gpus"]]
    changes += [PodChange(uid, writes.known[uid].values, gone) for uid in reserving if uid in writes.known]
    job_rows.track(cluster, [change for change in changes if change.values["gpus"]], at)


def _record_starts(
    cluster: Cluster, writes: _PodWrites, by_uid: Mapping[str, Raw], ends: Mapping[str, PodEnd], at: datetime
) -> None:
    """Store the starts of pods that are ready now, or are gone, and were not ready before."""
    gone = PodEnd(GpuJob.Outcome.DELETED, at)
    was_starting = {uid for uid, pod in writes.known.items() if pod.is_starting}
    over = [StartEnd(uid, writes.known[uid].values, ends.get(uid, gone)) for uid in writes.over & was_starting]
    ready = was_starting & writes.changed.keys() - writes.starting
    over += [StartEnd(uid, writes.changed[uid], None) for uid in ready]
    start_rows.record(cluster, over, by_uid, at)


def _write(cluster: Cluster, writes: _PodWrites, versions: Mapping[str, str], at: datetime) -> list[int]:
    known = writes.known
    for chunk in write_lock.chunks(sorted(writes.over)):
        GpuPod.every.filter(cluster=cluster, uid__in=chunk).delete()
    write_lock.bury(cluster, KIND, writes.dead, at)
    write_lock.record(GpuPod, {known[uid].pk: versions[uid] for uid in writes.recorded}, at)
    GpuPod.every.bulk_create(
        [
            GpuPod(
                cluster=cluster,
                uid=uid,
                resource_version=versions[uid],
                versioned_at=at,
                is_starting=uid in writes.starting,
                **values,
            )
            for uid, values in sorted(writes.changed.items())
        ],
        batch_size=write_lock.CHUNK,
        update_conflicts=True,
        unique_fields=["cluster", "uid"],
        update_fields=["resource_version", "versioned_at", "is_starting", *rows.POD_FIELDS],
    )
    before = {known[uid].values["node_name"] for uid in (*writes.over, *writes.changed) if uid in known}
    return allocation.recount(cluster, before | {values["node_name"] for values in writes.changed.values()}, at)
