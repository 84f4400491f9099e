"""Groups: names and members as a provider's directory sends them. What one gives is the operator's mapping alone."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from accounts.models import ScimGroup, ScimMember, ScimUser
from accounts.scim import directory, documents
from accounts.scim.clients import Caller
from accounts.scim.documents import GROUP, text
from accounts.scim.filters import bare
from accounts.scim.people import LONGEST_KEY, key_of
from accounts.scim.refusals import ScimRefused, invalid, missing, taken
from audit.services import record
from common.clock import now

MOST_GROUPS = 5000
MOST_MEMBERS = 20_000
_ONE_MEMBER = re.compile(r'members\[\s*value\s+eq\s+"([^"\\]{1,100})"\s*\]', re.IGNORECASE)
_READ_ONLY = frozenset({"id", "meta", "schemas"})


@dataclass(slots=True)
class Wanted:
    display_name: str
    external_id: str
    members: set[UUID]
    """Those that are there, and those to be; each new one is looked up before it counts."""

    @property
    def key(self) -> str:
        return key_of(self.display_name)


def get(caller: Caller, pk: str) -> ScimGroup:
    """Raises ScimRefused, also for another provider's."""
    try:
        row = ScimGroup.objects.filter(issuer=caller.issuer, pk=UUID(pk)).first()
    except ValueError:
        row = None
    if row is None:
        raise missing("Group")
    return row


def create(caller: Caller, document: dict[str, Any]) -> ScimGroup:
    wanted = _read(document, Wanted("", "", set()))
    with directory.writing(caller):
        if ScimGroup.objects.filter(issuer=caller.issuer).count() >= MOST_GROUPS:
            raise ScimRefused(409, f"There are {MOST_GROUPS:,} groups already. Assign fewer to this application.")
        _check(caller, wanted, None)
        row = ScimGroup.objects.create(
            issuer=caller.issuer, display_name=wanted.display_name, display_name_key=wanted.key,
            external_id=wanted.external_id,
        )  # fmt: skip
        after = {"display_name": wanted.display_name, "external_id": wanted.external_id}
        record(by=caller.actor, action="scim-group.create", target=_target(row), target_name=str(row), after=after)
        return _change(caller, row, wanted)


def replace(caller: Caller, pk: str, document: dict[str, Any]) -> ScimGroup:
    with directory.writing(caller):
        row = get(caller, pk)
        return _change(caller, row, _read(document, Wanted("", row.external_id, set())))


def patch(caller: Caller, pk: str, document: dict[str, Any]) -> ScimGroup:
    with directory.writing(caller):
        row = get(caller, pk)
        wanted = Wanted(row.display_name, row.external_id, _members_of(row))
        for verb, path, value in documents.operations(document):
            _apply(wanted, verb, path, value)
        return _change(caller, row, wanted)


def delete(caller: Caller, pk: str) -> None:
    with directory.writing(caller):
        row = get(caller, pk)
        people = _accounts(_members_of(row))
        record(by=caller.actor, action="scim-group.delete", target=_target(row), target_name=str(row),
               before={"members": len(people)})  # fmt: skip
        row.delete()
        directory.follow(people, caller)


def _change(caller: Caller, row: ScimGroup, wanted: Wanted) -> ScimGroup:
    """Make the group what the directory says, and give its people their roles, in the directory's transaction."""
    _check(caller, wanted, row)
    present = _members_of(row)
    added = _known(caller, wanted.members - present)
    removed = present - wanted.members
    if len(present) + len(added) - len(removed) > MOST_MEMBERS:
        raise invalid("members", f"at most {MOST_MEMBERS:,}.")
    ScimMember.objects.filter(group=row, member__in=removed).delete()
    ScimMember.objects.bulk_create([ScimMember(group=row, member_id=pk) for pk in sorted(added)])
    before = {"display_name": row.display_name, "external_id": row.external_id}
    after = {"display_name": wanted.display_name, "external_id": wanted.external_id}
    is_other_group = before != after
    row.put_marked(**after, display_name_key=wanted.key, changed_at=now())
    if is_other_group:
        record(by=caller.actor, action="scim-group.change", target=_target(row), target_name=str(row), before=before,
               after=after)  # fmt: skip
    if added or removed:
        names = {"added": _names(added), "removed": _names(removed)}
        record(by=caller.actor, action="scim-group.members", target=_target(row), target_name=str(row), after=names)
    people = _accounts(added | removed | (present if is_other_group else set()))
    directory.follow(people, caller)
    return row


