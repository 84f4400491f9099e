"""Sending of sealed audit records to their destinations: in order, in batches, at least once.

A destination's cursor moves only after its receiver has acknowledged a batch, so that a process killed between the two
sends that batch again: its records come twice under the same numbers, and none is lost. A claim with an end keeps two
workers from sending at once. Audit records are never deleted, so a destination may be away for any length of time, and
each waits for no other. No network call is made in a transaction.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

import structlog
from django.conf import settings
from django.db import transaction
from django.db.models import F, Q

from audit import following
from audit import services as audit
from audit.models import Record, Seal
from clusters.fleet import FleetError
from clusters.kube.http import HttpClient, Response
from clusters.net import signing
from clusters.net.egress import EgressRefused, Policy
from common.clock import now
from notices.channels.deliveries import backoff
from notices.forwarding import otlp, syslog
from notices.forwarding.destinations import NOW, OTLP, SYSLOG, Destination
from notices.forwarding.entries import Entry, entry_of, fitting
from notices.models import Forwarding

SECONDS = 15.0
"""For one batch, less than a claim lasts."""
SLICE_SECONDS = 40.0
CLAIM = timedelta(seconds=90)
BATCH = 200
MOST_BYTES = 1024 * 1024
"""Of a batch, before it is put into its receiver's form."""
LONGEST_ANSWER = 64 * 1024
LONGEST_REST, LONGEST_WISH = timedelta(minutes=5), timedelta(hours=1)
REPORTED_AFTER = timedelta(minutes=15)
"""A failure that lasts as long is recorded once, which notifies the channels: a receiver that restarts takes less."""
SHORT = 1000
"""Characters of a message, where a receiver takes no more of a single record."""

FAILING, RESUMED = "audit.forward-failing", "audit.forward-resumed"
"""Actions of the records that say so."""

log = structlog.get_logger(__name__)


class Refused(Exception):
    """The receiver did not take it. The message is for people and holds no secret."""

    def __init__(self, message: str, *, wait: timedelta = timedelta(0), is_too_large: bool = False) -> None:
        super().__init__(message)
        self.wait = wait
        self.is_too_large = is_too_large


@dataclass(frozen=True, slots=True)
class Standing:
    """Progress of a destination."""

    destination: Destination
    row: Forwarding
    lag: int
    """Sealed records that it has not acknowledged."""


def standings() -> list[Standing]:
    """Return one for each destination that is set up; two queries, and none without any."""
    destinations: Sequence[Destination] = settings.SETPOINT_AUDIT_FORWARD
    if not destinations:
        return []
    rows, head = Forwarding.objects.in_bulk([row.name for row in destinations]), _head()
    known = [
        (row, rows.get(row.name) or Forwarding(name=row.name, cursor=_beginning(row, head))) for row in destinations
    ]
    last = head.seq if head else 0
    return [Standing(destination, row, max(last - row.seq, 0)) for destination, row in known]


def due() -> list[str]:
    """Return the names of destinations with something to send now, and make rows for new ones."""
    at = now()
    waiting = [standing for standing in standings() if standing.lag or standing.row._state.adding]
    for standing in waiting:
        if standing.row._state.adding:
            Forwarding.objects.get_or_create(name=standing.row.name, defaults={"cursor": standing.row.cursor})
    names = [standing.row.name for standing in waiting if standing.lag]
    return list(Forwarding.objects.filter(_free(at), pk__in=names).values_list("pk", flat=True)) if names else []


