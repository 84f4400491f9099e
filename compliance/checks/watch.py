"""Watch of components and policy objects: the objects to follow, and the checks that events bring forward.

An event is a reason to check, never a finding: a mistaken event costs a check.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from common.clock import now
from common.hooks import Followed, ObjectChange
from compliance.checks.components import hasten
from compliance.models import ComponentStanding
from components.helm.patches import MANAGED_BY, RELEASE_NAME, RELEASE_NAMESPACE
from components.policies.policy_objects import MARK

OF_RELEASES = f"{MANAGED_BY}=Helm"
"""helm puts this label on every object that it makes."""
RECORDS = Followed("v1", "secrets", "owner=helm")
OF_POLICIES = MARK
GATHER = timedelta(seconds=2)
"""An install is hundreds of events: looked at once it is quiet enough."""
QUIET = timedelta(seconds=30)
"""After a look, before a status alone brings another."""


def follow(cluster_id: UUID) -> Iterator[Followed]:
    """Kinds of the objects of what is assigned here, and helm's records. One query; nothing where nothing is."""
    rows = list(ComponentStanding.objects.filter(cluster=cluster_id).values_list("kind", "kinds"))
    if any(kind == ComponentStanding.Kind.COMPONENT for kind, _ in rows):
        yield RECORDS
    for kind, kinds in rows:
        label = OF_RELEASES if kind == ComponentStanding.Kind.COMPONENT else OF_POLICIES
        yield from (Followed(str(version), str(plural), label) for version, plural in kinds)


def heard(cluster_id: UUID, events: Sequence[ObjectChange]) -> None:
    at = now()
    rows = list(ComponentStanding.objects.filter(cluster=cluster_id))
    for row in rows:
        mine = [event for event in events if _is_about(row, event)]
        if any(not event.is_status for event in mine):
            hasten([row.pk], at + GATHER)
        elif mine:
            hasten([row.pk], max(at + GATHER, (row.checked_at or at) + QUIET))


def _is_about(row: ComponentStanding, event: ObjectChange) -> bool:
    if row.kind == ComponentStanding.Kind.POLICIES:
        return event.followed.label == OF_POLICIES
    if event.followed == RECORDS:
        name = event.labels.get("name")
        return row.state == ComponentStanding.State.MISSING or (event.namespace, name) == (row.namespace, row.release)
    release = event.annotations.get(RELEASE_NAMESPACE), event.annotations.get(RELEASE_NAME)
    return event.followed.label == OF_RELEASES and release == (row.namespace, row.release)


def relisted(cluster_id: UUID, listed: Iterable[Followed]) -> None:
    """Hasten checks of everything that has listed objects: events before these lists were not received."""
    here = {*listed}
    _hasten_with(cluster_id, here, now() + GATHER)


def _hasten_with(cluster_id: UUID, here: set[Followed], when: datetime) -> None:
    rows = ComponentStanding.objects.filter(cluster=cluster_id)
    hasten([row.pk for row in rows if here & _of(row)], when)


def _of(row: ComponentStanding) -> set[Followed]:
    is_component = row.kind == ComponentStanding.Kind.COMPONENT
    label = OF_RELEASES if is_component else OF_POLICIES
    own = {Followed(str(version), str(plural), label) for version, plural in row.kinds}
    return own | ({RECORDS} if is_component else set())


def unheard(cluster_id: UUID, why: Mapping[Followed, str]) -> None:
    """Said on the page: what is not followed is only seen by the look every ten minutes."""
    for row in ComponentStanding.objects.filter(cluster=cluster_id):
        lost = sorted({*why} & _of(row))
        sentence = (
            f"{', '.join(dict.fromkeys(followed.plural for followed in lost))}: {why[lost[0]]}"[:300] if lost else ""
        )
        if sentence != row.unwatched:
            ComponentStanding.objects.filter(pk=row.pk).update(unwatched=sentence)
