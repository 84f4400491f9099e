"""Pools: named, never empty, selections of one cluster's nodes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import ProtectedError, QuerySet, RestrictedError

from accounts import permissions
from accounts.models import User
from accounts.people import owners
from audit import services as audit
from clusters.models import Cluster, Node, Pool
from clusters.services import label_selectors
from common import hooks
from common.clock import now
from common.errors import Invalid, NotAllowed, Stale, WrongState
from contract import holds

Role = permissions.Role
SHOWN = 5

MOST_HOLD_MINUTES = holds.MOST_MINUTES
AUTHORS = 100
"""Changes of a selector whose authors are kept: more than are made between two plans."""
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class Preview:
    """Nodes that a selector would choose now."""

    count: int
    total: int
    names: tuple[str, ...]
    """The first few, for a person to recognize."""
    warning: str = ""


def matching(pool: Pool) -> QuerySet[Node]:
    """The present nodes a pool selects."""
    return label_selectors.nodes(pool.selector, Node.objects.present().filter(cluster=pool.cluster_id))


def text_of(pool: Pool) -> str:
    """Its selector as kubectl writes it."""
    return label_selectors.text(pool.selector)


def preview(cluster: Cluster, selector: object) -> Preview:
    """Raises Invalid."""
    present = Node.objects.present().filter(cluster=cluster)
    chosen = label_selectors.nodes(_selector(selector), present)
    count, total = chosen.count(), present.count()
    return Preview(
        count,
        total,
        tuple(chosen.order_by("name").values_list("name", flat=True)[:SHOWN]),
        _warning(count, total),
    )


def create_pool(
    cluster: Cluster,
    *,
    name: str,
    selector: object,
    by: User,
    description: str = "",
    hold_minutes: int | None = None,
    owner: str | None = None,
) -> Pool:
    """Create a pool, by a team's name with an owner, which takes an administrator. Raises NotAllowed, Invalid."""
    permissions.require(by, Role.OPERATOR, cluster.scopes, f"create a pool in {cluster}")
    if owner:
        permissions.require(by, Role.ADMIN, cluster.scopes, f"say who owns a pool in {cluster}")
    fields = _checked({"name": name, "selector": selector, "description": description, "hold_minutes": hold_minutes,
                       "owner": owner})  # fmt: skip
    try:
        with transaction.atomic():
            owners.hold(fields["owner_team"])
            pool = Pool.objects.create(cluster=cluster, selector_authors=[_author(by)], **fields)
            _record("create", pool, by, before=None, after=fields)
            if pool.owner_team is not None:
                hooks.owners_changed(by)
    except IntegrityError as error:  # one_pool_name
        raise _taken(cluster, name) from error
    return pool


def update_pool(pool: Pool, *, by: User, version: int | None = None, **changes: Any) -> Pool:
    """Change name, selector, description, hold_minutes or owner (a team's name). `version`: the one the caller saw.

    Raises Stale, NotAllowed, Invalid.
    """
    if not permissions.may(by, Role.ADMIN, pool.cluster.scopes):
        permissions.require(by, Role.OPERATOR, pool.cluster.scopes, f"change the pool {pool.name}")
    if "owner" in changes and (changes["owner"] or None) == owners.shown(pool.owner_team):
        del changes["owner"]
    fields = _checked(changes)
    differing = {name for name, value in fields.items() if getattr(pool, name) != value}
    if not differing and version in (None, pool.version):
        return pool
    if "owner_team" in differing:
        permissions.require(by, Role.ADMIN, pool.cluster.scopes, f"say who owns the pool {pool.name}")
    if differing != {"owner_team"}:
        require_operator(pool, by, f"change the pool {pool.name}")
    if "selector" in differing:
        _refuse_if_used(pool, "its selector cannot be changed")
        _refuse_nodes_of_others(pool, fields["selector"], by)
    as_read = pool.version if version is None else version
    before = {name: getattr(pool, name) for name in fields}
    also = {}
    if "selector" in differing:
        also["selector_authors"] = [*pool.selector_authors, _author(by)][-AUTHORS:]
    try:
        with transaction.atomic():
            if "owner_team" in differing:
                owners.hold(fields["owner_team"])
            unchanged = Pool.objects.filter(pk=pool.pk, version=as_read, owner_team=pool.owner_team)
            if not unchanged.update(**fields, **also, version=as_read + 1):
                raise Stale(f"The pool {pool.name} was changed meanwhile. Reload it and try again.")
            _record("update", pool, by, before=before, after=fields)
            if "owner_team" in differing or ("selector" in differing and pool.owner_team is not None):
                hooks.owners_changed(by)
    except IntegrityError as error:
        raise _taken(pool.cluster, str(fields.get("name"))) from error
    pool.refresh_from_db()
    return pool


def reason_against(pool: Pool, user: User) -> str:
    """Return why this person may neither change nor delete this pool; empty where they may."""
    if not permissions.may(user, Role.OPERATOR, pool.cluster.scopes):
        return f"You need the role operator for {pool.cluster}."
    return owners.reason_against(user, pool.owner_team, pool.cluster.scopes)


def require_operator(pool: Pool, by: User, doing: str) -> None:
    """Raises NotAllowed where this person may not change the pool."""
    permissions.require(by, Role.OPERATOR, pool.cluster.scopes, doing)
    owners.require(by, pool.owner_team, pool.cluster.scopes, doing)