def forward(name: str) -> int:
    """Send one slice to one unclaimed destination, until a batch fails. Returns how many records were acknowledged."""
    destination = next((row for row in settings.SETPOINT_AUDIT_FORWARD if row.name == name), None)
    at = now()
    claim = at + CLAIM
    if destination is None or not Forwarding.objects.filter(_free(at), pk=name).update(claimed_until=claim):
        return 0
    row = Forwarding.objects.get(pk=name)
    begun, sent, most = time.monotonic(), 0, BATCH
    has_more = True
    try:
        while has_more and time.monotonic() - begun < SLICE_SECONDS:
            renewed = now() + CLAIM
            if not Forwarding.objects.filter(pk=name, claimed_until=claim).update(claimed_until=renewed):
                break  # the claim ended, and another worker has it
            claim = renewed
            batch, cursor, has_more = _next(row, most)
            try:
                rejection = _send(destination, batch, is_short=not most) if batch else (0, "")
            except Refused as error:
                if not (error.is_too_large and most):
                    _failed(row, claim, str(error), error.wait)
                    break
                most, has_more = len(batch) // 2, True
                continue
            if not _advance(row, claim, cursor, batch, rejection):
                break
            sent, most = sent + len(batch), BATCH
    finally:
        Forwarding.objects.filter(pk=name, claimed_until=claim).update(claimed_until=None)
    return sent


def _free(at: datetime) -> Q:
    unclaimed = Q(claimed_until=None) | Q(claimed_until__lt=at)
    return unclaimed & (Q(rests_until=None) | Q(rests_until__lte=at))


def _head() -> Seal | None:
    return Seal.objects.order_by("-seq").first()


def _beginning(destination: Destination, head: Seal | None) -> str:
    return following.cursor_of(head) if head and destination.begin == NOW else following.BEGINNING


# ── Batches ───────────────────────────────────────────────────────────────────────────────────────────────────────────
def _next(row: Forwarding, most: int) -> tuple[list[Entry], str, bool]:
    """Return the next batch of at most `most` records, the cursor behind it, and whether more is sealed already."""
    try:
        stretch = following.read(Record.objects.all(), after=row.cursor, limit=max(most, 1))
    except following.OtherChain as error:
        # The numbers are those of other records now, so all are sent again rather than some never.
        log.critical("audit record is sent again from its beginning", destination=row.name, why=str(error))
        Forwarding.objects.filter(pk=row.pk, cursor=row.cursor).update(
            cursor=following.BEGINNING, restarts=F("restarts") + 1
        )
        row.cursor = following.BEGINNING
        stretch = following.read(Record.objects.all(), after=row.cursor, limit=max(most, 1))
    records = stretch.results
    batch = fitting([entry_of(record) for record in records], MOST_BYTES)
    if len(batch) < len(records):
        return batch, following.cursor_of(records[len(batch) - 1]), True
    return batch, stretch.cursor, stretch.has_more


def _advance(row: Forwarding, claim: datetime, cursor: str, batch: Sequence[Entry], rejection: tuple[int, str]) -> bool:
    """Move the cursor behind an acknowledged batch. False: the claim was lost, and another worker moves it."""
    fields = {"cursor": cursor, "failures": 0, "failing_since": None, "error": "", "rests_until": None}
    with transaction.atomic():
        moved = Forwarding.objects.filter(pk=row.pk, claimed_until=claim, cursor=row.cursor).update(
            **fields, **({"sent_at": now()} if batch else {})
        )
        if moved and row.reported_at and row.failing_since:
            _report(row, RESUMED, f"It had taken nothing since {row.failing_since:%Y-%m-%d %H:%M} UTC.")
    if moved and (count := min(rejection[0], len(batch))):
        why = f"{count} of {batch[0].seq} to {batch[-1].seq}: {rejection[1] or 'it gave no reason'}"
        log.critical("audit records refused by their receiver", destination=row.name, why=why)
        Forwarding.objects.filter(pk=row.pk).update(rejected=F("rejected") + count, rejection=_clean(why))
    row.cursor, row.failures, row.failing_since = cursor, 0, None
    return bool(moved)


