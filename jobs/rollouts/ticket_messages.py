"""Messages of ticket systems: verified, counted once, and carried out as a hold or a release. They approve nothing.

A connection has no account and no role: what it writes is one row, the state of a change record, which only restricts.
Whether a plan names the reference is not told: the answer is the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID

from django.db import transaction

from accounts.access import login
from audit import services as audit
from clusters.connection import encryption
from clusters.net import signing
from common.clock import now
from common.errors import Refusal
from jobs.approvals.tickets import patterns
from jobs.engine import event_log
from jobs.models import ChangeRecord, ChangeRecordRule, Plan, Rollout, TicketConnection, TicketMessage

State = ChangeRecord.State
TOLERANCE = timedelta(minutes=5)
"""Of a message's timestamp, as Standard Webhooks recommends."""
KEPT = timedelta(hours=1)
"""For how long ids are remembered: longer than any timestamp is accepted."""
UNNAMED_KEPT = timedelta(days=180)
"""For how long a change record is remembered that no plan names: releases may come long before the plan."""
MOST_A_MINUTE = 120
"""Messages of one connection: a judgment, above what a change calendar does at once."""
MOST_UNNAMED = 20_000
"""Change records that no plan names: a judgment, so that a ticket system cannot fill the table."""
NOBODY = "ticket system"
"""Under which refused messages are counted; no e-mail address can be this."""


class NotSigned(Refusal):
    """No such connection, none with another administrator's consent, no valid signature, or not in time: one answer."""

    status = 401
    code = "not-signed"


class TooManyMessages(Refusal):
    status = 429
    code = "too-many-messages"
    retry_after = 60


@dataclass(frozen=True, slots=True)
class Signed:
    """The headers of Standard Webhooks, as they were sent."""

    message_id: str
    timestamp: str
    signature: str


@dataclass(frozen=True, slots=True)
class TicketState:
    """The state of one change record, as a message has it."""

    reference: str
    state: str
    note: str = ""


def verify(key: UUID, headers: Signed, body: bytes, *, address: str) -> tuple[TicketConnection, datetime]:
    """Return the connection that signed it, and when. Raises NotSigned, and login.TooManyTries after several."""
    row = TicketConnection.objects.filter(pk=key, is_active=True).first()
    sent_at = _time_of(headers.timestamp)
    if row is None or sent_at is None or not _is_right(row, headers, body):
        login.count_try(NOBODY, address)
        raise NotSigned(
            "There is no such connection, or the message is not signed with its secret, or its timestamp is more than "
            f"{TOLERANCE.seconds // 60} minutes from now."
        )
    return row, sent_at


def _is_right(row: TicketConnection, headers: Signed, body: bytes) -> bool:
    if not (1 <= len(headers.message_id) <= 128 and headers.message_id.isascii() and headers.message_id.isprintable()):
        return False
    try:
        secret = row.open_secret()
    except (encryption.CannotOpen, encryption.KeyUnusable):
        return False
    is_signed = signing.is_signed(secret, headers.message_id, int(headers.timestamp), body, headers.signature)
    return bool(secret) and is_signed


def _time_of(text: str) -> datetime | None:
    """Return the timestamp where it is a number of seconds within the tolerance."""
    if not (text.isascii() and text.isdecimal() and len(text) <= 11 and str(int(text)) == text):
        return None
    sent_at = datetime.fromtimestamp(int(text), UTC)
    return sent_at if abs(now() - sent_at) <= TOLERANCE else None


@transaction.atomic
def carry_out(row: TicketConnection, message_id: str, sent_at: datetime, received: TicketState) -> list[Rollout]:
    """Store the state, once a message id. Returns the live rollouts that it is about, to be woken.

    A message older than the newest one about the change record changes nothing. Raises TooManyMessages.
    """
    row = TicketConnection.objects.select_for_update(no_key=True).get(pk=row.pk)  # its messages one after the other
    seen = TicketMessage.objects.filter(connection=row)
    seen.filter(at__lt=now() - KEPT).delete()
    if seen.filter(message_id=message_id).exists():
        return []
    if seen.filter(at__gt=now() - timedelta(minutes=1)).count() >= MOST_A_MINUTE:
        raise TooManyMessages(f"More than {MOST_A_MINUTE} messages in a minute. Send it again later.")
    TicketMessage.objects.create(connection=row, message_id=message_id)
    if not _is_of_interest(received.reference):
        return []
    record, _ = ChangeRecord.objects.get_or_create(pk=received.reference)
    record = ChangeRecord.objects.select_for_update().get(pk=record.pk)
    if record.is_genuine and record.sent_at and record.sent_at > sent_at:
        return []
    # Locked after the change record, as nowhere the other way round: a slice that starts steps has this lock, and
    # reads the state under it.
    live = Rollout.objects.live().filter(plan__change_record=received.reference)
    rollouts = list(live.select_for_update(no_key=True, of=("self",)).select_related("plan").order_by("pk"))
    _store(row, record, sent_at, received, rollouts)
    return rollouts


def _store(
    row: TicketConnection, record: ChangeRecord, sent_at: datetime, received: TicketState, rollouts: list[Rollout]
) -> None:
    before = {"state": record.state, "note": record.note}
    did_stop = record.state in ChangeRecord.STOPS
    changed = ChangeRecord(
        reference=record.pk,
        state=received.state,
        note=received.note,
        sent_at=sent_at,
        source=row.name,
        changed_at=now(),
    )
    changed._state.adding = False  # written whole: a row that was changed in the table is right again
    changed.save()
    after = {"state": received.state, "note": received.note}
    audit.record(
        by=actor_of(row), action=f"change-record.{received.state}", target=f"change-record:{record.pk}",
        target_name=record.pk, message=received.note, before=before, after=after,
    )  # fmt: skip
    stops = received.state in ChangeRecord.STOPS
    if stops == did_stop:
        return
    for rollout in rollouts:
        verb, words = ("ticket-hold", "holds it") if stops else ("ticket-release", "lets it continue")
        event_log.log(rollout, f"Change record {record.pk} {words}, sent by {row.name}.", "warn" if stops else "info")
        audit.record(
            by=actor_of(row), action=f"rollout.{verb}", target=f"rollout:{rollout.pk}", target_name=str(rollout),
            cluster_id=rollout.cluster_id, message=received.note,
            after={"change_record": record.pk, "state": received.state},
        )  # fmt: skip


def actor_of(row: TicketConnection) -> str:
    """The actor in records: no e-mail address can be this."""
    return f"ticket system {row.name}"


def _is_of_interest(reference: str) -> bool:
    """Return whether to remember it: a plan names it, or some environment's rule may, within bounds."""
    if Plan.objects.filter(change_record=reference).exists() or ChangeRecord.objects.filter(pk=reference).exists():
        return True
    if not any(patterns.fits(rule.pattern, reference) for rule in ChangeRecordRule.objects.all() if rule.is_genuine):
        return False
    unnamed = ChangeRecord.objects.exclude(pk__in=Plan.objects.exclude(change_record="").values("change_record"))
    unnamed.filter(changed_at__lt=now() - UNNAMED_KEPT).delete()
    return unnamed.count() < MOST_UNNAMED
