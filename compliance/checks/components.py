"""Components and policy objects held to what is assigned: which there are, when each is looked at, and what was found.

The row is the queue. What the watch hears only makes a look due sooner; what a row says comes from a look alone. A
killed worker costs one claim. Looks call the cluster and hold no transaction.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from uuid import UUID

from django.db import transaction
from django.db.models import Q

from clusters.connection import registry
from clusters.fleet import Fleet, FleetError
from common import hooks
from common.clock import now
from compliance.models import Assignment, ComponentChange, ComponentStanding
from components.policies import policy_conformance, policy_objects
from components.release import conformance
from components.release.conformance import Conformity
from profiles.content.cluster import WantedComponent, WantedObject
from profiles.models import Revision

Kind, State = ComponentStanding.Kind, ComponentStanding.State
POLICIES = "policies"
EVERY = timedelta(minutes=10)
"""Between two looks while nothing is heard."""
SOON = timedelta(seconds=60)
"""Where something is under way, or could not be seen."""
CLAIM = timedelta(seconds=conformance.SECONDS + 90)
"""A look's own end, and the calls that may be under way then."""
AT_ONCE = 200
_SETTLED = (State.COMPLIANT, State.DRIFTED, State.MISSING, State.FOREIGN)
_UNDER_WAY = {conformance.UNFINISHED, conformance.MISSING, conformance.FOREIGN, conformance.NOT_READY}
"""What a live rollout of the pool explains. Drift of an object it does not."""

Key = tuple[UUID, str, str]


@dataclass(frozen=True, slots=True)
class WantedRevision:
    pool_id: int
    revision_id: int


# ── which there are ───────────────────────────────────────────────────────────────────────────────────────────────────
@lru_cache(maxsize=512)
def content(revision_id: int, digest: str) -> tuple[tuple[WantedComponent, ...], tuple[WantedObject, ...]]:
    """A revision never changes, so neither does this; `digest` is that of the revision."""
    del digest  # of the cache's key
    flat = Revision.objects.get(pk=revision_id).flat
    return flat.components, flat.policies


def wanted() -> dict[Key, WantedRevision]:
    """Return the wanted components and policy objects by cluster, kind and name.

    An owner decides between pools, as in plans.
    """
    out: dict[Key, WantedRevision] = {}
    owners = {(cluster, name): pool for cluster, name, pool in hooks.component_owners()}
    rows = Assignment.objects.order_by("set_at", "pk")
    columns = ("pool__cluster_id", "pool_id", "revision_id", "revision__digest")
    for cluster, pool, revision, digest in rows.values_list(*columns):
        components, policies = content(revision, digest)
        for component in components:
            key = cluster, Kind.COMPONENT, component.name
            if key not in out or owners.get((cluster, component.name)) == pool:
                out[key] = WantedRevision(pool, revision)
        if policies:
            out.setdefault((cluster, Kind.POLICIES, POLICIES), WantedRevision(pool, revision))
    return out


def pools_of(cluster_id: UUID) -> list[int]:
    """Return the pools that have a target in this cluster."""
    return list(Assignment.objects.filter(pool__cluster=cluster_id).order_by("pool").values_list("pool", flat=True))


def policies_of(fleet: Fleet, cluster_id: UUID) -> list[WantedObject]:
    """Return the policy objects of a cluster's assignments; one that pools want differently as its own pool wants it.

    Raises FleetError.
    """
    wishes: dict[str, dict[str, WantedObject]] = defaultdict(dict)
    rows = Assignment.objects.filter(pool__cluster=cluster_id).order_by("set_at", "pk")
    for pool, revision, digest in rows.values_list("pool_id", "revision_id", "revision__digest"):
        for policy in content(revision, digest)[1]:
            wishes[policy.title][policy_objects.mark_of(pool)] = policy
    out = []
    for of_pools in wishes.values():
        first, *others = of_pools.values()
        if any(other.meaning != first.meaning for other in others):
            first = of_pools.get(policy_objects.owner(fleet, first), first)
        out.append(first)
    return out


def reconcile() -> None:
    """Rows for what is assigned now, and only for that. Three queries where nothing changed."""
    want = wanted()
    have = {
        (cluster, kind, name): (pk, WantedRevision(pool, revision))
        for pk, cluster, kind, name, pool, revision in ComponentStanding.objects.values_list(
            "pk", "cluster_id", "kind", "name", "pool_id", "revision_id"
        )
    }
    missing = [(*key, owner) for key, owner in want.items() if key not in have]
    new = [
        ComponentStanding(cluster_id=pk, kind=kind, name=name, pool_id=owner.pool_id, revision_id=owner.revision_id)
        for pk, kind, name, owner in missing
    ]
    ComponentStanding.objects.bulk_create(new, ignore_conflicts=True)  # another worker may be faster
    for key, (pk, before) in have.items():
        if key not in want:
            ComponentStanding.objects.filter(pk=pk).delete()
        elif want[key] != before:
            fields = {"pool_id": want[key].pool_id, "revision_id": want[key].revision_id, "due_at": now()}
            ComponentStanding.objects.filter(pk=pk).update(**fields)


# ── when ──────────────────────────────────────────────────────────────────────────────────────────────────────────────
def due() -> list[int]:
    """Rows to look at now, those that wait longest first."""
    at = now()
    free = Q(claimed_until=None, due_at__lte=at) | Q(claimed_until__lt=at)
    return list(ComponentStanding.objects.filter(free).order_by("due_at", "pk").values_list("pk", flat=True)[:AT_ONCE])


