"""Channels as an administrator keeps them: added, changed, tried, deleted. No secret is read back."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import IntegrityError, transaction

from accounts.models import User
from accounts.permissions import GLOBAL, Role, require
from audit import services as audit
from clusters.connection import remotes
from clusters.models import Cluster
from clusters.net import certificates, signing
from common import addresses, hooks
from common.clock import now
from common.errors import Invalid, WrongState
from notices.channels import bodies, deliveries, held_notices, incidents, quiet_hours
from notices.channels.posting import Undelivered
from notices.models import SEVERITIES, Channel, Delivery

FIELDS = (
    "name", "kind", "is_enabled", "what", "least_severity", "environment", "cluster", "namespaces", "url", "ca",
    "addresses", "digest_hour", "quiet_days", "quiet_from", "quiet_until", "quiet_zone",
)  # fmt: skip
SHORTEST_SECRET, LONGEST_SECRET = 16, 4096
LONGEST_URL = 1000
"""As the column: paths of webhooks carry tokens."""
MOST_ADDRESSES, MOST_NAMESPACES = 50, 200
TEST = "test"
WITH_SECRET = (Channel.Kind.WEBHOOK, Channel.Kind.PAGERDUTY)
"""Kinds that keep a secret: of Slack and Teams it is in the address."""
_NAMESPACE = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


def may_change(user: User) -> None:
    """Require an administrator, also for reading: an address often is a secret of its own."""
    require(user, Role.ADMIN, GLOBAL, "see and set up channels of notices")


# ── Writing ───────────────────────────────────────────────────────────────────────────────────────────────────────────
def create(*, by: User, secret: str | None = None, **fields: Any) -> Channel:
    """Raises NotAllowed, Invalid."""
    may_change(by)
    row = filled(Channel(), secret=secret, **fields)
    row.changed_by = str(by)[:150]
    try:
        with transaction.atomic():
            row.save(force_insert=True)
            _record("create", row, by, before=None, after=record_fields(row))
    except IntegrityError as error:
        raise _taken() from error
    return row


def update(row: Channel, *, by: User, version: int, secret: str | None = None, **changes: Any) -> Channel:
    """`secret` None: the stored one stays. What rests after failures is tried again at once. Raises NotAllowed,
    Invalid, Stale."""
    may_change(by)
    before = record_fields(row)
    changed = filled(Channel.objects.get(pk=row.pk), secret=secret, **changes)
    try:
        with transaction.atomic():
            remotes.write(changed, FIELDS, by=by, version=version, title=f"the channel {row.name}", rests_until=None)
            held_notices.reschedule(changed)
            after = record_fields(changed) | remotes.new_secret(changed, secret)
            _record("update", changed, by, before=before, after=after)
    except IntegrityError as error:
        raise _taken() from error
    row.refresh_from_db()
    return row


def delete(row: Channel, *, by: User, version: int) -> None:
    """Delete a channel with its waiting deliveries. Raises NotAllowed, Stale."""
    may_change(by)
    with transaction.atomic():
        remotes.delete(row, version=version, title=f"the channel {row.name}")
        _record("delete", row, by, before=record_fields(row), after=None)


def _taken() -> Invalid:
    return Invalid("There is such a channel already.", fields={"name": ["Another channel has it already."]})


def record_fields(row: Channel) -> dict[str, Any]:
    """Return the channel's fields for records, a URL by its host only: its path may be all that keeps others out."""
    out = remotes.recorded_fields(row, (name for name in FIELDS if name not in ("url", "cluster")))
    return out | {"host": urlsplit(row.url).netloc, "cluster": str(row.cluster_id) if row.cluster_id else None}


def _record(
    verb: str, row: Channel, by: User, *, before: Mapping[str, Any] | None, after: Mapping[str, Any] | None
) -> None:
    audit.record(
        by=by,
        action=f"notice-channel.{verb}",
        target=f"notice-channel:{row.pk}",
        target_name=row.name,
        before=before,
        after=after,
    )


def stored_secrets() -> Iterator[hooks.StoredSecret]:
    for row in Channel.objects.order_by("name"):
        title, target = f"the channel {row.name}", f"notice-channel:{row.pk}"
        yield remotes.stored_secret(
            row, title=title, action="notice-channel.reseal", target=target, target_name=row.name
        )


