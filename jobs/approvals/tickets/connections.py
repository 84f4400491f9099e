"""Connections of ticket systems, as an administrator keeps them. No secret is read back.

The secret of one is enough to release any plan's change record, so it is active when a second administrator consents.
"""

from __future__ import annotations

from collections.abc import Iterator

from django.db import IntegrityError, transaction

from accounts.models import PendingChange, User
from accounts.people import bootstrap, pending
from accounts.permissions import GLOBAL, may, require_person
from audit import services as audit
from clusters.connection import remotes
from clusters.net import signing
from common import hooks
from common.clock import now
from common.errors import Invalid, WrongState
from jobs.models import TicketConnection

MOST_CONNECTIONS = 50
"""A judgment: a company has a few ticket systems."""
DOING = "set up connections of ticket systems"
ACTIVATE = "ticket-connection.activate"


def reason_not_to_change(user: User) -> str:
    """Return why this person may not see or set them up; empty when they may."""
    if user.is_service:
        return "A service account cannot set up connections of ticket systems: people do."
    return "" if may(user, "admin", GLOBAL) else "This needs the role admin for all clusters."


@transaction.atomic
def create(*, by: User, name: str, secret: str) -> TicketConnection:
    """`secret`: what the ticket system signs with, in the form of Standard Webhooks. Raises NotAllowed, Invalid.

    It is active at once only where there is no second administrator to consent.
    """
    require_person(by, "admin", GLOBAL, doing=DOING)
    name = " ".join(name.split())
    form = f"Write {signing.KEY_PREFIX} and base64 of {signing.LEAST_BYTES} to {signing.MOST_BYTES} random bytes."
    remotes.refuse(
        "The connection cannot be set up so",
        [
            ("name", "" if 1 <= len(name) <= 80 and name.isprintable() else "Give it a name of at most 80 characters."),
            ("secret", "" if signing.is_key(secret) else form),
        ],
    )
    if TicketConnection.objects.count() >= MOST_CONNECTIONS:
        raise Invalid("There are too many.", fields={"name": [f"At most {MOST_CONNECTIONS}: delete others first."]})
    row = TicketConnection(name=name, changed_by=str(by)[:150], is_active=bootstrap.needs_no_consent(by))
    remotes.seal(row, secret)
    try:
        with transaction.atomic():  # savepoint: judge this one write
            row.save(force_insert=True)
    except IntegrityError as error:
        raise Invalid(
            "There is such a connection already.", fields={"name": ["Another connection has this name."]}
        ) from error
    _record(row, by, "create")
    if not row.is_active:
        about = f"The ticket system “{name}” may hold and release change records."
        target = f"ticket-connection:{row.pk}"
        pending.propose(kind=ACTIVATE, by=by, about=about, target=target, wanted={"version": row.version})
    return row


def _consented(change: PendingChange, by: User) -> None:
    """Activate the very connection that was proposed. Raises WrongState."""
    rows = TicketConnection.objects.filter(pk=change.target.rpartition(":")[2], version=change.wanted["version"])
    row = rows.select_for_update().first()
    if row is None:
        raise WrongState("The connection was deleted or changed since: refuse this change.")
    row.is_active, row.version, row.changed_at = True, row.version + 1, now()
    row.save(update_fields=["is_active", "version", "changed_at"])
    _record(row, by, "activate")


pending.KINDS[ACTIVATE] = _consented


@transaction.atomic
def delete(row: TicketConnection, *, by: User, version: int) -> None:
    """Messages that it signs are refused from now on; what it held stays held. Raises NotAllowed, Stale."""
    require_person(by, "admin", GLOBAL, doing=DOING)
    remotes.delete(row, version=version, title=f"the connection {row.name}")
    _record(row, by, "delete")


def stored_secrets() -> Iterator[hooks.StoredSecret]:
    for row in TicketConnection.objects.order_by("name"):
        title, target = f"the ticket connection {row.name}", f"ticket-connection:{row.pk}"
        yield remotes.stored_secret(
            row, title=title, action="ticket-connection.reseal", target=target, target_name=row.name
        )


def _record(row: TicketConnection, by: User, verb: str) -> None:
    fields = {"name": row.name, "has_secret": row.has_secret, "is_active": row.is_active}
    before, after = (fields, None) if verb == "delete" else (None, fields)
    audit.record(
        by=by,
        action=f"ticket-connection.{verb}",
        target=f"ticket-connection:{row.pk}",
        target_name=row.name,
        before=before,
        after=after,
    )