def hasten(rows: Iterable[int], when: datetime) -> None:
    """Bring the checks of these rows forward to `when` at the latest."""
    ComponentStanding.objects.filter(pk__in=list(rows), due_at__gt=when).update(due_at=when)


def check(pk: int) -> bool:
    """Check one standing if it is unclaimed. Returns whether this was the call that checked it."""
    at = now()
    free = Q(claimed_until=None) | Q(claimed_until__lt=at)
    until = at + CLAIM
    # Due again as late as can be: what is heard while this look runs brings it forward.
    later = at + EVERY * random.uniform(0.9, 1.1)  # noqa: S311
    if not ComponentStanding.objects.filter(free, pk=pk).update(claimed_until=until, due_at=later):
        return False
    row = ComponentStanding.objects.select_related("cluster", "revision").filter(pk=pk).first()
    if row is not None and row.revision is not None:
        record(row, observe(row), until)
    return True


def observe(row: ComponentStanding) -> Conformity:
    """Calls the cluster."""
    assert row.revision is not None
    if row.kind == Kind.POLICIES:
        try:
            fleet = registry.connect(row.cluster)
            awaited = set(hooks.objects_to_come(pools_of(row.cluster_id)))
            return policy_conformance.conform(fleet, policies_of(fleet, row.cluster_id), awaited=awaited)
        except FleetError as error:
            return Conformity(conformance.UNKNOWN, f"They could not be checked: {error}")
    component = next(
        (component for component in content(row.revision.pk, row.revision.digest)[0] if component.name == row.name),
        None,
    )
    if component is None:
        return Conformity(conformance.UNKNOWN, "It is no longer assigned.")
    return conformance.conform(row.cluster, component)


# ── what was found ────────────────────────────────────────────────────────────────────────────────────────────────────
def record(row: ComponentStanding, conformity: Conformity, claim: datetime) -> None:
    """Into the row, unless the claim was lost meanwhile; and into history where it is another than before."""
    at, before = now(), (row.state, row.installed, row.sentence)
    state, sentence = state_and_reason(row, conformity)
    after = (
        state,
        row.installed if conformity.state == conformance.UNKNOWN else conformity.installed[:60],
        sentence[:500],
    )
    fields = _fields(conformity) | {"state": state, "sentence": after[2], "checked_at": at, "claimed_until": None}
    if state != row.state:
        fields["since"] = at
    with transaction.atomic():
        mine = ComponentStanding.objects.select_for_update().filter(pk=row.pk, claimed_until=claim)
        if not mine.update(**fields):
            return
        if _differs(before, after) or row.checked_at is None:
            ComponentChange.objects.create(
                cluster_id=row.cluster_id,
                name=row.name,
                at=at,
                state=state,
                sentence=after[2],
                installed=after[1],
                revision_id=row.revision_id,
            )
    if state not in _SETTLED:
        hasten([row.pk], at + SOON)


def _fields(conformity: Conformity) -> dict[str, object]:
    """Return the observed fields. What could not be observed keeps its last value, and counts as unknown."""
    if conformity.state == conformance.UNKNOWN:
        return {}
    seen: dict[str, object] = {
        "release": conformity.release[:63],
        "namespace": conformity.namespace[:63],
        "installed": conformity.installed[:60],
        "assigned": conformity.assigned[:60],
        "is_ready": conformity.is_ready,
        "missing": conformity.missing[:500],
        "differences": [difference.to_json() for difference in conformity.differences],
        "total": conformity.total,
        "history": [dict(entry) for entry in conformity.history],
    }
    if conformity.number:
        seen["number"] = conformity.number
    return seen | ({"kinds": [list(kind) for kind in conformity.kinds]} if conformity.kinds else {})


def state_and_reason(row: ComponentStanding, conformity: Conformity) -> tuple[str, str]:
    """Return state and reason: what a live rollout of its pool is about to change is pending, not drift."""
    if conformity.state == conformance.BEHIND:
        return State.PENDING, f"{_work(row) or ''}{conformity.sentence}"
    if conformity.state in _UNDER_WAY and (work := _work(row)):
        return State.PENDING, f"{work}{conformity.sentence}"
    if conformity.state == conformance.UNFINISHED:
        return State.DRIFTED, conformity.sentence
    if conformity.state == conformance.MISSING and row.number:
        return State.MISSING, f"It was removed: {conformity.sentence}"
    if conformity.state == conformance.MISSING and row.kind == Kind.COMPONENT:
        return State.MISSING, f"No rollout brought it yet: {conformity.sentence}"
    return State(conformity.state), conformity.sentence


def _work(row: ComponentStanding) -> str:
    """`R-7 is at work: `, or nothing."""
    live = hooks.rollouts_of_pools([row.pool_id]) if row.pool_id else []
    return f"R-{live[0].number} is at work here. " if live else ""


def _differs(before: tuple[str, str, str], after: tuple[str, str, str]) -> bool:
    """Return whether history should record the change: other words for the same wait are none."""
    if before[:2] != after[:2]:
        return True
    return after[0] in (State.DRIFTED, State.FOREIGN, State.MISSING) and before[2] != after[2]