def _read(document: dict[str, Any], wanted: Wanted) -> Wanted:
    """Read the group of a POST or PUT. A PUT that leaves the members out has none."""
    for name, value in documents.members_of(document, GROUP).items():
        _put(wanted, name, value, is_path=False)
    return wanted


def _apply(wanted: Wanted, verb: str, path: str, value: Any) -> None:
    name = bare(path)
    if match := _ONE_MEMBER.fullmatch(name if name.startswith("members") else ""):
        if verb != "remove":
            raise ScimRefused(400, f"{path[:100]}: only a removal names one member.", "invalidPath")
        wanted.members -= _ids([{"value": match[1]}], is_removal=True)
    elif name == "members":
        if verb == "replace":
            wanted.members = _ids(value)
        elif verb == "add":
            wanted.members |= _ids(value)
        else:  # Entra ID names those to remove in the value; without one, all are
            wanted.members = set() if value is None else wanted.members - _ids(value, is_removal=True)
    elif path:
        _put(wanted, name, None if verb == "remove" else value, is_path=True)
    else:
        for inner, content in documents.lowered(value).items():
            if inner == "members" and verb == "add":
                wanted.members |= _ids(content)
            else:
                _put(wanted, inner, content, is_path=False)


def _put(wanted: Wanted, name: str, value: Any, *, is_path: bool) -> None:
    if name == "displayname":
        wanted.display_name = text("displayName", value, is_required=True)
    elif name == "externalid":
        wanted.external_id = text("externalId", value, most=255)
    elif name == "members":
        wanted.members = _ids(value)
    elif name in _READ_ONLY:
        if is_path:
            raise ScimRefused(400, f"{name}: is read-only.", "mutability")
    elif not name.startswith("urn:"):
        kind = "invalidPath" if is_path else "invalidSyntax"
        raise ScimRefused(400, f"{name[:60]}: is no attribute of a Group.", kind)


def _ids(value: Any, *, is_removal: bool = False) -> set[UUID]:
    """Return the ids of members. What cannot be one is no member to remove, and an error to add."""
    rows = [value] if isinstance(value, dict) else value
    if rows is None:
        return set()
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise invalid("members", "must be a list of objects with value.")
    matches = set()
    for index, row in enumerate(rows):
        identifier = documents.lowered(row).get("value")
        try:
            matches.add(UUID(identifier))
        except (ValueError, TypeError, AttributeError):
            if not is_removal:
                raise invalid(f"members[{index}].value", "is the id of no User.") from None
    return matches


def _known(caller: Caller, ids: Collection[UUID]) -> set[UUID]:
    """Return them. Raises ScimRefused unless all are people of this directory: another provider's are never."""
    rows = ScimUser.objects.filter(issuer=caller.issuer, deleted_at=None)
    known = set()
    listed = sorted(ids)
    for start in range(0, len(listed), 500):
        known |= set(rows.filter(pk__in=listed[start : start + 500]).values_list("pk", flat=True))
    if unknown := sorted(set(ids) - known):
        raise invalid("members", f"{unknown[0]} is the id of no User.")
    return known


def _check(caller: Caller, wanted: Wanted, row: ScimGroup | None) -> None:
    if not wanted.display_name:
        raise invalid("displayName", "is required.")
    if len(wanted.key) > LONGEST_KEY:
        raise invalid("displayName", f"at most {LONGEST_KEY} characters, each as its plain letters.")
    others = ScimGroup.objects.filter(issuer=caller.issuer).exclude(pk=row.pk if row else UUID(int=0))
    if others.filter(display_name_key=wanted.key).exists():
        raise taken("displayName", "another group of this directory has it.")
    if wanted.external_id and others.filter(external_id=wanted.external_id).exists():
        raise taken("externalId", "another group of this directory has it.")


def _members_of(row: ScimGroup) -> set[UUID]:
    return set(ScimMember.objects.filter(group=row).values_list("member_id", flat=True))


def _accounts(ids: Collection[UUID]) -> list[int]:
    listed = sorted(ids)
    matches: list[int] = []
    for start in range(0, len(listed), 500):
        rows = ScimUser.objects.filter(pk__in=listed[start : start + 500])
        matches += rows.values_list("user_id", flat=True)
    return matches


def _names(ids: Collection[UUID]) -> list[str]:
    """Return at most fifty of the names, for the record."""
    rows = ScimUser.objects.filter(pk__in=sorted(ids)[:50]).order_by("user_name")
    names = list(rows.values_list("user_name", flat=True))
    return [*names, f"and {len(ids) - 50:,} more"] if len(ids) > 50 else names


def _target(row: ScimGroup) -> str:
    return f"scim-group:{row.pk}"
