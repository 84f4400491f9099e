"""One writer of a cluster's rows at a time, and what all kinds share: versions recorded, deletions kept, news told.

A lock on the rows themselves is not enough: it holds no row that does not exist yet, and none that was just deleted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, TypeVar

from django.db import models, transaction
from django.db.models import Case, Value, When

from clusters.inventory.versions import Recorded
from clusters.models import Cluster, Node, RowWriter, Tombstone
from common import hooks

T = TypeVar("T")
Raw = Mapping[str, Any]

CHUNK = 500
TOLD_AT_ONCE = 200
"""Nodes a call of nodes_changed names."""
REMEMBERED = timedelta(hours=1)
"""How long a deletion is remembered. No call lasts so long, nor does a list wait so long to be written."""


@dataclass(slots=True)
class NodeChanges:
    """Primary keys of nodes: created, changed (their own row or what belongs to them), gone."""

    created: list[int] = field(default_factory=list)
    changed: list[int] = field(default_factory=list)
    gone: list[int] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.created or self.changed or self.gone)


@contextmanager
def of_rows(cluster: Cluster) -> Iterator[None]:
    """Open a transaction that alone may write rows of this cluster's objects. No call to a cluster within."""
    with transaction.atomic():
        mine = RowWriter.objects.select_for_update().filter(cluster=cluster)
        if not list(mine):
            RowWriter.objects.bulk_create([RowWriter(cluster=cluster)], ignore_conflicts=True)
            list(mine.all())  # another query: it waits for the process that inserted the row first, then locks it
        yield


def record(model: type[models.Model], versions: Mapping[int, str], at: datetime) -> None:
    """Store newer versions of objects whose rows already have their values; no signal is sent."""
    for chunk in chunks(sorted(versions)):
        newer = Case(
            *(When(pk=pk, then=Value(versions[pk])) for pk in chunk), output_field=models.CharField(max_length=40)
        )
        model._default_manager.filter(pk__in=chunk).update(resource_version=newer, versioned_at=at)


def buried(cluster: Cluster, kind: str, keys: Collection[str]) -> dict[str, Recorded]:
    """Return the recorded deletions among these, by key."""
    tombstones = Tombstone.objects.filter(cluster=cluster, kind=kind)
    return {
        key: Recorded(version, at)
        for chunk in chunks(sorted(keys))
        for key, version, at in tombstones.filter(key__in=chunk).values_list("key", "resource_version", "at")
    }


def bury(cluster: Cluster, kind: str, versions: Mapping[str, str], at: datetime) -> None:
    """Remember deletions: the version of each by key. Forgets those too old for a late event to contradict."""
    if not versions:
        return
    Tombstone.objects.filter(cluster=cluster, at__lt=at - REMEMBERED).delete()
    Tombstone.objects.bulk_create(
        [
            Tombstone(cluster=cluster, kind=kind, key=key, resource_version=version, at=at)
            for key, version in sorted(versions.items())
        ],
        batch_size=CHUNK,
        update_conflicts=True,
        unique_fields=["cluster", "kind", "key"],
        update_fields=["resource_version", "at"],
    )


def present(cluster: Cluster, names: Sequence[str] | None) -> dict[str, tuple[int, str]]:
    """Primary key and UID of present nodes by name; None asks for all."""
    nodes = Node.objects.present().filter(cluster=cluster)
    parts = [nodes] if names is None else [nodes.filter(name__in=chunk) for chunk in chunks(names)]
    return {name: (pk, uid) for part in parts for name, pk, uid in part.values_list("name", "pk", "uid")}


def tell(cluster: Cluster, outcome: NodeChanges) -> NodeChanges:
    for chunk in chunks(sorted({*outcome.created, *outcome.changed}), TOLD_AT_ONCE):
        hooks.nodes_changed(cluster.pk, chunk)
    for chunk in chunks(outcome.gone, TOLD_AT_ONCE):
        hooks.nodes_gone(cluster.pk, chunk)
    return outcome


def chunks(items: Sequence[T], size: int = CHUNK) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
