"""Visibility and filters of audit records: the same for page and API."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol
from uuid import UUID

import django_filters
from django.db.models import Q, QuerySet

from audit.models import Record
from common import hooks
from common.filtering import InstantFilter
from common.keyset import Orders


class Reader(Protocol):
    """Access rights of a reader. `config` supplies it: this room can import neither roles nor clusters."""

    @property
    def everything(self) -> bool: ...
    @property
    def has_role(self) -> bool: ...
    @property
    def clusters(self) -> Iterable[UUID]: ...
    @property
    def name(self) -> str: ...


class _Readers:
    reader_of: Callable[[Any], Reader] | None = None


readers = _Readers()
SHARED = ("profile:", "revision:")
"""Targets without a cluster that every role may see; the others are about people and the installation itself."""


def visible_to(user: Any) -> QuerySet[Record]:
    """All with a role in `*`; with another role what happened in one's clusters and to profiles; and one's own."""
    if readers.reader_of is None:
        return Record.objects.none()
    reader = readers.reader_of(user)
    if reader.everything:
        return Record.objects.select_related("sealed_as")
    shared = Q()
    for prefix in SHARED if reader.has_role else ():
        shared |= Q(target__startswith=prefix)
    own = Q(actor=reader.name) | Q(actor__startswith=f"{reader.name} (")
    in_clusters = Q(cluster_id__in=list(reader.clusters))
    others = Q(cluster_id=None) & shared if shared else Q()
    return Record.objects.select_related("sealed_as").filter(in_clusters | others | own)


def panels_for(user: Any) -> list[hooks.Panel]:
    """Return what rooms above show with the record to a person who may read all of it; to others nothing."""
    if readers.reader_of is None or not readers.reader_of(user).everything:
        return []
    return hooks.audit_panels()


ORDERS = Orders(
    {"at": ["at"], "actor": ["actor", "at"], "action": ["action", "at"]}, default="-at", descending=frozenset({"at"})
)
"""Each by an index, or by its first column's."""


def clusters_named(user: Any) -> list[tuple[str, str]]:
    """(id, name) of the clusters whose records this person may read, for choosing one."""
    if readers.reader_of is None:
        return []
    reader = readers.reader_of(user)
    seen = set(map(str, reader.clusters))
    named = ((scope.removeprefix("cluster:"), name) for scope, name in hooks.role_scopes())
    return [(pk, name) for pk, name in named if reader.everything or pk in seen]


class RecordFilter(django_filters.FilterSet):  # type: ignore[misc]
    actor = django_filters.CharFilter(lookup_expr="istartswith", max_length=200, label="Actor")
    action = django_filters.CharFilter(lookup_expr="startswith", max_length=60, label="Action")
    target = django_filters.CharFilter(method="by_target", max_length=200, label="Target")
    cluster = django_filters.UUIDFilter(field_name="cluster_id", label="Cluster")
    since = InstantFilter(field_name="at", lookup_expr="gte")
    until = InstantFilter(field_name="at", lookup_expr="lt")
    request_id = django_filters.CharFilter(max_length=64, label="Request")

    class Meta:
        model = Record
        fields: list[str] = []

    def by_target(self, rows: QuerySet[Record], _name: str, value: str) -> QuerySet[Record]:
        """`kind:id`, a kind alone, or the name that people know (`P-218`)."""
        kind = Q(target__startswith=f"{value.rstrip(':')}:")
        return rows.filter(Q(target=value) | kind | Q(target_name__iexact=value))
