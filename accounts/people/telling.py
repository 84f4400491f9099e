"""Mail to every administrator about changes that wait for consent. Pages and the audit record tell of them as well."""

from __future__ import annotations

import smtplib

import structlog
from django.conf import settings
from django.core.mail import send_mail
from django.urls import reverse

from accounts.models import PendingChange, RoleBinding, User
from accounts.people import invitations
from common.clock import now

log = structlog.get_logger(__name__)


def send() -> int:
    """Notify about each change once, and return how many. Waits on the network: hold no transaction."""
    if not invitations.is_mail_set_up():
        return 0
    count, page = 0, f"{str(settings.BASE_URL).rstrip('/')}{reverse('accounts:people')}"
    rows = PendingChange.objects.filter(status=PendingChange.Status.WAITING, told_at=None, expires_at__gt=now())
    for row in rows.select_related("proposed_by")[:20]:
        if not PendingChange.objects.filter(pk=row.pk, told_at=None).update(told_at=now()):
            continue  # another worker does it
        text = (
            f"{row.proposed_by} proposes: {row.about}\n\nIt takes effect only when another administrator consents, "
            f"until {row.expires_at:%Y-%m-%d %H:%M} UTC:\n{page}\n\n"
            "If this is not intended, refuse it there and end that person's sessions and tokens.\n"
        )
        for address in _administrators(row.scope):
            try:
                send_mail("[Setpoint] A change waits for consent", text, None, [address])
            except (OSError, smtplib.SMTPException) as error:
                log.warning("administrator not told", change=str(row.pk), error=str(error))
        count += 1
    return count


def _administrators(scope: str) -> list[str]:
    people = User.objects.filter(is_active=True, is_service=False)
    bound = people.filter(bindings__role=RoleBinding.Role.ADMIN, bindings__scope__in={"*", scope})
    return sorted((bound | people.filter(is_superuser=True)).distinct().values_list("email", flat=True))
