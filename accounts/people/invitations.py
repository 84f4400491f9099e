"""Links with which people set their own password: single-use, expiring, and never a way for one administrator alone.

Where mail is set up a link goes to its owner's address and to no one else. Where it is not, it is shown once to the
administrator. For an account that may approve or administer it then has two halves: the link, which the consenting
administrator is shown, and a code, which the proposing one was shown. Neither of them can use it without the other.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import smtplib
from dataclasses import dataclass
from datetime import timedelta

from django.conf import settings
from django.core.mail import send_mail
from django.db import transaction
from django.http import HttpRequest
from django.urls import reverse

from accounts.access import login, sessions
from accounts.access.addresses import client_address
from accounts.models import Invitation, User
from accounts.people.passwords import check_password
from audit.services import record
from common.clock import now
from common.errors import Invalid, Refusal

LASTS = timedelta(hours=72)
_ACCOUNT = "link"
"""Under which wrong links and codes are counted; no email address can be this."""
_FORM = re.compile(r"[A-Za-z0-9_-]{32,64}")


class LinkOver(Refusal):
    """Used, expired, replaced by a newer one, or never made: the message does not tell which."""

    status = 410
    code = "link-over"

    def __init__(self) -> None:
        super().__init__("This link was used, has expired or was replaced. Ask an administrator for another.")


@dataclass(frozen=True, slots=True)
class Link:
    """A link that was just made; its text exists only here."""

    user: User
    text: str
    is_mailed: bool
    needs_code: bool
    invitation: Invitation

    @property
    def shown(self) -> str:
        """The link as shown to the administrator; empty where it is mailed to its owner."""
        return "" if self.is_mailed else self.text


def is_mail_set_up() -> bool:
    return bool(settings.EMAIL_HOST)


def lock_out(user: User) -> None:
    """No password, session or token works any more. In the caller's transaction."""
    user.set_unusable_password()
    user.is_vouched = False  # it was about the password that just ended
    User.objects.get(pk=user.pk).put_marked(password=user.password, is_vouched=False)
    Invitation.objects.filter(user=user).delete()
    sessions.end_all(user)
    user.tokens.filter(revoked_at=None).update(revoked_at=now())


def make(user: User, *, code_hash: str = "") -> Link:
    """A new link, which replaces the one before. In the caller's transaction; `deliver` it after the commit."""
    secret = secrets.token_urlsafe(32)
    is_mailed = is_mail_set_up()
    Invitation.objects.filter(user=user).delete()
    row = Invitation.objects.create(
        user=user,
        token_hash=hash_of(secret),
        code_hash="" if is_mailed else code_hash,
        is_mailed=is_mailed,
        expires_at=now() + LASTS,
    )
    text = f"{str(settings.BASE_URL).rstrip('/')}{reverse('accounts:link', args=[secret])}"
    return Link(user, text, is_mailed, bool(row.code_hash), row)


def deliver(link: Link) -> str:
    """Mail it to its owner. Waits on the network: hold no transaction. Why it could not be sent; empty: it was."""
    if not link.is_mailed:
        return ""
    body = (
        f"An administrator asks you to set the password of {link.user.email} in Setpoint.\n\n{link.text}\n\n"
        f"The link works once, until {link.invitation.expires_at:%Y-%m-%d %H:%M} UTC. "
        "If you did not expect this, tell your administrators.\n"
    )
    try:
        send_mail("[Setpoint] Set your password", body, None, [link.user.email])
    except (OSError, smtplib.SMTPException) as error:
        return f"The mail server did not take it: {error}. Reset the password again to send another link."
    return ""


def new_code() -> tuple[str, str]:
    """The proposer's half and its hash."""
    code = "-".join(secrets.token_hex(2) for _ in range(5))
    return code, hash_of(code)


def find(request: HttpRequest, secret: str) -> Invitation:
    """Raises LinkOver, TooManyTries: five a minute from one address, counted before it is looked at."""
    address = client_address(request)
    login.count_try(_ACCOUNT, address)
    row = Invitation.objects.select_related("user").filter(token_hash=hash_of(secret)).first()
    if not _FORM.fullmatch(secret) or row is None or not row.is_genuine or row.expires_at <= now():
        raise LinkOver
    if not row.user.is_active:
        raise LinkOver
    login.forgive(_ACCOUNT, address)
    return row


def use(request: HttpRequest, *, secret: str, password: str, code: str) -> User:
    """Set the owner's password. Of two at once one wins. Raises LinkOver, TooManyTries, Invalid."""
    invitation = find(request, secret)
    with transaction.atomic():
        return _use(request, invitation, password, code)


def _use(request: HttpRequest, invitation: Invitation, password: str, code: str) -> User:
    row = Invitation.objects.select_for_update().select_related("user").filter(pk=invitation.pk).first()
    if row is None or not row.is_genuine:
        raise LinkOver
    user = row.user
    if row.code_hash:
        _check_code(row, code)
    if fields := check_password(password, user):
        raise Invalid("The password was not set.", fields=fields)
    user.set_password(password)
    user.is_vouched = row.is_mailed or bool(row.code_hash)  # of this password, not of the one before
    user.save(update_fields=["password", "is_vouched"])
    row.delete()
    sessions.end_all(user)
    address = client_address(request)
    record(by=user, action="user.use-link", target=f"user:{user.pk}", target_name=user.email, message=address)
    return user


def _check_code(row: Invitation, code: str) -> None:
    given = "".join(code.split()).lower()
    if not hmac.compare_digest(hash_of(given), row.code_hash):
        wrong = "This code does not belong to this link. The administrator who proposed it has the code."
        raise Invalid("The password was not set.", fields={"code": [wrong]})


def hash_of(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
