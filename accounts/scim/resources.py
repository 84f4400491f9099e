"""Users and groups as answers: one, or a page of a list that a filter chose."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db.models import Model, Q, QuerySet

from accounts.models import ScimGroup, ScimMember, ScimUser
from accounts.scim import filters
from accounts.scim.clients import Caller
from accounts.scim.documents import GROUP, USER
from accounts.scim.people import key_of
from accounts.scim.refusals import invalid

LIST = "urn:ietf:params:scim:api:messages:2.0:ListResponse"
USUAL, MOST = 100, 200
ALWAYS = frozenset({"schemas", "id"})

OF_USERS = ("id", "userName", "externalId", "displayName", "emails", "emails.value", "groups.value")
OF_GROUPS = ("id", "displayName", "externalId", "members", "members.value")


def users(caller: Caller, query: Mapping[str, str]) -> dict[str, Any]:
    rows = ScimUser.objects.filter(issuer=caller.issuer, deleted_at=None).select_related("user")
    for name, value in filters.terms(query["filter"], OF_USERS) if query.get("filter") else ():
        rows = rows.filter(_of_user(name, value))
    return _page(rows, query, lambda page: [user(row, groups) for row, groups in _with_groups(page)])


def groups(caller: Caller, query: Mapping[str, str]) -> dict[str, Any]:
    rows = ScimGroup.objects.filter(issuer=caller.issuer)
    for name, value in filters.terms(query["filter"], OF_GROUPS) if query.get("filter") else ():
        rows = rows.filter(_of_group(name, value)).distinct()
    return _page(rows, query, lambda page: [group(row, with_members=_wants_members(query)) for row in page])


def one_user(row: ScimUser, query: Mapping[str, str]) -> dict[str, Any]:
    ((_, memberships),) = _with_groups([row])
    return _chosen(user(row, memberships), query)


def one_group(row: ScimGroup, query: Mapping[str, str]) -> dict[str, Any]:
    return _chosen(group(row, with_members=_wants_members(query)), query)


def user(row: ScimUser, groups: Iterable[ScimGroup]) -> dict[str, Any]:
    account = row.user
    name = {"givenName": account.first_name, "familyName": account.last_name, "formatted": account.get_full_name()}
    answer = {
        "schemas": [USER],
        "id": str(row.pk),
        "externalId": row.external_id,
        "userName": row.user_name,
        "displayName": row.display_name,
        "name": {part: text for part, text in name.items() if text},
        "emails": [{"value": account.email, "type": "work", "primary": True}],
        "active": row.is_active and account.is_active,
        "groups": [
            {"value": str(each.pk), "display": each.display_name, "$ref": location("Groups", each.pk), "type": "direct"}
            for each in groups
        ],
        "meta": _meta("User", row.pk, row.created_at, row.changed_at),
    }
    return {key: value for key, value in answer.items() if value not in ("", {}, [])}


def group(row: ScimGroup, *, with_members: bool) -> dict[str, Any]:
    answer: dict[str, Any] = {
        "schemas": [GROUP],
        "id": str(row.pk),
        "displayName": row.display_name,
        "meta": _meta("Group", row.pk, row.created_at, row.changed_at),
    }
    if row.external_id:
        answer["externalId"] = row.external_id
    if with_members:
        members = ScimMember.objects.filter(group=row).select_related("member")
        answer["members"] = [
            {
                "value": str(each.member_id),
                "display": each.member.user_name,
                "$ref": location("Users", each.member_id),
                "type": "User",
            }
            for each in members
        ]
    return answer


def location(kind: str, pk: object) -> str:
    return f"{settings.BASE_URL.rstrip('/')}/scim/v2/{kind}/{pk}"


def listed(resources: Sequence[Any], *, total: int, start: int) -> dict[str, Any]:
    return {
        "schemas": [LIST],
        "totalResults": total,
        "startIndex": start,
        "itemsPerPage": len(resources),
        "Resources": list(resources),
    }


def _page(rows: QuerySet[Any], query: Mapping[str, str], show: Callable[[list[Any]], list[Any]]) -> dict[str, Any]:
    start = max(1, _number(query, "startIndex", 1))
    count = min(MOST, max(0, _number(query, "count", USUAL)))
    total = rows.count()
    page = list(rows[start - 1 : start - 1 + count]) if count and start <= total else []
    return listed([_chosen(row, query) for row in show(page)], total=total, start=start)


def _number(query: Mapping[str, str], name: str, usual: int) -> int:
    text = query.get(name, "").strip()
    if not text:
        return usual
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 9):
        raise invalid(name, "must be a number.")
    return int(text)


def _of_user(name: str, value: str) -> Q:
    if name == "username":
        return Q(user_name_key=key_of(value))
    if name in ("emails", "emails.value"):
        return Q(user__email=value.lower())
    if name in ("id", "groups.value"):
        return Q(**{"pk" if name == "id" else "memberships__group": _uuid(value)})
    return Q(external_id=value) if name == "externalid" else Q(display_name__iexact=value)


def _of_group(name: str, value: str) -> Q:
    if name == "displayname":
        return Q(display_name_key=key_of(value))
    if name == "externalid":
        return Q(external_id=value)
    return Q(**{"pk" if name == "id" else "memberships__member": _uuid(value)})


def _uuid(value: str) -> UUID:
    """Return the id; one that is none is of no row."""
    try:
        return UUID(value)
    except ValueError:
        return UUID(int=0)


def _with_groups(rows: Sequence[ScimUser]) -> list[tuple[ScimUser, list[ScimGroup]]]:
    """Two queries for a page, however many people it has."""
    of: dict[Model | UUID, list[ScimGroup]] = defaultdict(list)
    for each in ScimMember.objects.filter(member__in=rows).select_related("group"):
        of[each.member_id].append(each.group)
    return [(row, of[row.pk]) for row in rows]


def _meta(kind: str, pk: UUID, created: datetime, changed: datetime) -> dict[str, str]:
    def stamp(at: datetime) -> str:
        return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")

    return {
        "resourceType": kind,
        "created": stamp(created),
        "lastModified": stamp(changed),
        "location": location(f"{kind}s", pk),
    }


# ── attributes and excludedAttributes ─────────────────────────────────────────────────────────────────────────────────
def _names(query: Mapping[str, str], name: str) -> set[str]:
    return {filters.bare(part.strip()) for part in query.get(name, "")[:2000].split(",") if part.strip()}


def _wants_members(query: Mapping[str, str]) -> bool:
    wanted = _names(query, "attributes")
    if wanted:
        return any(name.split(".")[0] == "members" for name in wanted)
    return "members" not in _names(query, "excludedAttributes")


def _chosen(resource: dict[str, Any], query: Mapping[str, str]) -> dict[str, Any]:
    """Leave out what was not wanted; `id` and `schemas` are always there."""
    if wanted := _names(query, "attributes"):
        tops = {name.split(".")[0] for name in wanted}
        return {name: value for name, value in resource.items() if name in ALWAYS or name.lower() in tops}
    dropped = _names(query, "excludedAttributes")
    return {name: value for name, value in resource.items() if name in ALWAYS or name.lower() not in dropped}
