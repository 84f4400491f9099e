"""Second factors of local accounts: their keys, and codes that count once each.

A time step at or before the last accepted one is refused, and a recovery code is deleted with its use. A row that was
changed in the database accepts no code: the account cannot log in without a reset.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Iterator

from django.db import transaction
from django.db.models import F

from accounts.access import totp
from accounts.models import Identity, RecoveryCode, SecondFactor, User
from common import hooks
from common.clock import now
from common.errors import NotAllowed

MOST_WRONG_CODES = 50
"""In a row, from all addresses together: a thief of the password may not guess on from many machines, and NIST SP
800-63B allows 100. Recovery codes still work then."""
RECOVERY_CODES = 10
APP, RECOVERY = "app", "recovery code"
"""What proved a second factor, as the audit record has it."""
WRONG_CODE = "Wrong code, or one that was used. An app shows another one every 30 seconds."
_DIGITS = re.compile(rf"[0-9]{{{totp.DIGITS}}}")
_ALPHABET = "abcdefghijkmnpqrstuvwxyz23456789"
"""32 characters without those that are mistaken for others: a code of 16 has 80 bits, so a fast hash is enough."""
_CODE_CHARACTERS = 16
_CHANGED = "This second factor was changed in the database and accepts no code. Ask an administrator to reset it."
_CLOSED = (
    f"{MOST_WRONG_CODES} wrong codes were entered in a row, so codes of the app are refused. Use a recovery code, or "
    "ask an administrator to reset the second factor."
)


class FactorUnusable(NotAllowed):
    """No code is accepted, right or wrong. The message has the reason and what to do."""

    code = "second-factor-unusable"


def of(user: User) -> SecondFactor | None:
    """Return the factor that this user must use. One that was changed in the database is among them."""
    row = SecondFactor.objects.filter(user=user).first()
    return row if row and row.is_in_effect else None


def reason_without(user: User) -> str:
    """Return the reason why this account can have no second factor here; empty when it can."""
    if user.is_service:
        return "A service account does not log in."
    if Identity.objects.filter(user=user).exists():
        return "This account logs in by single sign-on: a second factor is its provider's."
    return "" if user.has_usable_password() else "This account has no password."


def require_genuine(row: SecondFactor) -> None:
    """Raises FactorUnusable for a row that was changed in the database."""
    if not row.is_genuine:
        raise FactorUnusable(_CHANGED)


# ── Codes ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
def spend(row: SecondFactor, code: str) -> str:
    """Use up a code of the app, or a recovery code; of two requests at once one succeeds. Commits what it counts, so
    hold no transaction.

    Returns how it was proved, APP or RECOVERY; empty for a wrong code. Raises FactorUnusable.
    """
    require_genuine(row)
    given = normalized(code)
    if _DIGITS.fullmatch(given):
        return APP if _spend_of_app(row, given) else ""
    return RECOVERY if _spend_recovery_code(row, given) else ""


def _spend_of_app(row: SecondFactor, code: str) -> bool:
    rows, key = SecondFactor.objects.filter(pk=row.pk), key_of(row)
    # Counted before the code is looked at: of a thousand guesses at once no more than these are compared.
    if not rows.filter(wrong_codes__lt=MOST_WRONG_CODES).update(wrong_codes=F("wrong_codes") + 1):
        raise FactorUnusable(_CLOSED)
    step = totp.step_of(key, code, now())
    if step is None:
        return False
    with transaction.atomic():
        present = rows.select_for_update().first()
        if present is None or not present.is_genuine or step <= present.last_step:
            return False
        present.put_marked(last_step=step)
        rows.update(wrong_codes=0)
    return True


def _spend_recovery_code(row: SecondFactor, code: str) -> bool:
    fitting = RecoveryCode.objects.filter(factor=row, code_hash=_hash_of(code)).first()
    if fitting is None or not fitting.is_genuine:
        return False
    with transaction.atomic():
        is_first = bool(RecoveryCode.objects.filter(pk=fitting.pk).delete()[0])
        if is_first:
            SecondFactor.objects.filter(pk=row.pk).update(wrong_codes=0)
    return is_first


def new_recovery_codes(row: SecondFactor) -> list[str]:
    """Replace all recovery codes, in the caller's transaction. Their text exists only in this answer."""
    RecoveryCode.objects.filter(factor=row).delete()
    codes = ["".join(secrets.choice(_ALPHABET) for _ in range(_CODE_CHARACTERS)) for _ in range(RECOVERY_CODES)]
    RecoveryCode.objects.bulk_create(RecoveryCode(factor=row, code_hash=_hash_of(code)) for code in codes)
    return ["-".join(code[start : start + 4] for start in range(0, _CODE_CHARACTERS, 4)) for code in codes]


def normalized(code: str) -> str:
    """Return a code as it is compared: people type spaces, dashes and capitals."""
    return re.sub(r"[\s-]", "", code).lower()


def _hash_of(code: str) -> str:
    return hashlib.sha256(b"setpoint recovery code\0" + code.encode()).hexdigest()


# ── Keys ──────────────────────────────────────────────────────────────────────────────────────────────────────────────
def seal_key(row: SecondFactor, key: str) -> None:
    """Set the row's key; saving is the caller's. Raises FactorUnusable."""
    try:
        row.secret, row.secret_key = hooks.sealing()[0].seal(row.pk, SecondFactor.SEALED_AS, key)
    except hooks.NotSealed as error:
        raise FactorUnusable(f"This installation cannot store a second factor: {error}.") from error


def key_of(row: SecondFactor) -> str:
    """Raises FactorUnusable."""
    try:
        return hooks.sealing()[0].unseal(row.pk, SecondFactor.SEALED_AS, bytes(row.secret), row.secret_key)
    except hooks.NotSealed as error:  # the log has the reason; a person who is not logged in yet is not told
        message = "Setpoint cannot read this second factor now. Use a recovery code, and tell the operator: "
        raise FactorUnusable(f"{message}manage.py doctor names the reason.") from error


def stored_secrets() -> Iterator[hooks.StoredSecret]:
    for row in SecondFactor.objects.select_related("user").order_by("user__email"):
        yield hooks.StoredSecret(
            row=row,
            place=row.pk,
            field=SecondFactor.SEALED_AS,
            columns=("secret", "secret_key"),
            title=f"the second factor of {row.user.email}",
            action="second-factor.reseal",
            target=f"user:{row.user_id}",
            target_name=row.user.email,
        )