# ── Judging what was given ────────────────────────────────────────────────────────────────────────────────────────────
def filled(row: Channel, *, secret: str | None = None, **fields: Any) -> Channel:
    """The row with these fields, judged and not saved: for saving, and for trying it first. Raises Invalid."""
    was, was_kind = row.url, row.kind
    for name, value in fields.items():
        setattr(row, name, value.strip() if isinstance(value, str) else value)
    row.what = sorted({str(value) for value in row.what})
    row.namespaces = sorted({str(value).strip() for value in row.namespaces} - {""})
    row.quiet_days = [day for day in quiet_hours.DAYS if day in row.quiet_days] + [
        str(day) for day in row.quiet_days if day not in quiet_hours.DAYS
    ]
    row.addresses = list(dict.fromkeys(str(value).strip() for value in row.addresses if str(value).strip()))
    if row.kind == Channel.Kind.PAGERDUTY:
        row.url = row.url or incidents.URL
    moved = _moved(row, was, was_kind, secret)
    remotes.refuse("The channel cannot be set up so", [*_objections(row, secret), ("secret", moved)])
    if row.kind == Channel.Kind.MAIL:
        row.url = row.ca = ""
    else:
        row.addresses = []
    if row.kind not in WITH_SECRET:
        secret = ""
    remotes.seal(row, secret)
    return row


def _moved(row: Channel, was: str, was_kind: str, secret: str | None) -> str:
    """Return the objection to a stored secret that would be used elsewhere or otherwise than it was given for."""
    if row.kind not in WITH_SECRET or secret is not None or not row.has_secret:
        return ""
    if row.kind != was_kind:
        return "Give it again: the stored one was given for another kind of channel."
    is_moved = remotes.is_carried_off(row, was, secret)
    return "Give it again: the stored one was given for another host." if is_moved else ""


def _objections(row: Channel, secret: str | None) -> list[tuple[str, str]]:
    name = " ".join(row.name.split())
    row.name = name
    objections = [
        ("name", "" if 1 <= len(name) <= 80 and name.isprintable() else "Give it a name of at most 80 characters."),
        ("kind", "" if row.kind in Channel.Kind.values else f"Must be one of {', '.join(Channel.Kind.values)}."),
        ("what", "" if row.what else "Choose at least one kind of notice."),
        *(("what", "" if kind in Channel.What.values else f"There is no {kind[:40]!r}.") for kind in row.what),
        ("least_severity", "" if row.least_severity in dict(SEVERITIES) else "Must be warning or critical."),
        ("environment", _bad_environment(row)),
        ("namespaces", f"At most {MOST_NAMESPACES}." if len(row.namespaces) > MOST_NAMESPACES else ""),
        *(("namespaces", _bad_namespace(namespace)) for namespace in row.namespaces),
        ("digest_hour", "" if 0 <= int(row.digest_hour) <= 23 else "An hour of the day, 0 to 23, UTC."),
        ("ca", certificates.objection_to_ca(row.ca, now())),
        *quiet_hours.objections(row),
    ]
    if row.kind == Channel.Kind.MAIL:
        return objections + _of_mail(row)
    objections.append(("url", bad_url(row.url)))
    if row.kind == Channel.Kind.WEBHOOK:
        objections += _of_webhook(row, secret)
    elif row.kind == Channel.Kind.PAGERDUTY:
        objections += _of_pagerduty(row, secret)
    return objections


def _bad_environment(row: Channel) -> str:
    if row.environment and row.environment not in Cluster.Environment.values:
        return f"Must be one of {', '.join(Cluster.Environment.values)}, or empty."
    if row.environment and row.cluster is not None and row.cluster.environment != row.environment:
        return f"{row.cluster} is {row.cluster.environment}: nothing would ever be sent."
    return ""


def _bad_namespace(text: str) -> str:
    return "" if _NAMESPACE.fullmatch(text) else f"{text[:80]!r} is not the name of a namespace."


