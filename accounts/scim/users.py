"""Users: accounts of one provider, made, changed, deactivated and deleted by its directory.

A deleted person's account stays, deactivated and without roles, because plans and the record name it; the same person
sent again gets it back. An address of another account is never taken over.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import IntegrityError, transaction

from accounts.models import ScimMember, ScimUser, User
from accounts.people import identities, services
from accounts.scim import directory
from accounts.scim import people as attributes
from accounts.scim.clients import Caller
from accounts.scim.people import Person
from accounts.scim.refusals import invalid, missing, taken
from audit.services import record
from common.clock import now
from common.errors import Invalid


def get(caller: Caller, pk: str) -> ScimUser:
    """Raises ScimRefused for another provider's and for deleted ones."""
    rows = ScimUser.objects.select_related("user").filter(issuer=caller.issuer, deleted_at=None)
    try:
        row = rows.filter(pk=UUID(pk)).first()
    except ValueError:
        row = None
    if row is None:
        raise missing("User")
    return row


def create(caller: Caller, document: dict[str, Any]) -> ScimUser:
    person = attributes.read(document)
    with directory.writing(caller):
        if deleted := _deleted(caller, person):
            _refuse_taken(caller, person, deleted)
            deleted.put_marked(deleted_at=None)
            return _change(caller, deleted, person)
        _refuse_taken(caller, person, None)
        user = _new_account(caller, person)
        row = ScimUser.objects.create(
            user=user, issuer=caller.issuer, user_name=person.user_name, user_name_key=person.user_name_key,
            external_id=person.external_id, display_name=person.display_name,
        )  # fmt: skip
        _record_link(caller, row)
        return _change(caller, row, person)


def replace(caller: Caller, pk: str, document: dict[str, Any]) -> ScimUser:
    with directory.writing(caller):
        row = get(caller, pk)
        return _change(caller, row, attributes.read(document, Person.of(row)))


def patch(caller: Caller, pk: str, document: dict[str, Any]) -> ScimUser:
    with directory.writing(caller):
        row = get(caller, pk)
        return _change(caller, row, attributes.patched(Person.of(row), document))


def delete(caller: Caller, pk: str) -> None:
    """Deactivate the account, and take its groups and roles."""
    with directory.writing(caller):
        row = get(caller, pk)
        _set_active(caller, row, is_active=False)
        ScimMember.objects.filter(member=row).delete()
        identities.set_roles(row.user, (), caller.actor)
        row.put_marked(deleted_at=now())
        record(by=caller.actor, action="user.scim-delete", target=f"user:{row.user_id}", target_name=row.user.email)


def _change(caller: Caller, row: ScimUser, person: Person) -> ScimUser:
    """Make the account what the directory says of it, in the directory's transaction."""
    _refuse_taken(caller, person, row)
    before = Person.of(row)
    user = User.objects.select_for_update().get(pk=row.user_id)
    names = {"first_name": person.given_name, "last_name": person.family_name}
    changes: dict[str, Any] = {name: value for name, value in names.items() if getattr(user, name) != value}
    if person.email != user.email:
        changes |= {"email": person.email, "username": person.email}
    if changes:
        try:
            with transaction.atomic():
                services.change_by_directory(user=user, by=caller.actor, **changes)
        except IntegrityError:
            raise taken("emails", f"another account has the address {person.email}.") from None
    row.user = user
    if before.external_id != person.external_id:
        _record_link(caller, row, {"external_id": before.external_id}, {"external_id": person.external_id})
    row.put_marked(
        user_name=person.user_name,
        user_name_key=person.user_name_key,
        external_id=person.external_id,
        display_name=person.display_name,
        changed_at=now(),
    )
    if person.is_active != row.is_active:
        _set_active(caller, row, is_active=person.is_active)
    directory.follow([row.user_id], caller)
    row.refresh_from_db()
    return row


def _set_active(caller: Caller, row: ScimUser, *, is_active: bool) -> None:
    """Follow the directory's word. It activates again only what it deactivated: a person's decision stays."""
    user = row.user
    if not is_active:
        is_doing = user.is_active
        if is_doing:
            services.change_by_directory(user=user, by=caller.actor, is_active=False)
        row.put_marked(is_active=False, is_closed_by_it=is_doing or row.is_closed_by_it)
        return
    if row.is_closed_by_it and row.is_genuine and user.is_genuine and not user.is_active:
        services.change_by_directory(user=user, by=caller.actor, is_active=True)
    row.put_marked(is_active=True, is_closed_by_it=False)


def _deleted(caller: Caller, person: Person) -> ScimUser | None:
    """Return the deleted row of the same person. Raises ScimRefused where only the name is the same."""
    rows = ScimUser.objects.select_related("user").filter(issuer=caller.issuer).exclude(deleted_at=None)
    if person.external_id and (row := rows.filter(external_id=person.external_id).first()):
        return row
    row = rows.filter(user_name_key=person.user_name_key).first()
    if row and row.external_id and person.external_id:
        raise taken("userName", "a deleted person had it, with another externalId. Give the new person another name.")
    return row


def _refuse_taken(caller: Caller, person: Person, row: ScimUser | None) -> None:
    others = ScimUser.objects.filter(issuer=caller.issuer).exclude(pk=row.pk if row else UUID(int=0))
    if others.filter(user_name_key=person.user_name_key).exists():
        raise taken("userName", "another person of this directory has it.")
    if person.external_id and others.filter(external_id=person.external_id).exists():
        raise taken("externalId", "another person of this directory has it.")
    if row and person.email == row.user.email:
        return
    accounts = User.objects.exclude(pk=row.user_id if row else 0)
    is_named = accounts.filter(email=person.email).exists() or accounts.filter(username=person.email).exists()
    if is_named or person.email in settings.SETPOINT_LOCAL_ACCOUNTS:
        raise taken("userName", f"an account with the address {person.email} exists, and an address links nothing.")


def _new_account(caller: Caller, person: Person) -> User:
    try:
        return services.create_user(
            email=person.email, by=caller.actor, first_name=person.given_name, last_name=person.family_name
        )
    except Invalid as refusal:
        raise invalid("emails", "; ".join(refusal.fields.get("email", [str(refusal)]))) from None


def _record_link(
    caller: Caller, row: ScimUser, before: dict[str, Any] | None = None, after: dict[str, Any] | None = None
) -> None:
    """Record what will lead a log-in to the account."""
    after = after or {"issuer": row.issuer, "external_id": row.external_id, "user_name": row.user_name}
    record(
        by=caller.actor, action="user.scim-link", target=f"user:{row.user_id}", target_name=row.user.email,
        before=before, after=after,
    )  # fmt: skip