def _failed(row: Forwarding, claim: datetime, error: str, wish: timedelta) -> None:
    at = now()
    rest = max(min(backoff(row.failures + 1), LONGEST_REST), min(wish, LONGEST_WISH))
    since = row.failing_since or at
    if not row.reported_at and (until_report := since + REPORTED_AFTER - at) > timedelta(0):
        rest = min(rest, max(until_report, LONGEST_REST))  # the next try comes in time to report it
    held = Forwarding.objects.filter(pk=row.pk, claimed_until=claim).update(
        failures=F("failures") + 1, failing_since=since, error=_clean(error), rests_until=at + rest
    )
    log.error("audit records not forwarded", destination=row.name, error=error)
    if held and not row.reported_at and at - since >= REPORTED_AFTER:
        _report(row, FAILING, f"Nothing arrives since {since:%Y-%m-%d %H:%M} UTC: {error}")


def _report(row: Forwarding, action: str, message: str) -> None:
    """Record once that a destination fails for long, or takes records again; channels are notified of it."""
    at = now() if action == FAILING else None
    with transaction.atomic():
        changed = Forwarding.objects.filter(pk=row.pk, reported_at__isnull=at is not None).update(reported_at=at)
        if changed:
            audit.record(
                by=None,
                action=action,
                target=f"audit-receiver:{row.name}",
                target_name=row.name,
                message=_clean(message),
            )
    row.reported_at = at


def _clean(text: str) -> str:
    return text.replace("\0", "")[:500]


# ── Receivers ─────────────────────────────────────────────────────────────────────────────────────────────────────────
def _send(destination: Destination, batch: Sequence[Entry], *, is_short: bool) -> tuple[int, str]:
    """Send a batch once. Returns how many of its records the receiver refused for good, and why. Raises Refused."""
    entries = [entry.shortened(SHORT) for entry in batch] if is_short else batch
    try:
        if destination.kind == SYSLOG:
            syslog.send(destination, entries, SECONDS)
            return 0, ""
        if destination.kind == OTLP:
            answer = _post(destination, otlp.body(entries), dict(destination.headers))
            return otlp.rejected(answer.body)
        body, name = _notice(entries), f"audit-{entries[0].seq}-{entries[-1].seq}"
        stamp = int(now().timestamp())
        signature = signing.signature(destination.secret, name, stamp, body)
        _post(destination, body, {"webhook-id": name, "webhook-timestamp": str(stamp), "webhook-signature": signature})
    except (FleetError, EgressRefused) as error:
        raise Refused(f"{error}.") from error
    return 0, ""


def _notice(entries: Iterable[Entry]) -> bytes:
    """The same bytes for the same records, so that a receiver knows a repetition by its id."""
    message = {"type": "audit.records", "data": {"records": [entry.content for entry in entries]}}
    return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def _post(destination: Destination, body: bytes, headers: dict[str, str]) -> Response:
    """Raises Refused, FleetError."""
    door = HttpClient(
        Policy.of(settings.SETPOINT_ALLOW_NETWORKS),
        ca=destination.ca,
        certificate=destination.certificate,
        key=destination.key,
        allows_http=destination.is_here,
        timeout=SECONDS,
    )
    try:
        answer = door.post(
            destination.url,
            body,
            headers={"Content-Type": "application/json"} | headers,
            limit=LONGEST_ANSWER,
            deadline=time.monotonic() + SECONDS,
        )
    finally:
        door.close()
    if 200 <= answer.status < 300:
        return answer
    host = urlsplit(destination.url).hostname
    raise Refused(
        f"{host} answered {answer.status}.",
        wait=_wait(answer.headers.get("retry-after", "")),
        is_too_large=answer.status == 413,
    )


def _wait(text: str) -> timedelta:
    """Return what Retry-After asks for: seconds, or a date; nothing for what is neither."""
    if text.isascii() and text.isdigit():
        return timedelta(seconds=min(int(text[:9]), LONGEST_WISH.total_seconds()))
    try:
        at = parsedate_to_datetime(text)
    except (ValueError, TypeError):
        return timedelta(0)
    return max((at if at.tzinfo else at.replace(tzinfo=UTC)) - now(), timedelta(0))
