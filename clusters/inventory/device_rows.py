"""ResourceSlices and ResourceClaims of GPUs, as they were seen, into rows; and from there to the pods and nodes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from clusters.inventory import allocation, dra, job_rows, rows, write_lock
from clusters.inventory.job_rows import PodChange
from clusters.inventory.versions import Observation, Recorded
from clusters.inventory.write_lock import NodeChanges, Raw
from clusters.models import Cluster, DeviceClaim, DeviceSlice, GpuPod
from common.clock import now

_SLICE_FIELDS = ("node_name", "pool", "generation", "product", "devices")
_CLAIM_FIELDS = ("namespace", "name", "devices", "pods")


class _Kind(NamedTuple):
    model: type[DeviceSlice] | type[DeviceClaim]
    name: str
    """Of its tombstones."""
    fields: Sequence[str]
    parse: Callable[[Raw], rows.Values | None]


@dataclass(frozen=True, slots=True)
class _Row:
    recorded: Recorded
    values: rows.Values


@dataclass(slots=True)
class _Writes:
    """Writes that are due, by UID."""

    over: dict[str, str] = field(default_factory=dict)
    """Last version of each."""
    changed: dict[str, rows.Values] = field(default_factory=dict)
    recorded: set[str] = field(default_factory=set)
    known: Mapping[str, _Row] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.over or self.changed or self.recorded)

    def touched(self) -> list[rows.Values]:
        """Return the values before and after of what is not only another version."""
        before = [self.known[uid].values for uid in (*self.over, *self.changed) if uid in self.known]
        return before + list(self.changed.values())


def observe_slices(
    cluster: Cluster,
    raws: Sequence[Raw],
    *,
    complete: bool,
    at: datetime | None = None,
    deleted: Sequence[Raw] = (),
    version: str = "",
) -> NodeChanges:
    """Slices seen, of which those of NVIDIA's driver have rows. Recounts the GPUs of their nodes."""

    def spread(writes: _Writes, at: datetime) -> list[int]:
        nodes = {values["node_name"] for values in writes.touched()}
        uids: list[str] = []
        for chunk in write_lock.chunks(sorted(nodes)):
            pods = GpuPod.every.filter(cluster=cluster, node_name__in=chunk).exclude(devices={})
            uids += pods.values_list("uid", flat=True)
        _give(cluster, uids, at)
        return allocation.recount(cluster, nodes, at, is_offer_new=True)

    observation = Observation(at or now(), complete, version)
    return _observe(cluster, _Kind(DeviceSlice, "slices", _SLICE_FIELDS, _slice), (raws, deleted), observation, spread)


def observe_claims(
    cluster: Cluster,
    raws: Sequence[Raw],
    *,
    complete: bool,
    at: datetime | None = None,
    deleted: Sequence[Raw] = (),
    version: str = "",
) -> NodeChanges:
    """Claims seen, of which those for GPUs have rows. Gives their pods what they hold, and recounts their nodes."""

    def spread(writes: _Writes, at: datetime) -> list[int]:
        nodes = _give(cluster, {uid for values in writes.touched() for uid in values["pods"]}, at)
        return allocation.recount(cluster, nodes, at)

    observation = Observation(at or now(), complete, version)
    return _observe(cluster, _Kind(DeviceClaim, "claims", _CLAIM_FIELDS, _claim), (raws, deleted), observation, spread)


def given(cluster: Cluster, uses: Mapping[str, tuple[str, Collection[str]]]) -> dict[str, dict[str, str]]:
    """Return by pod the devices that its claims were given, or want, with the profile of each.

    `uses`: by the pods' UIDs, their namespaces and names of claims. Two queries for 500 names.
    """
    users: dict[tuple[str, str], list[str]] = defaultdict(list)
    for uid, (namespace, names) in uses.items():
        for name in names:
            users[namespace, name].append(uid)
    keys: dict[str, set[str]] = defaultdict(set)
    for chunk in write_lock.chunks(sorted({name for _, name in users})):
        claims = DeviceClaim.objects.filter(cluster=cluster, name__in=chunk).order_by("uid")
        for namespace, name, devices, pods in claims.values_list("namespace", "name", "devices", "pods"):
            for uid in users.get((namespace, name), ()):
                if uid in pods or not pods:
                    keys[uid].update(devices)
    profiles = _profiles(cluster, {key for held in keys.values() for key in held})
    return {uid: {key: profiles.get(key, "") for key in sorted(held)} for uid, held in keys.items()}


def _profiles(cluster: Cluster, keys: Collection[str]) -> dict[str, str]:
    pools = sorted({key.rpartition("/")[0] for key in keys})
    by_key: dict[str, str] = {}
    for chunk in write_lock.chunks(pools):
        slices = DeviceSlice.objects.filter(cluster=cluster, pool__in=chunk).order_by("generation")
        for pool, devices in slices.values_list("pool", "devices"):
            by_key |= {f"{pool}/{name}": dra.Device(*device).profile for name, device in devices.items()}
    return by_key


