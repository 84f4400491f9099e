"""The stored passkeys of an account, and the counter of each.

A row that was changed in the database is still asked for at a log-in, and accepts nothing: taking the second factor
away takes more than a changed row.
"""

from __future__ import annotations

import secrets

from django.db import transaction
from fido2.utils import websafe_encode

from accounts.models import Passkey, User
from accounts.passkeys.ceremonies import NotProved
from common.clock import now

MOST = 20
"""Passkeys of one account."""
_HANDLE_BYTES = 32


def of(user: User) -> list[Passkey]:
    """Return all rows, those that were changed in the database among them, oldest first."""
    return list(Passkey.objects.filter(user=user))


def has_any(user: User) -> bool:
    return Passkey.objects.filter(user=user).exists()


def handle_for(user: User) -> str:
    """Return what authenticators know this person as: random, so that it names no one; the same for all passkeys."""
    genuine = next((row for row in of(user) if row.is_genuine), None)
    return genuine.user_handle if genuine else websafe_encode(secrets.token_bytes(_HANDLE_BYTES))


def by_credential(credential: str) -> Passkey | None:
    return Passkey.objects.select_related("user").filter(credential=credential).first()


@transaction.atomic
def count_use(row: Passkey, sign_count: int) -> None:
    """Note a verified use. Raises NotProved where the counter did not grow.

    Such an answer is of a copy of the key, or of the original after the copy was used; the standard leaves open which,
    and what to do. It is refused, and the stored counter stays: the true owner is asked for another way in, and the
    record tells of it.
    """
    present = Passkey.objects.select_for_update().filter(pk=row.pk).first()
    if present is None or not present.is_genuine:
        raise NotProved("the passkey was removed, or changed in the database")
    if (sign_count or present.sign_count) and sign_count <= present.sign_count:
        raise NotProved(f"its counter says {sign_count} after {present.sign_count}: there may be a copy of the key")
    if sign_count != present.sign_count:
        present.put_marked(sign_count=sign_count)
    Passkey.objects.filter(pk=row.pk).update(last_used_at=now())
