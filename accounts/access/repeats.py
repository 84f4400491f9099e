"""Idempotency-Key: a creating request sent twice creates once, and both get the same answer.

The key is claimed by inserting its row, so of two at once the database lets one in; the other is told to wait. The
answer is stored after the work's own transaction: a process killed between the two leaves a key that is free again
after `HOLD`, and the objects' own unique names decide then. Refused requests free their key at once.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from django.db import IntegrityError, transaction
from django.db.models import Q, QuerySet

from accounts.models import RepeatableRequest, User
from common.clock import now
from common.idempotency import KeyInUse, KeyReused, StoredAnswer

KEPT = timedelta(hours=24)
HOLD = timedelta(minutes=2)
"""Longer than any request may take (gunicorn's and waitress's limits are below it)."""


@dataclass(frozen=True, slots=True)
class RowClaim:
    pk: int
    claim: str

    def finish(self, *, status: int, headers: Mapping[str, str], body: str) -> None:
        self._mine().update(status=status, headers=dict(headers), body=body)

    def forget(self) -> None:
        self._mine().delete()

    def _mine(self) -> QuerySet[RepeatableRequest]:
        return RepeatableRequest.objects.filter(pk=self.pk, claim=self.claim)


def claim(*, user: User, key: str, fingerprint: str) -> RowClaim:
    """The right to do the work. Raises Answer (it was done), KeyInUse (it is being done), KeyReused (other work)."""
    mine = secrets.token_hex(16)
    at = now()
    fresh = {"fingerprint": fingerprint, "claim": mine, "claimed_until": at + HOLD, "created_at": at}
    try:
        with transaction.atomic():
            return RowClaim(RepeatableRequest.objects.create(user=user, key=key, **fresh).pk, mine)
    except IntegrityError:
        pass
    over = Q(created_at__lt=at - KEPT) | Q(status=None, claimed_until__lt=at)
    old = RepeatableRequest.objects.filter(over, user=user, key=key)
    if old.update(**fresh, status=None, headers={}, body=""):
        return RowClaim(RepeatableRequest.objects.get(user=user, key=key).pk, mine)
    row = RepeatableRequest.objects.filter(user=user, key=key).first()
    if row is None:  # it was refused and freed this moment
        return claim(user=user, key=key, fingerprint=fingerprint)
    if row.fingerprint != fingerprint:
        raise KeyReused("This Idempotency-Key was used for another request. Use a new key for each.")
    if row.status is None:
        raise KeyInUse("A request with this Idempotency-Key is being worked on. Ask again in a second.")
    raise StoredAnswer(status=row.status, headers=row.headers, body=row.body)


def forget_old() -> int:
    """Rows deleted."""
    return RepeatableRequest.objects.filter(created_at__lt=now() - KEPT).delete()[0]