def _give(cluster: Cluster, uids: Collection[str], at: datetime) -> set[str]:
    """Write to the rows of pods what their claims were given by now. Returns the names of their nodes."""
    nodes: set[str] = set()
    for chunk in write_lock.chunks(sorted(uids)):
        stored = GpuPod.every.filter(cluster=cluster, uid__in=chunk).order_by("pk")
        columns = stored.values_list("pk", "uid", *rows.POD_FIELDS)
        pods = {uid: (pk, dict(zip(rows.POD_FIELDS, values, strict=True))) for pk, uid, *values in columns}
        by_pod = given(cluster, {uid: (values["namespace"], values["claims"]) for uid, (_, values) in pods.items()})
        changes, changed = [], []
        for uid, (pk, values) in pods.items():
            nodes.add(values["node_name"])
            devices, before = by_pod.get(uid, {}), values["devices"]
            if not values["claims"] or devices == before:
                continue
            gpus = values["gpus"] + len(devices) - len(before)
            parts = Counter(values["mig"])
            parts.subtract(profile for profile in before.values() if profile)
            parts.update(profile for profile in devices.values() if profile)
            values |= {"gpus": max(0, gpus), "mig": dict(sorted((+parts).items())), "devices": devices}
            changed.append(GpuPod(pk=pk, **{name: values[name] for name in ("gpus", "mig", "devices")}))
            if values["gpus"]:
                changes.append(PodChange(uid, values, None))
        GpuPod.every.bulk_update(changed, ["gpus", "mig", "devices"])
        job_rows.track(cluster, changes, at)
    return nodes


def _slice(raw: Raw) -> rows.Values | None:
    part = dra.read_slice(raw)
    if part is None:
        return None
    devices = {name: list(device) for name, device in sorted(part.devices.items())}
    values = (part.node, part.pool, min(max(part.generation, 0), 2**53), part.product[:120], devices)
    return dict(zip(_SLICE_FIELDS, values, strict=True))


def _claim(raw: Raw) -> rows.Values | None:
    claim = dra.read_claim(raw)
    if claim is None:
        return None
    namespace = str(raw["metadata"].get("namespace", ""))[:63]
    values = (namespace, rows.identity(raw)[1], claim.devices, claim.pods)
    return dict(zip(_CLAIM_FIELDS, values, strict=True))


def _observe(
    cluster: Cluster,
    kind: _Kind,
    raws: tuple[Sequence[Raw], Sequence[Raw]],
    observation: Observation,
    spread: Callable[[_Writes, datetime], list[int]],
) -> NodeChanges:
    seen = {uid: (kind.parse(raw), rows.resource_version(raw)) for raw in raws[0] if (uid := rows.identity(raw)[0])}
    seen |= {uid: (None, rows.resource_version(raw)) for raw in raws[1] if (uid := rows.identity(raw)[0])}
    if not _judge(cluster, kind, seen, observation):
        return NodeChanges()
    with write_lock.of_rows(cluster):
        writes = _judge(cluster, kind, seen, observation)
        _write(cluster, kind, writes, {uid: version for uid, (_, version) in seen.items()}, observation.at)
        changed = spread(writes, observation.at) if writes.over or writes.changed else []
    return write_lock.tell(cluster, NodeChanges(changed=changed))


def _judge(
    cluster: Cluster,
    kind: _Kind,
    seen: Mapping[str, tuple[rows.Values | None, str]],
    observation: Observation,
) -> _Writes:
    """Final within the lock; before, whether anything is to be done at all."""
    writes = _Writes(known=(known := _known(cluster, kind, None if observation.complete else list(seen))))
    for uid, row in known.items():
        values, version = seen.get(uid, (None, ""))
        gone = observation.replaces(version, row.recorded) if uid in seen else observation.knows(row.recorded)
        if values is None and gone:
            writes.over[uid] = observation.buried_at(row.recorded.version, version)
    buried = write_lock.buried(
        cluster, kind.name, [uid for uid, (values, _) in seen.items() if values and uid not in known]
    )
    for uid, (values, version) in seen.items():
        if values is None:
            continue
        if uid not in known:
            if uid not in buried or observation.revives(version, buried[uid]):
                writes.changed[uid] = values
        elif version != known[uid].recorded.version and observation.replaces(version, known[uid].recorded):
            if known[uid].values == values:
                writes.recorded.add(uid)
            else:
                writes.changed[uid] = values
    return writes


def _known(cluster: Cluster, kind: _Kind, uids: Sequence[str] | None) -> dict[str, _Row]:
    stored: Any = kind.model._default_manager.filter(cluster=cluster)
    parts: Iterable[Any] = (
        [stored] if uids is None else [stored.filter(uid__in=chunk) for chunk in write_lock.chunks(uids)]
    )
    return {
        uid: _Row(Recorded(version, at), dict(zip(kind.fields, values, strict=True)))
        for part in parts
        for uid, version, at, *values in part.values_list("uid", "resource_version", "versioned_at", *kind.fields)
    }


def _write(
    cluster: Cluster,
    kind: _Kind,
    writes: _Writes,
    versions: Mapping[str, str],
    at: datetime,
) -> None:
    manager: Any = kind.model._default_manager
    for chunk in write_lock.chunks(sorted(writes.over)):
        manager.filter(cluster=cluster, uid__in=chunk).delete()
    write_lock.bury(cluster, kind.name, writes.over, at)
    unchanged = {uid: writes.known[uid].values for uid in writes.recorded}
    manager.bulk_create(
        [
            kind.model(cluster=cluster, uid=uid, resource_version=versions[uid], versioned_at=at, **values)
            for uid, values in sorted((writes.changed | unchanged).items())
        ],
        batch_size=write_lock.CHUNK,
        update_conflicts=True,
        unique_fields=["cluster", "uid"],
        update_fields=["resource_version", "versioned_at", *kind.fields],
    )