def _of_mail(row: Channel) -> list[tuple[str, str]]:
    objections = [
        ("addresses", "" if row.addresses else "At least one address."),
        ("addresses", f"At most {MOST_ADDRESSES}." if len(row.addresses) > MOST_ADDRESSES else ""),
    ]
    for address in row.addresses:
        try:
            validate_email(address)
        except ValidationError:
            objections.append(("addresses", f"{address[:80]!r} is not a mail address."))
    return objections


def _of_pagerduty(row: Channel, secret: str | None) -> list[tuple[str, str]]:
    key = f"The integration key of a service's Events API v2: {incidents.KEY_LENGTH} letters and digits."
    is_key = secret is None or (len(secret) == incidents.KEY_LENGTH and secret.isascii() and secret.isalnum())
    others = [kind for kind in row.what if kind != Channel.What.ALERTS]
    return [
        ("secret", "" if is_key and (secret or row.has_secret) else key),
        ("what", "Alerts alone become incidents, for only they end by themselves." if others else ""),
    ]


def _of_webhook(row: Channel, secret: str | None) -> list[tuple[str, str]]:
    has = bool(secret) if secret is not None else bool(row.secret)
    objections = [("secret", "" if has else "Is needed: deliveries are signed with it.")]
    if secret and not (SHORTEST_SECRET <= len(secret) <= LONGEST_SECRET and secret.isprintable()):
        objections.append(
            ("secret", f"From {SHORTEST_SECRET} to {LONGEST_SECRET:,} characters, none of them invisible.")
        )
    elif secret and secret.startswith(signing.KEY_PREFIX) and not signing.is_key(secret):
        objections.append(("secret", "After whsec_ comes base64 of 24 to 64 bytes, as Standard Webhooks has it."))
    return objections


def bad_url(text: str) -> str:
    advice = "Write https://host/path of the receiver."
    parts = addresses.parted(text, longest=LONGEST_URL)
    if parts is None or parts.scheme not in ("https", "http"):
        return advice
    if parts.scheme == "http" and not _is_this_machine(parts.hostname or ""):
        return f"{advice} Over http a notice can be read and changed on its way, which its signature cannot hide."
    if addresses.names_a_person(parts):
        return "Without user name and password: they would appear in logs. Deliveries are signed instead."
    return "Without a fragment." if parts.fragment else ""


def _is_this_machine(host: str) -> bool:
    """Return whether the host is a loopback address in figures: what is sent there leaves no machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


# ── Trying, and trying again ──────────────────────────────────────────────────────────────────────────────────────────
def probe(row: Channel, *, by: User) -> str:
    """Sends one notice through it now, saved or not, and stores nothing. Returns what went wrong, or nothing.

    Waits on the network: hold no transaction. Raises NotAllowed.
    """
    may_change(by)
    body = {"event": TEST, "title": f"A test of {row.name}", "by": str(by), "at": now().isoformat()}
    body |= {"message": "Setpoint can reach you.", "link": bodies.absolute("/alerts/channels/")}
    try:
        deliveries.transmit(row, Delivery(channel=row, event=TEST, title=str(body["title"]), body=body))
    except Undelivered as error:
        return str(error)
    return ""


def retry(delivery: Delivery, *, by: User) -> None:
    """Once more, from the beginning. Raises NotAllowed, WrongState."""
    may_change(by)
    if delivery.status == Delivery.Status.SENT:
        raise WrongState("Not possible: it was sent.")
    at = now()
    with transaction.atomic():
        held_notices.release_now(delivery)
        rows = Delivery.objects.filter(pk=delivery.pk).exclude(status=Delivery.Status.SENT)
        if rows.filter(status=Delivery.Status.OVER).exists():
            raise WrongState("Not possible: none of its alerts is still to be told of.")
        if not rows.update(status=Delivery.Status.WAITING, due_at=at, created_at=at, tries=0):
            raise WrongState("Not possible: it was sent.")
        Channel.objects.filter(pk=delivery.channel_id).update(rests_until=None)
        audit.record(
            by=by,
            action="notice-delivery.retry",
            target=f"notice-delivery:{delivery.pk}",
            target_name=delivery.title,
        )
    delivery.refresh_from_db()