def _refuse_nodes_of_others(pool: Pool, selector: Mapping[str, Any], by: User) -> None:
    """Raise NotAllowed where a team's pool would select another team's nodes, and the team get a say in its plans."""
    if pool.owner_team is None or permissions.may(by, Role.ADMIN, pool.cluster.scopes):
        return
    chosen = label_selectors.nodes(selector, Node.objects.present().filter(cluster=pool.cluster_id)).order_by()
    chosen = chosen.exclude(pk__in=matching(pool).order_by().values("pk"))  # what it shares already it may keep
    theirs = Pool.objects.filter(cluster=pool.cluster_id, owner_team__isnull=False).exclude(owner_team=pool.owner_team)
    for other in theirs.order_by("name"):
        if other.selector == selector or matching(other).filter(pk__in=chosen.values("pk")).exists():
            name = owners.shown(other.owner_team)
            raise NotAllowed(
                f"This selects nodes of {other.name}, a pool of {name}. An administrator may let both do so."
            )


def reason_of_shared(pool: Pool, user: User) -> str:
    """Return why this person may not do to the pool's nodes what is for those who may change each pool of them; empty
    where they may. An unowned pool over a team's nodes is open to each operator."""
    theirs = Pool.objects.filter(cluster=pool.cluster_id, owner_team__isnull=False).exclude(pk=pool.pk)
    for other in theirs.order_by("name"):
        reason = owners.reason_against(user, other.owner_team, pool.cluster.scopes)
        if not reason or other.owner_team == pool.owner_team:
            continue
        if matching(other).filter(pk__in=matching(pool).order_by().values("pk")).exists():
            return f"It shares nodes with {other.name}. {reason}"
    return ""


def owned_by(team: int) -> list[str]:
    """Return the pools of a team, a phrase each."""
    rows = Pool.objects.filter(owner_team=team).order_by("cluster__name", "name")
    return [f"the pool {name} in {cluster}" for name, cluster in rows.values_list("name", "cluster__name")]


def _author(by: User) -> dict[str, Any]:
    return {"by": by.pk, "at": now().isoformat()}


def delete_pool(pool: Pool, *, by: User) -> None:
    """Raises WrongState while something builds on it, NotAllowed."""
    require_operator(pool, by, f"delete the pool {pool.name}")
    _refuse_if_used(pool, "it cannot be deleted")
    try:
        with transaction.atomic():
            if not Pool.objects.select_for_update().filter(pk=pool.pk, owner_team=pool.owner_team).exists():
                raise Stale(f"The pool {pool.name} was changed meanwhile. Reload it and try again.")
            before = {name: getattr(pool, name) for name in ("name", "selector", "owner_team")}
            _record("delete", pool, by, before=before, after=None)
            owner = pool.owner_team
            pool.delete()
            if owner is not None:
                hooks.owners_changed(by)
    except (ProtectedError, RestrictedError) as error:
        kinds = sorted({str(row._meta.verbose_name_plural) for row in _holders(error)})
        raise WrongState(
            f"The pool {pool.name} cannot be deleted: {' and '.join(kinds)} refer to it and stay on record."
        ) from error


def _holders(error: ProtectedError | RestrictedError) -> set[Any]:
    return set(error.protected_objects if isinstance(error, ProtectedError) else error.restricted_objects)


def _refuse_if_used(pool: Pool, what: str) -> None:
    if reasons := hooks.pool_blockers(pool.pk):
        raise WrongState(f"The pool {pool.name} is in use, so {what}: {'; '.join(reasons)}.")


def _checked(fields: Mapping[str, Any]) -> dict[str, Any]:
    out = dict(fields)
    if "owner" in out:
        out["owner_team"] = owners.team_id(out.pop("owner"))
    if "name" in out and not (isinstance(out["name"], str) and _NAME.fullmatch(out["name"])):
        raise Invalid(
            "The pool needs a usable name.", fields={"name": ["Small letters, digits and '-', at most 63 characters."]}
        )
    if "selector" in out:
        out["selector"] = _selector(out["selector"])
    if len(str(out.get("description", ""))) > 300:
        raise Invalid("The description is too long.", fields={"description": ["At most 300 characters."]})
    minutes = out.get("hold_minutes")
    if minutes is not None and not (type(minutes) is int and 0 < minutes <= MOST_HOLD_MINUTES):
        words = f"A whole number of minutes from 1 to {MOST_HOLD_MINUTES}, or nothing."
        raise Invalid("New nodes cannot be held for that long.", fields={"hold_minutes": [words]})
    return out


def _selector(given: object) -> dict[str, Any]:
    """Parse a selector given as kubectl's text or as an object. Raises Invalid."""
    return label_selectors.parse(given) if isinstance(given, str) else label_selectors.check(given)


def _taken(cluster: Cluster, name: str) -> Invalid:
    return Invalid(f"{cluster} has a pool {name} already.", fields={"name": [f"{cluster} has a pool {name} already."]})


def _warning(count: int, total: int) -> str:
    if count == 0:
        return "No node has these labels now."
    return f"This selects all {total} nodes." if count == total else ""


def _record(
    verb: str, pool: Pool, by: User, *, before: Mapping[str, Any] | None, after: Mapping[str, Any] | None
) -> None:
    audit.record(
        by=by,
        action=f"pool.{verb}",
        target=f"pool:{pool.pk}",
        target_name=str(pool),
        cluster_id=pool.cluster_id,
        before=_with_owner(before),
        after=_with_owner(after),
    )


def _with_owner(fields: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return the fields with the owner's name in place of its key."""
    if fields is None:
        return None
    owner = {"owner": owners.shown(fields["owner_team"])} if "owner_team" in fields else {}
    return {name: value for name, value in fields.items() if name != "owner_team"} | owner
